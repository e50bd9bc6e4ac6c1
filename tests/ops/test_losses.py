"""fuser/ops/losses.py: the value of each loss, compared with torch.nn.functional in float64."""

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fuser import DataType, FusionDefinition, ShapeError, UserError, evaluate
from fuser.ops import Ops
from fuser.ops.losses import Losses
from fuser.ops.methods import op_names

REDUCTIONS = ["none", "sum", "mean"]
CLASSES = 7


def run(op: Callable[..., Any], *inputs: torch.Tensor) -> torch.Tensor:
    fd = FusionDefinition()
    fd.add_output(op(fd.ops, *(fd.from_pytorch(t) for t in inputs)))
    return evaluate(fd, list(inputs))[0]


def close(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-12, equal_nan=True)


def random(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.normal(0.0, 3.0, size=shape))


def classes(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.integers(0, CLASSES, shape))


SHAPES = [(CLASSES,), (5, CLASSES), (5, CLASSES, 3), (2, CLASSES, 3, 2), (0, CLASSES)]


def target_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[:1] + shape[2:] if len(shape) > 1 else ()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [False, True])
def test_classes(
    shape: tuple[int, ...],
    reduction: str,
    weighted: bool,
    ignored: bool,
    rng: np.random.Generator,
) -> None:
    x, target = random(rng, *shape), classes(rng, *target_shape(shape))
    weight = torch.from_numpy(rng.uniform(0.1, 2.0, CLASSES))
    keywords: dict[str, Any] = {"reduction": reduction}
    if ignored:
        keywords["ignore_index"] = 3
    given = [x, target, weight][: 2 + weighted]
    torch_weight = weight if weighted else None
    close(
        run(lambda ops, *t: ops.nll_loss(*t, **keywords), *given),
        F.nll_loss(x, target, torch_weight, **keywords),
    )
    for smoothing in (0.0, 0.2):
        close(
            run(
                lambda ops, *t, s=smoothing: ops.cross_entropy(*t, **keywords, label_smoothing=s),
                *given,
            ),
            F.cross_entropy(x, target, torch_weight, **keywords, label_smoothing=smoothing),
        )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES[:-1], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_probabilities(
    shape: tuple[int, ...],
    reduction: str,
    weighted: bool,
    smoothing: float,
    rng: np.random.Generator,
) -> None:
    x, target = random(rng, *shape), random(rng, *shape).abs()
    weight = torch.from_numpy(rng.uniform(0.1, 2.0, CLASSES))
    keywords: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing}
    given = [x, target, weight][: 2 + weighted]
    close(
        run(lambda ops, *t: ops.cross_entropy(*t, **keywords), *given),
        F.cross_entropy(x, target, weight if weighted else None, **keywords),
    )


def test_everything_ignored() -> None:
    x, target = torch.zeros(3, CLASSES, dtype=torch.float64), torch.full((3,), -100)
    for reduction, smoothing in itertools.product(REDUCTIONS, (0.0, 0.1)):
        close(
            run(
                lambda ops, a, b, r=reduction, s=smoothing: ops.cross_entropy(
                    a, b, reduction=r, label_smoothing=s
                ),
                *(x, target),
            ),
            F.cross_entropy(x, target, reduction=reduction, label_smoothing=smoothing),
        )


def test_infinite_logits() -> None:
    inf = torch.inf
    x = torch.tensor([[0.0, -inf, 1.0], [-inf, -inf, -inf], [inf, 0.0, 1.0], [torch.nan, 0.0, 0.0]])
    x = x.double()
    for place in range(3):
        target = torch.full((4,), place)
        close(
            run(lambda ops, a, b: ops.cross_entropy(a, b, reduction="none"), x, target),
            F.cross_entropy(x, target, reduction="none"),
        )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_classes_of_other_integers(dtype: torch.dtype, rng: np.random.Generator) -> None:
    """Targets of any integer type are valid, and -100 does not wrap to a class of uint8. torch
    requires int64."""
    x = torch.from_numpy(rng.normal(size=(4, 200)))
    target = torch.tensor([156, 3, 199, 0]).to(dtype)
    close(
        run(lambda ops, a, b: ops.cross_entropy(a, b), x, target), F.cross_entropy(x, target.long())
    )


def test_the_logits_are_not_stored() -> None:
    """cross_entropy gathers from the logits, so that log_softmax is not materialized as the operand
    of a gather."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], dtype=DataType.BFloat16)
    fd.ops.cross_entropy(x, fd.define_tensor([-1], dtype=DataType.Int))
    assert "fd.ops.take_along_axis(T0, " in repr(fd)


def test_loss_1() -> None:
    fd = FusionDefinition()
    x, target = fd.define_tensor([-1, -1]), fd.define_tensor([-1], dtype=DataType.Int)
    for name in op_names(Losses):
        with pytest.raises(UserError) as caught:
            getattr(fd.ops, name)(x, target, reduction="average")
        assert caught.value.rule == "loss-1"
        assert str(caught.value) == (
            f"{name}(): reduction: expected 'none', 'sum' or 'mean', got 'average'"
        )


def test_loss_2() -> None:
    fd = FusionDefinition()
    x, target = fd.define_tensor([-1, -1]), fd.define_tensor([-1, 3], dtype=DataType.Int)
    for name in op_names(Losses):
        with pytest.raises(ShapeError) as caught:
            getattr(fd.ops, name)(x, target)
        assert caught.value.rule == "loss-2"
        assert str(caught.value) == (
            f"{name}(t0, t1): expected a target of 1 dims\n"
            f"  t0: float32[size(t0, 0), size(t0, 1)]  defined at {x.location}\n"
            f"  t1: int64[size(t1, 0), 3]  defined at {target.location}"
        )
    with pytest.raises(ShapeError):
        fd.ops.nll_loss(fd.define_tensor([]), fd.define_tensor([], dtype=DataType.Int))
    with pytest.raises(ShapeError) as caught:  # probabilities must have the shape of the logits
        fd.ops.cross_entropy(fd.define_tensor([]), fd.define_tensor([]))
    assert caught.value.rule == "loss-2"


@pytest.mark.parametrize("name", op_names(Losses))
def test_every_loss_is_documented_and_a_method(name: str) -> None:
    assert inspect.getdoc(getattr(Losses, name))
    assert getattr(Ops, name) is getattr(Losses, name)


def test_an_index_chosen_against_a_float() -> None:
    """An index selected between integers and a float scalar, as in masked cross-entropy."""
    logits = torch.arange(48.0).reshape(6, 8)
    target = torch.tensor([[3], [-100], [0], [7], [-100], [5]])
    fd = FusionDefinition()
    x, t = fd.from_pytorch(logits), fd.from_pytorch(target)
    zero = fd.define_scalar(0, dtype=DataType.Float)
    fd.add_output(fd.ops.take_along_axis(x, fd.ops.where(fd.ops.ne(t, -100), t, zero), dim=1))
    (got,) = fd.validate([logits, target])
    assert got.equal(logits.gather(1, target.clamp(min=0)))
