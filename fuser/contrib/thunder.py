"""Lightning Thunder's nvFuser executor, run by fuser.

    import fuser.contrib.thunder

    fuser.contrib.thunder.enable()          before or after `import thunder`
    model = thunder.jit(model)

Thunder imports nvFuser's Python API by its names, asks its version, and accepts CUDA tensors alone.
enable() provides the names, answers the version, and with `cpu` opens the executor to CPU tensors.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

import torch

import fuser
from fuser.errors import Unsupported, UserError

__all__ = ["NAMES", "enable"]

# Import names of nvFuser: the older binding, and the one that Thunder prefers from 0.2.34 on.
NAMES = ("nvfuser", "nvfuser_direct")

_EXECUTOR = "thunder.executors.nvfuserex"

# Methods of named tensors, which torch 2.13 removed. Thunder 0.2.6 lists them while it is imported.
_REMOVED = ("align_as", "align_to", "has_names", "refine_names", "rename")


class _Alias(ModuleType):
    """A module whose attributes are those of fuser, and of its binding under the name `_C`."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "nvFuser's Python API, provided by fuser.")
        self.__spec__ = ModuleSpec(name, None)  # find_spec() of programs needs one
        self._C = fuser._core

    def __getattr__(self, name: str) -> Any:
        return getattr(fuser, name)


def enable(cpu: bool | None = None) -> Any:
    """Makes Thunder's nvFuser executor use fuser, and makes it a default executor of thunder.jit.
    Returns the executor, as `thunder.jit(f, executors=[...])` takes it.

    cpu: the executor takes CPU tensors too; by default if there is no CUDA device. Calls after the
    first return the same executor. Imports of `nvfuser` and `nvfuser_direct` find fuser from then
    on, in all programs of the process.

    Raises Unsupported `thunder-1` if Thunder is not installed or lacks a name that this adapter
    needs, UserError `thunder-2` if Thunder already runs nvFuser itself.
    """
    _provide_names()
    try:
        with _removed_methods():
            module: Any = importlib.import_module(_EXECUTOR)
        cuda = torch.cuda.is_available()
        if module.nvfuserex is None:
            _load_executor(module)
        impl = importlib.import_module(f"{_EXECUTOR}_impl")
        _admit(impl, not cuda if cpu is None else cpu)
        _declare_random_state(impl)
    except (ImportError, AttributeError) as error:
        raise Unsupported(
            f"fuser.contrib.thunder: expected lightning-thunder 0.2.6 or near, got {error}\n"
            "  hint: pip install lightning-thunder",
            rule="thunder-1",
        ) from error
    return module.nvfuserex


def _provide_names() -> None:
    """Puts the names of nvFuser into sys.modules."""
    running = sys.modules.get(f"{_EXECUTOR}_impl")
    if running is not None and not isinstance(getattr(running, "nvfuser", None), _Alias):
        raise UserError(
            "fuser.contrib.thunder.enable(): Thunder already runs nvFuser\n"
            "  hint: call enable() before `import thunder`",
            rule="thunder-2",
        )
    for name in NAMES:
        if not isinstance(sys.modules.get(name), _Alias):
            sys.modules[name] = _Alias(name)


@contextmanager
def _removed_methods() -> Iterator[None]:
    """Gives torch.Tensor methods that Thunder lists and this torch lacks."""

    def absent(name: str) -> Any:
        def method(*args: Any, **kwargs: Any) -> NoReturn:
            raise AttributeError(f"this torch has no {name}()")

        method.__name__ = name
        return method

    added = [name for name in _REMOVED if not hasattr(torch.Tensor, name)]
    for name in added:
        setattr(torch.Tensor, name, absent(name))
    try:
        yield
    finally:
        for name in added:
            delattr(torch.Tensor, name)


def _load_executor(module: Any) -> None:
    """Loads the executor that Thunder skipped, because there was no nvFuser or is no GPU."""
    thunder: Any = importlib.import_module("thunder")
    version = module.LooseVersion(str(fuser.version()))
    module.nvfuser_version = lambda: version
    # thunder.examine returns no fusions without a GPU.
    examine: Any = importlib.import_module("thunder.examine")
    examine.warn_fusions = lambda: False
    module.nvfuserex = importlib.import_module(f"{_EXECUTOR}_impl").ex
    thunder.nvfuser_executor = module.nvfuserex
    # Executors of single ops stay in front of it, as where Thunder finds nvFuser itself.
    thunder.extend.set_default_executors([*thunder.get_default_executors(), module.nvfuserex])


def _admit(impl: Any, cpu: bool) -> None:
    """Opens the checks of the executor to CPU tensors, or leaves them to CUDA tensors."""
    kinds = (impl.DeviceType.CUDA, impl.DeviceType.CPU)[: 1 + cpu]
    choice = importlib.import_module("thunder.executors.utils")._fused_sdp_choice

    def is_supported_devicetype(kind: Any) -> bool:
        return kind in kinds

    def is_supported_device(device: Any) -> bool:
        return device.devicetype in kinds

    def is_supported_tensor(a: Any, *, allow_low_precision_floats: bool = True) -> bool:
        on_device = a.device.devicetype in kinds or impl.utils.is_cpu_scalar_tensor(a)
        low = {} if allow_low_precision_floats else {"allow_low_precision_floats": False}
        return on_device and a.ndim <= 8 and impl.is_supported_dtype(a.dtype, **low)

    def has_cuda_input_or_output(_: Any, bsym: Any) -> bool:
        return any(
            isinstance(p, impl.TensorProxy) and p.device.devicetype in kinds
            for p in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs)
        )

    def select_device(fd: Any, device: Any) -> None:
        """Device of a definition whose ops make tensors without operands."""
        if device is None:
            return
        chosen = "cpu" if device.devicetype is impl.DeviceType.CPU else device.index
        impl.utils.check(
            fd._selected_device in (None, chosen),
            lambda: f"expected one device, got {fd._selected_device} and {chosen}",
        )
        fd._selected_device = chosen

    def attention(query: Any, key: Any, value: Any, mask: Any, dropout: Any, *rest: Any) -> Any:
        """Kind of torch's attention; flash attention on the CPU, which has no dropout."""
        if query.device.devicetype is not impl.DeviceType.CPU:
            return choice(query, key, value, mask, dropout, *rest)
        backends = impl.SpdaBackend
        return backends.FLASH_ATTENTION if dropout == 0.0 else backends.MATH

    impl.is_supported_device = is_supported_device
    impl.is_supported_devicetype = is_supported_devicetype
    impl.is_supported_tensor = is_supported_tensor
    impl._select_device = select_device
    impl._fused_sdp_choice = attention
    impl.device_supports_fp8 = lambda: True  # casts of 8-bit floats need no instruction of the GPU
    impl.nvFuserExecutor.has_cuda_input_or_output = has_cuda_input_or_output


def _declare_random_state(impl: Any) -> None:
    """Gives the random state of attention the type int64 in Thunder's traces. fd.ops.sdpfa_fwd
    returns the bits of torch's uint64 state as int64.
    """
    symbol = impl.nv_sdpfa_fwd
    declared = symbol.meta
    if hasattr(declared, "__wrapped__"):  # an earlier enable() was here
        return

    @functools.wraps(declared)
    def meta(*args: Any, **kwargs: Any) -> Any:
        out, logsumexp, *state = declared(*args, **kwargs)
        return out, logsumexp, *(impl.TensorProxy(like=t, dtype=impl.dtypes.int64) for t in state)

    object.__setattr__(symbol, "meta", meta)  # Symbol is a frozen dataclass
