"""Torch's functional collectives on one dim of a mesh. Each begins at once, and waits when its
result is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial

from fuser.multidevice.shards import Transition, axis_of, chunk

_OPS = torch.ops._c10d_functional
_REDUCERS: dict[str, Callable[..., torch.Tensor]] = {
    "max": torch.amax,
    "min": torch.amin,
    "product": torch.prod,
}


class Pending:
    """A collective under way.

    result  tensor that it fills
    source  tensor that it reads, kept until it is complete
    finish  makes the shard of `result`
    """

    def __init__(
        self,
        result: torch.Tensor,
        source: torch.Tensor,
        finish: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self.result, self.source, self.finish = result, source, finish

    def wait(self) -> torch.Tensor:
        """The complete shard."""
        return self.finish(_OPS.wait_tensor(self.result))


def begin(step: Transition, x: torch.Tensor, sizes: tuple[int, ...], mesh: DeviceMesh) -> Pending:
    """Begins a collective on this rank's shard `x`. `sizes` are those of the shard if it were whole
    along dim `step.dim` of the mesh.
    """
    group = mesh.get_group(step.dim).group_name
    parts, index = mesh.size(step.dim), mesh.get_local_rank(step.dim)
    args = (step, x, sizes, group, parts, index)
    begun: Pending = _KINDS[step.kind](*args)
    return begun


def _padded(x: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """`x` with zeros behind an axis, up to `size` elements."""
    missing = size - x.shape[axis]
    if not missing:
        return x
    shape = list(x.shape)
    shape[axis] = missing
    return torch.cat([x, x.new_zeros(shape)], axis)


def _as_bytes(x: torch.Tensor) -> torch.Tensor:
    """[rows, bytes] of a tensor: collectives that only move data take any type."""
    columns = math.prod(x.shape[1:])
    # A contiguous tensor may have any stride along an axis of size 1, which view() refuses.
    rows = x.contiguous().as_strided((x.shape[0], columns), (columns, 1))
    return rows.view(torch.uint8)


def _from_bytes(data: torch.Tensor, like: torch.Tensor, rows: int) -> torch.Tensor:
    shape = (rows, *like.shape[1:])
    return data.view(like.dtype).reshape(shape) if data.numel() else like.new_empty(shape)


def _gathered(x: torch.Tensor, group: str, parts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The bytes of `x`, and those of all ranks, under way."""
    data = _as_bytes(x)
    return data, _OPS.all_gather_into_tensor(data, parts, group)


def _all_gather(
    step: Transition, x: torch.Tensor, sizes: Any, group: str, parts: int, index: int
) -> Pending:
    axis = axis_of(step.source)
    size = sizes[axis]
    full = -(-size // parts)
    first = _padded(x, axis, full).movedim(axis, 0)
    data, result = _gathered(first, group, parts)

    def finish(found: torch.Tensor) -> torch.Tensor:
        return _from_bytes(found, first, parts * full)[:size].movedim(0, axis)

    return Pending(result, data, finish)


def _all_reduce(
    step: Transition, x: torch.Tensor, sizes: Any, group: str, parts: int, index: int
) -> Pending:
    assert isinstance(step.source, Partial)
    op = step.source.reduce_op
    if op == "sum" and x.is_complex():
        data = torch.view_as_real(x.contiguous())
        return Pending(_OPS.all_reduce(data, op, group), data, torch.view_as_complex)
    if op == "sum" or not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool):
        data = x.contiguous()
        return Pending(_OPS.all_reduce(data, op, group), data, lambda found: found)
    # Backends drop NaN in max and min, and have no products of complex numbers.
    data, result = _gathered(x.unsqueeze(0), group, parts)

    def finish(found: torch.Tensor) -> torch.Tensor:
        return _REDUCERS[op](_from_bytes(found, x.unsqueeze(0), parts), 0)

    return Pending(result, data, finish)


def _reduce_scatter(
    step: Transition, x: torch.Tensor, sizes: Any, group: str, parts: int, index: int
) -> Pending:
    axis = axis_of(step.target)
    mine, _ = chunk(sizes[axis], parts, index)
    full = -(-sizes[axis] // parts)
    data = _padded(x, axis, parts * full).movedim(axis, 0).contiguous()
    is_complex = x.is_complex()
    data = torch.view_as_real(data) if is_complex else data
    result = _OPS.reduce_scatter_tensor(data, "sum", parts, group)

    def finish(found: torch.Tensor) -> torch.Tensor:
        found = torch.view_as_complex(found) if is_complex else found
        return found[:mine].movedim(0, axis)

    return Pending(result, data, finish)


def _all_to_all(
    step: Transition, x: torch.Tensor, sizes: Any, group: str, parts: int, index: int
) -> Pending:
    """Each rank gives part r of axis `b` to rank r, and gets that part of all of axis `a`."""
    a, b = axis_of(step.source), axis_of(step.target)
    rows, columns = -(-sizes[a] // parts), -(-sizes[b] // parts)
    mine, _ = chunk(sizes[b], parts, index)
    sent = _padded(_padded(x, a, rows), b, parts * columns).movedim((b, a), (0, 1)).contiguous()
    data = _as_bytes(sent)
    split = [columns] * parts
    result = _OPS.all_to_all_single(data, split, split, group)

    def finish(found: torch.Tensor) -> torch.Tensor:
        whole = _from_bytes(found, sent, parts * columns)
        whole = whole.reshape(parts, columns, *sent.shape[1:]).transpose(0, 1)
        whole = whole.reshape(columns, parts * rows, *sent.shape[2:])
        return whole[:mine, : sizes[a]].movedim((0, 1), (b, a))

    return Pending(result, data, finish)


_KINDS = {
    "all_gather": _all_gather,
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
}


def agreed(numbers: list[int], mesh: DeviceMesh) -> list[int]:
    """The numbers of the mesh's first rank, on all ranks."""
    x = torch.tensor(numbers, dtype=torch.int64, device=mesh.device_type)
    for dim in range(mesh.ndim):
        x = _OPS.wait_tensor(_OPS.broadcast(x, 0, mesh.get_group(dim).group_name))
    return [int(n) for n in x.tolist()]


def all_equal(numbers: list[int], mesh: DeviceMesh) -> bool:
    """True on all ranks if they have equal numbers."""
    x = torch.tensor([*numbers, *(-n for n in numbers)], device=mesh.device_type)
    for dim in range(mesh.ndim):
        x = _OPS.wait_tensor(_OPS.all_reduce(x, "max", mesh.get_group(dim).group_name))
    largest, smallest = x.reshape(2, len(numbers)).tolist()
    return largest == [-n for n in smallest]
