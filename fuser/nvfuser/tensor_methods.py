"""Methods of nvFuser's TensorView on tensors of a definition; see fuser.nvfuser.schedule.

The modules behind them are imported by the first call, since few programs schedule by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser._core import Tensor

METHODS = (
    *("axis", "cache_after", "cache_before", "cache_fork", "domain", "get_logical_domain"),
    *("get_loop_domain", "get_root_domain", "has_reduction", "has_root", "inline_at"),
    *("inner_split", "merge", "outer_split", "parallelize", "reorder", "rfactor"),
    *("set_allocation_domain", "set_device_mesh", "set_memory_type", "split", "swizzle"),
    "swizzle1d",
)


def _method(name: str) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        from fuser.nvfuser.schedule.graph import view_of

        view = view_of(self)
        return checked_call(getattr(view, name), args, kwargs)

    method.__name__, method.__qualname__ = name, f"Tensor.{name}"
    method.__doc__ = f"fuser.nvfuser.schedule.tensor_view.TensorView.{name}()."
    return method


def checked_call(method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a primitive; wrong arguments become UserError `argument-kind-1`."""
    from fuser.arguments import checked

    return checked(method, f"Tensor.{method.__name__}")(*args, **kwargs)


for _name in METHODS:
    setattr(Tensor, _name, _method(_name))
