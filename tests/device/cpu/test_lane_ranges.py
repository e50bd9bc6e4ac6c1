"""Ranges of lanes, and lanes at constant offsets, in every dtype and instruction set."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest
import torch

from tests.device.cpu.programs import Functions, Loaded, build, run, runnable
from tests.device.cpu.test_memory import bytes_of, raw
from tests.device.programs import ELEMENT

LANES = 16
PATTERNS = {
    "even": [2 * i for i in range(LANES)],
    "twice": [i // 2 for i in range(LANES)],
    "pairs": [i // 2 * 2 for i in range(LANES)],
    "reverse": [-i for i in range(LANES)],
    "swap": [1 - 2 * (i % 2) + i for i in range(LANES)],
    "far": [i * 3 + i // 8 * 7 for i in range(LANES)],
}


def functions() -> str:
    """Functions of each dtype: a range of lanes from the first to the second index of `ends`, and
    patterns from the middle of `a`."""
    ranges = "".join(
        f"""
extern "C" void range_{t}(i64, const {t}* a, const i64* ends, const {t}* b, {t}* out) {{
  const LaneRange<{LANES}> in = lanes_from<{LANES}>(ends[0]) && lanes_below<{LANES}>(ends[1]);
  store(out, load_range<{t}, {LANES}>(a, in));
  store(out + {LANES}, where_(in, load<{t}, {LANES}>(a), load<{t}, {LANES}>(b)));
  store(out + {2 * LANES}, where_(in.mask(), load<{t}, {LANES}>(a), load<{t}, {LANES}>(b)));
}}
"""
        for t in ELEMENT.values()
    )
    patterns = "".join(
        f"""
extern "C" void {name}_{t}(i64 n, const {t}* a, const i64* first, const void*, {t}* out) {{
  store(out, load_pattern(a + *first, Order_<{", ".join(map(str, at))}>(), n), n);
}}
"""
        for t in ELEMENT.values()
        for name, at in PATTERNS.items()
    )
    return ranges + patterns


@pytest.fixture(scope="module", params=runnable())
def library(request: pytest.FixtureRequest) -> Functions:
    return build(functions(), request.param)


@pytest.mark.parametrize("dtype", ELEMENT, ids=ELEMENT.values())
def test_ranges_of_lanes(
    dtype: torch.dtype, library: Functions, request: pytest.FixtureRequest
) -> None:
    generator = torch.Generator().manual_seed(request.config.option.seed)
    a, b = (bytes_of(LANES, dtype, generator) for _ in range(2))
    for first in (-20, 0, 1, 7, LANES - 1, LANES, 40):
        for end in (-3, 0, 1, 9, LANES - 1, LANES, 40):
            out = torch.empty(3 * LANES, dtype=dtype)
            run(library, f"range_{ELEMENT[dtype]}", [a, torch.tensor([first, end]), b], out)
            zero = torch.zeros(LANES, dtype=dtype)
            inside = range(max(first, 0), min(end, LANES))
            for i in range(LANES):
                loaded, chosen = (a if i in inside else zero), (a if i in inside else b)
                got = [raw(out[k * LANES + i : k * LANES + i + 1]) for k in range(3)]
                wanted = [raw(of[i : i + 1]) for of in (loaded, chosen, chosen)]
                assert got == wanted, (first, end, i)


@pytest.mark.parametrize("dtype", ELEMENT, ids=ELEMENT.values())
def test_patterns_of_lanes(
    dtype: torch.dtype, library: Functions, request: pytest.FixtureRequest
) -> None:
    generator = torch.Generator().manual_seed(request.config.option.seed)
    a = bytes_of(8 * LANES, dtype, generator)
    middle = 2 * LANES
    for name, at in PATTERNS.items():
        # Some lanes exist only if the last of them is the farthest.
        counts = (LANES, 0, 1, 5, LANES - 1) if at == sorted(at) else (LANES,)
        for n in counts:
            out = torch.empty(n, dtype=dtype)
            run(library, f"{name}_{ELEMENT[dtype]}", [a, torch.tensor([middle])], out)
            wanted = [a[middle + at[i]] for i in range(n)]
            assert raw(out) == [byte for x in wanted for byte in raw(x[None])], (name, n)


@pytest.mark.parametrize("dtype", ELEMENT, ids=ELEMENT.values())
def test_a_pattern_reads_between_its_lanes_alone(dtype: torch.dtype, library: Functions) -> None:
    """The page behind the last element cannot be read: an access to it ends the process."""
    if not isinstance(library, Loaded):
        pytest.skip("an emulated function has copies of its operands")
    page, size = mmap.PAGESIZE, dtype.itemsize
    libc = ctypes.CDLL(None, use_errno=True)
    memory = mmap.mmap(-1, 2 * page)
    array = np.frombuffer(memory, dtype=np.uint8)
    assert libc.mprotect(ctypes.c_void_p(array.ctypes.data + page), page, 0) == 0
    try:
        for name, at in PATTERNS.items():
            for n in (1, 5, LANES) if at == sorted(at) else (LANES,):
                elements = max(at[:n]) - min(at[:n]) + 1
                a = torch.frombuffer(memory, dtype=dtype, offset=page - elements * size)[:elements]
                out = torch.empty(n, dtype=dtype)
                run(library, f"{name}_{ELEMENT[dtype]}", [a, torch.tensor([-min(at[:n])])], out)
                assert raw(out) == raw(torch.zeros(n, dtype=dtype)), (name, n)
    finally:
        libc.mprotect(ctypes.c_void_p(array.ctypes.data + page), page, mmap.PROT_READ)
