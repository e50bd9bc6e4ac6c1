"""Kernels of Triton in a user's program: torch launches them as steps between regions.

Dynamo writes a launch as a node of its own. AOTAutograd makes it functional: the node copies the
tensors that the kernel writes, and returns the copies by name. A launch writes into a fresh tensor
without a copy: the usual kernel gets its result from torch.empty_like().
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from fuser.adapters.aten.factories import CREATIONS, ROWS
from fuser.adapters.torch_compat import (
    clone_preserve_strides,
    triton_kernel_wrapper_functional,
    triton_kernel_wrapper_mutation,
)

_FRESH = {*CREATIONS, *ROWS} - {"aten.fill.Scalar", "aten.fill.Tensor"}


def is_triton_kernel(node: fx.Node) -> bool:
    """True for a launch that returns copies of the tensors that the kernel writes."""
    return node.target is triton_kernel_wrapper_functional


def is_memory_of_launch(node: fx.Node) -> bool:
    """True for a fresh tensor that only one launch reads, as one operand."""
    if str(node.target) not in _FRESH or len(node.users) != 1:
        return False
    (user,) = node.users
    return is_triton_kernel(user) and list(_operands(user).values()).count(node) == 1


def _operands(launch: fx.Node) -> dict[str, Any]:
    return launch.kwargs["kwargs"]  # type: ignore[return-value]


def _copied(x: torch.Tensor) -> torch.Tensor:
    return clone_preserve_strides(x)  # type: ignore[no-untyped-call]


def launch_of(node: fx.Node) -> Callable[..., dict[str, torch.Tensor]]:
    """A function with the arguments of the node. It copies a written tensor only if an op other
    than this launch may read or own its memory.
    """
    fresh = {
        name
        for name, n in _operands(node).items()
        if isinstance(n, fx.Node) and is_memory_of_launch(n)
    }

    def launch(
        *, kwargs: dict[str, Any], tensors_to_clone: list[str], **others: Any
    ) -> dict[str, torch.Tensor]:
        written = {
            name: kwargs[name] if name in fresh else _copied(kwargs[name])
            for name in tensors_to_clone
        }
        triton_kernel_wrapper_mutation(kwargs=kwargs | written, **others)
        return written

    return launch
