"""What a plain run of the tests takes of the big tables; `--thorough` takes all of each.

Most of the time of these tables goes into compiling kernels, one for each dtype, layout and op, so
a plain run takes a fixed part: every op, every dtype and every layout occurs in it, not each with
each. conftest.py has stored the option before any test file is imported.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

Row = TypeVar("Row")

# In the environment, because workers of pytest-xdist are processes of their own.
VARIABLE = "FUSER_TEST_THOROUGH"


def thorough() -> bool:
    return os.environ.get(VARIABLE) == "1"


def rotated(rows: Sequence[Row], place: int, count: int) -> list[Row]:
    """`count` of the rows, beginning another one at each place; all of them with --thorough."""
    if thorough():
        return list(rows)
    return [rows[(place * count + step) % len(rows)] for step in range(min(count, len(rows)))]
