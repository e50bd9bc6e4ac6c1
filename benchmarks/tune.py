"""python -m benchmarks.tune: the table of tuned constants, and the measurement behind a row.

    python -m benchmarks.tune                      every constant: value, range, unit, meaning
    python -m benchmarks.tune inner.grid_row       half and twice the value against the value
    python -m benchmarks.tune inner.grid_row --values 1024,8192 --families softmax
    python -m benchmarks.tune cpu_nest.task_columns --tensor-bytes 1048576

The cases that matter are found by their kernels: those whose text changes with the value. They are
timed with the method of benchmarks/harness.py, all values of a case in turn: constants of
csrc/schedulers/cpu on the CPU, all others on the GPU. Without a GPU the command lists the cases of
those. A value is changed for good in csrc/cost/tuning.def, with a row of docs/design/tuning.md.
Constants with a value for each architecture are those of predicted times; `python -m benchmarks`
prints the error of the predictions.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch

from benchmarks.case import Case, Data
from benchmarks.families import TABLES
from benchmarks.harness import Call, Setting, measure
from benchmarks.texts import known_device, texts
from fuser import _core, _core_testing
from fuser.inspect.text_table import table


class Constant(NamedTuple):
    """A row of csrc/cost/tuning.def; several values if it has one for each architecture."""

    group: str
    file: str
    name: str
    value: float | tuple[float, ...]
    values: str  # "Any", "Multiple" of `least`, or "Power" of two
    least: float
    most: float
    unit: str
    meaning: str

    @property
    def key(self) -> str:
        """The name that the command line takes."""
        return f"{self.group}.{self.name}"

    @property
    def of_cpu(self) -> bool:
        """Whether schedulers of CPU kernels use it."""
        return "/cpu/" in self.file

    def allows(self, value: float) -> bool:
        """Whether the value is in the range of the row."""
        if not self.least <= value <= self.most:
            return False
        if self.values == "Multiple":
            return value % self.least == 0
        return self.values != "Power" or math.log2(value).is_integer()


def constants() -> dict[str, Constant]:
    """The rows of the table by key."""
    rows = [Constant(*row) for row in _core.tuned_rows()]
    return {row.key: row for row in rows}


@contextmanager
def changed(row: Constant, value: float) -> Iterator[None]:
    """Set a constant for the kernels that are planned in the block."""
    _core_testing.cost.set_tuned(row.key, value)
    try:
        yield
    finally:
        _core_testing.cost.set_tuned(row.key, row.value)


def neighbours(row: Constant) -> list[float]:
    """Half and twice the value, if the row allows them."""
    assert isinstance(row.value, int | float)
    number = type(row.value)
    return [value for value in (number(row.value / 2), number(row.value * 2)) if row.allows(value)]


def affected(
    row: Constant, values: Sequence[float], families: Sequence[str], tensor_bytes: int = 0
) -> list[Case]:
    """The cases that have another kernel with one of the values. `tensor_bytes`: see
    Row.fitted()."""
    found = []
    device = _core.native_device() if row.of_cpu else known_device("90")
    if torch.cuda.is_available() and not row.of_cpu:
        device = _core.nearest_known_device(_core.cuda_device(0).arch)
    cases = (one for family in families for one in TABLES[family])
    for case in (one.fitted(tensor_bytes) if tensor_bytes else one.case() for one in cases):
        planned = texts(case, device, False)
        for value in values:
            with changed(row, value):
                if texts(case, device, False) != planned:
                    found.append(case)
                    break
    return found


def times(row: Constant, values: Sequence[float], case: Case, setting: Setting) -> list[float]:
    """Median microseconds of a case with each value."""
    inputs = case.make(Data(setting.device))
    calls: dict[str, Call] = {}
    for value in values:
        definition = case.definition(inputs)
        with changed(row, value):
            definition.execute(inputs)  # plans
        calls[f"{value:g}"] = lambda definition=definition: definition.execute(inputs)
    return [statistics.median(us) for us in measure(calls, setting).values()]


def main(arguments: list[str] | None = None) -> int:
    """Print the table, or the cases of one row with their times."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", help="a constant, as the table names it")
    parser.add_argument("--values", help="instead of half and twice the value, with commas")
    parser.add_argument("--families", default=",".join(TABLES), help="default: %(default)s")
    parser.add_argument("--samples", type=int, default=40, help="default: %(default)s")
    parser.add_argument("--tensor-bytes", type=int, default=0, help="shrink cases to such tensors")
    options = parser.parse_args(arguments)
    rows = constants()
    if options.name is None:
        print("\n".join(listed(list(rows.values()))))
        return 0
    row = rows.get(options.name)
    if row is None or isinstance(row.value, tuple):
        parser.error(f"{options.name}: expected a name of the table with one value")
    number = type(row.value)
    values = [number(value) for value in options.values.split(",")] if options.values else []
    values = values or neighbours(row)
    for value in values:
        if not row.allows(value):
            parser.error(f"{value:g}: expected {row.values} from {row.least:g} to {row.most:g}")
    print(f"{row.key} = {row.value:g} {row.unit} ({row.file}): {row.meaning}")
    cases = affected(row, values, options.families.split(","), options.tensor_bytes)
    if not row.of_cpu and not torch.cuda.is_available():
        print(*(case.key for case in cases), f"{len(cases)} cases", sep="\n")
        return 0
    device = torch.device("cpu") if row.of_cpu else torch.device("cuda", 0)
    setting = Setting(device, samples=options.samples)
    print("\n".join(compared(row, values, cases, setting)))
    return 0


def compared(
    row: Constant, values: Sequence[float], cases: Sequence[Case], setting: Setting
) -> list[str]:
    """A line per case: microseconds with the value, and with the others. The last line has the
    geometric mean of the speed against the value."""
    assert isinstance(row.value, int | float)
    every = [row.value, *values]
    lines, speed = [], [0.0] * len(every)
    for case in cases:
        us = times(row, every, case, setting)
        speed = [log + math.log(us[0] / one) for log, one in zip(speed, us, strict=True)]
        lines.append([case.key, *(f"{one:.1f}" for one in us)])
    mean = [f"{math.exp(log / max(1, len(cases))):.3f}" for log in speed]
    header = ["case", *(f"{value:g}" for value in every)]
    return table(header, [*lines, ["speed", *mean]], right="l" + "r" * len(every))


def listed(rows: Sequence[Constant]) -> list[str]:
    """The table as text."""
    lines = []
    for row in rows:
        value = row.value if isinstance(row.value, tuple) else (row.value,)
        kind = "" if row.values == "Any" else f", {row.values.lower()}"
        lines.append(
            [
                row.key,
                " / ".join(f"{one:g}" for one in value),
                f"{row.least:g} to {row.most:g}{kind}",
                row.unit,
                row.meaning,
            ]
        )
    return table(["constant", "value", "range", "unit", "meaning"], lines)


if __name__ == "__main__":
    sys.exit(main())
