"""Plots of a run as self-contained SVG files: bytes per second over bytes, with the copy as the
roof; speed relative to a copy over bytes; a map of the cases by speed relative to the best peer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.case import PEER
from benchmarks.ranking import best_peer
from fuser.inspect.report.svg import CHARACTER, element, picture, shortened, text, tooltip

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _LEGEND = 860.0, 420.0, 60.0, 30.0, 44.0, 190.0
_STYLE = (
    "<style>text{font:11px ui-monospace,'DejaVu Sans Mono',monospace;fill:#1c2126}"
    "svg{background:#fff}.grid{stroke:#dfe4e8}.roof{stroke:#6b6f76;stroke-dasharray:5 4}"
    ".title{font-weight:600;font-size:13px}</style>"
)

Records = Mapping[str, Mapping[str, Any]]  # by case key


def write(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the plots for which the results have cases; return their paths."""
    families = {
        name: [r for r in records.values() if "fuser" in r["us"]]
        for name, records in results["families"].items()
    }
    families = {name: records for name, records in families.items() if records}
    if not families:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {
        "bandwidth.svg": _scatter(families, "GB/s over MB moved", _rate, _copy_rate),
        "copy_share.svg": _scatter(families, "share of a copy over MB moved", _share, lambda _: 1),
        "best_peer.svg": _map(families),
    }
    paths = []
    for name, text_ in drawn.items():
        if text_:
            (folder / name).write_text(text_)
            paths.append(folder / name)
    return paths


def _rate(record: Mapping[str, Any]) -> float:
    return float(record["bytes"] / record["us"]["fuser"] / 1e3)


def _copy_rate(record: Mapping[str, Any]) -> float:
    return float(record["bytes"] / record["copy_us"] / 1e3)


def _share(record: Mapping[str, Any]) -> float:
    return float(record["copy_us"] / record["us"]["fuser"])


def _scatter(
    families: Mapping[str, Sequence[Mapping[str, Any]]],
    title: str,
    value: Callable[[Mapping[str, Any]], float],
    roof: Callable[[Mapping[str, Any]], float],
) -> str:
    """A dot for each case, a colour for each family; the roof is the value of a copy."""
    records = [r for rows in families.values() for r in rows]
    sizes = [max(r["bytes"], 1) / 1e6 for r in records]
    low, high = min(sizes) / 1.2, max(sizes) * 1.2
    top = 1.1 * max(max(value(r), roof(r)) for r in records)

    def x(mb: float) -> float:
        share = math.log(mb / low) / math.log(high / low)
        return _LEFT + (_WIDTH - _LEFT - _LEGEND) * share

    def y(v: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * v / top

    parts = [_STYLE, text(_LEFT, 18, title, "title")]
    for exponent in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        at = x(10.0**exponent)
        parts.append(element("path", d=f"M{at:.1f},{_TOP} V{_HEIGHT - _BOTTOM}", class_="grid"))
        parts.append(text(at, _HEIGHT - _BOTTOM + 16, f"{10.0**exponent:g} MB", "", "middle"))
    step = _round_step(top)
    for i in range(math.floor(top / step) + 1):
        v = step * i
        end = _WIDTH - _LEGEND
        parts.append(element("path", d=f"M{_LEFT},{y(v):.1f} H{end}", class_="grid"))
        label = f"{100 * v:.0f}%" if top < 20 else f"{v:.0f}"
        parts.append(text(_LEFT - 6, y(v) + 4, label, "", "end"))
    line = sorted((r["bytes"] / 1e6, roof(r)) for r in records)
    points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line)
    parts.append(element("polyline", points=points, class_="roof", fill="none"))
    for place, (family, rows) in enumerate(families.items()):
        colour = f"hsl({360 * place / len(families):.0f}, 62%, {36 + 14 * (place % 2)}%)"
        for r in rows:
            name = tooltip(f"{_name(r)}: {value(r):.3g}")
            at = {"cx": x(r["bytes"] / 1e6), "cy": y(value(r))}
            parts.append(element("circle", name, r=4, fill=colour, fill_opacity="0.75", **at))
        row = _TOP + 12 + 18 * place
        parts.append(element("circle", cx=_WIDTH - _LEGEND + 14, cy=row - 4, r=4, fill=colour))
        parts.append(text(_WIDTH - _LEGEND + 26, row, shortened(family, _LEGEND - 30)))
    return picture(_WIDTH, _HEIGHT, parts, title)


def _round_step(top: float) -> float:
    """Distance between about five grid lines up to `top`: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(top / 5))
    return min((f * power for f in (1, 2, 5, 10)), key=lambda step: abs(top / step - 5))


def _map(families: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """One row of squares per kind of case, one square per shape, in ascending size."""
    rows: dict[tuple[str, str], list[tuple[Mapping[str, Any], float]]] = {}
    for family, records in families.items():
        for r in records:
            peer = best_peer(dict(r))
            if peer:
                ratio = r["us"][peer] / r["us"]["fuser"]
                rows.setdefault((family, f"{r['case']} {r['dtype']}"), []).append((r, ratio))
    if not rows:
        return ""
    labels = {key: f"{key[0]}: {key[1]}" for key in rows}
    left = 20 + CHARACTER * max(map(len, labels.values()))
    size, gap = 44.0, 22.0
    title = "speed against the best other contender, by size (1.00: level)"
    width = max(left + size * max(map(len, rows.values())) + 20, 9.0 * len(title))
    parts = [_STYLE, text(10, 18, title, "title")]
    for i, (kind, cells) in enumerate(rows.items()):
        top = 32 + i * gap
        parts.append(text(10, top + 14, labels[kind]))
        for j, (r, ratio) in enumerate(sorted(cells, key=lambda c: c[0]["bytes"])):
            name = tooltip(f"{_name(r)} against {best_peer(dict(r))}")
            at = {"x": left + j * size, "y": top, "width": size - 2, "height": gap - 2}
            parts.append(element("rect", name, fill=_shade(ratio), **at))
            middle = left + j * size + size / 2 - 1
            parts.append(text(middle, top + 14, f"{ratio:.2f}", "", "middle"))
    return picture(width, 40 + len(rows) * gap, parts, title)


def _shade(ratio: float) -> str:
    """Green above 1 and red below, saturated at a factor of 2; white if level by PEER."""
    if PEER <= ratio <= 1 / PEER:
        return "hsl(0, 0%, 97%)"
    depth = max(-1.0, min(1.0, math.log2(ratio)))
    if depth >= 0:
        return f"hsl(145, 55%, {95 - 40 * depth:.0f}%)"
    return f"hsl(8, 75%, {95 + 90 * max(depth, -0.4):.0f}%)"


def _name(record: Mapping[str, Any]) -> str:
    return f"{record['case']} {record['dtype']} {'x'.join(map(str, record['shape']))}"
