"""Targets of a complete table, in addition to the goals of single cases (case.Goal), and the
limiting factor of cases that miss their goals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from benchmarks.case import PEER, key
from benchmarks.ranking import Record, Records, best_peer, copy_share, mean, name_of

Families = Mapping[str, Records]

FAR = 0.93  # fraction of a copy's speed: a slower best peer can be beaten
AHEAD = {"compile": 1.3, "peer": 1.1}  # required speedup if the best peer is below FAR
LEVEL = 0.98  # required fraction of the best peer otherwise
LARGE_BYTES, LARGE_COPY, LARGE_SHARE = 64e6, 0.92, 0.80  # LARGE_SHARE of them reach LARGE_COPY
BACKWARD = 0.90  # fraction of a copy's speed, gradients of norms
WIDE = 65536  # row length from which fuser is level with QuACK

# Target microseconds on one H200, forward plus backward pass.
BOTH_WAYS = (("rms_norm", (16384, 4096), 176.0), ("layer_norm", (8192, 16384), 370.0))

_LATE = 1.25  # multiple of the predicted time that bytes and instructions explain
_MORE_PASSES = 1.05  # multiple of the bytes that must move


class Aim(NamedTuple):
    """One target of a table; `met` is None if no case was timed for it."""

    asked: str
    found: str
    met: bool | None


class _Standing(NamedTuple):
    """A timed case compared with its peers."""

    family: str
    record: Record
    peer: float | None  # fuser's speed as a multiple of the best peer's
    compiled: float | None  # fuser's speed as a multiple of torch.compile's
    room: bool  # True if the best peer is below FAR of a copy


def aims(families: Families) -> list[Aim]:
    standings = list(_standings(families))
    ahead = [s for s in standings if s.room]
    level = [s for s in standings if s.peer is not None and not s.room]
    large = [s.record for s in standings if s.record["bytes"] >= LARGE_BYTES]
    wide = [
        (_ratio(s.record, "quack"), name_of(s.record))
        for s in standings
        if s.record["shape"][-1] >= WIDE and "quack" in s.record["us"]
    ]
    backward = [
        (copy_share(s.record), name_of(s.record)) for s in standings if s.family == "norm_backward"
    ]
    return [
        _of_families(ahead, "torch.compile", AHEAD["compile"], lambda s: s.compiled),
        _of_families(ahead, "the best peer", AHEAD["peer"], lambda s: s.peer),
        _each(
            f"other cases at {LEVEL:.2f} of the best peer",
            [(s.peer, name_of(s.record)) for s in level if s.peer is not None],
            LEVEL,
        ),
        _each(
            f"every case at {PEER:.2f} of the best peer",
            [(s.peer, name_of(s.record)) for s in standings if s.peer is not None],
            PEER,
        ),
        _large(large),
        _each(f"gradients of norms at {100 * BACKWARD:.0f}% of a copy", backward, BACKWARD),
        _each(f"rows of {WIDE} and more level with QuACK ({PEER:.2f})", wide, PEER),
        *(_both_ways(families, *pair) for pair in BOTH_WAYS),
    ]


def _standings(families: Families) -> Iterator[_Standing]:
    for family, records in families.items():
        for record in records.values():
            if "fuser" not in record["us"]:
                continue
            peer = best_peer(record)
            yield _Standing(
                *(family, record),
                peer=_ratio(record, peer) if peer else None,
                compiled=_ratio(record, "compile") if "compile" in record["us"] else None,
                room=peer is not None and record["copy_us"] / record["us"][peer] < FAR,
            )


def _ratio(record: Record, other: str) -> float:
    return float(record["us"][other] / record["us"]["fuser"])


def _of_families(
    standings: Iterable[_Standing],
    other: str,
    asked: float,
    ratio: Callable[[_Standing], float | None],
) -> Aim:
    """The geometric mean over families of the geometric mean over their cases."""
    by_family: dict[str, list[float]] = {}
    for standing in standings:
        if (value := ratio(standing)) is not None:
            by_family.setdefault(standing.family, []).append(value)
    text = f"{asked:.1f} times {other} where the best peer is below {100 * FAR:.0f}% of a copy"
    if not by_family:
        return Aim(text, "not timed", None)
    means = {family: mean(values) for family, values in by_family.items()}
    found = mean(means.values())
    least = min(means, key=lambda family: means[family])
    count = sum(map(len, by_family.values()))
    return Aim(
        text,
        f"{found:.2f} over {count} cases of {len(means)} families, least {means[least]:.2f} "
        f"({least})",
        found >= asked,
    )


def _each(text: str, values: list[tuple[float, str]], asked: float) -> Aim:
    if not values:
        return Aim(text, "not timed", None)
    met = sum(value >= asked for value, _ in values)
    least, name = min(values)
    return Aim(
        text,
        f"{met} of {len(values)}; geometric mean {mean(v for v, _ in values):.3f}, least "
        f"{least:.3f} ({name})",
        met == len(values),
    )


def _large(records: list[Record]) -> Aim:
    text = (
        f"{100 * LARGE_SHARE:.0f}% of the cases of {LARGE_BYTES / 1e6:.0f} MB and more at "
        f"{100 * LARGE_COPY:.0f}% of a copy"
    )
    if not records:
        return Aim(text, "not timed", None)
    met = sum(copy_share(record) >= LARGE_COPY for record in records)
    share = met / len(records)
    return Aim(text, f"{100 * share:.0f}% ({met} of {len(records)})", share >= LARGE_SHARE)


def both_ways_keys(norm: str, shape: tuple[int, int]) -> tuple[str, str]:
    """Keys of the forward and the backward case of a norm."""
    dtype = torch.bfloat16
    return key(norm, dtype, shape), key(f"{norm}_backward", dtype, shape)


def _both_ways(families: Families, norm: str, shape: tuple[int, int], us: float) -> Aim:
    forward, backward = both_ways_keys(norm, shape)
    text = f"{forward} forward and backward in {us:.0f} us"
    pair = (
        families.get(norm, {}).get(forward),
        families.get("norm_backward", {}).get(backward),
    )
    times = [record["us"]["fuser"] for record in pair if record and "fuser" in record["us"]]
    if len(times) < len(pair):
        return Aim(text, "not timed", None)
    return Aim(
        text, f"{' + '.join(f'{t:.1f}' for t in times)} = {sum(times):.1f}", sum(times) <= us
    )


def limit(record: Mapping[str, Any]) -> str:
    """The limiting factor of the time by the cost model: launches, bytes (with the number of passes
    if above one) or instructions. Latency if the time exceeds the prediction by far."""
    bounds = record.get("bounds_us")
    if not bounds:
        return "-"
    over = record["us"]["fuser"] / bounds["predicted"] if bounds["predicted"] else math.inf
    if over > _LATE:
        return f"latency ({over:.1f} times the prediction)"
    name = max(("launch", "bytes", "instructions"), key=lambda part: float(bounds[part]))
    if name == "bytes" and bounds["passes"] > _MORE_PASSES:
        return f"bytes ({bounds['passes']:.2f} passes)"
    return name


class Error(NamedTuple):
    """Deviation of predictions from times, as a fraction of the times."""

    cases: int
    median: float
    most: float  # ninth decile


def prediction_error(families: Families) -> Error | None:
    """Deviation of the cost model (fuser.inspect.cost), if it predicted any time."""
    errors = sorted(
        abs(record["bounds_us"]["predicted"] / record["us"]["fuser"] - 1)
        for records in families.values()
        for record in records.values()
        if "fuser" in record["us"] and record.get("bounds_us", {}).get("predicted")
    )
    if not errors:
        return None
    count = len(errors)
    return Error(count, errors[count // 2], errors[count * 9 // 10])
