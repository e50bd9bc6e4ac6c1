"""The graph of a definition as a picture: a frame for each step, with its reads on top, its ops in
layers, and its writes at the bottom.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fuser.inspect.explain_definition import Explanation, Step
from fuser.inspect.report.layered import Cell, layered
from fuser.inspect.report.svg import CHARACTER, element, picture, text
from fuser.inspect.text_table import duration, size

_HEIGHT, _GAP, _ROW_GAP = 34.0, 14.0, 26.0  # pixels: height of a node, gap beside it, gap below it
_MARGIN, _HEAD = 16.0, 50.0  # pixels of a frame: inner margin, height of its title
_TITLE, _NOTE = CHARACTER * 12 / 11, CHARACTER * 10 / 11  # pixels per character, as in style.css
_MOST_IN_ROW = 7
_MOST_LAYERS = 36  # maximum layers drawn per step; the middle of a longer step is omitted


@dataclass(eq=False)
class Node:
    """One box. kind: "read", "write", "op", "view" (no work: coordinates, or identical to another
    op) or "more".
    """

    kind: str
    label: str
    under: str  # second line of text
    operands: list[Node] = field(default_factory=list)
    layer: int = 0

    @property
    def width(self) -> float:
        longest = max(len(self.label), len(self.under))
        return max(64.0, longest * CHARACTER + 18)


def graph(
    records: Sequence[dict[str, Any]], found: Explanation, shapes: dict[int, tuple[int, ...]]
) -> str:
    """The picture of all steps, one below the other. records: the definition's tensors."""
    frames = [_Frame(records, step, shapes, i) for i, step in enumerate(found.steps)]
    width = max(frame.width for frame in frames) + 2 * _MARGIN if frames else 200.0
    parts, y = [], _MARGIN
    for number, frame in enumerate(frames):
        parts.append(frame.draw((width - frame.width) / 2, y))
        y += frame.height + _MARGIN
        if number + 1 < len(frames):
            middle = width / 2
            parts.append(
                element("path", d=f"M{middle},{y - _MARGIN} v{_MARGIN - 3}", class_="order")
            )
    return picture(width, y, [_ARROW, *parts], "the graph and its steps")


_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
    ' orient="auto"><path d="M0,0 L8,4 L0,8 z" class="head"/></marker></defs>'
)


def op_name(record: dict[str, Any]) -> str:
    """Name of the op that defines a tensor: "mul", "sum", "split_dim"."""
    kind = re.sub(r"(?<!^)(?=[A-Z])", "_", record["kind"]).lower()
    return str(record.get("op") or kind)


class _Frame:
    """One step, laid out around (0, 0)."""

    def __init__(
        self,
        records: Sequence[dict[str, Any]],
        step: Step,
        shapes: dict[int, tuple[int, ...]],
        number: int,
    ) -> None:
        self.records, self.step, self.shapes = records, step, shapes
        self.nodes: dict[int, Node] = {}
        self.computed, self.read = set(step.computes), {use.tensor for use in step.reads}
        writes = [self.chip("write", use.tensor, use.bytes) for use in step.writes]
        for chip, use in zip(writes, step.writes, strict=True):
            source = step.reads[0].tensor if step.kind == "copy" else use.tensor
            chip.operands.append(self.node(source))
        for use in step.reads:
            self.node(use.tensor)
        self.rows = layered(
            _rows([*self.nodes.values(), *writes]), lambda n: n.operands, lambda n: n.width, _GAP
        )
        self.title = f"{number}  {step.kind} {step.name}"
        self.times = f"moves {size(step.bytes)}, predicted {duration(step.predicted_us)}"
        if step.measured_us is not None:
            self.times += f", measured {duration(step.measured_us)}"
        ends = [cell.x + cell.width / 2 for row in self.rows for cell in row]
        self.inner = max(ends, default=0.0)
        inside = max(self.inner, len(self.title) * _TITLE, len(self.times) * _NOTE)
        self.width = inside + 2 * _MARGIN
        self.height = _HEAD + len(self.rows) * (_HEIGHT + _ROW_GAP) - _ROW_GAP + _MARGIN

    def node(self, tensor: int) -> Node:
        """Returns the box of a tensor in this step; creates it with all its operands."""
        stack = [tensor]
        while stack:
            t = stack[-1]
            if t in self.nodes:
                stack.pop()
                continue
            record = self.records[t]
            is_read = t in self.read and t not in self.computed
            operands = [] if is_read or record["kind"] == "Input" else record["operands"]
            missing = [o for o in operands if o not in self.nodes]
            if missing:
                stack += missing
                continue
            stack.pop()
            if is_read or not operands:
                bytes_ = next((u.bytes for u in self.step.reads if u.tensor == t), None)
                self.nodes[t] = self.chip("read", t, bytes_)
                continue
            kind = "op" if t in self.computed else "view"
            label = op_name(record)
            made = self.nodes[t] = Node(kind, label, f"T{t}")
            made.operands = [self.nodes[o] for o in dict.fromkeys(operands)]
            made.layer = 1 + max(o.layer for o in made.operands)
        return self.nodes[tensor]

    def chip(self, kind: str, tensor: int, count: int | None) -> Node:
        record = self.records[tensor]
        made_of_nothing = kind == "read" and record["kind"] != "Input" and tensor not in self.read
        label = f"T{tensor}" + (f" {op_name(record)}" if made_of_nothing else "")
        shape = "x".join(map(str, self.shapes.get(tensor, ()))) or "scalar"
        return Node(kind, f"{label} {shape}", "" if count is None else size(count))

    def draw(self, x: float, y: float) -> str:
        frame = element(
            "rect", x=0, y=0, width=self.width, height=self.height, rx=8, class_=self.step.kind
        )
        parts = [
            frame,
            text(_MARGIN, 20, self.title, "title"),
            text(_MARGIN, 35, self.times, "note"),
        ]
        cells = [cell for row in self.rows for cell in row]
        left = (self.width - self.inner) / 2
        parts += [_edge(a, b, left) for b in cells for a in b.above]
        parts += [_box(cell.box, cell.x + left, _top(cell)) for cell in cells if cell.box]
        return element("g", "".join(parts), transform=f"translate({x:.1f},{y:.1f})")


