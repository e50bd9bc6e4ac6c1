"""fuser/ops/normalizations.py: the value of each normalization, compared with torch in float64."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fuser import DataType, DTypeError, FusionDefinition, ShapeError, UserError, evaluate
from fuser.ops import Ops
from fuser.ops.methods import op_names
from fuser.ops.normalizations import Normalizations
from tests.support.reducing import kernels_for


def run(op: Callable[..., Any], *inputs: torch.Tensor) -> list[torch.Tensor]:
    """The results of op(fd.ops, tensors) by evaluate, followed by the in-place outputs."""
    fd = FusionDefinition()
    results = op(fd.ops, *(fd.from_pytorch(t) for t in inputs))
    for result in results:
        fd.add_output(result)
    values = evaluate(fd, list(inputs), aliased=True)
    written = len(values) - len(results)
    return values[written:] + values[:written]


def close(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-12, equal_nan=True)


def random(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.normal(1.0, 2.0, size=shape))


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("inner", [1, 2, 3])
def test_layer_norm(inner: int, affine: bool, rng: np.random.Generator) -> None:
    x = random(rng, 4, 6, 5)
    shape = list(x.shape[-inner:])
    parameters = [random(rng, *shape) for _ in range(2 * affine)]
    expected = torch.native_layer_norm(x, shape, *(parameters or (None, None)), 1e-3)
    got = run(lambda ops, t, *p: ops.layer_norm(t, shape, *p, eps=1e-3), x, *parameters)
    for a, b in zip(got, expected, strict=True):
        close(a, b)


@pytest.mark.parametrize("eps", [None, 1e-2])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("inner", [1, 2])
def test_rms_norm(inner: int, affine: bool, eps: float | None, rng: np.random.Generator) -> None:
    x = random(rng, 4, 6, 5) * 1e-7  # small enough that the default eps matters
    shape = list(x.shape[-inner:])
    weight = random(rng, *shape)
    expected = F.rms_norm(x, shape, weight if affine else None, eps)
    y, rstd = run(lambda ops, t, w: ops.rms_norm(t, shape, w if affine else None, eps), x, weight)
    close(y, expected)
    close(x * rstd * (weight if affine else 1), expected)


def test_the_default_eps_is_that_of_the_type_computed_in() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.full((1, 4), 1e-4, dtype=dtype)
        y, _ = run(lambda ops, t: ops.rms_norm(t, 4), x)
        step = torch.finfo(dtype).eps
        torch.testing.assert_close(y, F.rms_norm(x, [4]).double(), rtol=step, atol=0)


@pytest.mark.parametrize("shape", [(4, 12), (2, 12, 5), (3, 12, 2, 3)], ids=str)
@pytest.mark.parametrize("groups", [1, 3, 12])
def test_group_norm(shape: tuple[int, ...], groups: int, rng: np.random.Generator) -> None:
    x, weight, bias = random(rng, *shape), random(rng, 12), random(rng, 12)
    inner = x[0, 0].numel()
    expected = torch.native_group_norm(x, weight, bias, shape[0], 12, inner, groups, 1e-5)
    got = run(lambda ops, t, w, b: ops.group_norm(t, groups, w, b), x, weight, bias)
    for a, b in zip(got, expected, strict=True):
        close(a, b)
    plain = run(lambda ops, t: ops.group_norm(t, groups, eps=1e-2), x)
    close(plain[0], F.group_norm(x, groups, eps=1e-2))


def to_last(x: torch.Tensor) -> torch.Tensor:
    return x.movedim(1, -1).contiguous()


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5), (2, 4, 3, 2)], ids=str)
def test_batch_norm(
    shape: tuple[int, ...], training: bool, channels_last: bool, rng: np.random.Generator
) -> None:
    x = random(rng, *shape)
    weight, bias, mean, var = (random(rng, 4) for _ in range(4))
    var = var.abs()
    running = mean.clone(), var.clone()
    expected = torch.native_batch_norm(x, weight, bias, *running, training, 0.3, 1e-5)
    given = to_last(x) if channels_last else x
    y, *rest = run(
        lambda ops, *t: ops.batch_norm(*t, 0.3, 1e-5, training, channels_last),
        *(given, weight, bias, mean, var),
    )
    close(y, to_last(expected[0]) if channels_last else expected[0])
    if training:
        for a, b in zip(rest, (*expected[1:], *running), strict=True):
            close(a, b)
    else:
        close(rest[0], mean)
        close(rest[1], torch.rsqrt(var + 1e-5))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_instance_norm(own: bool, channels_last: bool, rng: np.random.Generator) -> None:
    x = random(rng, 3, 4, 5, 2)
    weight, bias, mean, var = (random(rng, 4) for _ in range(4))
    var = var.abs()
    running = mean.clone(), var.clone()
    expected = F.instance_norm(x, *running, weight, bias, own, 0.3, 1e-5)
    given = to_last(x) if channels_last else x
    y, average, rstd, *written = run(
        lambda ops, *t: ops.instance_norm(*t, 0.3, 1e-5, own, channels_last),
        *(given, weight, bias, mean, var),
    )
    close(y, to_last(expected) if channels_last else expected)
    if own:
        close(average, x.mean((2, 3)))
        close(rstd, torch.rsqrt(x.var((2, 3), correction=0) + 1e-5))
        for a, b in zip(written, running, strict=True):
            close(a, b)


def test_running_statistics_of_half_types_and_a_symbolic_momentum() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, 4], dtype=DataType.Half)
    running = fd.define_tensor([4], dtype=DataType.BFloat16)
    fd.ops.batch_norm(x, None, None, running, None, fd.define_scalar(), 1e-5, True)
    (written,) = evaluate(
        fd, [torch.ones(3, 4).half(), torch.zeros(4).bfloat16(), 0.3], aliased=True
    )
    assert written.tolist() == [float(torch.tensor(0.3).bfloat16())] * 4
    assert evaluate(fd, [torch.ones(3, 4).half(), torch.zeros(4).bfloat16(), 0.3]) == []


@pytest.mark.parametrize("rows", [[1e8, 1e8 + 1], [np.inf, 1.0], [np.nan, 1.0], [3.0, 3.0]])
def test_edges(rows: list[float]) -> None:
    x = torch.tensor([rows, [1.0, 2.0]], dtype=torch.float64)
    close(run(lambda ops, t: ops.layer_norm(t, 2), x)[0], F.layer_norm(x, [2]))
    close(run(lambda ops, t: ops.rms_norm(t, [2]), x)[0], F.rms_norm(x, [2]))


def test_zero_rows() -> None:
    x = torch.zeros(0, 4, dtype=torch.float64)
    y, mean, rstd = run(lambda ops, t: ops.layer_norm(t, [4]), x)
    assert (y.shape, mean.shape, rstd.shape) == ((0, 4), (0, 1), (0, 1))


Error = tuple[type[UserError], str, Callable[[Any, Any], Any]]
ERRORS: list[Error] = [
    (ShapeError, "norm-shape-1", lambda ops, x: ops.layer_norm(x, [4])),
    (ShapeError, "norm-shape-1", lambda ops, x: ops.layer_norm(x, [3, 3])),
    (ShapeError, "norm-shape-1", lambda ops, x: ops.rms_norm(x, [])),
    (ShapeError, "norm-shape-1", lambda ops, x: ops.rms_norm(x, [2, 2, 3])),
    (ShapeError, "norm-shape-1", lambda ops, x: ops.rms_norm(x, [3, 2, 3])),  # dim -1 has size 3
    (ShapeError, "norm-shape-2", lambda ops, x: ops.group_norm(ops.sum(x, 0), 1)),
    (ShapeError, "split-dim-3", lambda ops, x: ops.group_norm(x, 2)),
    (
        ShapeError,
        "norm-running-1",
        lambda ops, x: ops.batch_norm(x, None, None, None, None, 0.1, 1e-5, False),
    ),
    (DTypeError, "norm-dtype-1", lambda ops, x: ops.layer_norm(ops.gt(x, 0), [3])),
    (DTypeError, "norm-dtype-1", lambda ops, x: ops.group_norm(ops.complex(x, x), 1)),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: e[1])
def test_errors(error: Error) -> None:
    kind, rule, provoke = error
    fd = FusionDefinition()
    x = fd.define_tensor([2, 3])
    with pytest.raises(UserError) as caught:
        provoke(fd.ops, x)
    assert type(caught.value) is kind
    assert caught.value.rule == rule


def test_the_text_of_an_error() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, 3])
    with pytest.raises(ShapeError) as caught:
        fd.ops.layer_norm(x, [4])
    assert str(caught.value) == (
        "layer_norm(t0, normalized_shape=[4]): expected the last sizes of t0, at least one\n"
        f"  t0: float32[size(t0, 0), 3]  defined at {x.location}"
    )


def test_sizes_may_be_symbolic() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    for shape in (7, [-1], x.size(1), [x.size(0), x.size(1)]):
        fd.ops.layer_norm(x, shape)


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_sizes_that_only_the_run_knows_are_compared_there(norm: str) -> None:
    fd = FusionDefinition()
    x, size = fd.define_tensor([-1, -1]), fd.define_scalar(DataType.Int)
    for shape in ([5], [size]):
        fd.add_output(getattr(fd.ops, norm)(x, shape)[0])
    fits = torch.randn(3, 5)
    expected = getattr(torch, norm)(fits, [5])
    for y in fd.execute([fits, 5]):
        torch.testing.assert_close(y, expected)
    for inputs in ([torch.randn(3, 6), 5], [fits, 4]):
        for run in (fd.execute, functools.partial(evaluate, fd)):
            with pytest.raises(ShapeError, match=norm):
                run(inputs)


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_a_length_that_is_only_named_stays_a_parameter(norm: str) -> None:
    """A normalized length given as a constant stays a kernel parameter. Otherwise each length would
    compile a kernel with fully unrolled loops."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], dtype=DataType.BFloat16)
    fd.add_output(fd.ops.cast(getattr(fd.ops, norm)(x, [65537])[0], DataType.BFloat16))
    (kernel,) = kernels_for(fd, [(4096, 65537)], text=True)
    assert "65537" not in kernel["cuda"].text


