"""Computation of values from their operands in kernels with reductions, and names of buffers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuser import DataType, FusionDefinition
from tests.support.reducing import kernels_for
from tests.support.stages import stage_text


def ir_of(define: Callable[..., Any], *dtypes: DataType, shape: Any = (64, 1024)) -> str:
    """The final Kernel IR of a definition on tensors of one shape."""
    fd = FusionDefinition()
    fd.add_output(
        define(fd.ops, *(fd.define_tensor([-1] * len(shape), dtype=dtype) for dtype in dtypes))
    )
    (kernel,) = kernels_for(fd, [shape] * len(dtypes), text=True)
    text: str = kernel["ir"]
    return text


F32, BF16 = DataType.Float, DataType.BFloat16


def test_buffers_are_called_by_their_use() -> None:
    text = ir_of(lambda o, x, y: o.sum(x * y, 1), F32, BF16)
    assert re.findall(r"buffer (g_\w+) (\w+) (.*)", text) == [
        ("g_in0", "f32", "read restrict"),
        ("g_in1", "bf16", "read restrict"),
        ("g_out0", "f32", "written restrict"),
    ]


def test_what_is_written_in_place_is_not_restrict() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    fd.add_output(fd.ops.softmax(x, 1), x)
    text = stage_text(fd, [torch.ones(6, 256)], "build")
    assert "buffer g_in0 f32 read written\n" in text
    assert "g_out" not in text


def test_halves_are_computed_in_float32() -> None:
    text = ir_of(lambda o, x: o.sum(o.exp(x), 1), BF16)
    assert re.search(r"v\d+ : f32 = exp\w*\(f32\(r_in0\[v\d+\]\)\)", text)
    assert "array r_sum2 f32" in text or re.search(r"array r_sum\d+ f32 8 state sum", text)


def test_a_condition_stays_bool() -> None:
    text = ir_of(lambda o, x, y: o.sum(o.where(x > y, x, y), 1), F32, BF16)
    assert re.search(r"v(\d+) : bool = gt\(.*\)", text)
    assert re.search(r"where\(v\d+, r_in0\[v\d+\], f32\(r_in1\[v\d+\]\)\)", text)


def test_set_is_its_operand() -> None:
    text = ir_of(lambda o, x: o.sum(o.set(x), 1), F32)
    assert re.search(r"accumulate r_sum\d+\[v\d+\] \(r_in0\[v\d+\]\)", text)


def test_a_value_that_several_use_is_computed_once() -> None:
    def define(ops: Any, x: Any) -> Any:
        e = ops.exp(x)
        return ops.sum(e * e + e, 1)

    text = ir_of(define, F32)
    body = text[text.index("accumulate") - 600 :]
    assert body.count("exp(") in (1, 2), "in the fast form of a step, and in that at its end"


def test_what_varies_with_rows_alone_is_computed_between_walks() -> None:
    def define(ops: Any, x: Any) -> Any:
        total = ops.broadcast(ops.exp(ops.sum(x, 1)), [False, True])
        return x * total

    text = ir_of(define, F32)
    indent = {len(line) - len(line.lstrip()) for line in text.splitlines() if "exp(" in line}
    assert indent == {2}, "outside of every loop"


def test_sizes_in_arithmetic_are_parameters() -> None:
    text = ir_of(lambda o, x: o.mean(x, 1), F32)
    assert re.search(r"param p\d+ : f32 (inverse|real) size\(0, 1\)", text)


def test_a_scalar_may_be_reduced() -> None:
    fd = FusionDefinition()
    s, x = fd.define_scalar(F32), fd.define_tensor([-1, -1])
    fd.add_output(fd.ops.sum(fd.ops.full([x.size(0), x.size(1)], s, F32), 1))
    (got,) = fd.execute([2.0, torch.ones(4, 8)])
    assert got.tolist() == [16.0] * 4


def test_coordinates_in_arithmetic() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    fd.add_output(fd.ops.argmax(x, 1))
    (kernel,) = kernels_for(fd, [(64, 1024)], text=True)
    text = kernel["ir"]
    assert re.search(r"accumulate_all r_argmax\d+ r_x\d+ at r_at\d+", text)
    assert ".f1" in text
    # If indices do not ascend along a row, elements are accumulated one by one with their indices.
    turned = FusionDefinition()
    x = turned.define_tensor([-1, -1, -1])
    turned.add_output(turned.ops.argmax(turned.ops.permute(x, [1, 0, 2]), None))
    (kernel,) = kernels_for(turned, [(64, 32, 16)], text=True)
    assert re.search(r"accumulate r_argmax\d+\[v?\d+\] \(r_in0\[v\d+\], v\d+\)", kernel["ir"])


# ---- Mutually exclusive loads


def turned(
    halves: Callable[[FusionDefinition, Any, Any], Any],
) -> tuple[FusionDefinition, list[tuple[int, ...]]]:
    """x[batch, length, heads, dim] of bfloat16 times angles [length, dim] of float32, plus a
    function of its halves times angles."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1] * 4, dtype=BF16)
    cos, sin = (
        fd.ops.broadcast(fd.define_tensor([-1, -1]), [True, False, True, False]) for _ in range(2)
    )
    out = x * cos + halves(fd, *fd.ops.chunk(x, 2, -1)) * sin
    fd.add_output(fd.ops.cast(out, BF16))
    return fd, [(2, 16, 8, 64), (16, 64), (16, 64)]