def _rows(nodes: Sequence[Node]) -> list[list[Node]]:
    """Nodes by layer, reads first and writes last; a wide layer takes several rows."""
    reads = [n for n in nodes if n.kind == "read"]
    writes = [n for n in nodes if n.kind == "write"]
    layers: dict[int, list[Node]] = {}
    for node in nodes:
        if node.kind in ("op", "view"):
            layers.setdefault(node.layer, []).append(node)
    inner = [layers[i] for i in sorted(layers)]
    if len(inner) > _MOST_LAYERS:
        inner = _without_middle(inner)
    return [
        layer[i : i + _MOST_IN_ROW]
        for layer in (reads, *inner, writes)
        for i in range(0, len(layer), _MOST_IN_ROW)
    ]


def _without_middle(layers: list[list[Node]]) -> list[list[Node]]:
    half = _MOST_LAYERS // 2
    hidden = layers[half:-half]
    more = Node("more", f"{sum(map(len, hidden))} more ops", "not drawn")
    more.operands = list(layers[half - 1])
    inside = {id(n) for layer in hidden for n in layer}
    for layer in layers[-half:]:
        for node in layer:
            outside = [o for o in node.operands if id(o) not in inside]
            node.operands = outside + ([more] if len(outside) < len(node.operands) else [])
    return [*layers[:half], [more], *layers[-half:]]


def _top(cell: Cell[Node]) -> float:
    return _HEAD + cell.row * (_HEIGHT + _ROW_GAP)


def _edge(source: Cell[Node], target: Cell[Node], left: float) -> str:
    """Draws an edge from one row to the next; through a bend it continues straight down."""
    x0, y0 = source.x + left, _top(source) + _HEIGHT
    x1, y1 = target.x + left, _top(target)
    middle = (y0 + y1) / 2
    is_bend = target.box is None
    end = y1 if is_bend else y1 - 2
    path = f"M{x0:.1f},{y0:.1f} C{x0:.1f},{middle:.1f} {x1:.1f},{middle:.1f} {x1:.1f},{end:.1f}"
    if is_bend:
        return element("path", d=f"{path} v{_HEIGHT:.0f}", class_="edge")
    return element("path", d=path, class_="edge", marker_end="url(#arrow)")


def _box(node: Node, middle: float, top: float) -> str:
    radius = 17 if node.kind in ("read", "write") else 5
    shape = element(
        "rect", x=middle - node.width / 2, y=top, width=node.width, height=_HEIGHT, rx=radius,
        class_=f"node {node.kind}",
    )  # fmt: skip
    if not node.under:
        return shape + text(middle, top + 21, node.label, "label", "middle")
    return (
        shape
        + text(middle, top + 15, node.label, "label", "middle")
        + text(middle, top + 27, node.under, "under", "middle")
    )
