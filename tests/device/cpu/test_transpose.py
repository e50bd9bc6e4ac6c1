"""Transposes in registers, in every dtype, size and instruction set."""

from __future__ import annotations

import pytest
import torch

from tests.device.cpu.programs import Functions, build, run, runnable
from tests.device.programs import ELEMENT
from tests.device.test_device import all_of

SIZES = (2, 4, 16)


def functions() -> str:
    """A function for each dtype and size, which transposes n matrices."""
    return "".join(
        f"""
extern "C" void turn_{t}_{n}(i64 count, const {t}* a, const void*, const void*, {t}* out) {{
  for (i64 i = 0; i < count; i += {n * n}) {{
    Vec<{t}, {n}> rows[{n}];
    for (i32 k = 0; k < {n}; ++k) rows[k] = load<{t}, {n}>(a + i + k * {n});
    transpose_lanes(rows);
    for (i32 k = 0; k < {n}; ++k) store(out + i + k * {n}, rows[k]);
  }}
}}
"""
        for t in ELEMENT.values()
        for n in SIZES
    )


@pytest.fixture(scope="module", params=runnable())
def turns(request: pytest.FixtureRequest) -> Functions:
    return build(functions(), request.param)


def test_elements_and_lanes_change_places(turns: Functions) -> None:
    for dtype, name in ELEMENT.items():
        for n in SIZES:
            count = 2 * n * n
            given = all_of(dtype, torch.Generator().manual_seed(n))
            value = given.repeat(count // len(given) + 1)[:count].contiguous()
            got = run(turns, f"turn_{name}_{n}", [value], torch.empty_like(value))
            exact = value.view(2, n, n).transpose(1, 2).contiguous()
            bytes_of = [t.contiguous().view(-1).view(torch.uint8) for t in (got, exact)]
            assert torch.equal(*bytes_of), (name, n)
