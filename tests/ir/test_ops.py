"""csrc/ir/ops: the rows are complete and consistent with each other."""

import re

import pytest

from fuser import _core, _core_testing
from fuser._core import DataType
from fuser.errors import UserError

ir = _core_testing.ir
ROWS = _core.op_rows()
TEXT_OF = {
    "Bool": "int_text",
    "Int": "int_text",
    "Unsigned": "int_text",
    "Float": "real_text",
    "Complex": "complex_text",
}


def kind_of(dtype: DataType) -> str:
    return "Unsigned" if dtype.name.startswith("UInt") else dtype.kind


def test_names_are_unique() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert not set(names) & {dtype.device_name for dtype in DataType.__members__.values()}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: _core.OpRow) -> None:
    assert re.fullmatch("[a-z][a-z0-9_]*", row.name)
    assert row.arity in (1, 2, 3)
    assert row.accepts
    assert row.cost >= 0
    assert row.ulp >= 0
    if row.rule == "Float":
        assert not {"Bool", "Int"} & {*row.accepts}, "its integers became floats before"
    if row.rule == "Complex":
        assert row.accepts == ["Float"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_text_exists_where_the_row_accepts_and_uses_every_operand(row: _core.OpRow) -> None:
    accepted = {TEXT_OF[kind] for kind in row.accepts}
    for attribute in ("real_text", "int_text", "complex_text"):
        text = getattr(row, attribute)
        assert (text is not None) == (attribute in accepted)
        if text is not None:
            assert {*re.findall(r"\$(\d)", text)} == {*"012"[: row.arity]}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_op_text_follows_the_kind(row: _core.OpRow) -> None:
    for dtype in DataType.__members__.values():
        kind = kind_of(dtype)
        expected = getattr(row, TEXT_OF[kind]) if kind in row.accepts else None
        assert ir.op_text(row.name, dtype) == expected


def test_known_texts() -> None:
    assert ir.op_text("add", DataType.Float) == "$0 + $1"
    assert ir.op_text("add", DataType.Int) == "add_($0, $1)"
    assert ir.op_text("exp", DataType.Int) is None
    assert ir.op_text("sub", DataType.Bool) is None


def test_half_form() -> None:
    names = {row.name for row in ROWS}
    for name in names:
        expected = f"{name}_half" if f"{name}_half" in names else name
        assert ir.half_form(name) == expected
    halves = [row for row in ROWS if row.name.endswith("_half")]
    assert {row.name.removesuffix("_half") for row in halves} <= names


def test_op_name() -> None:
    with pytest.raises(UserError, match="unknown op addd") as caught:
        ir.op_text("addd", DataType.Float)
    assert caught.value.rule == "op-name"
