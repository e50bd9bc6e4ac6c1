"""A just-in-time fusion compiler for PyTorch on NVIDIA GPUs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fuser._native import load_core

__version__ = "0.1.0"

load_core()  # raises an error with build instructions if it is missing

from fuser._core import DataType, Scalar, Tensor, get_option  # noqa: E402
from fuser.arguments import Vector  # noqa: E402
from fuser.autotune import autotune  # noqa: E402
from fuser.cache import (  # noqa: E402
    CacheInfo,
    FusionCache,
    FusionExecutorCache,
    LRUCache,
    LruFusionCache,
    cache_info,
    clear_caches,
    specialize_after,
)
from fuser.debug.evaluate import evaluate  # noqa: E402
from fuser.definition import FusionDefinition  # noqa: E402
from fuser.errors import (  # noqa: E402
    ArgumentTypeError,
    BuildMismatch,
    CompileError,
    DTypeError,
    IndexRangeError,
    InternalError,
    LaunchError,
    ShapeError,
    Unsupported,
    UserError,
)
from fuser.fusion import Fusion  # noqa: E402
from fuser.inspect.explain import explain  # noqa: E402
from fuser.inspect.report import report  # noqa: E402
from fuser.layout import compute_tensor_descriptor  # noqa: E402
from fuser.nvfuser import names  # noqa: E402
from fuser.nvfuser.compat import (  # noqa: E402
    clone,
    compute_contiguity,
    disable_automatic_serialization,
    enable_automatic_serialization,
    translate_fusion,
    version,
)
from fuser.plan import Plan  # noqa: E402
from fuser.torch_habits import install  # noqa: E402

if TYPE_CHECKING:
    from fuser.adapters.functorch import compile, memory_efficient_fusion
    from fuser.adapters.torchscript import enable_torchscript_fuser, torchscript_fuser
    from fuser.debug.validation import get_val_tolerances, validate_with_auto_inferred_outputs

# Names whose modules import torch; `import fuser` itself does not.
_LATER = {
    "compile": "fuser.adapters.functorch",
    "enable_torchscript_fuser": "fuser.adapters.torchscript",
    "get_val_tolerances": "fuser.debug.validation",
    "memory_efficient_fusion": "fuser.adapters.functorch",
    "torchscript_fuser": "fuser.adapters.torchscript",
    "validate_with_auto_inferred_outputs": "fuser.debug.validation",
}


# Modules that programs for nvFuser use as attributes without importing them.
_MODULES = ("contrib", "multidevice", "pytorch_utils", "testing")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fuser.{name}")
    if name in names.NAMES:
        return names.find(name)
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'fuser' has no attribute {name!r}")
    return getattr(import_module(module), name)


__all__ = [
    "ArgumentTypeError",
    "BuildMismatch",
    "CacheInfo",
    "CompileError",
    "DTypeError",
    "DataType",
    "Fusion",
    "FusionCache",
    "FusionDefinition",
    "FusionExecutorCache",
    "IndexRangeError",
    "InternalError",
    "LRUCache",
    "LaunchError",
    "LruFusionCache",
    "Plan",
    "Scalar",
    "ShapeError",
    "Tensor",
    "Unsupported",
    "UserError",
    "Vector",
    "autotune",
    "cache_info",
    "clear_caches",
    "clone",
    "compile",
    "compute_contiguity",
    "compute_tensor_descriptor",
    "disable_automatic_serialization",
    "enable_automatic_serialization",
    "enable_torchscript_fuser",
    "evaluate",
    "explain",
    "get_val_tolerances",
    "memory_efficient_fusion",
    "report",
    "specialize_after",
    "torchscript_fuser",
    "translate_fusion",
    "validate_with_auto_inferred_outputs",
    "version",
]

install()
del install

if get_option("FUSER_TORCHSCRIPT") == "1":
    __getattr__("enable_torchscript_fuser")()
