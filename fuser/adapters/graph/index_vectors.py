"""Indices of gathers and scatters that are known at compile time: index vectors of single dims.

Torch traces F.interpolate, paddings by reflection or replication, and rolls as gathers by indices
that are functions of aranges alone. Each index varies along one dim of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from fuser.adapters.nodes import in_order, tensor_of
from fuser.adapters.torch_compat import OpOverload, unset_fake_temporarily

Vector = tuple[int, ...]
_LONGEST = 1 << 16  # maximum elements of an index


class Constants:
    """Values of nodes that depend on no input, evaluated on the CPU."""

    def __init__(self) -> None:
        self.known: dict[fx.Node, torch.Tensor | None] = {}

    def index_vectors(
        self, sizes: Sequence[Any], indices: Sequence[fx.Node | None]
    ) -> dict[int, Vector] | None:
        """Index vectors by dim of a tensor with these sizes, with elements from 0 to the size - 1.
        None unless adjacent dims are indexed, each by a constant along its own dim.
        """
        dims = [d for d, index in enumerate(indices) if index is not None]
        if not dims or dims[-1] - dims[0] >= len(dims):
            return None
        found: dict[int, Vector] = {}
        with unset_fake_temporarily():
            for d in dims:
                index = self.value(indices[d])  # type: ignore[arg-type]
                vector = None if index is None else _vector(index, sizes[d], dims[-1] - d)
                if vector is None:
                    return None
                found[d] = vector
        return found

    def value(self, node: fx.Node) -> torch.Tensor | None:
        for n in in_order(node, lambda n: n.all_input_nodes, self.known):
            self.known[n] = self._computed(n) if self._is_constant(n) else None
        return self.known[node]

    def _is_constant(self, node: fx.Node) -> bool:
        value = tensor_of(node)
        return (
            isinstance(node.target, OpOverload)
            and torch.Tag.nondeterministic_seeded not in node.target.tags
            and value is not None
            and all(type(n) is int for n in value.shape)
            and value.numel() <= _LONGEST
            and all(self.known[n] is not None for n in node.all_input_nodes)
        )

    def _computed(self, node: fx.Node) -> torch.Tensor:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: self.known[n])
        if "device" in kwargs:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        result: torch.Tensor = node.target(*args, **kwargs)  # type: ignore[operator]
        return result


def _vector(index: torch.Tensor, size: Any, behind: int) -> Vector | None:
    """The index as a vector without negative elements.

    behind  number of indexed dims after its own
    """
    flat = index.flatten()
    if type(size) is not int or not flat.numel() or index.dtype not in (torch.int64, torch.int32):
        return None
    if list(index.shape) != [flat.numel(), *[1] * behind]:
        return None
    found = flat.tolist()
    if not all(-size <= n < size for n in found):
        return None
    return tuple(n + size if n < 0 else n for n in found)


def repetitions(vector: Vector, size: int) -> int | None:
    """n if the vector is each position n times in a row."""
    times = len(vector) // size
    alike = len(vector) % size == 0 and all(p == n // times for n, p in enumerate(vector))
    return times if alike else None
