"""fuser/ops/shapes.py compared with torch: values, number of kernels, and reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from fuser import (
    DataType,
    DTypeError,
    FusionDefinition,
    ShapeError,
    Unsupported,
    UserError,
    evaluate,
)
from fuser.testing import compile_batch

X = torch.arange(48.0).reshape(6, 8)
Y = -torch.arange(48.0).reshape(6, 8)
Z = torch.arange(4 * 16 * 32.0).remainder(61).reshape(4, 16, 32)
INDEX = torch.tensor([3, 1, 1, 7, 0])

Case = tuple[str, Callable[..., Any], Callable[..., Any], list[Any], int]


def rope(o: Any, q: Any, cos: Any, sin: Any) -> Any:
    """Half-split rotary embedding of q [b, s, d] by cos and sin [s, d]."""
    half = q.size(2) // 2
    low = o.slice(q, [0, 0, 0], [None, None, half])
    high = o.slice(q, [0, 0, half], [None, None, None])
    turned = o.cat([-high, low], 2)
    return q * cos + turned * sin


def less_largest(o: Any, x: Any, y: Any) -> Any:
    joined = o.cat([x, y], 1)
    return joined - o.max(joined, [1], keepdim=True)


def torch_rope(q: Any, cos: Any, sin: Any) -> Any:
    half = q.shape[2] // 2
    return q * cos + torch.cat([-q[..., half:], q[..., :half]], 2) * sin


# Name, definition, torch function, inputs, number of kernels.
CASES: list[Case] = [
    ("slice", lambda o, x: -o.slice(x, [1, 2], [5, 8]), lambda x: -x[1:5, 2:8], [X], 1),
    ("view", lambda o, x: o.slice(x, [1, 2], [5, 8]), lambda x: x[1:5, 2:8], [X], 0),
    (
        "steps",
        lambda o, x: -o.slice(x, [1, 0], [6, None], [2, 3]),
        lambda x: -x[1:6:2, ::3],
        [X],
        1,
    ),
    ("flip", lambda o, x: o.flip(x, [1]) + x, lambda x: x.flip(1) + x, [X], 1),
    (
        "pad",
        lambda o, x: o.pad(x, [1, 2, 3, 4], 7.0),
        lambda x: F.pad(x, (1, 2, 3, 4), value=7.0),
        [X],
        1,
    ),
    (
        "pad of a pad",
        lambda o, x: o.pad(o.pad(x, [1, 2], 1.0) * 2.0, [-2, 5], 3.0),
        lambda x: F.pad(F.pad(x, (1, 2), value=1.0) * 2, (-2, 5), value=3.0),
        [X],
        1,
    ),
    ("cat rows", lambda o, x, y: o.cat([x, y], 0), lambda x, y: torch.cat([x, y]), [X, Y], 1),
    (
        "cat columns",
        lambda o, x, y: o.cat([x, y * 2.0, x], 1) + 1.0,
        lambda x, y: torch.cat([x, y * 2, x], 1) + 1,
        [X, Y],
        1,
    ),
    (
        "cat of types",
        lambda o, x, i: o.cat([o.slice(x, [0, 0], [1, 5]), o.broadcast(i, [True, False])]),
        lambda x, i: torch.cat([x[:1, :5], i[None]]),
        [X, INDEX],
        1,
    ),
    ("stack", lambda o, x, y: o.stack([x, y], 1), lambda x, y: torch.stack([x, y], 1), [X, Y], 1),
    (
        "sum of a cat",
        lambda o, x, y: o.sum(o.cat([x, y], 1), 1),
        lambda x, y: torch.cat([x, y], 1).sum(1),
        [X, Y],
        1,
    ),
    (
        "norm of a cat",
        less_largest,
        lambda x, y: torch.cat([x, y], 1) - torch.cat([x, y], 1).amax(1, keepdim=True),
        [X, Y],
        1,
    ),
    (
        "cat of sums",
        lambda o, x, y: o.cat([o.sum(x, 1), o.sum(y, 1)], 0),
        lambda x, y: torch.cat([x.sum(1), y.sum(1)]),
        [X, Y],
        2,
    ),
    ("roll", lambda o, x: o.roll(x, [3, -2], [0, 1]), lambda x: x.roll((3, -2), (0, 1)), [X], 1),
    ("triu", lambda o, x: o.triu(x, 1), lambda x: x.triu(1), [X], 1),
    ("tril", lambda o, x: o.tril(x, -1), lambda x: x.tril(-1), [X], 1),
    (
        "eye",
        lambda o, x: o.eye(x.size(0), x.size(1)) + x,
        lambda x: torch.eye(6, 8) + x,
        [X],
        1,
    ),
    ("select", lambda o, x: o.select(x, -2, 1) * 2.0, lambda x: x.select(1, -2) * 2, [X], 1),
    (
        "places at an index",
        lambda o, i: o.index_select(o.reshape(o.iota(48), [6, 8]), i, 1),
        lambda i: torch.arange(48).reshape(6, 8).index_select(1, i),
        [INDEX],
        1,
    ),
    (
        "sum of places at an index",
        lambda o, i: o.sum(o.index_select(o.reshape(o.iota(48), [6, 8]), i, 1), 1),
        lambda i: torch.arange(48).reshape(6, 8).index_select(1, i).sum(1),
        [INDEX],
        1,
    ),
    (
        "index_select",
        lambda o, x, i: o.index_select(x, i, 1),
        lambda x, i: x.index_select(1, i),
        [X, INDEX],
        1,
    ),
    (
        "embedding",
        lambda o, i, x: o.embedding_fwd(i, x),
        lambda i, x: F.embedding(i, x),
        [INDEX.remainder(6).reshape(5, 1), X],
        1,
    ),
    (
        "index into a cat",
        lambda o, x, i: o.index_select(o.cat([x, x * 2.0], 1), i * 2, 1),
        lambda x, i: torch.cat([x, x * 2], 1).index_select(1, i * 2),
        [X, INDEX],
        1,
    ),
    (
        "windows",
        lambda o, x: o.slice(x, [0, 0], [None, 6]) + o.slice(x, [0, 2], [None, 8]),
        lambda x: x[:, :6] + x[:, 2:],
        [X],
        1,
    ),
    ("rope", rope, torch_rope, [Z, Z[0] / 64, 1 - Z[0] / 64], 1),
    (
        "heads",
        lambda o, z: o.permute(o.reshape(z, [4, 16, 4, 8]), [0, 2, 1, 3]) * 2.0,
        lambda z: z.reshape(4, 16, 4, 8).permute(0, 2, 1, 3) * 2,
        [Z],
        1,
    ),
    ("flatten", lambda o, z: o.reshape(z, [64, -1]) + 1.0, lambda z: z.reshape(64, -1) + 1, [Z], 1),
    (
        "regroup",
        lambda o, x: o.reshape(x, [16, 3]) + 1.0,
        lambda x: x.reshape(16, 3) + 1,
        [X],
        1,
    ),
    (
        "sums of a regrouped tensor",
        lambda o, x: o.sum(o.reshape(x, [16, 3]), 1),
        lambda x: x.reshape(16, 3).sum(1),
        [X],
        1,
    ),
]


CASES += [
    (
        "gather of fewer",
        lambda o, x, i: o.gather(x, i, 0) + 1.0,
        lambda x, i: x.gather(0, i) + 1,
        [X, INDEX.remainder(6).reshape(1, 5)],
        1,
    ),
    (
        "no elements",
        lambda o, x: o.reshape(o.slice(x, [2, 0], [2, None]), [4, 0, 3]),
        lambda x: x[2:2].reshape(4, 0, 3),
        [X],
        0,
    ),
]


def define(case: Case, dynamic: bool) -> FusionDefinition:
    fd = FusionDefinition()
    tensors = [fd.from_pytorch(x, static_sizes=not dynamic) for x in case[3]]
    fd.add_output(case[1](fd.ops, *tensors))
    return fd


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_against_torch(dynamic: bool, set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    made = [(case, define(case, dynamic)) for case in CASES]
    compile_batch((fd, case[3]) for case, fd in made)
    for case, fd in made:
        name, _, reference, inputs, kernels = case
        (got,) = fd.execute(inputs)
        assert torch.equal(got, reference(*inputs)), name
        assert torch.equal(evaluate(fd, inputs)[0].double(), got.double()), name
        assert len(fd.fec.executor.kernels()) == kernels, name


def test_parts_of_one_tensor_share_a_kernel() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([4, 16, 96], dtype=DataType.BFloat16)
    for part in fd.ops.chunk(x, 3, 2):
        heads = fd.ops.permute(fd.ops.reshape(part, [4, 16, 4, 8]), [0, 2, 1, 3])
        fd.add_output(heads, stride_order=[3, 2, 1, 0])
    given = torch.randn(4, 16, 96, generator=torch.Generator().manual_seed(0)).bfloat16()
    got = fd.execute([given])
    for mine, part in zip(got, given.chunk(3, 2), strict=True):
        assert torch.equal(mine, part.reshape(4, 16, 4, 8).permute(0, 2, 1, 3))
    assert len(fd.fec.executor.kernels()) == 1


def test_steps_as_scalars() -> None:
    fd = FusionDefinition()
    x, run = fd.from_pytorch(X), fd.define_scalar(DataType.Int)
    steps = fd.define_vector([2, 3])
    fd.add_output(fd.ops.slice(x, fd.define_vector([1, 0]), [fd.define_scalar(6), 8], steps))
    assert fd.execute([X, 0])[0].equal(X[1:6:2, ::3])
    with pytest.raises(Unsupported) as caught:
        fd.ops.slice(x, [0, 0], [6, 8], [run, 1])
    assert caught.value.rule == "number-1"


def test_half_types_move_as_they_are() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float8_e5m2):
        fd = FusionDefinition()
        x = fd.from_pytorch(X.to(dtype))
        fd.add_output(fd.ops.cat([fd.ops.flip(x, [0]), fd.ops.pad(x, [0, 0, 1, -1], 2.0)], 1))
        (got,) = fd.execute([X.to(dtype)])
        exact = X.to(dtype).float()
        exact = torch.cat([exact.flip(0), F.pad(exact, (0, 0, 1, -1), value=2.0)], 1)
        assert got.dtype == dtype
        assert torch.equal(got.float(), exact)


def test_a_kernel_for_every_96_tensors() -> None:
    given = [X + i for i in range(120)]
    fd = FusionDefinition()
    fd.add_output(fd.ops.sum(fd.ops.stack([fd.from_pytorch(x) for x in given]), 0))
    (got,) = fd.execute(given)
    assert torch.equal(got, torch.stack(given).sum(0))
    assert len(fd.fec.executor.kernels()) > 1


@pytest.mark.parametrize("start", [0, 2, 5])
def test_a_size_that_turns_out_to_be_1_broadcasts(start: int) -> None:
    """The slice of one definition has 6, 4 and 1 rows; with 1 row it broadcasts, and the sizes
    derived from it change."""
    fd = FusionDefinition()
    x, y, k = fd.from_pytorch(X), fd.from_pytorch(Y), fd.define_scalar(DataType.Int)
    part = fd.ops.slice(x, [k, 0], [None, None])
    both = part + fd.ops.slice(y, [k % 5, 0], [None, None])
    fd.add_output(both)
    fd.add_output(both + fd.ops.full([both.size(0), 1], 1.0, DataType.Float))
    fd.add_output(fd.ops.sum(both, 0))
    want = X[start:] + Y[0 if start == 5 else start :]
    for got, exact in zip(fd.execute([X, Y, start]), [want, want + 1, want.sum(0)], strict=True):
        assert torch.equal(got, exact)


def test_other_sizes_do_not_broadcast() -> None:
    fd = FusionDefinition()
    x, k = fd.from_pytorch(X), fd.define_scalar(DataType.Int)
    fd.add_output(fd.ops.slice(x, [k, 0], [None, None]) + x)
    fd.execute([X, 5])
    with pytest.raises(ShapeError, match="2 against 6"):
        fd.execute([X, 4])


@settings(max_examples=25)
@given(st.data())
def test_reshapes(data: st.DataObject) -> None:
    """Reshapes between any two factorizations of one number of elements, symbolic or not, with and
    without a -1."""
    total = data.draw(st.sampled_from([0, 1, 6, 24, 36, 60]))

    def shape() -> list[int]:
        rest, sizes = total, []
        while rest > 1 and len(sizes) < 3:
            sizes.append(
                data.draw(st.sampled_from([n for n in range(1, rest + 1) if rest % n == 0]))
            )
            rest //= sizes[-1]
        return [*sizes, rest]

    have, want = shape(), shape()
    x = torch.arange(float(total)).reshape(have)
    asked = list(want)
    if total and data.draw(st.booleans()):
        asked[data.draw(st.integers(0, len(want) - 1))] = -1
    fd = FusionDefinition()
    t = fd.define_tensor(have if data.draw(st.booleans()) else [-1 if n > 1 else n for n in have])
    try:
        fd.add_output(fd.ops.reshape(t, asked))
    except ShapeError:
        assert total == 0
        return
    (got,) = fd.execute([x])
    assert torch.equal(got, x.reshape(want))


@pytest.mark.parametrize(
    ("have", "asked", "given", "want"),
    [
        ((-1,), lambda fd, t: [fd.define_scalar(DataType.Int), fd.ops.size(t, 0)], [1], (1, 5)),
        ((-1,), lambda fd, t: [fd.ops.size(t, 0), fd.define_scalar(DataType.Int)], [1], (5, 1)),
        ((1,), lambda fd, t: [fd.define_scalar(DataType.Int), 1], [1], (1, 1)),
        ((), lambda fd, t: fd.define_vector(2), [1, 1], (1, 1)),
        ((), lambda fd, t: [fd.define_scalar(DataType.Int), -1], [1], (1, 1)),
    ],
)
def test_only_the_run_knows_that_a_new_dim_is_1(
    have: tuple[int, ...], asked: Any, given: list[int], want: tuple[int, ...]
) -> None:
    fd = FusionDefinition()
    t = fd.define_tensor(list(have))
    fd.add_output(fd.ops.reshape(t, asked(fd, t)))
    x = torch.arange(5.0) if have == (-1,) else torch.ones(have)
    (got,) = fd.execute([x, *given])
    assert torch.equal(got, x.reshape(want))
    for wrong in ([3] * len(given), [0] * len(given)):
        with pytest.raises(ShapeError):
            fd.execute([x, *wrong])


def test_wrong_reshapes() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([4, 6])
    for shape, rule in (([5, 5], "reshape-2"), ([7, -1], "reshape-2"), ([-1, -1], "reshape-1")):
        with pytest.raises(ShapeError) as caught:
            fd.ops.reshape(x, shape)
        assert caught.value.rule == rule
    fd = FusionDefinition()
    y = fd.define_tensor([-1, 6])
    fd.add_output(fd.ops.reshape(y, [3, 4]))
    assert list(fd.execute([torch.ones(2, 6)])[0].shape) == [3, 4]
    with pytest.raises(ShapeError):
        fd.execute([torch.ones(3, 6)])


def test_an_open_size_beside_none_could_be_anything() -> None:
    """A -1 is ambiguous next to a size of 0, also if only the run knows that the operand is
    empty."""
    fd = FusionDefinition()
    with pytest.raises(ShapeError, match="-1 is ambiguous next to a size of 0"):
        fd.ops.reshape(fd.define_tensor([-1, -1]), [0, -1])


def test_select_reaches_from_the_last_element_to_the_first() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([2, 3])
    for index in (-3, 2):
        fd.add_output(fd.ops.select(x, index, 1))
    given = torch.arange(6.0).reshape(2, 3)
    assert [t.tolist() for t in fd.execute([given])] == [[0.0, 3.0], [2.0, 5.0]]


Refusal = tuple[str, type[UserError], str, Callable[[Any, Any, Any], Any]]
# Errors that composites raise themselves, for x: float32[2, 3] and i: int64[2, 3].
REFUSALS: list[Refusal] = [
    ("unsqueeze-dim", ShapeError, "unsqueeze(t0): dim 3", lambda o, x, i: o.unsqueeze(x, 3)),
    ("unsqueeze-dim", ShapeError, "unsqueeze(t0): dim -4", lambda o, x, i: o.stack([x, x], -4)),
    ("chunk-dim", ShapeError, "chunk(t0): dim 2", lambda o, x, i: o.chunk(x, 2, 2)),
    ("chunk-1", UserError, "chunk(): expected at least one", lambda o, x, i: o.chunk(x, 0)),
    ("select-dim", ShapeError, "select(t0): dim -3", lambda o, x, i: o.select(x, 0, -3)),
    (
        "reshape-2",
        ShapeError,
        "reshape(t0): [2, 3] cannot become [4, -1]: 6 elements do not divide",
        lambda o, x, i: o.reshape(x, [4, -1]),
    ),
    ("select-1", ShapeError, "select(t0): index 3", lambda o, x, i: o.select(x, 3, 1)),
    ("select-1", ShapeError, "select(t0): index -3", lambda o, x, i: o.select(x, -3, 0)),
    (
        "index-select-dim",
        ShapeError,
        "index_select(t0): dim 2",
        lambda o, x, i: o.index_select(x, o.iota(2), 2),
    ),
    (
        "index-select-1",
        ShapeError,
        "index_select(t0, t1): expected an index of one dim, got 2",
        lambda o, x, i: o.index_select(x, i, 0),
    ),
    (
        "index-dtype-1",
        DTypeError,
        "take_along_axis(t",
        lambda o, x, i: o.index_select(x, o.iota(2, dtype=DataType.Float), 0),
    ),
    ("index-dtype-1", DTypeError, "take_along_axis(t", lambda o, x, i: o.embedding_fwd(x, x)),
    ("roll-dim", ShapeError, "roll(t0): dim 2", lambda o, x, i: o.roll(x, 1, 2)),
    ("roll-1", ShapeError, "roll(t0): expected as many", lambda o, x, i: o.roll(x, [1, 2], [0])),
    ("triu-1", ShapeError, "tril(t2): expected at least two", lambda o, x, i: o.tril(o.iota(3))),
    ("iota-1", ShapeError, "iota(", lambda o, x, i: o.eye(-1)),
    ("full-1", ShapeError, "full(", lambda o, x, i: o.full([2, -1], 0, DataType.Float)),
    ("iota-1", ShapeError, "iota(", lambda o, x, i: o.uniform(0, 1, [-3])),
    ("reshape-2", ShapeError, "reshape(t0): [2, 3] has 6", lambda o, x, i: o.reshape(x, [4, 2])),
    ("reshape-3", ShapeError, "reshape(t0): expected", lambda o, x, i: o.reshape(x, [-2, 3])),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda r: f"{r[0]}: {r[2]}")
def test_refusals(refusal: Refusal) -> None:
    """Errors name the op, the operand and its definition."""
    rule, kind, message, define = refusal
    fd = FusionDefinition()
    x, i = fd.define_tensor([2, 3]), fd.define_tensor([2, 3], dtype=DataType.Int)
    with pytest.raises(kind) as caught:
        define(fd.ops, x, i)
    assert message in str(caught.value)
    assert caught.value.rule == rule


@pytest.mark.parametrize("norm_type", [None, 1.0, 3.0])
def test_an_embedding_of_a_largest_norm(norm_type: float | None) -> None:
    """Within 10 ULP in float32, for the norm and the scale; the weight is unchanged."""
    index, weight = INDEX.remainder(6).reshape(5, 1), X / 16
    with FusionDefinition() as fd:
        i, w = fd.from_pytorch(index), fd.from_pytorch(weight)
        largest = fd.define_scalar(1.5)
        fd.add_output(fd.ops.embedding_fwd(i, w, max_norm=largest, norm_type=norm_type))
    expected = F.embedding(index, weight.double(), None, 1.5, norm_type or 2.0)
    (result,) = fd.execute([index, weight])
    torch.testing.assert_close(result.double(), expected, rtol=10 * 2**-23, atol=0)
    assert torch.equal(weight, X / 16)


ZERO, FIRST, NINE = torch.tensor(2.5), torch.tensor(0), torch.tensor(9.0)
# fd.ops first, then torch's function, on tensors without dims; `d` is the dim.
OF_NO_DIMS: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[torch.Tensor]]] = {
    "gather": (lambda o, d, x, i: o.gather(x, i, d), lambda d, x, i: x.gather(d, i), [ZERO, FIRST]),
    "gather of several": (
        lambda o, d, x, i: o.gather(x, i, d),
        lambda d, x, i: x.gather(d, i),
        [ZERO, torch.zeros(3, dtype=torch.int64)],
    ),
    "index_select": (
        lambda o, d, x, i: o.index_select(x, i, d),
        lambda d, x, i: x.index_select(d, i),
        [ZERO, FIRST],
    ),
    "scatter": (
        lambda o, d, x, i, s: o.scatter(x, i, s, d),
        lambda d, x, i, s: x.scatter(d, i, s),
        [ZERO, FIRST, NINE],
    ),
    "sort": (lambda o, d, x: o.sort(x, d), lambda d, x: x.sort(d), [ZERO]),
    "topk": (lambda o, d, x: o.topk(x, 1, dim=d), lambda d, x: x.topk(1, d), [ZERO]),
    "argsort": (lambda o, d, x: o.argsort(x, d), lambda d, x: x.argsort(d), [ZERO]),
    "cumsum": (lambda o, d, x: o.cumsum(x, d), lambda d, x: x.cumsum(d), [ZERO]),
    "cumprod": (lambda o, d, x: o.cumprod(x, d), lambda d, x: x.cumprod(d), [ZERO]),
    "cummax": (lambda o, d, x: o.cummax(x, d), lambda d, x: x.cummax(d)[0], [ZERO]),
    "cummin": (lambda o, d, x: o.cummin(x, d), lambda d, x: x.cummin(d)[0], [ZERO]),
}


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("op", OF_NO_DIMS)
def test_a_tensor_of_no_dims_has_one_element_along_dim_0(op: str, dim: int) -> None:
    ours, torchs, inputs = OF_NO_DIMS[op]
    fd = FusionDefinition()
    results = ours(fd.ops, dim, *(fd.from_pytorch(t) for t in inputs))
    expected = torchs(dim, *inputs)
    for result in results if isinstance(results, tuple) else [results]:
        fd.add_output(result)
    wanted = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    got = fd.execute(inputs)
    assert [t.shape for t in got] == [t.shape for t in wanted]
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize("op", OF_NO_DIMS)
def test_a_tensor_of_no_dims_has_no_dim_1(op: str) -> None:
    ours, _, inputs = OF_NO_DIMS[op]
    fd = FusionDefinition()
    with pytest.raises(ShapeError):
        ours(fd.ops, 1, *(fd.from_pytorch(t) for t in inputs))


@pytest.mark.parametrize("size", [-1, 7])
@pytest.mark.parametrize("shift", [-3, -1, 0, 3])
@pytest.mark.parametrize("step", [1, 2])
def test_a_roll_of_a_slice_reads_nothing_beyond_its_operand(
    step: int, shift: int, size: int, set_option: Callable[[str, object], None]
) -> None:
    """The operands of the cat end at multiples of a vector, but the sliced tensor does not."""
    set_option("FUSER_HOST_DEBUG", 1)
    with FusionDefinition() as fd:
        x = fd.define_tensor([size], dtype=DataType.Short)
        fd.add_output(fd.ops.roll(fd.ops.slice(x, [-7], [-1], [step]), [shift], [0]))
    data = torch.arange(7, dtype=torch.int16)
    (rolled,) = fd.execute([data])
    assert torch.equal(rolled, data[-7:-1:step].roll(shift))


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Half, DataType.Bool, DataType.Int32])
def test_a_cat_of_what_was_padded_by_hand(dtype: DataType) -> None:
    """A cat of operands padded by hand, as in nvFuser's printed definitions."""
    with FusionDefinition() as fd:
        a, b = (fd.define_tensor([-1, n], dtype=dtype) for n in (-1, 3))
        parts = [fd.ops.pad(a, [0, 3]), fd.ops.pad(b, [fd.ops.size(a, 1), 0])]
        fd.add_output(fd.ops.cat(parts, dim=1, manual_padding=True))
    left, right = (x.to(getattr(torch, dtype.torch_name)) for x in (X, X[:, 3:6]))
    (joined,) = fd.execute([left, right])
    assert joined.dtype == left.dtype
    assert torch.equal(joined, torch.cat([left, right], 1))


