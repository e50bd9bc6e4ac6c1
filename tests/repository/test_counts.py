"""The table "Adding something" of HACKING.md: the files of an addition, counted by its name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {".cpp", ".h", ".cuh", ".def", ".py"}

# An addition of each kind: words that only it uses, the most files it may take, and those it takes.
# Its test counts too, except for ops, which tests read from their tables. A scheduler has a line in
# docs/design/schedulers.md besides.
ADDITIONS = {
    "reduction": (
        r"\bxor_sum\b|\bXorSum\b",
        4,
        {
            "csrc/ir/reductions.def",
            "csrc/device/reduce.cuh",
            "fuser/ops/reference.py",
            "fuser/ops/primitives.py",
        },
    ),
    "movement op": (
        r"\bUnfold\b|\bdef unfold\b|\"unfold\"",
        4,
        {
            "csrc/ir/movement.h",
            "csrc/fusion/movement/unfold.cpp",
            "fuser/ops/reference.py",
            "fuser/ops/shapes.py",
        },
    ),
    "scheduler": (
        r"\bplan_broadcast\b|\bBroadcastPlan\b|FUSER_SCHEDULER\(broadcast\b|_PLAN\(broadcast\b",
        5 - 2,
        {
            "csrc/schedulers/broadcast.cpp",
            "csrc/schedulers/schedulers.def",
            "csrc/schedule/plan_fields.def",
        },
    ),
    "memory trick with a field of plans": (
        r"\bsplit_at_rows\b",
        5 - 1,
        {
            "csrc/schedule/attributes.def",
            "csrc/schedule/plan_fields.def",
            "csrc/schedulers/pointwise.cpp",
            "csrc/lower/build/pointwise.cpp",
        },
    ),
    "memory trick": (
        r"STAGING_NUMBER\(pad\b|\bstaging\b.*\.pad\b|\.pad = ",
        5 - 1,
        {
            "csrc/schedule/attributes.def",
            "csrc/schedulers/transpose.cpp",
            "csrc/lower/build/staged_values.cpp",
        },
    ),
}
# Files beside those: rows of torch's ops; rules with a default, by which shards and hand-written
# schedules of nvFuser gain; names of old versions; a copy of csrc/device.
BESIDE = (
    "fuser/adapters/",
    "fuser/multidevice/",
    "fuser/nvfuser/",
    "fuser/plan.py",
    "fuser/device/",
)


@pytest.mark.parametrize("kind", ADDITIONS)
def test_an_addition_takes_few_files(kind: str) -> None:
    words, most, expected = ADDITIONS[kind]
    found = {
        name
        for folder in ("csrc", "fuser")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SUFFIXES
        and not (name := path.relative_to(ROOT).as_posix()).startswith(BESIDE)
        and re.search(words, path.read_text())
    }
    assert found == expected
    assert len(found) <= most
