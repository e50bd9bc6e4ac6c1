"""The graph of a definition as a picture: a frame for each step with what it reads on top, the ops
that it computes in layers, and what it writes below.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fuser.explain import Explanation, Step
from fuser.report.svg import CHARACTER, element, picture, shortened, text
from fuser.tables import duration, size

_HEIGHT, _GAP, _ROW_GAP = 34.0, 14.0, 26.0  # pixels of a node, beside and below it
_MARGIN, _HEAD = 16.0, 46.0  # of a frame: inside, and its title
_MOST_IN_ROW = 7
_MOST_LAYERS = 36  # of the ops of a step; longer ones are shown from both ends


@dataclass
class Node:
    """One box. kind: "read", "write", "op", "view" (no work of its own: coordinates, or the same as
    another one) or "more".
    """

    kind: str
    label: str
    under: str  # a second line
    operands: list[Node] = field(default_factory=list)
    layer: int = 0
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        longest = max(len(self.label), len(self.under))
        return max(64.0, longest * CHARACTER + 18)


def graph(
    records: Sequence[dict[str, Any]], found: Explanation, shapes: dict[int, tuple[int, ...]]
) -> str:
    """The picture of all steps, one below the other. records: of the definition's tensors."""
    frames = [_Frame(records, step, shapes) for step in found.steps]
    width = max(frame.width for frame in frames) + 2 * _MARGIN if frames else 200.0
    parts, y = [], _MARGIN
    for number, frame in enumerate(frames):
        parts += frame.draw((width - frame.width) / 2, y, number)
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
    """ "mul", "sum", "split_dim": what defines a tensor."""
    kind = re.sub(r"(?<!^)(?=[A-Z])", "_", record["kind"]).lower()
    return str(record.get("op") or kind)


class _Frame:
    """One step, laid out around (0, 0)."""

    def __init__(
        self,
        records: Sequence[dict[str, Any]],
        step: Step,
        shapes: dict[int, tuple[int, ...]],
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
        rows = _rows([*self.nodes.values(), *writes])
        self.width, self.height = self.place(rows)
        self.rows = rows

    def node(self, tensor: int) -> Node:
        """The box of a tensor inside this step, made with all that it comes from."""
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

    def place(self, rows: list[list[Node]]) -> tuple[float, float]:
        """Gives every node its place; returns width and height of the frame."""
        widths = [sum(n.width for n in row) + _GAP * (len(row) - 1) for row in rows]
        inner = max([*widths, 400.0, (len(self.step.name) + 12) * CHARACTER * 1.1])
        y = _HEAD
        for row, width in zip(rows, widths, strict=True):
            x = _MARGIN + (inner - width) / 2
            for node in row:
                node.x, node.y = x, y
                x += node.width + _GAP
            y += _HEIGHT + _ROW_GAP
        return inner + 2 * _MARGIN, y - _ROW_GAP + _MARGIN

    def draw(self, x: float, y: float, number: int) -> list[str]:
        step = self.step
        frame = element(
            "rect", x=0, y=0, width=self.width, height=self.height, rx=8, class_=step.kind
        )
        times = f"moves {size(step.bytes)}, predicted {duration(step.predicted_us)}"
        if step.measured_us is not None:
            times += f", measured {duration(step.measured_us)}"
        title = f"{number}  {step.kind} {step.name}"
        parts = [
            frame,
            text(_MARGIN, 20, shortened(title, self.width - 2 * _MARGIN), "title"),
            text(_MARGIN, 35, shortened(times, self.width - 2 * _MARGIN), "note"),
        ]
        shown = {id(node) for row in self.rows for node in row}
        for row in self.rows:
            for node in row:
                parts += [_edge(o, node) for o in node.operands if id(o) in shown]
        parts += [_box(node) for row in self.rows for node in row]
        return [element("g", "".join(parts), transform=f"translate({x:.1f},{y:.1f})")]


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
    rows: list[list[Node]] = []
    position: dict[int, float] = {}
    for layer in (reads, *inner, writes):
        # Below the middle of what they come from, so that few edges cross.
        layer = sorted(layer, key=lambda n: _mean(position, n.operands))
        for i in range(0, len(layer), _MOST_IN_ROW):
            row = layer[i : i + _MOST_IN_ROW]
            position |= {id(n): (k + 0.5) / len(row) for k, n in enumerate(row)}
            rows.append(row)
    return rows


def _mean(position: dict[int, float], operands: Sequence[Node]) -> float:
    known = [position[id(o)] for o in operands if id(o) in position]
    return sum(known) / len(known) if known else 0.5


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


def _edge(source: Node, target: Node) -> str:
    x0, y0 = source.x + source.width / 2, source.y + _HEIGHT
    x1, y1 = target.x + target.width / 2, target.y
    bend = max(10.0, min(60.0, (y1 - y0) / 2))
    aside = 0.0
    if y1 - y0 > _HEIGHT + 2 * _ROW_GAP:  # past other nodes: around them, on the nearer side
        aside = min(150.0, 55 + (y1 - y0) / 6) * (1 if x0 >= x1 else -1)
    first, second = f"{x0 + aside:.1f},{y0 + bend:.1f}", f"{x1 + aside:.1f},{y1 - bend:.1f}"
    path = f"M{x0:.1f},{y0:.1f} C{first} {second} {x1:.1f},{y1 - 2:.1f}"
    return element("path", d=path, class_="edge", marker_end="url(#arrow)")


def _box(node: Node) -> str:
    middle = node.x + node.width / 2
    radius = 17 if node.kind in ("read", "write") else 5
    shape = element(
        "rect", x=node.x, y=node.y, width=node.width, height=_HEIGHT, rx=radius,
        class_=f"node {node.kind}",
    )  # fmt: skip
    if not node.under:
        return shape + text(middle, node.y + 21, node.label, "label", "middle")
    return (
        shape
        + text(middle, node.y + 15, node.label, "label", "middle")
        + text(middle, node.y + 27, node.under, "under", "middle")
    )
