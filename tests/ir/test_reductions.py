"""csrc/ir/reductions: the rows, and the layout of states as in kernels."""

import re

import pytest

from fuser import _core, _core_testing
from fuser._core import DataType
from fuser.errors import UserError
from fuser.runtime import toolkit

ir = _core_testing.ir
ROWS = ir.reduction_rows()
REAL = [
    *(DataType.Int32, DataType.Int, DataType.Byte, DataType.Char, DataType.Short),
    *(DataType.Float, DataType.Double),
]


def test_names_are_unique_and_found() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    for row in ROWS:
        assert ir.reduction_named(row.name).combine == row.combine
    for name in ("mean", "", "SUM"):
        with pytest.raises(UserError):
            ir.reduction_named(name)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: ir.ReductionRow) -> None:
    assert re.fullmatch("[a-z][a-z0-9_]*", row.name)
    assert row.operands in (1, 2)
    assert 1 <= row.results <= 3
    assert bool(row.state) == (row.results > 1), "one field is a value of the compute dtype"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_positions_are_int64(row: ir.ReductionRow) -> None:
    """The first field has the computation dtype; further fields are int64 indices if the reduction
    takes indices."""
    for compute in (DataType.Float, DataType.Double):
        assert len(row.fields) == row.results
        got = [ir.result_dtype(row.name, compute, i) for i in range(row.results)]
        rest = DataType.Int if row.operands > 1 else compute
        assert got == [compute] + [rest] * (row.results - 1)


def test_properties() -> None:
    """A pair of elements has a scalar op exactly if a state is one value, and only selections
    reject no elements."""
    for row in ROWS:
        assert (row.pair is None) == bool(row.state)
        assert row.pair is None or row.pair in {op.name for op in _core.op_rows()}
        assert row.selects == (row.name in ("max", "min", "argmax", "argmin"))


@pytest.mark.parametrize(
    ("name", "dtype", "size"),
    [
        ("sum", DataType.Float, 4),
        ("sum", DataType.ComplexDouble, 16),
        ("any", DataType.Bool, 1),
        ("argmax", DataType.Char, 16),  # aligned for its index
        ("argmax", DataType.Double, 16),
        ("welford", DataType.Float, 12),
        ("welford", DataType.Double, 24),
        ("online_softmax", DataType.Float, 8),
    ],
)
def test_bytes_of_a_state(name: str, dtype: DataType, size: int) -> None:
    assert ir.state_bytes(name, dtype) == size


def test_states_are_as_large_as_in_kernels() -> None:
    """state_bytes equals sizeof for every state in every dtype, as scratch and shared memory
    require."""
    checks = []
    for row in ROWS:
        if not row.state:
            continue
        for dtype in REAL if row.operands > 1 else (DataType.Float, DataType.Double):
            size = ir.state_bytes(row.name, dtype)
            checks.append(f"static_assert(sizeof({row.state}<{dtype.device_name}>) == {size});")
    assert len(checks) == 2 * len(REAL) + 4
    head = "KERNEL(32) void states(f32* g) {\n"
    body = head + "\n".join(checks) + "\n}\n"
    assert toolkit.compile("states", _core.device_text(body) + body, 90).cubin
    wrong = re.sub(r"== (\d+)\)", r"== 1\1)", body, count=1)
    with pytest.raises(Exception, match="static"):
        toolkit.compile("states", _core.device_text(wrong) + wrong, 90)
