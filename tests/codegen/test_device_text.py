"""Which device blocks a kernel gets: those it needs, in order, and no others."""

import pytest

from fuser import _core


def test_nothing_for_nothing() -> None:
    assert _core.device_text("int x;") == ""


def test_transitive_and_ordered() -> None:
    text = _core.device_text("KERNEL(256) void f() { f32 y = silu_(x); }")
    for needed in ("define KERNEL", "define DEVICE", "f32 silu_(f32", "f32 exp_split_("):
        assert needed in text, needed
    assert text.index("typedef float f32") < text.index("bits_(f32") < text.index("exp_split_(")
    assert text.index("f32 ex2_approx(") < text.index("exp_split_(") < text.index("silu_(f32 x)")
    assert "tanh" not in text
    assert "load" not in text


def test_overloads_come_with_their_type() -> None:
    real = _core.device_text("f32 y = add_(exp_(x), to<f32>(z));")
    assert "c64" not in real
    assert "bf16" not in real
    mixed = _core.device_text("c64 y = exp_(x); bf16 z = to<bf16>(y.re);")
    assert "C exp_(C z)" in mixed
    assert "round_bf16_(f32 x)" in mixed
    assert "f8e4m3" not in mixed


@pytest.mark.parametrize("kernel", ["// tanh_ load", "x = mytanh_(y) + tanh_2;"])
def test_only_whole_identifiers_outside_comments(kernel: str) -> None:
    assert _core.device_text(kernel) == ""


def test_half_forms_name_their_op() -> None:
    rows = _core.op_rows()
    for number, row in enumerate(rows):
        form = rows[_core.half_form(number)]
        assert form.name in (row.name, f"{row.name}_half")
        if form is not row and form.name != row.name:
            assert form.cost < row.cost
            assert (form.arity, form.rule) == (row.arity, row.rule)
