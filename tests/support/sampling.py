"""The subset of the big tables that a normal test run uses; `--thorough` runs all of each.

Most of the time of these tables is the compilation of kernels, one per dtype, layout and op. So a
normal run uses a fixed subset: every op, every dtype and every layout occurs, but not every
combination. conftest.py stores the option before any test file is imported.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

Row = TypeVar("Row")

# An environment variable, because workers of pytest-xdist are separate processes.
VARIABLE = "FUSER_TEST_THOROUGH"


def thorough() -> bool:
    return os.environ.get(VARIABLE) == "1"


def rotated(rows: Sequence[Row], place: int, count: int) -> list[Row]:
    """`count` of the rows, starting at an offset that depends on `place`; all of them with
    --thorough."""
    if thorough():
        return list(rows)
    return [rows[(place * count + step) % len(rows)] for step in range(min(count, len(rows)))]
