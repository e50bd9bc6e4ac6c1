"""Targets of a complete benchmark table, and the limiting factor of cases that miss them."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import report, targets
from benchmarks.families import TABLES
from benchmarks.ranking import Record

MET = {True: "met", False: "MISSED", None: "-"}


def timed(name: str, shape: list[int], us: dict[str, float], **more: Any) -> Record:
    """A case that moves 128 MB; a copy takes 100 us."""
    return {
        "case": name,
        "dtype": "bfloat16",
        "shape": shape,
        "goal": {},
        "us": us,
        "copy_us": 100.0,
        "bytes": 128_000_000,
        "failed": {},
        "wrong": {},
        "inexact": {},
        **more,
    }


def found(families: dict[str, dict[str, Record]]) -> dict[str, str]:
    """By target: the measured value and whether it is met."""
    return {a.asked: f"{a.found}: {MET[a.met]}" for a in targets.aims(families)}


def aim(families: dict[str, dict[str, Record]], part: str) -> str:
    (one,) = (text for asked, text in found(families).items() if part in asked)
    return one


def test_families_count_once_where_there_is_room() -> None:
    """The means weight families equally, whatever their number of cases, and skip cases whose best
    peer is near a copy."""
    slow = {"compile": 200.0, "eager": 150.0}
    families = {
        "a": {
            "1": timed("a", [1], {**slow, "fuser": 100.0}),
            "2": timed("a", [2], {**slow, "fuser": 100.0}),
            "near": timed("a", [3], {"compile": 105.0, "fuser": 300.0}),
        },
        "b": {"1": timed("b", [1], {**slow, "fuser": 400.0})},
    }
    assert aim(families, "times torch.compile") == (  # sqrt(2 * 0.5)
        "1.00 over 3 cases of 2 families, least 0.50 (b): MISSED"
    )
    assert aim(families, "times the best peer").startswith("0.75 over 3 cases of 2 families")
    families["b"]["1"]["us"]["fuser"] = 100.0
    assert aim(families, "times torch.compile").endswith("least 2.00 (a): met")
    assert aim(families, "times the best peer").endswith(": met")
    assert aim(families, "other cases") == (
        "0 of 1; geometric mean 0.350, least 0.350 (a bfloat16 3): MISSED"
    )


def test_a_wrong_peer_counts_for_nothing() -> None:
    record = timed("a", [1], {"compile": 50.0, "eager": 97.0, "fuser": 100.0}, wrong={"compile": 9})
    families = {"a": {"1": record}}
    assert aim(families, "every case").endswith("least 0.970 (a bfloat16 1): met")
    record["wrong"] = {}
    assert aim(families, "every case").endswith("least 0.500 (a bfloat16 1): MISSED")


@pytest.mark.parametrize("met", [4, 3])
def test_share_of_large_cases(met: int) -> None:
    records = {str(n): timed("a", [n], {"fuser": 100.0 if n < met else 110.0}) for n in range(5)}
    records["small"] = timed("a", [9], {"fuser": 500.0}, bytes=1000)
    text = aim({"a": records}, "64 MB and more")
    assert text == f"{20 * met}% ({met} of 5): {'met' if met == 4 else 'MISSED'}"


def test_gradients_of_norms_and_wide_rows() -> None:
    families = {
        "norm_backward": {
            "1": timed("rms_norm_backward", [8, 4], {"fuser": 110.0}),
            "2": timed("rms_norm_backward", [4, 8], {"fuser": 125.0}),
        },
        "softmax": {
            "wide": timed("softmax", [2, 65536], {"quack": 100.0, "fuser": 102.0}),
            "no QuACK": timed("softmax", [2, 65536], {"eager": 100.0, "fuser": 500.0}),
            "narrow": timed("softmax", [2, 4096], {"quack": 100.0, "fuser": 500.0}),
        },
    }
    assert aim(families, "gradients of norms").startswith("1 of 2; geometric mean 0.853, least")
    assert aim(families, "level with QuACK") == (
        "1 of 1; geometric mean 0.980, least 0.980 (softmax bfloat16 2x65536): met"
    )


def test_forward_and_backward_together() -> None:
    forward, backward = targets.both_ways_keys("rms_norm", (16384, 4096))
    families = {
        "rms_norm": {forward: timed("rms_norm", [16384, 4096], {"fuser": 66.0})},
        "norm_backward": {backward: timed("rms_norm_backward", [16384, 4096], {"fuser": 109.0})},
    }
    assert aim(families, "rms_norm bfloat16 16384x4096") == "66.0 + 109.0 = 175.0: met"
    families["rms_norm"][forward]["us"]["fuser"] = 68.0
    assert aim(families, "rms_norm bfloat16 16384x4096") == "68.0 + 109.0 = 177.0: MISSED"
    assert aim(families, "layer_norm bfloat16 8192x16384") == "not timed: -"


def test_cases_of_the_goals_are_in_the_table() -> None:
    for norm, shape, _ in targets.BOTH_WAYS:
        keys = targets.both_ways_keys(norm, shape)
        for family, key in zip((norm, "norm_backward"), keys, strict=True):
            assert key in {row.case().key for row in TABLES[family]}


def bounds(**parts: float) -> dict[str, float]:
    return {
        "launch": 2.5,
        "bytes": 50.0,
        "instructions": 10.0,
        "passes": 1.0,
        "predicted": 52.5,
        **parts,
    }


@pytest.mark.parametrize(
    ("parts", "us", "limit"),
    [
        ({}, 55.0, "bytes"),
        ({"passes": 1.5}, 55.0, "bytes (1.50 passes)"),
        ({"instructions": 60.0, "predicted": 62.5}, 65.0, "instructions"),
        ({"launch": 60.0, "predicted": 110.0}, 100.0, "launch"),
        ({}, 105.0, "latency (2.0 times the prediction)"),
    ],
)
def test_limit(parts: dict[str, float], us: float, limit: str) -> None:
    assert targets.limit(timed("a", [1], {"fuser": us}, bounds_us=bounds(**parts))) == limit
    assert targets.limit(timed("a", [1], {"fuser": us})) == "-", "a run before there were bounds"


def test_error_of_predictions() -> None:
    records = {
        str(n): timed("a", [n], {"fuser": 100.0}, bounds_us=bounds(predicted=100.0 + n))
        for n in range(-10, 10)
    }
    records["not ours"] = timed("a", [99], {"eager": 1.0})
    assert targets.prediction_error({"a": records}) == (
        20,
        pytest.approx(0.05),
        pytest.approx(0.09),
    )
    assert targets.prediction_error({}) is None


def test_the_report_has_all_of_it() -> None:
    record = timed(
        *("scale", [4, 4], {"eager": 80.0, "fuser": 100.0}),
        goal={"copy": 1.2},
        bounds_us=bounds(),
    )
    results = {"environment": {}, "families": {"pointwise": {"": record}}}
    text = report.markdown(results, ("eager", "fuser"))
    assert "| every case at 0.97 of the best peer | 0 of 1; geometric mean 0.800" in text
    assert "off by 48% in the median of 1 cases" in text
    assert (
        "| scale bfloat16 4x4 | 100.0 | 100% | 80% of eager | 100.0% of copy; 80.0% of eager | "
        "latency (1.9 times the prediction) |" in text
    )
