"""fuser/ops/reductions.py: the value of each statistic, compared with torch in float64."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fuser import DataType, DTypeError, FusionDefinition, ShapeError, UserError, evaluate
from fuser.ops import Ops, as_dtype
from fuser.ops.methods import op_names
from fuser.ops.reductions import Reductions

Op = Callable[..., Any]


def run(op: Callable[..., Any], *inputs: torch.Tensor) -> list[torch.Tensor]:
    """The results of op(fd.ops, tensors) by evaluate."""
    fd = FusionDefinition()
    results = op(fd.ops, *(fd.from_pytorch(t) for t in inputs))
    for result in results if isinstance(results, tuple) else (results,):
        fd.add_output(result)
    return evaluate(fd, list(inputs))


def close(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-13, equal_nan=True)


def random(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.normal(size=shape))


DIMS: list[Any] = [0, -1, [0, 2], [2, 1], None, [0, 1, 2]]
STATISTICS: list[tuple[str, dict[str, Any], Op]] = [
    ("mean", {}, torch.mean),
    ("var", {}, torch.var),
    ("var", {"correction": 0}, lambda x, **k: torch.var(x, correction=0, **k)),
    ("var", {"correction": 2.5}, lambda x, **k: torch.var(x, correction=2.5, **k)),
    ("var_mean", {}, torch.var_mean),
    ("std", {}, torch.std),
    ("logsumexp", {}, torch.logsumexp),
    *(
        ("norm", {"p": p}, lambda x, p=p, **k: torch.linalg.vector_norm(x, p, **k))
        for p in (0, 1, 2, 3, 2.5, 0.5, -1, math.inf, -math.inf)
    ),
]


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dims", DIMS, ids=str)
@pytest.mark.parametrize(
    ("name", "keywords", "reference"), STATISTICS, ids=lambda v: "torch" if callable(v) else str(v)
)
def test_meaning(
    name: str,
    keywords: dict[str, Any],
    reference: Op,
    dims: Any,
    keepdim: bool,
    rng: np.random.Generator,
) -> None:
    x = random(rng, 3, 7, 5)
    which = tuple(range(3)) if dims is None else dims
    expected = reference(x, dim=which, keepdim=keepdim)
    got = run(lambda ops, t: getattr(ops, name)(t, dims=dims, keepdim=keepdim, **keywords), x)
    for a, b in zip(got, expected if isinstance(expected, tuple) else (expected,), strict=True):
        close(a, b)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name: str, dim: int, rng: np.random.Generator) -> None:
    x = random(rng, 3, 7, 5) * 30
    close(run(lambda ops, t: getattr(ops, name)(t, dim), x)[0], getattr(torch, name)(x, dim))


ROWS = [
    [1.0, 2.0, 3.0],
    [-math.inf, -math.inf, -math.inf],
    [-math.inf, 0.0, 1.0],
    [math.inf, 0.0, 1.0],
    [math.inf, -math.inf, math.inf],
    [math.nan, 0.0, 1.0],
    [math.nan, math.inf, 1.0],
    [1e308, 1e308, -1e308],
    [-0.0, 0.0, -0.0],
]


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "mean", "var", "std"])
def test_nan_and_infinity(name: str) -> None:
    x = torch.tensor(ROWS, dtype=torch.float64)
    if name in ("var", "std"):
        x = x[x[:, 0] != 1e308]  # overflow of intermediate values depends on the algorithm
    close(run(lambda ops, t: getattr(ops, name)(t, 1), x)[0], getattr(torch, name)(x, 1))


@pytest.mark.parametrize("p", [0, 1, 2, 3, math.inf, -math.inf])
def test_nan_and_infinity_in_norms(p: float) -> None:
    x = torch.tensor(ROWS, dtype=torch.float64)
    x = x[x[:, 0] != 1e308]  # squares overflow in both, but other powers depend on the algorithm
    expected = torch.linalg.vector_norm(x, p, 1)
    close(run(lambda ops, t: ops.norm(t, p, 1), x)[0], expected)


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (1, 1), ()], ids=str)
@pytest.mark.parametrize(
    "name", ["softmax", "log_softmax", "logsumexp", "mean", "var", "std", "var_mean"]
)
def test_few_elements(name: str, shape: tuple[int, ...]) -> None:
    """Zero elements, one element, and a tensor without dims."""
    x = torch.full(shape, 2.5, dtype=torch.float64)
    expected = getattr(torch, name)(x, -1)
    got = run(lambda ops, t: getattr(ops, name)(t, -1), x)
    for a, b in zip(got, expected if isinstance(expected, tuple) else (expected,), strict=True):
        close(a, b)


@pytest.mark.parametrize("debug", [0, 1])
def test_sums_over_extents_of_0_in_the_definition(
    debug: int, set_option: Callable[[str, object], None]
) -> None:
    """The kernels store only the identity, and no index expression divides by 0."""
    set_option("FUSER_HOST_DEBUG", debug)
    shapes = {(3, 0, 4): [0, 1], (4, 3, 0): [1, 2], (0, 3, 4): [0], (4, 0): [1]}
    with FusionDefinition() as fd:
        for shape, dims in shapes.items():
            fd.add_output(fd.ops.sum(fd.define_tensor(list(shape), True, DataType.Float), dims))
    for result in fd.execute([torch.zeros(shape) for shape in shapes]):
        assert result.equal(torch.zeros(4) if result.numel() == 4 else torch.zeros(3, 4))


def test_norms_of_nothing() -> None:
    x = torch.zeros(3, 0, dtype=torch.float64)
    for p in (0, 1, 2, 3):
        close(run(lambda ops, t, p=p: ops.norm(t, p, 1), x)[0], torch.zeros(3).double())
    for p in (math.inf, -math.inf, -1, -2.5):
        with pytest.raises(ShapeError) as caught:
            run(lambda ops, t, p=p: ops.norm(t, p, 1), x)
        assert caught.value.rule == "reduce-empty-1"


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("mean", torch.mean),
        ("var", torch.var),
        ("std", torch.std),
        ("var_mean", torch.var_mean),
        ("norm", lambda x, dim: torch.linalg.vector_norm(x, 2, dim)),
    ],
)
def test_complex(name: str, reference: Op, rng: np.random.Generator) -> None:
    x = torch.complex(random(rng, 4, 6), random(rng, 4, 6))
    expected = reference(x, dim=1)
    got = run(lambda ops, t: getattr(ops, name)(t, dims=1), x)
    for a, b in zip(got, expected if isinstance(expected, tuple) else (expected,), strict=True):
        close(a, b)


def test_welford(rng: np.random.Generator) -> None:
    x = random(rng, 4, 6, 5)
    average, total, count = run(lambda ops, t: ops.welford(t, [0, 2]), x)
    close(average, x.mean((0, 2)))
    close(total, ((x - x.mean((0, 2), keepdim=True)) ** 2).sum((0, 2)))
    assert count.dtype == torch.int64
    assert count.tolist() == [20] * 6


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool])
@pytest.mark.parametrize("name", ["mean", "var", "std", "var_mean", "welford", "norm"])
def test_mean_dtype_1(name: str, dtype: torch.dtype) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([2, 3], dtype=as_dtype(dtype))
    with pytest.raises(DTypeError) as caught:
        getattr(fd.ops, name)(x, dims=[0])
    assert caught.value.rule == "mean-dtype-1"
    assert f"got {str(dtype).removeprefix('torch.')}\n  t0: " in str(caught.value)
    assert x.location in str(caught.value)


def test_integers_with_a_dtype_and_in_softmax(rng: np.random.Generator) -> None:
    x = torch.from_numpy(rng.integers(-5, 5, (4, 6)))
    close(
        run(lambda ops, t: ops.mean(t, 1, dtype=torch.float64), x)[0],
        x.mean(1, dtype=torch.float64),
    )
    close(
        run(lambda ops, t: ops.norm(t, dims=1, dtype=DataType.Double), x)[0],
        torch.linalg.vector_norm(x.double(), 2, 1),
    )
    close(run(lambda ops, t: ops.softmax(t, 1), x)[0], x.double().softmax(1))
    close(run(lambda ops, t: ops.logsumexp(t, 1), x)[0], x.double().logsumexp(1))


def test_types_of_results() -> None:
    fd = FusionDefinition()
    half = fd.define_tensor([2, 3], dtype=DataType.Half)
    double = fd.define_tensor([2, 3], dtype=DataType.Double)
    for name in ("mean", "var", "std", "norm", "logsumexp", "softmax", "log_softmax"):
        arguments = (2, 1) if name == "norm" else (1,)
        assert getattr(fd.ops, name)(half, *arguments).dtype() == DataType.Float
        assert getattr(fd.ops, name)(double, *arguments).dtype() == DataType.Double
    assert fd.ops.norm(half, math.inf, 1).dtype() == DataType.Float
    assert fd.ops.softmax(half, 1, DataType.Half).dtype() == DataType.Half
    assert fd.ops.log_softmax(half, 1, torch.float64).dtype() == DataType.Double
    assert fd.ops.mean(double, 1, dtype=DataType.BFloat16).dtype() == DataType.BFloat16


@pytest.mark.parametrize("p", ["fro", math.nan, None, True])
def test_norm_1(p: Any) -> None:
    fd = FusionDefinition()
    with pytest.raises(UserError) as caught:
        fd.ops.norm(fd.define_tensor([2]), p)
    assert caught.value.rule == "norm-1"
    assert str(caught.value) == f"norm(): p: expected a number, got {p!r}"


def test_written_as_two_walks() -> None:
    """Composites emit the patterns that the compiler recognizes: sum((x - mean)^2) and sum(exp(x -
    max))."""
    fd = FusionDefinition()
    fd.ops.var(fd.define_tensor([-1, -1]), 1)
    assert [line.partition(" = ")[2] for line in repr(fd).splitlines()[2:9]] == [
        "fd.ops.sum(T0, dims=[1])",
        "fd.ops.cast(fd.ops.size(T0, 1), dtype=DataType.Double)",
        "fd.ops.truediv(1.0, E0)",
        "fd.ops.mul(T1, E1)",
        "fd.ops.broadcast(T2, is_broadcast_dim=[False, True])",
        "fd.ops.sub(T0, T3)",
        "fd.ops.mul(T4, T4)",
    ]
    fd = FusionDefinition()
    fd.ops.logsumexp(fd.define_tensor([-1, -1]), 1)
    assert [line.partition(" = ")[2] for line in repr(fd).splitlines()[2:6]] == [
        "fd.ops.max(T0, dims=[1], identity=True)",
        "fd.ops.broadcast(T1, is_broadcast_dim=[False, True])",
        "fd.ops.sub(T0, T2)",
        "fd.ops.exp(T3)",
    ]


@pytest.mark.parametrize("name", op_names(Reductions))
def test_every_statistic_is_documented_and_a_method(name: str) -> None:
    assert inspect.getdoc(getattr(Reductions, name))
    assert getattr(Ops, name) is getattr(Reductions, name)
