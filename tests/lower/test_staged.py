"""Kernels whose stages have different index maps over a tile: statements, and bank conflicts of
shared memory."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from fuser import FusionDefinition
from fuser.ops import as_dtype
from tests.support.reducing import kernels_for
from tests.support.stages import stage_text, statements


def flipped(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.permute(x, [1, 0])


def transposed(dtype: torch.dtype) -> FusionDefinition:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], dtype=as_dtype(dtype))
    fd.add_output(fd.ops.stride_order(flipped(fd, x), [1, 0]))
    return fd


def accesses(text: str) -> list[str]:
    """Accesses and barriers in order, e.g. "load g_in"."""
    out = []
    for line in text.splitlines():
        if found := re.search(r"load \w+\[.*?\] width \d+ (\w+)\[", line):
            out.append("load " + found[1].rstrip("0123456789"))
        elif found := re.search(r"write (\w+)\[", line):
            out.append("write " + found[1].rstrip("0123456789"))
        elif "barrier" in line:
            out.append("barrier")
    # Complete and incomplete blocks have separate stores; keep one.
    return [a for i, a in enumerate(out) if a != "write g_out" or a not in out[i - 1 : i]]


def test_two_stages() -> None:
    text = statements(stage_text(transposed(torch.float32), [torch.ones(64, 64)], "build"))
    assert accesses(text) == ["load g_in", "write tile", "barrier", "load tile", "write g_out"]


def test_a_stage_loads_before_it_waits() -> None:
    fd = FusionDefinition()
    x, y = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
    fd.add_output(x + flipped(fd, y))
    text = statements(stage_text(fd, [torch.ones(64, 64)] * 2, "build"))
    assert accesses(text) == [
        *("load g_in", "write tile", "load g_in", "barrier"),
        *("load tile", "write g_out"),
    ]


def test_lanes_that_turn_twice() -> None:
    """Outputs of both layout groups, each computed from both inputs: values of the first stage
    remain available in the third one."""
    fd = FusionDefinition()
    x, y = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
    fd.add_output(x + flipped(fd, y))
    fd.add_output(fd.ops.stride_order(flipped(fd, x) - y, [1, 0]))
    text = statements(stage_text(fd, [torch.ones(64, 64)] * 2, "build"))
    assert accesses(text) == [
        *("load g_in", "write tile"),
        *("load g_in", "barrier", "load tile", "write tile", "write g_out"),
        *("barrier", "load tile", "write g_out"),
    ]


def test_what_does_not_vary_along_the_tile_is_read_once() -> None:
    fd = FusionDefinition()
    x, rows = fd.define_tensor([-1, -1]), fd.define_tensor([-1])
    fd.add_output(fd.ops.stride_order(flipped(fd, x + rows), [1, 0]))
    text = statements(stage_text(fd, [torch.ones(64, 64), torch.ones(64)], "build"))
    outside = [line for line in text.splitlines() if not line.startswith(" ")]
    assert any(re.match(r"load r_in1\[0\] width 4 g_in1", line) for line in outside)


def tile_accesses(text: str) -> list[tuple[str, int]]:
    """Offset in the tile and number of elements of each access to shared memory."""
    found = re.findall(
        r"write tile\d+\[(.*)\] width (\d+) t|load s\d+\[.*?\] width (\d+) tile\d+\[(.*)\]", text
    )
    return [(a or b, int(m or n)) for a, m, n, b in found]


def in_first_block(
    text: str, expression: str, thread: int, shape: tuple[int, int], step: int = 0
) -> int:
    """An index for one thread; `step` replaces the variables of loops."""
    known: dict[str, Any] = {
        "thread": thread,
        "block": 0,
        "size": lambda _, dim: shape[dim],
        "remainder": lambda a, b: a % b,
        "minimum": min,
    }

    def value(code: str) -> int:
        code = re.sub(r"\bv\d+\b", lambda v: v[0] if v[0] in known else str(step), code)
        return int(eval(code.replace("/", "//"), known))

    for name, code in re.findall(r"^ +(v\d+) = (.*)$", text, re.MULTILINE):
        known[name] = value(code)
    return value(expression)


def most_in_a_bank(addresses: list[int], width: int) -> int:
    """Largest number of words of one bank in simultaneously served accesses."""
    at_once, most = min(32, 128 // width), 0
    for first in range(0, 32, at_once):
        words = {
            word
            for address in addresses[first : first + at_once]
            for word in range(address // 4, (address + width - 1) // 4 + 1)
        }
        most = max(most, *(sum(word % 32 == bank for word in words) for bank in range(32)))
    return most


@pytest.mark.parametrize("shape", [(256, 256), (255, 256), (256, 255), (255, 255)], ids=str)
@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.bfloat16, torch.float32, torch.float64], ids=str
)
def test_no_bank_conflicts(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    text = stage_text(transposed(dtype), [torch.ones(shape, dtype=dtype)], "build")
    found = tile_accesses(text)
    assert len(found) == 2
    for offset, width in found:
        addresses = [in_first_block(text, offset, t, shape) * dtype.itemsize for t in range(32)]
        assert most_in_a_bank(addresses, width * dtype.itemsize) == 1, (offset, width)


@pytest.mark.parametrize("shape", [(8191, 8193), (8193, 8191), (8189, 8192), (8194, 4099)], ids=str)
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16], ids=str)
def test_rows_that_start_anywhere_cross_without_bank_conflicts(
    dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    """Accesses to shared memory have no bank conflicts, for rows that start at any byte of a
    word."""
    fd = transposed(dtype)
    (kernel,) = kernels_for(fd, [shape], text=True)
    if not kernel["plan"]["store_line_y"]:
        assert (dtype, shape[0] % 2) == (torch.bfloat16, 0), "words are whole"
        return
    text = stage_text(fd, [torch.empty(shape, dtype=dtype)], "build")
    for offset, width in tile_accesses(text):
        for step in range(8):
            at = [in_first_block(text, offset, t, shape, step) for t in range(32)]
            addresses = [a * dtype.itemsize for a in at]
            assert all(a % (width * dtype.itemsize) == 0 for a in addresses)
            assert most_in_a_bank(addresses, width * dtype.itemsize) == 1, (offset, width)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(300, 135), (135, 300), (1, 2100), (2100, 9), (1030, 1031)])
def test_shifted_vectors_end_where_rows_do(
    shape: tuple[int, int], dtype: torch.dtype, set_option: Any
) -> None:
    """Unaligned vectors, which combine aligned words, do not read beyond the tensor."""
    set_option("FUSER_HOST_DEBUG", 1)
    data = (torch.arange(shape[0] * shape[1]) * 7 % 100).reshape(shape).to(dtype)
    fd = transposed(dtype)
    (result,) = fd.execute([data])
    assert torch.equal(result, data.t())


def test_a_narrower_shift_is_none() -> None:
    """A plan may select unaligned vectors of two bytes, which are too narrow to combine words."""
    data = torch.randint(-9, 9, (300, 135), dtype=torch.int8)
    fd = transposed(torch.int8)
    plan = fd.plan([data])
    assert plan["unaligned"]
    for vector in (plan["vector_x"] // 2, 4, 2, 1):
        (result,) = fd.execute([data], plan=plan.replace(vector_x=vector))
        assert torch.equal(result, data.t())