@pytest.mark.parametrize("name", op_names(Normalizations))
def test_every_normalization_is_documented_and_a_method(name: str) -> None:
    assert inspect.getdoc(getattr(Normalizations, name))
    assert getattr(Ops, name) is getattr(Normalizations, name)


@pytest.mark.parametrize("training", [True, False])
def test_a_batch_norm_called_twice_moves_its_statistics_twice(training: bool) -> None:
    """The second call reads the statistics that the first one updated, as in torch."""
    with FusionDefinition() as fd:
        x, y, mean, var = (fd.define_tensor([-1] * n) for n in (2, 2, 1, 1))
        for t, own in ((x, True), (y, training)):
            fd.add_output(fd.ops.batch_norm(t, None, None, mean, var, 0.1, 1e-5, own)[0])
    inputs = [torch.randn(16, 3), torch.randn(16, 3) + 2, torch.zeros(3), torch.ones(3)]
    expected_mean, expected_var = inputs[2].clone(), inputs[3].clone()
    expected = [
        torch.nn.functional.batch_norm(t, expected_mean, expected_var, training=own)
        for t, own in ((inputs[0], True), (inputs[1], training))
    ]
    results = fd.execute(inputs)
    for got, want in zip(
        [*results, *inputs[2:]], [*expected, expected_mean, expected_var], strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
