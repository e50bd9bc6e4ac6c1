"""fuser/composites.py: what each composite means, against torch.nn.functional in float64."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fuser import DataType, FusionDefinition, Tensor, UserError, composites, evaluate

Op = Callable[..., Any]

EDGES = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 19.9, 20.1, -40.0, 40.0, 700.0, -700.0]
EDGES += [math.inf, -math.inf, math.nan]

UNARY: list[tuple[str, dict[str, Any], Op]] = [
    ("square", {}, torch.square),
    ("gelu", {}, F.gelu),
    ("gelu", {"approximate": "tanh"}, lambda x: F.gelu(x, approximate="tanh")),
    ("mish", {}, F.mish),
    ("softplus", {}, F.softplus),
    ("softplus", {"beta": 2.0, "threshold": 5.0}, lambda x: F.softplus(x, 2.0, 5.0)),
    ("logsigmoid", {}, F.logsigmoid),
    ("softsign", {}, F.softsign),
    ("tanhshrink", {}, F.tanhshrink),
    ("hardtanh", {}, F.hardtanh),
    ("hardtanh", {"min_val": -2.0, "max_val": 0.5}, lambda x: F.hardtanh(x, -2.0, 0.5)),
    ("relu6", {}, F.relu6),
    ("hardsigmoid", {}, F.hardsigmoid),
    ("hardswish", {}, F.hardswish),
    ("leaky_relu", {}, F.leaky_relu),
    ("leaky_relu", {"negative_slope": 0.3}, lambda x: F.leaky_relu(x, 0.3)),
    ("elu", {}, F.elu),
    ("elu", {"alpha": 0.7}, lambda x: F.elu(x, 0.7)),
    ("celu", {}, F.celu),
    ("celu", {"alpha": 0.7}, lambda x: F.celu(x, 0.7)),
    ("selu", {}, F.selu),
    ("hardshrink", {}, F.hardshrink),
    ("hardshrink", {"lambd": 2.0}, lambda x: F.hardshrink(x, 2.0)),
    ("softshrink", {}, F.softshrink),
    ("softshrink", {"lambd": 2.0}, lambda x: F.softshrink(x, 2.0)),
    ("logit", {}, torch.logit),
    ("segment_set", {}, lambda x: x),
]
BINARY: list[tuple[str, dict[str, Any], Op]] = [
    ("rsub", {}, torch.rsub),
    ("rsub", {"alpha": 2.5}, lambda a, b: torch.rsub(a, b, alpha=2.5)),
    ("add_alpha", {"alpha": 2.5}, lambda a, b: torch.add(a, b, alpha=2.5)),
    ("sub_alpha", {"alpha": 2.5}, lambda a, b: torch.sub(a, b, alpha=2.5)),
    ("hypot", {}, torch.hypot),
    ("log_add_exp", {}, torch.logaddexp),
    ("xlogy", {}, torch.xlogy),
    ("prelu", {}, lambda x, w: torch.where(x > 0, x, w * x)),
]
TERNARY: list[tuple[str, dict[str, Any], Op]] = [
    ("addcmul", {}, torch.addcmul),
    ("addcmul", {"value": -0.5}, lambda x, a, b: torch.addcmul(x, a, b, value=-0.5)),
    ("addcdiv", {}, torch.addcdiv),
    ("addcdiv", {"value": 3}, lambda x, a, b: torch.addcdiv(x, a, b, value=3)),
]


def run(name: str, keywords: dict[str, Any], *inputs: torch.Tensor) -> torch.Tensor:
    with FusionDefinition() as fd:
        args = [fd.define_tensor([-1], dtype=DataType.Double) for _ in inputs]
        fd.add_output(getattr(fd.ops, name)(*args, **keywords))
    return evaluate(fd, list(inputs))[0]


def grid(arity: int, rng: np.random.Generator) -> list[torch.Tensor]:
    values = torch.tensor(EDGES, dtype=torch.float64)
    columns = [c.flatten() for c in torch.meshgrid(*[values] * arity, indexing="ij")]
    return [torch.cat([c, torch.from_numpy(rng.normal(0, 3, 500))]) for c in columns]


@pytest.mark.parametrize(
    ("name", "keywords", "reference"),
    UNARY + BINARY + TERNARY,
    ids=lambda v: "torch" if callable(v) else str(v),
)
def test_meaning(
    name: str, keywords: dict[str, Any], reference: Op, rng: np.random.Generator
) -> None:
    arity = 1 if (name, keywords, reference) in UNARY else 3 if name.startswith("addc") else 2
    inputs = grid(arity, rng)
    expected = reference(*inputs)
    if name in ("hardswish", "gelu", "mish"):
        # torch gives NaN or 0 at -inf by its formula; the limit is 0 or -0, and either stands.
        keep = ~torch.isinf(inputs[0])
        inputs, expected = [i[keep] for i in inputs], expected[keep]
    torch.testing.assert_close(
        run(name, keywords, *inputs), expected, rtol=1e-12, atol=1e-15, equal_nan=True
    )


def test_every_composite_is_tested() -> None:
    assert {name for name, *_ in UNARY + BINARY + TERNARY} == set(composites.__all__)


@pytest.mark.parametrize("name", composites.__all__)
def test_every_composite_is_documented(name: str) -> None:
    assert getattr(composites, name).__doc__


@pytest.mark.parametrize(
    ("name", "keywords"), [(n, k) for n, k, _ in UNARY if n not in ("segment_set", "square")]
)
@pytest.mark.parametrize("dtype", [DataType.Half, DataType.Int32])
def test_half_and_integers_count_as_float32(
    name: str, keywords: dict[str, Any], dtype: DataType
) -> None:
    fd = FusionDefinition()
    result: Tensor = getattr(fd.ops, name)(fd.define_tensor([2], dtype=dtype), **keywords)
    assert result.dtype() == DataType.Float


def test_gelu_1() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([2])
    with pytest.raises(UserError) as caught:
        fd.ops.gelu(x, approximate="erf")
    assert caught.value.rule == "gelu-1"
    assert str(caught.value) == "gelu(): approximate: expected 'none' or 'tanh', got 'erf'"


def test_a_value_of_one_costs_nothing() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([2])
    fd.ops.addcmul(x, x, x)
    assert repr(fd).count("fd.ops.") == 2


def test_composites_of_scalars_are_scalars() -> None:
    fd = FusionDefinition()
    s = fd.define_scalar()
    fd.add_output(fd.define_tensor([2], dtype=DataType.Double) * fd.ops.softplus(s))
    (result,) = evaluate(fd, [0.25, torch.ones(2, dtype=torch.float64)])
    expected = F.softplus(torch.full((2,), 0.25, dtype=torch.float64))
    torch.testing.assert_close(result, expected, rtol=1e-15, atol=0)
