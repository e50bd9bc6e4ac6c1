"""Plots of the report: a roofline, and the timeline of a call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from fuser.inspect.cost import Machine
from fuser.inspect.explain_definition import Step
from fuser.inspect.measure import Span
from fuser.inspect.report.svg import CHARACTER, element, picture, text, tooltip
from fuser.inspect.text_table import duration

Scale = Callable[[float], float]  # maps a value to pixels

_WIDTH, _HEIGHT = 440.0, 280.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 14.0, 22.0, 40.0


def roofline(machine: Machine, steps: Sequence[Step]) -> str:
    """Draws each step at its predicted rate (ring) and, if measured on this machine, at its
    measured rate (disc). Operations are issue slots.
    """
    known = [step for step in steps if step.slots > 0 and step.bytes > 0]
    intensities = [step.slots / step.bytes for step in known] or [1.0]
    ridge = machine.slots / machine.copy_bandwidth
    low_x = min(0.05, *intensities) / 1.5
    high_x = max(ridge * 4, *intensities) * 1.5
    high_y = machine.slots * 2
    rates = []
    for step, intensity in zip(known, intensities, strict=False):
        predicted = step.slots / ((step.predicted_us or 1.0) * 1e-6)
        us = step.measured_us if machine.present else None
        rates.append((step.name, intensity, predicted, step.slots / (us * 1e-6) if us else None))
    slow = [r for _, _, predicted, measured in rates for r in (predicted, measured) if r]
    low_y = min([machine.copy_bandwidth * low_x, *slow]) / 1.5

    def x(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * _log_share(value, low_x, high_x)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * _log_share(value, low_y, high_y)

    parts = _grid_x(x, low_x, high_x) + _grid_y(y, low_y, high_y)
    roof = [(low_x, machine.copy_bandwidth * low_x), (ridge, machine.slots)]
    roof.append((high_x, machine.slots))
    line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in roof)
    parts.append(element("polyline", points=line, class_="roof"))
    for number, (label, intensity, predicted, measured) in enumerate(rates):
        name = tooltip(f"step {number}: {label}")
        parts.append(
            element("circle", name, cx=x(intensity), cy=y(predicted), r=6, class_="predicted")
        )
        if measured:
            parts.append(
                element("circle", name, cx=x(intensity), cy=y(measured), r=4, class_="measured")
            )
    parts += _step_labels([(x(i), y(p)) for _, i, p, _ in rates])
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(text(middle, _HEIGHT - 8, "operations per byte", "axis", "middle"))
    parts.append(text(8, 12, "operations per second", "axis"))
    return picture(_WIDTH, _HEIGHT, parts, f"roofline of {machine.name}")


def _step_labels(places: Sequence[tuple[float, float]]) -> list[str]:
    """Step numbers next to their points; points at one position share a label."""
    groups: list[tuple[float, float, list[int]]] = []
    for number, (x, y) in enumerate(places):
        near = next((g for g in groups if abs(g[0] - x) < 26 and abs(g[1] - y) < 14), None)
        if near:
            near[2].append(number)
        else:
            groups.append((x, y, [number]))
    labels = []
    for x, y, numbers in groups:
        what = ", ".join(map(str, numbers[:4])) + (" …" if len(numbers) > 4 else "")
        labels.append(text(x + 9, y - 5, what, "label"))
    return labels


_MOST_SPANS = 60


def timeline(spans: Sequence[Span]) -> str:
    """A table row per span, sorted by lane: its name, and a bar for its time."""
    spans = sorted(spans, key=lambda s: (s.lane, s.start))[:_MOST_SPANS]
    end = max((s.stop for s in spans), default=1.0) or 1.0
    row, width = 34.0, 440.0
    names = [f"{span.lane}  {span.name}" for span in spans]
    width = max([width, *(len(name) * CHARACTER + 16 for name in names)])
    scale = (width - 90) / end
    parts = []
    for i, (name, span) in enumerate(zip(names, spans, strict=True)):
        top = 8 + i * row
        parts.append(text(8, top + 9, name, "label"))
        bar = max(1.5, (span.stop - span.start) * scale)
        left = 8 + span.start * scale
        title = tooltip(f"{span.name}, from {duration(span.start)}")
        parts.append(
            element("rect", title, x=left, y=top + 14, width=bar, height=row - 22, rx=2,
                    class_=f"span {span.lane}")
        )  # fmt: skip
        took = duration(span.stop - span.start)
        parts.append(text(left + bar + 5, top + 23, took, "under"))
    return picture(width, 12 + len(spans) * row, parts, "timeline of one call")


def _log_share(value: float, low: float, high: float) -> float:
    return math.log(value / low) / math.log(high / low)


def _powers(low: float, high: float) -> Iterable[float]:
    for exponent in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        yield 10.0**exponent


def _grid_x(x: Scale, low: float, high: float) -> list[str]:
    parts = []
    for value in _powers(low, high):
        at = x(value)
        parts.append(element("path", d=f"M{at:.1f},{_TOP} V{_HEIGHT - _BOTTOM}", class_="grid"))
        parts.append(text(at, _HEIGHT - _BOTTOM + 15, f"{value:g}", "axis", "middle"))
    return parts


def _grid_y(y: Scale, low: float, high: float) -> list[str]:
    parts = []
    for value in _powers(low, high):
        at = y(value)
        parts.append(element("path", d=f"M{_LEFT},{at:.1f} H{_WIDTH - _RIGHT}", class_="grid"))
        if at > _TOP + 2 * CHARACTER:
            parts.append(text(_LEFT - 6, at + 4, _si(value), "axis", "end"))
    return parts


def _si(value: float) -> str:
    for unit, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:g} {unit}"
    return f"{value:g}"
