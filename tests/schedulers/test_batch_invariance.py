"""Batch invariance: rows whose results do not depend on other rows, bit for bit, and exceptions.

A row's result depends on the order in which its elements are combined, and so on the plan. Plans
depend on the number of rows only by its power of two. Therefore:

- Rows of `inner` (softmax, layer norm, rms norm, row reductions) are batch-invariant unless they
  are split over the grid, because the plan then follows from the row length. If the length is not
  a multiple of a vector, the rows must start at equal offsets within a line of 128 bytes.
- Few long rows (fewer blocks than SMs, 2^11 elements or more) are split over the grid, or need
  two kernels; adding rows may change their bits.
- Columns (`outer`) and the sums over rows of a norm's backward pass depend on the number of rows,
  which they reduce, and on the number of columns, which determines the split over the grid.
- dx of a norm's backward pass is invariant: a row is reduced within its block.

Equal calls always give equal bits; tests/lower/test_reproducible.py tests this property.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fuser import _core
from tests.support.reducing import PROGRAMS, Inputs, plan_for, plans_for, random_inputs

F32, BF16 = torch.float32, torch.bfloat16
INVARIANT = ["softmax", "layer_norm", "rms_norm", "over_norm", "var_rows", "logsumexp"]
BATCHES = [1, 2, 3, 64, 127, 132, 133, 1000, 100_000]


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("length", [100, 768, 1023, 2048])
@pytest.mark.parametrize("name", INVARIANT)
def test_plans_of_rows_that_are_not_cut(name: str, length: int, arch: int) -> None:
    """The plan is equal for 2 or more rows. A single row has another definition, without the
    dim."""
    plans = {str(plan_for(name, (rows, length), BF16, arch)) for rows in BATCHES if rows > 1}
    assert len(plans) == 1


@pytest.mark.parametrize("length", [8192, 65_536])
def test_plans_of_many_rows(length: int) -> None:
    """Long rows are invariant if there are enough of them for all SMs."""
    processors = _core.known_device(90).sms
    plans = {
        str(plan_for("softmax", (rows, length), BF16)) for rows in BATCHES if rows > 4 * processors
    }
    assert len(plans) == 1


def test_few_long_rows_are_not_invariant() -> None:
    """Few long rows are split over all SMs, and are not batch-invariant."""
    few, many = plan_for("sum_rows", (4, 1 << 20)), plan_for("sum_rows", (4096, 1 << 20))
    assert few["grid_blocks"] > 0
    assert many["grid_blocks"] == 0
    assert len(plans_for("softmax", (4, 1 << 20))) == 2


def rows_of(inputs: Inputs, count: int) -> Inputs:
    """The first `count` rows, with all weights."""
    return [x[:count].contiguous() if x.dim() == 2 else x for x in inputs]


@pytest.mark.parametrize("shape", [(64, 100), (64, 1023), (64, 4001)], ids=str)
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm"])
def test_bits_of_rows(name: str, shape: tuple[int, int], rng: np.random.Generator) -> None:
    """Rows are equal bit for bit in smaller batches, and at other positions of the batch."""
    fd = PROGRAMS[name].definition()
    inputs = random_inputs(name, shape, F32, rng)
    whole = fd.execute(inputs)[0]
    for count in (2, 5, shape[0] - 1):
        assert torch.equal(fd.execute(rows_of(inputs, count))[0], whole[:count])
    # Loops over odd rows start at a line of memory, i.e. 32 elements. Rows move to a row with an
    # equal offset within a line, which is every 32nd row.
    moved = [inputs[0].roll(32, 0), *inputs[1:]]
    assert torch.equal(fd.execute(moved)[0], whole.roll(32, 0))


def test_bits_of_dx(rng: np.random.Generator) -> None:
    fd = PROGRAMS["norm_backward"].definition()
    inputs = random_inputs("norm_backward", (40, 256), F32, rng)
    whole = fd.execute(inputs)[0]
    assert torch.equal(fd.execute(rows_of(inputs, 7))[0], whole[:7])
