"""Loads, stores, gathers and conversions of vectors, in every dtype and instruction set."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.device.cpu.programs import Functions, Loaded, build, run, runnable
from tests.device.programs import ELEMENT
from tests.device.test_device import all_of
from tests.ops.accuracy import cast

LANES = 16


def convert_functions() -> str:
    """A function for each pair of dtypes."""
    return "".join(
        f'extern "C" void {s}_to_{t}(i64 n, const {s}* a, const void*, const void*, {t}* out) {{\n'
        f"  for (i64 i = 0; i < n; i += {LANES})\n"
        f"    store(out + i, to<{t}>(load<{s}, {LANES}>(a + i, n - i)), n - i);\n}}\n"
        for s in ELEMENT.values()
        for t in ELEMENT.values()
    )


def move_functions() -> str:
    """Functions of each dtype that copy by one kind of access."""
    return "".join(
        f"""
extern "C" void copy_{t}(i64 n, const {t}* a, const void*, const void*, {t}* out) {{
  for (i64 i = 0; i < n; i += {LANES}) store(out + i, load<{t}, {LANES}>(a + i, n - i), n - i);
}}
extern "C" void stream_{t}(i64 n, const {t}* a, const void*, const void*, {t}* out) {{
  for (i64 i = 0; i < n; i += {LANES}) stream(out + i, load<{t}, {LANES}>(a + i));
  stream_end();
}}
extern "C" void reverse_{t}(i64 n, const {t}* a, const void*, const void*, {t}* out) {{
  for (i64 i = 0; i < n; i += {LANES}) {{
    const Vec<i64, {LANES}> at = (n - 1 - i) - iota<i64, {LANES}>(0);
    const Vec<i32, {LANES}> to_ = to<i32>(iota<i64, {LANES}>(i));
    scatter(out, to_, gather(a, at));
  }}
}}
extern "C" void some_{t}(i64 n, const {t}* a, const bool* in, const void*, {t}* out) {{
  for (i64 i = 0; i < n; i += {LANES}) {{
    const Vec<i32, {LANES}> at = to<i32>(iota<i64, {LANES}>(i));
    const Vec<bool, {LANES}> exists = load<bool, {LANES}>(in + i);
    scatter(out, at, gather(a, at, exists), exists);
  }}
}}
extern "C" void strided_{t}(i64 n, const {t}* a, const void*, const void*, {t}* out) {{
  for (i64 i = 0; i < n; i += {LANES})
    scatter_strided(out + 3 * i, 3, gather_strided<{t}, {LANES}>(a + 3 * i, 3, n - i), n - i);
}}
"""
        for t in ELEMENT.values()
    )


@pytest.fixture(scope="module", params=runnable())
def casts(request: pytest.FixtureRequest) -> Functions:
    return build(convert_functions(), request.param)


@pytest.fixture(scope="module", params=runnable())
def moves(request: pytest.FixtureRequest) -> Functions:
    return build(move_functions(), request.param)


def test_casts_equal_those_of_scalars(casts: Functions, request: pytest.FixtureRequest) -> None:
    seed = request.config.option.seed
    print(f"seed {seed}: repeat with --seed={seed}")
    generator = torch.Generator().manual_seed(seed)
    for source, s in ELEMENT.items():
        x = all_of(source, generator)
        for target, t in ELEMENT.items():
            got = run(casts, f"{s}_to_{t}", [x], torch.empty(len(x), dtype=target))
            expected = cast(x, target)
            if target.is_complex:
                got, expected = torch.view_as_real(got), torch.view_as_real(expected)
            if got.is_floating_point():
                got, expected = got.double(), expected.double()
            both_nan = (got != got) & (expected != expected)
            same = (got == expected) & (got.double().signbit() == expected.double().signbit())
            wrong = ~(same | both_nan)
            assert not wrong.any(), (
                f"{s} to {t}: got {got[wrong][:4].tolist()},"
                f" expected {expected[wrong][:4].tolist()}"
            )


def bytes_of(count: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Random elements: any bit pattern, of bool 0 and 1."""
    if dtype == torch.bool:
        return torch.rand(count, generator=generator) < 0.5
    size = count * dtype.itemsize
    return torch.randint(0, 256, (size,), generator=generator).to(torch.uint8).view(dtype)


def raw(x: Tensor) -> list[int]:
    return x.contiguous().view(torch.uint8).reshape(-1).tolist()


@pytest.mark.parametrize("dtype", ELEMENT, ids=ELEMENT.values())
def test_moves(dtype: torch.dtype, moves: Functions, request: pytest.FixtureRequest) -> None:
    generator = torch.Generator().manual_seed(request.config.option.seed)
    t, count = ELEMENT[dtype], 5 * LANES
    x = bytes_of(3 * count, dtype, generator)
    for n in (0, 1, LANES - 1, LANES, LANES + 1, count):
        out = bytes_of(3 * count, dtype, generator)
        before = out.clone()
        run(moves, f"copy_{t}", [x], out[:n])
        assert raw(out) == raw(x[:n]) + raw(before[n:]), n
        out = before.clone()
        run(moves, f"strided_{t}", [x], out[:n])
        wanted = before.clone()
        wanted[: 3 * n : 3] = x[: 3 * n : 3]
        assert raw(out) == raw(wanted), n
    for first in (0, 1):  # aligned to a register or not
        out = torch.empty(count + 64, dtype=dtype)
        shift = first + (-out.data_ptr() // dtype.itemsize) % 64
        run(moves, f"stream_{t}", [x], out[shift : shift + count])
        assert raw(out[shift : shift + count]) == raw(x[:count])
    out = run(moves, f"reverse_{t}", [x[:count]], torch.empty(count, dtype=dtype))
    assert raw(out) == raw(x[:count].view(torch.uint8).view(count, -1).flip(0).reshape(-1))
    exists = torch.rand(count, generator=generator) < 0.5
    out = bytes_of(count, dtype, generator)
    before = out.clone()
    run(moves, f"some_{t}", [x[:count], exists], out)
    for i in range(count):
        assert raw(out[i : i + 1]) == raw((x if exists[i] else before)[i : i + 1]), i


@pytest.mark.parametrize("dtype", ELEMENT, ids=ELEMENT.values())
def test_a_tail_touches_nothing_behind_it(dtype: torch.dtype, moves: Functions) -> None:
    """The page behind the last element cannot be read: an access to it ends the process."""
    if not isinstance(moves, Loaded):
        pytest.skip("an emulated function has copies of its operands")
    page = mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    memory = mmap.mmap(-1, 2 * page)
    array = np.frombuffer(memory, dtype=np.uint8)
    assert libc.mprotect(ctypes.c_void_p(array.ctypes.data + page), page, 0) == 0
    try:
        size = dtype.itemsize
        for n in range(1, LANES):
            x = torch.from_numpy(array)[page - n * size : page].view(torch.uint8)
            function = getattr(moves.library, f"copy_{ELEMENT[dtype]}")
            pointer = ctypes.c_void_p(x.data_ptr())
            function(ctypes.c_int64(n), pointer, None, None, pointer)
    finally:
        libc.mprotect(ctypes.c_void_p(array.ctypes.data + page), page, 3)
