"""Composites and extern ops with drawn arguments: the definition evaluated in float64 and the
kernels agree with torch.

tests/ops/test_pointwise.py and test_reductions.py test the op table and reductions,
tests/test_fuzz.py random graphs of all ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from fuser import FusionDefinition, evaluate, testing

Tensor = torch.Tensor
Draw = st.DataObject
# Result of a draw: the op in fd.ops, its counterpart in torch, and the input tensors.
Drawn = tuple[Callable[..., Any], Callable[..., Any], list[Tensor]]
SIZES = st.sampled_from([0, 1, 2, 3, 5, 8])


def shape(data: Draw, least: int = 0, most: int = 4, sizes: Any = SIZES) -> list[int]:
    return data.draw(st.lists(sizes, min_size=least, max_size=most), "shape")


def values(data: Draw, sizes: list[int]) -> Tensor:
    """Normal numbers with any order of dims."""
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**20), "seed"))
    order = data.draw(st.permutations(range(len(sizes))), "order")
    dense = torch.randn([sizes[d] for d in order], generator=generator)
    return dense.permute([order.index(d) for d in range(len(sizes))])


def dim(data: Draw, rank: int) -> int:
    return data.draw(st.integers(-rank, rank - 1), "dim")


def unary(name: str, torchs: Callable[..., Any], *numbers: Any) -> Callable[[Draw], Drawn]:
    """Ops on one tensor, with one number per strategy."""

    def draw(data: Draw) -> Drawn:
        drawn = [data.draw(n, "number") for n in numbers]
        x = values(data, shape(data))
        return (lambda o, x: getattr(o, name)(x, *drawn), lambda x: torchs(x, *drawn), [x])

    return draw


def several(
    name: str, torchs: Callable[..., Any], count: int, *numbers: Any
) -> Callable[[Draw], Drawn]:
    """Ops on tensors that broadcast."""

    def draw(data: Draw) -> Drawn:
        drawn = [data.draw(n, "number") for n in numbers]
        whole = shape(data, most=3)
        kept = [data.draw(st.lists(st.booleans(), min_size=3, max_size=3)) for _ in range(count)]
        inputs = [
            values(data, [n if keep else 1 for n, keep in zip(whole, flags, strict=False)])
            for flags in kept
        ]
        return (
            lambda o, *given: getattr(o, name)(*given, *drawn),
            lambda *given: torchs(*given, *drawn),
            inputs,
        )

    return draw


def along(name: str, torchs: Callable[..., Any], least: int = 0) -> Callable[[Draw], Drawn]:
    """Ops along a dim."""

    def draw(data: Draw) -> Drawn:
        at_least = st.sampled_from([n for n in (0, 1, 2, 3, 5, 8) if n >= least])
        x = values(data, shape(data, least=1, sizes=at_least))
        d = dim(data, x.dim())
        return (lambda o, x: getattr(o, name)(x, d), lambda x: torchs(x, d), [x])

    return draw


def stacked(data: Draw) -> Drawn:
    sizes = shape(data, most=3)
    inputs = [values(data, sizes) for _ in range(data.draw(st.integers(1, 4)))]
    d = data.draw(st.integers(-len(sizes) - 1, len(sizes)), "dim")
    return (lambda o, *t: o.stack(list(t), d), lambda *t: torch.stack(t, d), inputs)


def triangle(name: str) -> Callable[[Draw], Drawn]:
    def draw(data: Draw) -> Drawn:
        x, k = values(data, shape(data, least=2)), data.draw(st.integers(-9, 9), "diagonal")
        return (lambda o, x: getattr(o, name)(x, k), lambda x: getattr(x, name)(k), [x])

    return draw


def rolled(data: Draw) -> Drawn:
    x = values(data, shape(data, least=1))
    dims = data.draw(st.lists(st.integers(0, x.dim() - 1), min_size=1, max_size=3), "dims")
    shifts = data.draw(
        st.lists(st.integers(-20, 20), min_size=len(dims), max_size=len(dims)), "shifts"
    )
    return (lambda o, x: o.roll(x, shifts, dims), lambda x: x.roll(shifts, dims), [x])


def indexed(data: Draw) -> tuple[Tensor, Tensor, int]:
    """A tensor, a nonempty dim, and indices of any shape into it."""
    x = values(data, shape(data, least=1, most=3, sizes=st.sampled_from([1, 2, 5])))
    d = dim(data, x.dim())
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**20), "seed"))
    sizes = [data.draw(st.integers(0, n), "size") for n in x.shape]
    sizes[d] = data.draw(SIZES, "size")
    return x, torch.randint(0, x.size(d), sizes, generator=generator), d


def gathered(data: Draw) -> Drawn:
    x, index, d = indexed(data)
    return (lambda o, x, i: o.gather(x, i, d), lambda x, i: x.gather(d, i), [x, index])


def index_selected(data: Draw) -> Drawn:
    x, index, d = indexed(data)
    index = index.flatten()[:3].contiguous()
    return (lambda o, x, i: o.index_select(x, i, d), lambda x, i: x.index_select(d, i), [x, index])


def embedded(data: Draw) -> Drawn:
    _, index, _ = indexed(data)
    table = values(data, [5, data.draw(SIZES)])
    return (
        lambda o, i, w: o.embedding_fwd(i, w),
        lambda i, w: F.embedding(i, w),
        [index.remainder(5), table],
    )


def scattered(data: Draw) -> Drawn:
    x = values(data, shape(data, least=1, most=3, sizes=st.sampled_from([1, 2, 5])))
    d = dim(data, x.dim())
    # Indices are unique, because the winner of two writes is undefined.
    index = torch.rand(x.shape).argsort(d)
    return (
        lambda o, x, i, s: o.scatter(x, i, s, d),
        lambda x, i, s: x.scatter(d, i, s),
        [x, index, values(data, list(x.shape))],
    )


def multiplied(data: Draw) -> Drawn:
    m, n, k = (data.draw(SIZES) for _ in range(3))
    batch = shape(data, most=2)
    left = values(data, [*batch, m, k])
    right = values(data, [*batch, k, n])
    return (lambda o, x, y: o.matmul(x, y), lambda x, y: x @ y, [left, right])


def projected(data: Draw) -> Drawn:
    m, n, k = (data.draw(SIZES) for _ in range(3))
    inputs = [values(data, [*shape(data, most=2), m, k]), values(data, [n, k]), values(data, [n])]
    return (lambda o, *t: o.linear(*t), lambda *t: F.linear(*t), inputs)


def normalized(name: str) -> Callable[[Draw], Drawn]:
    def draw(data: Draw) -> Drawn:
        x = values(data, shape(data, least=1, sizes=st.sampled_from([1, 2, 5])))
        inner = list(x.shape[data.draw(st.integers(0, x.dim() - 1), "outer dims") :])
        weight = values(data, inner)
        return (
            lambda o, x, w: getattr(o, name)(x, inner, w, eps=0.1)[0],
            lambda x, w: getattr(F, name)(x, inner, w, eps=0.1),
            [x, weight],
        )

    return draw


def grouped(data: Draw) -> Drawn:
    groups = data.draw(st.sampled_from([1, 2, 3]), "groups")
    rest = shape(data, most=2, sizes=st.sampled_from([1, 2, 5]))
    x = values(data, [data.draw(st.integers(1, 3)), 6, *rest])
    return (
        lambda o, x: o.group_norm(x, groups, None, None, 0.1)[0],
        lambda x: torch.group_norm(x, groups, eps=0.1),
        [x],
    )


def lost(data: Draw) -> Drawn:
    rows, classes = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 8))
    target = torch.randint(0, classes, (rows,))
    reduction = data.draw(st.sampled_from(["none", "mean", "sum"]), "reduction")
    return (
        lambda o, x, t: o.cross_entropy(x, t, reduction=reduction),
        lambda x, t: F.cross_entropy(x, t, reduction=reduction),
        [values(data, [rows, classes]), target],
    )


def placed(data: Draw) -> Drawn:
    x = values(data, shape(data, most=3))
    wanted = [data.draw(SIZES) if n == 1 else n for n in x.shape]
    more = shape(data, most=2)
    dims = list(range(len(more), len(more) + x.dim()))
    return (
        lambda o, x: o.broadcast_in_dim(x, [*more, *wanted], dims),
        lambda x: x.expand([*more, *wanted]),
        [x],
    )


def selected(data: Draw) -> Drawn:
    x = values(data, shape(data, least=1, sizes=st.sampled_from([1, 2, 5])))
    d = dim(data, x.dim())
    at = data.draw(st.integers(-x.size(d), x.size(d) - 1), "index")
    return (lambda o, x: o.select(x, at, d), lambda x: x.select(d, at), [x])


def chunked(data: Draw) -> Drawn:
    x = values(data, shape(data, least=1, sizes=st.sampled_from([1, 2, 5, 8])))
    d, count = dim(data, x.dim()), data.draw(st.integers(1, 6), "chunks")
    return (
        lambda o, x: o.chunk(x, count, d)[0],
        lambda x: x.chunk(count, d)[0],
        [x],
    )


NUMBER = st.sampled_from([-2.0, -0.5, 0.25, 1.0, 3.0])
SOME = st.sampled_from([0.25, 1.0, 3.0])
DRAWS: dict[str, Callable[[Draw], Drawn]] = {
    "add_alpha": several("add_alpha", lambda x, y, a: torch.add(x, y, alpha=a), 2, NUMBER),
    "sub_alpha": several("sub_alpha", lambda x, y, a: torch.sub(x, y, alpha=a), 2, NUMBER),
    "rsub": several("rsub", lambda x, y, a: torch.rsub(x, y, alpha=a), 2, NUMBER),
    "addcmul": several("addcmul", lambda x, a, b, v: torch.addcmul(x, a, b, value=v), 3, NUMBER),
    "hypot": several("hypot", torch.hypot, 2),
    "log_add_exp": several("log_add_exp", torch.logaddexp, 2),
    "prelu": unary("prelu", lambda x, w: torch.where(x > 0, x, w * x), NUMBER),
    "gelu": unary("gelu", lambda x, a: F.gelu(x, approximate=a), st.sampled_from(["none", "tanh"])),
    "mish": unary("mish", F.mish),
    "softplus": unary("softplus", F.softplus, SOME, st.sampled_from([1.0, 20.0])),
    "logsigmoid": unary("logsigmoid", F.logsigmoid),
    "softsign": unary("softsign", F.softsign),
    "tanhshrink": unary("tanhshrink", F.tanhshrink),
    "hardtanh": unary("hardtanh", F.hardtanh, st.sampled_from([-2.0, -0.5]), SOME),
    "relu6": unary("relu6", F.relu6),
    "hardsigmoid": unary("hardsigmoid", F.hardsigmoid),
    "hardswish": unary("hardswish", F.hardswish),
    "leaky_relu": unary("leaky_relu", F.leaky_relu, NUMBER),
    "elu": unary("elu", F.elu, SOME),
    "celu": unary("celu", F.celu, SOME),
    "selu": unary("selu", F.selu),
    "hardshrink": unary("hardshrink", F.hardshrink, SOME),
    "softshrink": unary("softshrink", F.softshrink, SOME),
    "softmax": along("softmax", torch.softmax),
    "log_softmax": along("log_softmax", torch.log_softmax),
    "std": along("std", lambda x, d: x.std(d), least=2),
    "logsumexp": along("logsumexp", torch.logsumexp, least=1),
    "cumsum": along("cumsum", torch.cumsum),
    "cumprod": along("cumprod", torch.cumprod),
    "cummax": along("cummax", lambda x, d: x.cummax(d)[0], least=1),
    "cummin": along("cummin", lambda x, d: x.cummin(d)[0], least=1),
    "argsort": along("argsort", torch.argsort),
    "stack": stacked,
    "triu": triangle("triu"),
    "tril": triangle("tril"),
    "roll": rolled,
    "unsqueeze": along("unsqueeze", torch.unsqueeze),
    "select": selected,
    "chunk": chunked,
    "broadcast_in_dim": placed,
    "gather": gathered,
    "index_select": index_selected,
    "embedding_fwd": embedded,
    "scatter": scattered,
    "matmul": multiplied,
    "linear": projected,
    "layer_norm": normalized("layer_norm"),
    "rms_norm": normalized("rms_norm"),
    "group_norm": grouped,
    "cross_entropy": lost,
}


Run = tuple[FusionDefinition, list[Tensor]]


def definition(data: Draw, op: str) -> tuple[Run, Tensor]:
    """A drawn call of the op, and torch's result in float64."""
    define, torchs, inputs = DRAWS[op](data)
    static = data.draw(st.booleans(), "static sizes")
    fd = FusionDefinition()
    fd.add_output(define(fd.ops, *(fd.from_pytorch(t, static) for t in inputs)))
    expected = torchs(*(t.double() if t.is_floating_point() else t for t in inputs))
    return (fd, inputs), expected


