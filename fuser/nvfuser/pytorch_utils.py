"""Conversion of torch and Python types to DataType, and GPU properties, under the names that
programs for nvFuser import.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar

from fuser import _core
from fuser._core import DataType
from fuser.arguments import as_dtype
from fuser.errors import DTypeError

__all__ = [
    "clear_cuda_cache",
    "get_device_properties",
    "python_scalar_to_nvfuser_dtype",
    "retry_on_oom_or_skip_test",
    "torch_dtype_to_nvfuser_dtype",
]

_OF_PYTHON = {
    bool: DataType.Bool,
    int: DataType.Int,
    float: DataType.Double,
    complex: DataType.ComplexDouble,
}
Function = TypeVar("Function", bound=Callable[..., Any])


def torch_dtype_to_nvfuser_dtype(dtype: Any) -> DataType:
    """The DataType of a torch.dtype, or of Python's bool, int, float and complex. Raises DTypeError
    `dtype-torch` for a type that fuser lacks.
    """
    return _OF_PYTHON.get(dtype) or as_dtype(dtype)


def python_scalar_to_nvfuser_dtype(number: bool | int | float | complex) -> DataType:
    """The DataType of define_scalar(number). Raises DTypeError `scalar-type-1` unless `number` is a
    number.
    """
    found = _OF_PYTHON.get(type(number))
    if found is None:
        raise DTypeError(
            f"expected a bool, int, float or complex, got {type(number).__name__}",
            rule="scalar-type-1",
        )
    return found


def clear_cuda_cache() -> None:
    """Collects garbage and empties torch's CUDA cache."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def retry_on_oom_or_skip_test(test: Function) -> Function:
    """Decorates a test: if the GPU runs out of memory, runs it again after clear_cuda_cache(), and
    skips it if that fails too.
    """

    @wraps(test)
    def run(*args: Any, **named: Any) -> Any:
        import pytest
        import torch

        try:
            return test(*args, **named)
        except torch.OutOfMemoryError:
            pass  # the frames of the error hold tensors and are freed before the retry
        clear_cuda_cache()
        try:
            return test(*args, **named)
        except torch.OutOfMemoryError as error:
            pytest.skip(f"too little memory: {error}")

    return run  # type: ignore[return-value]


def get_device_properties() -> dict[str, Any]:
    """Properties of torch's current GPU: name, compute capability, memory, clocks and bandwidth, in
    the units of the key names. Raises torch's error without a GPU.
    """
    import torch

    device = torch.cuda.current_device()
    of_torch, ours = torch.cuda.get_device_properties(device), _core.cuda_device(device)
    return {
        "gpu_name": of_torch.name,
        "gpu_compute_capability_major": of_torch.major,
        "gpu_compute_capability_minor": of_torch.minor,
        "gpu_gmem_bytes": of_torch.total_memory,
        "gpu_sm_count": of_torch.multi_processor_count,
        "gpu_max_threads_per_block": 1024,  # limit of every GPU
        "gpu_max_threads_per_sm": of_torch.max_threads_per_multi_processor,
        "gpu_smem_bytes_per_block": of_torch.shared_memory_per_block,
        "gpu_regs_per_block": ours.registers_per_sm,
        "gpu_l2_bytes": of_torch.L2_cache_size,
        "gpu_clock_rate_khz": of_torch.clock_rate,
        "gpu_clock_rate_hz": of_torch.clock_rate * 1000,
        "gpu_mem_clock_khz": of_torch.memory_clock_rate,
        "gpu_mem_clock_hz": of_torch.memory_clock_rate * 1000,
        "gpu_mem_bus_width": of_torch.memory_bus_width,
        "gpu_peak_bandwidth_bps": ours.bandwidth,
        "gpu_peak_bandwidth_gbps": ours.bandwidth / 1e9,
    }


@cache
def _device_properties() -> dict[str, Any] | None:
    import torch

    return get_device_properties() if torch.cuda.is_available() else None


DEVICE_PROPERTIES: dict[str, Any] | None  # computed on first use


def __getattr__(name: str) -> Any:
    """DEVICE_PROPERTIES: get_device_properties() at the first use, if there is a GPU."""
    if name == "DEVICE_PROPERTIES":
        return _device_properties()
    raise AttributeError(f"module 'fuser.pytorch_utils' has no attribute {name!r}")
