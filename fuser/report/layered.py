"""A layered drawing: where in its row each box stands, and where long edges pass between boxes.

Rows are given. An edge that passes a row has a bend in it, which takes room as a box does, so that
no edge runs behind one. Then rows are sorted, and what stands in them is moved sideways, until ends
of edges lie near each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Box = TypeVar("Box")

_SWEEPS, _SORTING = 14, 8  # down and up in turn; the first so many sort as well
_BEND, _BESIDE_BEND = 2.0, 9.0  # pixels of a bend, and between it and what stands beside it
_STRAIGHT = 4.0  # how much more it counts that a long edge is straight than that a short one is


@dataclass(eq=False)
class Cell(Generic[Box]):
    """What stands in a row: a box, or a bend of the edges that leave a box further up."""

    box: Box | None
    width: float
    row: int
    x: float = 0.0  # of its middle
    above: list[Cell[Box]] = field(default_factory=list)  # in the row before, edges come from them
    below: list[Cell[Box]] = field(default_factory=list)


def layered(
    rows: Sequence[Sequence[Box]],
    operands: Callable[[Box], Sequence[Box]],
    width: Callable[[Box], float],
    gap: float,
) -> list[list[Cell[Box]]]:
    """The rows with their bends, from left to right; no x is negative. Boxes are told apart by
    identity; an edge goes from an operand, where it stands in an earlier row, to what reads it.
    """
    cells = [[Cell(box, width(box), r) for box in row] for r, row in enumerate(rows)]
    _link(cells, operands)
    for row in cells:
        _put(row, [0.0] * len(row), gap)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in cells if down else reversed(cells):
            wanted = {id(cell): _wanted(cell, down, sweep >= _SORTING) for cell in row}
            if sweep < _SORTING:
                row.sort(key=lambda cell: wanted[id(cell)])
            _put(row, [wanted[id(cell)] for cell in row], gap)
    left = min((cell.x - cell.width / 2 for row in cells for cell in row), default=0.0)
    for cell in itertools.chain.from_iterable(cells):
        cell.x -= left
    return cells


def _link(cells: list[list[Cell[Box]]], operands: Callable[[Box], Sequence[Box]]) -> None:
    """Sets above and below, and adds bends: those of one box are one chain, whatever reads it."""
    found = {id(cell.box): cell for row in cells for cell in row}
    chains: dict[int, list[Cell[Box]]] = {id(cell): [cell] for cell in found.values()}
    for target in list(found.values()):
        assert target.box is not None
        for operand in operands(target.box):
            source = found.get(id(operand))
            if source is None or source.row >= target.row:
                continue
            chain = chains[id(source)]
            for row in range(source.row + len(chain), target.row):
                bend: Cell[Box] = Cell(None, _BEND, row)
                _join(chain[-1], bend)
                cells[row].append(bend)
                chain.append(bend)
            _join(chain[target.row - source.row - 1], target)


def _join(above: Cell[Box], below: Cell[Box]) -> None:
    above.below.append(below)
    below.above.append(above)


def _wanted(cell: Cell[Box], down: bool, both: bool) -> float:
    """The mean of what it hangs together with, in the row before or behind."""
    sides = [*cell.above, *cell.below] if both else cell.above if down else cell.below
    return sum(c.x for c in sides) / len(sides) if sides else cell.x


def _put(row: Sequence[Cell[Box]], wanted: Sequence[float], gap: float) -> None:
    """The places nearest to the wanted ones, in the sense of least squares, at which the cells of a
    row keep their order and their distances: blocks of cells that touch move as one.
    """
    offsets = [0.0]
    for a, b in itertools.pairwise(row):
        between = gap if a.box is not None and b.box is not None else _BESIDE_BEND
        offsets.append(offsets[-1] + (a.width + b.width) / 2 + between)
    blocks: list[tuple[float, float, int]] = []  # sum of weighted places, weight, cells
    for cell, place, offset in zip(row, wanted, offsets, strict=False):
        weight = 1.0 if cell.box is not None else _STRAIGHT
        block = ((place - offset) * weight, weight, 1)
        while blocks and blocks[-1][0] / blocks[-1][1] >= block[0] / block[1]:
            last = blocks.pop()
            block = (last[0] + block[0], last[1] + block[1], last[2] + block[2])
        blocks.append(block)
    places = [total / weight for total, weight, count in blocks for _ in range(count)]
    for cell, place, offset in zip(row, places, offsets, strict=False):
        cell.x = place + offset
