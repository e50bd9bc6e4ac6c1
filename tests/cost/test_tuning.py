"""csrc/cost/tuning.def: every constant is in its range, and any value of the range is right."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from fuser import FusionDefinition, _core, _core_testing
from fuser.ops import as_dtype
from tests.support import planning

ROOT = Path(__file__).resolve().parents[2]


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

    @property
    def of_cpu(self) -> bool:
        """Whether schedulers of CPU kernels use it."""
        return "/cpu/" in self.file

    def ends(self) -> tuple[float, float]:
        """The smallest and the largest value that the row allows."""
        step = self.least if self.values == "Multiple" else 1
        return self.least, self.most // step * step if step > 1 else self.most


ROWS = [Row(*row) for row in _core.tuned_rows()]
ONE_VALUE = [row for row in ROWS if not isinstance(row.value, tuple)]


@contextmanager
def changed(row: Row, value: float) -> Iterator[None]:
    """Sets a constant and restores it."""
    _core_testing.cost.set_tuned(row.key, value)
    try:
        yield
    finally:
        _core_testing.cost.set_tuned(row.key, row.value)


def test_every_value_is_in_its_range() -> None:
    assert len({row.key for row in ROWS}) == len(ROWS) > 100
    for row in ROWS:
        assert row.meaning, row.key
        for value in row.value if isinstance(row.value, tuple) else (row.value,):
            for one in (value, *row.ends()):
                assert row.least <= one <= row.most, row.key
                if row.values == "Multiple":
                    assert one % row.least == 0, row.key
                if row.values == "Power":
                    assert math.log2(one).is_integer(), row.key


def test_the_file_of_a_row_uses_it() -> None:
    for row in ROWS:
        assert re.search(rf"\b{row.name}\b", code(ROOT / row.file)), row.key


def code(file: Path) -> str:
    """The text of a file, of its header and of users beside it, without comments."""
    beside = file.parent.parent if file.parent.name == "analysis" else file.parent
    files = [file, *beside.glob("*.cpp"), *(ROOT / "csrc/schedule").glob("machine.cpp")]
    files += [ROOT / "csrc/cost/model.h"]
    return "\n".join(re.sub(r"//[^\n]*", "", path.read_text()) for path in files)


# Numbers of schedulers that are no rows: hardware, formats, and limits that other code relies on.
FIXED = {
    "schedulers/transpose.cpp": {"line_bytes", "word_bytes", "bank_bytes"},
    "schedulers/pointwise.cpp": {"drawn_together"},
    "schedulers/inner_outer.cpp": {"sm_registers", "most_blocks", "static_bytes", "all_threads"},
    "schedulers/legal.cpp": {"most_array_bytes", "reserved"},
    "schedulers/by_hand.cpp": {"most_unrolled"},
    "schedulers/analysis/coalescing.cpp": {"sector"},
    "schedulers/analysis/staging_tile.cpp": {"sector"},
    "schedulers/analysis/packed_rows.cpp": {"words"},
    "schedulers/analysis/collapse.cpp": {"most"},
    "schedulers/cpu/pointwise.cpp": {"line_bytes"},
    "schedulers/cpu/by_hand.cpp": {"least_part"},
}


def test_schedulers_have_no_other_constants() -> None:
    for folder in ("schedulers", "schedulers/analysis", "schedulers/cpu"):
        for path in sorted((ROOT / "csrc" / folder).glob("*")):
            if path.suffix not in {".cpp", ".h"}:
                continue
            found = re.findall(
                r"constexpr (?:int|int64_t|double|float) (\w+) =.*", path.read_text()
            )
            name = path.relative_to(ROOT / "csrc").as_posix()
            assert set(found) <= FIXED.get(name, set()), name


def wide() -> Iterator[planning.Case]:
    """Long rows, for constants of rows that outgrow registers, a block, and shared memory."""
    for dtype in (torch.bfloat16, torch.float32):
        for n in (1000, 16_384, 65_536, 50_257):
            x, weight = (torch.empty(shape, dtype=dtype, device="meta") for shape in ((4096, n), n))
            for write in (norm, softmax, norm_backward):
                fd = FusionDefinition()
                of = [fd.define_tensor([-1] * t.ndim, True, as_dtype(dtype)) for t in (x, weight)]
                for out in write(fd.ops, *of):
                    fd.add_output(fd.ops.cast(out, as_dtype(dtype)))
                yield planning.Case(f"{write.__name__} {n} {dtype}", fd, [x, weight])


def norm(ops: Any, x: Any, weight: Any) -> list[Any]:
    return [ops.layer_norm(x, [ops.size(x, 1)], weight, weight)[0]]


def softmax(ops: Any, x: Any, weight: Any) -> list[Any]:
    return [ops.softmax(x, 1)]


def norm_backward(ops: Any, x: Any, weight: Any) -> list[Any]:
    """Row sums and column sums of one product."""
    y = x * ops.broadcast(weight, [True, False])
    return [y - ops.broadcast(ops.mean(y * x, 1), [False, True]), ops.sum(y, 0)]


@pytest.fixture(scope="module")
def cases() -> list[planning.Case]:
    """Definitions of all schedulers."""
    return [*planning.cases(np.random.default_rng(0)), *wide()]


@pytest.mark.parametrize(
    "device", [_core.known_device(90), _core.native_device("avx512")], ids=["gpu", "cpu"]
)
def test_kernels_are_legal_at_both_ends_of_every_range(
    cases: list[planning.Case], device: Any
) -> None:
    """Every schedule passes verify(), and every kernel the verifier of Kernel IR."""
    rows = [row for row in ONE_VALUE if row.of_cpu == device.cpu]

    def plans() -> dict[str, list[Any]]:
        return {case.name: case.kernels(device) for case in cases}

    planned = {name: [k.plan for k in kernels] for name, kernels in plans().items()}
    assert len(planned) == len(cases)
    used = set()
    for row in rows:
        for value in row.ends():
            with changed(row, value):
                for name, kernels in plans().items():
                    if [k.plan for k in kernels] == planned[name]:
                        continue
                    used.add(row.key)
                    for kernel in kernels:
                        kernel.texts()
    assert len(used) > 0.6 * len(rows), sorted({row.key for row in rows} - used)
    assert planned == {name: [k.plan for k in kernels] for name, kernels in plans().items()}
