"""Layered graph drawing: x positions of boxes in given rows, and bends of long edges between boxes.

An edge that passes a row gets a bend there, which takes space like a box, so that edges do not run
behind boxes. Then rows are sorted and cells moved sideways until the ends of edges are close.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Box = TypeVar("Box")

_SWEEPS, _SORTING = 14, 8  # sweeps alternate down and up; the first _SORTING sweeps also sort rows
_BEND, _BESIDE_BEND = 2.0, 9.0  # pixels: width of a bend, and gap between a bend and its neighbours
# weight of a bend's wanted position, relative to a box: long edges should be straight
_STRAIGHT = 4.0


@dataclass(eq=False)
class Cell(Generic[Box]):
    """An element of a row: a box, or a bend of the edges that leave a box further up."""

    box: Box | None
    width: float
    row: int
    x: float = 0.0  # x of the centre
    # cells of the previous row with an edge to this one
    above: list[Cell[Box]] = field(default_factory=list)
    below: list[Cell[Box]] = field(default_factory=list)


def layered(
    rows: Sequence[Sequence[Box]],
    operands: Callable[[Box], Sequence[Box]],
    width: Callable[[Box], float],
    gap: float,
) -> list[list[Cell[Box]]]:
    """Returns the rows with bends, from left to right; x positions are not negative. Boxes are
    compared by identity. An edge runs from an operand in an earlier row to its user.
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
    """Sets above and below, and adds bends: all edges of one box share a chain of bends."""
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
    """Mean position of the neighbours in the previous or next row, or in both."""
    sides = [*cell.above, *cell.below] if both else cell.above if down else cell.below
    return sum(c.x for c in sides) / len(sides) if sides else cell.x


def _put(row: Sequence[Cell[Box]], wanted: Sequence[float], gap: float) -> None:
    """Positions closest to the wanted ones in the least squares sense, if cells keep their order
    and minimum distances: blocks of touching cells move together.
    """
    offsets = [0.0]
    for a, b in itertools.pairwise(row):
        between = gap if a.box is not None and b.box is not None else _BESIDE_BEND
        offsets.append(offsets[-1] + (a.width + b.width) / 2 + between)
    # (weighted sum of positions, weight, number of cells)
    blocks: list[tuple[float, float, int]] = []
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
