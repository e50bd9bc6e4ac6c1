"""fuser/testing: batches of definitions, and errors in ULP."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import fuser
from fuser import FusionDefinition, UserError
from fuser.testing import assert_close_ulp, compile_batch, ulp_error


def scaled(factor: float) -> FusionDefinition:
    fd = FusionDefinition()
    fd.add_output(fd.define_tensor([-1]) * factor)
    return fd


def test_a_batch_is_compiled_at_once_and_once(set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_CACHE", 0)
    x = torch.randn(8)
    # Factors that no other test uses: kernels stay in the cache of the process.
    factors = [0.5 + (2 * i + 1) / 1024 for i in range(5)]
    definitions = [scaled(factor) for factor in factors]
    before = fuser.cache_info().kernels_compiled
    assert compile_batch((fd, [x]) for fd in definitions) == 5
    assert fuser.cache_info().kernels_compiled == before + 5
    for factor, fd in zip(factors, definitions, strict=True):
        assert torch.equal(fd.execute([x])[0], x * factor)
    assert fuser.cache_info().kernels_compiled == before + 5
    assert compile_batch([]) == 0


def test_a_batch_with_a_wrong_call_builds_nothing() -> None:
    before = fuser.cache_info().kernels_compiled
    with pytest.raises(UserError):
        compile_batch([(scaled(3.25), [torch.ones(4)]), (scaled(3.75), [])])
    assert fuser.cache_info().kernels_compiled == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_ulp_error(dtype: torch.dtype) -> None:
    eps = torch.finfo(dtype).eps
    actual = torch.tensor([1.0, 1.0, 1.0, 2.0, math.inf, math.nan], dtype=dtype)
    exact = torch.tensor([1.0, 1 + eps, 1 + 2 * eps, 2.0, math.inf, math.nan], dtype=torch.float64)
    assert ulp_error(actual, exact).tolist() == [0, 1, 2, 0, 0, 0]


def test_edges_of_ulp_error() -> None:
    tiny, largest = 2.0**-149, torch.finfo(torch.float32).max
    actual = torch.tensor([0.0, tiny, math.inf, largest, math.nan, 1.0])
    exact = torch.tensor([tiny, 3 * tiny, 1e39, 1e39, 1.0, math.nan], dtype=torch.float64)
    error = ulp_error(actual, exact)
    assert error[0] == 1
    assert error[1] == 2
    assert error[2] <= 0.5  # 1e39 rounds to infinity
    assert error[3] > 1
    assert error[4] == error[5] == math.inf


def test_assert_close_ulp() -> None:
    exact = torch.tensor([[1.0, 2.0], [3.0, 1 / 3]], dtype=torch.float64)
    assert_close_ulp(exact.float(), exact)
    off = exact.float()
    off[1, 0] += 2.0**-20
    with pytest.raises(AssertionError, match=r"element \[1, 0\]: .*: 4 ULP, allowed 0.5 \(1 of 4"):
        assert_close_ulp(off, exact)
    assert_close_ulp(off, exact, ulp=4)
    with pytest.raises(AssertionError, match=r"shape \[4\], not \[2, 2\]"):
        assert_close_ulp(off.flatten(), exact)
    assert_close_ulp(torch.empty(0), torch.empty(0, dtype=torch.float64))


def test_integers_are_equal_or_not() -> None:
    assert_close_ulp(torch.tensor([1, 2]), torch.tensor([1, 2]))
    with pytest.raises(AssertionError, match="allowed 100"):
        assert_close_ulp(torch.tensor([1, 2]), torch.tensor([1, 3]), ulp=100)
