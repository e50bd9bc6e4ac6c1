"""Sizes of shards by torch's chunk rule, and the collectives between two placements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

Placements = tuple[Placement, ...]  # one per dim of the mesh

REPLICATE = Replicate()


def is_shard(placement: Placement, axis: int | None = None) -> bool:
    """True for Shard(axis), or for a Shard of any axis."""
    return isinstance(placement, Shard) and axis in (None, placement.dim)


def axis_of(placement: Placement) -> int:
    """The axis of a Shard."""
    assert isinstance(placement, Shard)
    return placement.dim


def describe(placement: Placement) -> str:
    """Replicate, Shard(0), Partial(sum)."""
    if isinstance(placement, Shard):
        return f"Shard({placement.dim})"
    return f"Partial({placement.reduce_op})" if isinstance(placement, Partial) else "Replicate"


def chunk(size: int, parts: int, index: int) -> tuple[int, int]:
    """Size and offset of part `index`, as torch.chunk(): equal parts, but the last ones are smaller
    or empty.
    """
    full = -(-size // parts)
    start = min(full * index, size)
    return min(start + full, size) - start, start


def shard(
    sizes: Sequence[int], placements: Placements, mesh: Sequence[int], coordinate: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and offsets of the shard at a coordinate of the mesh. Dims of the mesh that share an
    axis divide it in order.
    """
    local, offsets = list(sizes), [0] * len(sizes)
    for placement, parts, index in zip(placements, mesh, coordinate, strict=True):
        if isinstance(placement, Shard):
            local[placement.dim], start = chunk(local[placement.dim], parts, index)
            offsets[placement.dim] += start
    return tuple(local), tuple(offsets)


def parts_of(axis: int, placements: Placements, mesh: Sequence[int]) -> int:
    """Number of shards along an axis."""
    count = 1
    for placement, parts in zip(placements, mesh, strict=True):
        count *= parts if is_shard(placement, axis) else 1
    return count


class Transition(NamedTuple):
    """One step between placements, on dim `dim` of the mesh. `kind` is all_gather, all_reduce,
    reduce_scatter, all_to_all, or one of the local steps "slice" and "mask".
    """

    kind: str
    dim: int
    source: Placement
    target: Placement


def transitions(source: Placements, target: Placements) -> Iterator[Transition]:
    """The steps from `source` to `target`: collectives from the last dim of the mesh to the first,
    then slices from the first to the last, because later dims divide the shards of earlier ones.
    """
    current = list(source)
    changed = _changed(source, target)
    for j in reversed(range(len(source))):
        if j not in changed or current[j] == REPLICATE:
            continue
        if current[j].is_partial():
            direct = is_shard(target[j]) and current[j].is_partial("sum")
            kinds = ("reduce_scatter", "all_reduce")
        else:
            direct = is_shard(target[j]) and target[j] != current[j]
            kinds = ("all_to_all", "all_gather")
        direct = direct and _innermost(current, target, j)
        to = target[j] if direct else REPLICATE
        yield Transition(kinds[0] if direct else kinds[1], j, current[j], to)
        current[j] = to
    for j, wanted in enumerate(target):
        if current[j] != wanted:
            kind = "mask" if wanted.is_partial() else "slice"
            yield Transition(kind, j, current[j], wanted)
            current[j] = wanted


def _changed(source: Placements, target: Placements) -> set[int]:
    """Dims of the mesh whose placement changes, or is left and entered again because an earlier dim
    begins or ceases to divide the same axis.
    """
    changed = {j for j, (a, b) in enumerate(zip(source, target, strict=True)) if a != b}
    for k, placement in enumerate(source):
        if k not in changed and isinstance(placement, Shard):
            axis = placement.dim
            if any(
                is_shard(source[j], axis) != is_shard(target[j], axis) for j in changed if j < k
            ):
                changed.add(k)
    return changed


def _innermost(current: Sequence[Placement], target: Placements, j: int) -> bool:
    """True if dim j of the mesh can enter its target shard at once: no later dim divides that axis,
    and no earlier one begins or ceases to.
    """
    axis = axis_of(target[j])
    return not any(is_shard(p, axis) for p in current[j + 1 :]) and all(
        is_shard(current[i], axis) == is_shard(target[i], axis) for i in range(j)
    )
