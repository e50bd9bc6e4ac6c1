"""Relative speed of a timed case: to a copy, to its best peer and to its goals
(benchmarks.case)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.case import ODD_RATE, PEER
from benchmarks.harness import CONTENDERS, OURS

Record = dict[str, Any]
Records = Mapping[str, Record]  # by case key


def name_of(record: Record) -> str:
    return f"{record['case']} {record['dtype']} {'x'.join(map(str, record['shape']))}"


def mean(values: Iterable[float]) -> float:
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs))


def copy_share(record: Mapping[str, Any]) -> float:
    """fuser's speed relative to a copy."""
    return float(record["copy_us"] / record["us"]["fuser"])


def shares(record: Record, records: Records) -> dict[str, float]:
    """fuser's speed relative to a copy, to the probe and to the best correct peer. Bytes per second
    relative to the aligned case and to the `beside` case. Empty if fuser was not timed."""
    us = record["us"]
    if "fuser" not in us:
        return {}
    ours = us["fuser"]
    share = {"copy": record["copy_us"] / ours}
    if "probe_us" in record:
        share["probe"] = record["probe_us"] / ours
    peer = best_peer(record)
    if peer:
        share["peer"] = us[peer] / ours
    goal = record["goal"]
    beside, _ = goal.get("beside") or ("", 0)
    for kind, key in (("aligned", goal.get("aligned")), ("beside", beside)):
        other = records.get(key or "")
        if other and "fuser" in other["us"]:
            share[kind] = (record["bytes"] / ours) / (other["bytes"] / other["us"]["fuser"])
    return share


def best_peer(record: Record) -> str | None:
    """The fastest correct contender except fuser."""
    peers = [
        name
        for name in record["us"]
        if name in CONTENDERS and name not in OURS and name not in record["wrong"]
    ]
    return min(peers, key=lambda name: record["us"][name]) if peers else None


def asked(goal: Mapping[str, Any]) -> str:
    """Text of a case's goal, without PEER."""
    parts = [
        f"{100 * goal[name]:.0f}% of {what}"
        for name, what in (("copy", "copy"), ("probe", "read"))
        if goal.get(name)
    ]
    if goal.get("aligned"):
        parts.append(f"{100 * ODD_RATE:.0f}% of {goal['aligned'].rsplit('x', 1)[1]} wide")
    if goal.get("beside"):
        key, rate = goal["beside"]
        parts.append(f"{100 * rate:.0f}% of {key}")
    return ", ".join(parts) or "-"


def misses(record: Record, records: Records) -> list[str]:
    """Text of each goal that a case misses."""
    share, goal = shares(record, records), record["goal"]
    found = []
    for name, what in (("copy", "copy"), ("probe", "read")):
        if share and goal.get(name) and name in share and share[name] < goal[name]:
            found.append(f"{100 * share[name]:.1f}% of {what}")
    if share.get("aligned", ODD_RATE) < ODD_RATE:
        found.append(f"{100 * share['aligned']:.1f}% of aligned")
    if goal.get("beside") and share.get("beside", 1) < goal["beside"][1]:
        found.append(f"{100 * share['beside']:.1f}% of {goal['beside'][0]}")
    if share.get("peer", PEER) < PEER:
        found.append(f"{100 * share['peer']:.1f}% of {best_peer(record)}")
    spills = sum(k["local_bytes"] for k in record.get("kernels", []))
    if spills:
        found.append(f"{spills} local bytes")
    return found
