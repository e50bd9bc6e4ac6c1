"""Edge cases of ops, compared with torch's counterparts: values, types, shapes and strides. This
file also has most operands of tests/ops/test_*corners.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fuser import FusionDefinition, evaluate
from fuser.testing import compile_batch

Define = Callable[..., Any]  # called with fd.ops and the input Tensors
Case = tuple[str, Define, Callable[..., Any], list[Any]]

M = torch.arange(12.0).view(3, 4) - 5.5
V = torch.tensor([3.0, -1.0, 2.0, -0.0, 7.5])
S = torch.tensor(-2.5)  # no dims
ONE = torch.tensor([[1.5]])
ROWS, COLUMNS = torch.zeros(0, 3), torch.zeros(3, 0)  # no elements
CUBE = torch.arange(24.0).view(2, 3, 4)
N = torch.tensor([[5, -3, 0], [7, 2, -9]])
H = M.half()
C = torch.complex(M, M.flip(0))
B = torch.tensor([[True, False, True], [False, False, True]])
NAN, INF = math.nan, math.inf
SPECIAL = torch.tensor([[NAN, 1.0, -INF], [INF, -0.0, 2.0]])
I0, I1 = torch.tensor(2), torch.tensor([1])
NO_INDEX = torch.zeros(0, dtype=torch.int64)
WIDE = torch.arange(3.0).view(3, 1).expand(3, 4)


def results(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def define(case: Case, static: bool) -> FusionDefinition:
    fd = FusionDefinition()
    tensors = [fd.from_pytorch(x, static_sizes=static) for x in case[3]]
    for result in results(case[1](fd.ops, *tensors)):
        fd.add_output(result)
    return fd


def check(name: str, got: torch.Tensor, wanted: torch.Tensor, strides: bool = True) -> None:
    """Assert equality within 1e-6, enough for sums of at most 24 numbers below 100."""
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), name
    if strides and got.numel():
        assert got.stride() == wanted.stride(), name
    torch.testing.assert_close(
        got, wanted, rtol=1e-6, atol=1e-6, equal_nan=True, msg=lambda text: f"{name}: {text}"
    )


def check_all(cases: Sequence[Case], static: bool) -> None:
    """Run the cases, compiled in one batch, and fuser.evaluate; `static`: with static sizes."""
    made = [(case, define(case, static)) for case in cases]
    compile_batch((fd, case[3]) for case, fd in made)
    for (name, _, reference, inputs), fd in made:
        wanted = results(reference(*inputs))
        exact = evaluate(fd, inputs)
        for got, want, also in zip(fd.execute(inputs, device="cpu"), wanted, exact, strict=True):
            check(name, got, want)
            check(name, also.to(want.dtype), want, strides=False)
