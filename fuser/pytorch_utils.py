"""fuser.nvfuser.pytorch_utils, at the path that programs for nvFuser import."""

from typing import Any

from fuser.nvfuser import pytorch_utils as _moved
from fuser.nvfuser.pytorch_utils import (
    clear_cuda_cache,
    get_device_properties,
    python_scalar_to_nvfuser_dtype,
    retry_on_oom_or_skip_test,
    torch_dtype_to_nvfuser_dtype,
)

__all__ = [
    "clear_cuda_cache",
    "get_device_properties",
    "python_scalar_to_nvfuser_dtype",
    "retry_on_oom_or_skip_test",
    "torch_dtype_to_nvfuser_dtype",
]

DEVICE_PROPERTIES: dict[str, Any] | None


def __getattr__(name: str) -> Any:
    """DEVICE_PROPERTIES, which is made when it is asked for."""
    return getattr(_moved, name)
