"""Ops take their short form only if results are rounded to half precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuser import DataType, FusionDefinition
from tests.support.stages import stage_text

Define = Callable[[FusionDefinition, Any], None]


def kernel(define: Define, dtype: DataType = DataType.Float) -> str:
    fd = FusionDefinition()
    define(fd, fd.define_tensor([-1], dtype=dtype))
    return stage_text(fd, [torch.ones(8).to(getattr(torch, dtype.torch_name))], "build")


def both_uses(fd: FusionDefinition, x: Any) -> None:
    y = fd.ops.exp(x)
    fd.add_output(fd.ops.cast(y, DataType.BFloat16))
    fd.add_output(fd.ops.cast(y + 1.0, DataType.Half))


def ends(name: str) -> Define:
    return lambda fd, x: fd.add_output(fd.ops.cast(getattr(fd.ops, name)(x), DataType.Half))


def read_by_nobody(fd: FusionDefinition, x: Any) -> None:
    y = fd.ops.exp(x)
    fd.ops.sin(y)
    fd.add_output(fd.ops.cast(y, DataType.BFloat16))


SHORT: dict[str, Define] = {
    "cast to half": lambda fd, x: fd.add_output(fd.ops.cast(fd.ops.exp(x), DataType.Half)),
    "cast to float8": lambda fd, x: fd.add_output(fd.ops.cast(fd.ops.exp(x), DataType.Float8_e5m2)),
    "through a product": lambda fd, x: fd.add_output(
        fd.ops.cast(fd.ops.exp(x) * x, DataType.BFloat16)
    ),
    "through movement": lambda fd, x: fd.add_output(
        fd.ops.cast(fd.ops.broadcast(fd.ops.exp(x), [True, False]), DataType.Half)
    ),
    "every use": both_uses,
    "every use that a result needs": read_by_nobody,
    "the log of their sum": lambda fd, x: fd.add_output(
        fd.ops.cast(fd.ops.log_softmax(x, -1), DataType.Half)
    ),
}


@pytest.mark.parametrize("case", SHORT)
def test_short(case: str) -> None:
    assert "exp_half(" in kernel(SHORT[case])


def one_use(fd: FusionDefinition, x: Any) -> None:
    y = fd.ops.exp(x)
    fd.add_output(fd.ops.cast(y, DataType.BFloat16))
    fd.add_output(y)


LONG: dict[str, Define] = {
    "a float32 result": lambda fd, x: fd.add_output(fd.ops.exp(x)),
    "a float32 result beside": one_use,
    "a comparison": lambda fd, x: fd.add_output(fd.ops.exp(x) > 1.0),
    "a cast to an integer": lambda fd, x: fd.add_output(fd.ops.cast(fd.ops.exp(x), DataType.Int)),
    "a function that amplifies": lambda fd, x: fd.add_output(
        fd.ops.cast(fd.ops.log(fd.ops.exp(x)), DataType.Half)
    ),
    "arithmetic in float64": lambda fd, x: fd.add_output(
        fd.ops.cast(fd.ops.exp(x) * fd.ops.cast(x, DataType.Double), DataType.Half)
    ),
    "a product of many, whose errors add up": lambda fd, x: fd.add_output(
        fd.ops.cast(fd.ops.prod(fd.ops.exp(x), [0]), DataType.Half)
    ),
}


@pytest.mark.parametrize("case", LONG)
def test_long(case: str) -> None:
    assert "exp_half(" not in kernel(LONG[case])


def test_float64_is_never_short() -> None:
    got = kernel(
        lambda fd, x: fd.add_output(fd.ops.cast(fd.ops.exp(x), DataType.Half)), DataType.Double
    )
    assert "exp_half(" not in got


@pytest.mark.parametrize("name", ["exp", "sigmoid", "silu", "gelu_erf", "gelu_tanh"])
def test_every_short_form_is_used(name: str) -> None:
    assert f"{name}_half(" in kernel(ends(name))
