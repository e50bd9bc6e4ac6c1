"""Device blocks included in a kernel text: exactly the needed ones, in order."""

import re
from pathlib import Path

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


def test_a_block_names_what_others_use_of_it() -> None:
    """A function that a block defines without listing it as a name is used in that block only."""
    blocks = []
    for path in sorted((Path(__file__).parents[2] / "csrc" / "device").glob("*.cuh")):
        for block in re.split(r"^//@ ", path.read_text(), flags=re.MULTILINE)[1:]:
            head, _, body = block.partition("\n")
            blocks.append((head.split(":")[0].split(), body))
    for names, body in blocks:
        for function in set(re.findall(r"^DEVICE [\w<>]+ (\w+)\(", body, flags=re.MULTILINE)):
            if function in names:
                continue
            users = [n for n, b in blocks if b is not body and re.search(rf"\b{function}\b", b)]
            assert not users, f"{function} of block {names} is used by {users}"
