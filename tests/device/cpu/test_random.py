"""Random bits of vectors, compared with the scalar functions bit for bit."""

from __future__ import annotations

import pytest
import torch

from fuser.ops.reference import REFERENCES
from tests.device.cpu.programs import ISAS, Functions, build, run, runnable

LANES = (4, 8, 16, 32)
INDEX = {torch.int32: "i32", torch.int64: "i64"}
SEED, OFFSET = 0x123456789ABCDEF, 0x7FFFFFFFFFFFFF0C


@pytest.fixture(scope="module", params=runnable())
def library(request: pytest.FixtureRequest) -> Functions:
    assert request.param in ISAS
    return build(
        "".join(
            f'extern "C" void {name}_{t}_{lanes}(i64 n, const {t}* at, const void*, const void*, '
            f"{t}* out) {{\n  for (i64 i = 0; i < n; i += {lanes})\n"
            f"    store(out + i, {name}_(load<{t}, {lanes}>(at + i), {SEED}ll, {OFFSET}ll));\n}}\n"
            for name in ("random32", "random64")
            for t in INDEX.values()
            for lanes in LANES
        ),
        request.param,
    )


@pytest.mark.parametrize("dtype", INDEX)
@pytest.mark.parametrize("name", ["random32", "random64"])
def test_equals_the_scalar_function(name: str, dtype: torch.dtype, library: Functions) -> None:
    """Neighbours from a multiple of a call's words, from elsewhere, and scattered elements."""
    last = torch.iinfo(dtype).max - 64
    count = torch.arange(64)
    indices = [count, count + 1, count + 6, count * 3, 64 - count, count + last, count // 2]
    index = torch.cat(indices).to(dtype)
    wide = index.long()
    expected = REFERENCES[name](
        wide, torch.full_like(wide, SEED), torch.full_like(wide, OFFSET)
    ).to(dtype)
    for lanes in LANES:
        got = run(library, f"{name}_{INDEX[dtype]}_{lanes}", [index], torch.empty_like(index))
        assert torch.equal(got, expected), lanes