def moved(pick: np.random.Generator, steps: int) -> tuple[FusionDefinition, list[Any], list[Any]]:
    """A random program of movement ops: its definition, inputs, and results by torch."""
    fd = FusionDefinition()
    rows, columns = int(pick.integers(1, 7)), int(pick.integers(1, 5)) * 4
    inputs = [
        torch.from_numpy(pick.integers(-9, 9, size=size)).to(torch.float32)
        for size in ((rows, columns + 3), (rows, columns), (columns,))
    ]
    inputs[0] = inputs[0][:, :columns]  # a row of a wider tensor
    x, y, row = (fd.define_tensor([-1] * t.dim()) for t in inputs)
    values, summed = [(x, inputs[0]), (y, inputs[1])], False
    for _ in range(steps):
        (a, u), (b, v) = (values[-1 - int(pick.integers(0, min(3, len(values))))] for _ in range(2))
        n, m = (int(i) for i in pick.integers(0, 9, 2))
        match pick.choice(["pad", "slice", "flip", "roll", "cat", "add", "row", "less_sum"]):
            case "pad":
                around = [n, m, n % 3, m % 2]
                values.append((fd.ops.pad(a, around, 7), F.pad(u, around, value=7)))
            case "slice":
                start, stop = n % max(1, u.shape[1]), u.shape[1] - m % 3
                values.append((fd.ops.slice(a, [0, start], [None, stop]), u[:, start:stop]))
            case "flip":
                values.append((fd.ops.flip(a, [n % 2]), u.flip(n % 2)))
            case "roll":
                values.append((fd.ops.roll(a, [n - 4], [1]), u.roll(n - 4, 1)))
            case "cat" if u.shape[0] == v.shape[0]:
                values.append((fd.ops.cat([a, b], 1), torch.cat([u, v], 1)))
            case "add" if u.shape == v.shape:
                values.append((a - b, u - v))
            case "row" if u.shape[1] == columns:
                values.append((a + row, u + inputs[2]))
            case "less_sum" if not summed:  # at most one, so that all numbers stay exact
                summed = True
                total = fd.ops.sum(a, [1], keepdim=True)
                values.append((a - total, u - u.sum(1, keepdim=True)))
            case _:
                values.append((a * 2.0, u * 2.0))
    results = values[-2:]
    for ours, _ in results:
        fd.add_output(ours)
    return fd, inputs, [t for _, t in results]


def test_reads_of_nested_choices(
    rng: np.random.Generator, set_option: Callable[[str, object], None]
) -> None:
    """Nested pads, cats and slices are correct, and no access is out of bounds."""
    set_option("FUSER_HOST_DEBUG", 1)
    made = [moved(rng, steps) for steps in range(2, 10) for _ in range(5)]
    compile_batch((fd, inputs) for fd, inputs, _ in made)
    for fd, inputs, want in made:
        got = fd.execute(inputs)
        for ours, theirs in zip(got, want, strict=True):
            assert torch.equal(ours, theirs), repr(fd)