def close(got: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(
        got, expected.to(got.dtype), rtol=tolerance, atol=tolerance, equal_nan=True
    )


@pytest.mark.parametrize("op", DRAWS)
def test_definition_means_what_torch_does(op: str) -> None:
    @settings(max_examples=30)
    @given(st.data())
    def draw(data: Draw) -> None:
        (fd, inputs), expected = definition(data, op)
        close(evaluate(fd, inputs)[0], expected, 1e-6)

    draw()


@pytest.fixture(scope="module")
def runs() -> dict[str, list[tuple[Run, Tensor]]]:
    """A few draws of each op, compiled together."""
    found: dict[str, list[tuple[Run, Tensor]]] = {op: [] for op in DRAWS}

    @settings(max_examples=4, derandomize=True, database=None)
    @given(st.data())
    def draw(data: Draw) -> None:
        for op, mine in found.items():
            mine.append(definition(data, op))

    draw()
    testing.compile_batch([run for mine in found.values() for run, _ in mine])
    return found


@pytest.mark.parametrize("op", DRAWS)
def test_kernels_do_what_torch_does(op: str, runs: dict[str, list[tuple[Run, Tensor]]]) -> None:
    for (fd, inputs), expected in runs[op]:
        close(fd.execute(inputs)[0], expected, 2e-5)
