"""Comparison of two runs: cases that became slower or faster by more than noise.

Times are divided by the time of the copy measured in that run, so that another clock or another
board of equal kind has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.report import table

Results = Mapping[str, Any]
OURS = "fuser"
LEAST = 0.03  # fraction of the time: minimum noise between two runs


@dataclass(frozen=True)
class Change:
    """A case whose time changed."""

    family: str
    key: str
    before_us: float
    after_us: float
    ratio: float  # ratio of after to before, each relative to the time of a copy: 1.1 is 10% slower
    noise: float  # fraction by which the ratio may differ from 1 by chance


def changes(old: Results, new: Results, contender: str = OURS) -> list[Change]:
    """All cases that both runs timed; the largest slowdown comes first."""
    return sorted(_changes(old, new, contender), key=lambda c: -c.ratio)


def _changes(old: Results, new: Results, contender: str) -> Iterator[Change]:
    for family, records in new["families"].items():
        for key, after in records.items():
            before = old["families"].get(family, {}).get(key)
            if not before or contender not in before["us"] or contender not in after["us"]:
                continue
            was, now = (r["us"][contender] / r["copy_us"] for r in (before, after))
            # Quartiles of samples; the error of a median of some dozens of samples is much smaller.
            spread = sum(
                r.get("spread", {}).get(name, 0.0)
                for r in (before, after)
                for name in (contender, "memcpy")
            )
            yield Change(
                *(family, key, before["us"][contender], after["us"][contender]),
                ratio=now / was,
                noise=max(LEAST, spread / 2),
            )


def slower(found: list[Change]) -> list[Change]:
    """Changes that are slowdowns by more than noise."""
    return [c for c in found if c.ratio > 1 + c.noise]


def comparison(found: list[Change]) -> str:
    """Markdown text: tables of slower and of faster cases, and the number of unchanged ones."""
    worse = slower(found)
    better = [c for c in reversed(found) if c.ratio < 1 / (1 + c.noise)]
    same = len(found) - len(worse) - len(better)
    parts = [f"{len(worse)} slower, {len(better)} faster, {same} the same within noise"]
    header = ["family", "case", "before us", "after us", "beside a copy", "noise"]
    for title, listed in (("Slower", worse), ("Faster", better)):
        if listed:
            rows = (
                [
                    *(c.family, c.key, f"{c.before_us:.1f}", f"{c.after_us:.1f}"),
                    *(f"{100 * (c.ratio - 1):+.1f}%", f"{100 * c.noise:.1f}%"),
                ]
                for c in listed
            )
            parts.append(f"\n### {title}\n\n{table(header, list(rows))}")
    return "\n".join(parts)
