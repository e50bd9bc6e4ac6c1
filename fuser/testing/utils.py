"""GPU checks and result checks for tests, under the names that suites for nvFuser import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fuser.layout import compute_tensor_descriptor

__all__ = [
    "FLOAT8_DTYPES",
    "is_pre_ampere",
    "is_pre_blackwell",
    "is_pre_hopper",
    "is_pre_volta",
    "skip_if_global_memory_below_gb",
    "verify_stride_order",
]

FLOAT8_DTYPES = [torch.float8_e4m3fn, torch.float8_e5m2]


def _is_before(major: int) -> bool:
    """True if torch's current GPU is of an earlier generation, or if there is no GPU."""
    return not torch.cuda.is_available() or torch.cuda.get_device_properties().major < major


def is_pre_volta() -> bool:
    """True if torch's current GPU, if any, is older than compute capability 7."""
    return _is_before(7)


def is_pre_ampere() -> bool:
    """True if the GPU is older than compute capability 8."""
    return _is_before(8)


def is_pre_hopper() -> bool:
    """True if the GPU is older than compute capability 9."""
    return _is_before(9)


def is_pre_blackwell() -> bool:
    """True if the GPU is older than compute capability 10."""
    return _is_before(10)


def skip_if_global_memory_below_gb(least: float, gpu_id: int = 0) -> Callable[[Any], Any]:
    """Decorates a test to be skipped on a GPU with less memory, and without a GPU."""
    import pytest

    has = torch.cuda.is_available()
    bytes_ = torch.cuda.get_device_properties(gpu_id).total_memory if has else 0
    return pytest.mark.skipif(bytes_ < least * 2**30, reason=f"needs {least} GiB on a GPU")


def verify_stride_order(output_strides: Sequence[int], stride_order: Sequence[int]) -> None:
    """Asserts that the strides have the order `stride_order`: position 0 is the innermost dim."""
    innermost_first = sorted(range(len(stride_order)), key=lambda d: stride_order[d])
    strides = [output_strides[d] for d in innermost_first]
    found = compute_tensor_descriptor([2] * len(strides), output_strides)[1]
    assert strides == sorted(strides), f"strides {list(output_strides)} are in the order {found}"
