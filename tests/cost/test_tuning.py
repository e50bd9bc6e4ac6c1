"""csrc/cost/tuning.def: every constant is in its range."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from fuser import _core


class Row(NamedTuple):
    """A row of the table."""

    group: str
    file: str
    name: str
    value: Any
    values: str
    least: float
    most: float
    unit: str
    meaning: str

    @property
    def key(self) -> str:
        return f"{self.group}.{self.name}"

    def ends(self) -> tuple[float, float]:
        """The smallest and the largest value that the row allows."""
        step = self.least if self.values == "Multiple" else 1
        return self.least, self.most // step * step if step > 1 else self.most


ROWS = [Row(*row) for row in _core.tuned_rows()]


def test_every_value_is_in_its_range() -> None:
    assert len({row.key for row in ROWS}) == len(ROWS) > 10
    for row in ROWS:
        assert row.meaning, row.key
        for value in row.value if isinstance(row.value, tuple) else (row.value,):
            for one in (value, *row.ends()):
                assert row.least <= one <= row.most, row.key
                if row.values == "Multiple":
                    assert one % row.least == 0, row.key
                if row.values == "Power":
                    assert math.log2(one).is_integer(), row.key