def loaded(fd: FusionDefinition, shapes: Any) -> list[str]:
    """The arrays into which x is loaded."""
    (kernel,) = kernels_for(fd, shapes, text=True)
    assert kernel["plan"]["scheduler"] == "rows"
    return sorted(set(re.findall(r"load (r_in0\w*)\[", kernel["ir"])))


def test_reads_that_exclude_each_other_are_one_load() -> None:
    """Mutually exclusive loads of a rotary embedding combine: each lane needs one of the two
    halves, and has registers for one."""
    fd, shapes = turned(lambda fd, a, b: fd.ops.cat([-b, a], -1))
    assert loaded(fd, shapes) == ["r_in0", "r_in0_1"]
    (kernel,) = kernels_for(fd, shapes, text=True)
    # The address is selected. It is valid if and only if the row is.
    assert len(re.findall(r"v\d+ = where\(", kernel["ir"])) == 1, kernel["ir"]
    same_row = re.findall(r"load r_in0(?:_1)?\[.* in (.*)", kernel["ir"])
    assert len(same_row) == 2, kernel["ir"]


def cat_and_pad(fd: FusionDefinition, first: Any, second: Any) -> Any:
    """`first` has two users, its operand has one."""
    return fd.ops.cat([first, second], -1) * fd.ops.pad(first, [0, 32])


def rim(fd: FusionDefinition, t: Any) -> Any:
    """Rows without the first and last eight elements."""
    return fd.ops.slice(t, [0, 0, 0, 8], [None, None, None, -8])


def test_what_else_a_read_waits_for_stays(set_option: Callable[[str, Any], None]) -> None:
    """Other conditions of a load remain: a rotated and padded row is masked by the pad only."""
    set_option("FUSER_HOST_DEBUG", 1)
    fd, shapes = turned(lambda fd, a, b: fd.ops.pad(rim(fd, fd.ops.cat([-b, a], -1)), [8, 8]))
    (kernel,) = kernels_for(fd, shapes, text=True)
    x, cos, sin = torch.randn(shapes[0]).to(torch.bfloat16), *map(torch.randn, shapes[1:])
    first, second = x.double().chunk(2, -1)
    other = torch.nn.functional.pad(torch.cat([-second, first], -1)[..., 8:-8], (8, 8))
    expected = x.double() * cos.double()[:, None] + other * sin.double()[:, None]
    error = (fd.execute([x, cos, sin])[0].double() - expected).abs()
    assert bool((error <= 2.0**-8 * expected.abs() + 1e-5).all())
    assert "r_in0_1" in kernel["ir"]


@pytest.mark.parametrize(
    "halves",
    [
        lambda fd, a, b: fd.ops.cat([fd.ops.flip(b, [3]), a], -1),  # reversed direction
        lambda fd, a, b: fd.ops.cat([-b, a], -1) * fd.ops.cat([-b, a * 2.0], -1),  # used twice
        lambda fd, a, b: fd.ops.cat([b * b, a], -1),  # as both operands of an op
        lambda fd, a, b: cat_and_pad(fd, -b, a),  # after another op
    ],
    ids=["flipped", "twice", "squared", "behind"],
)
def test_other_reads_are_loads_of_their_own(halves: Any) -> None:
    fd, shapes = turned(halves)
    assert loaded(fd, shapes) == ["r_in0", "r_in0_1", "r_in0_2"]
