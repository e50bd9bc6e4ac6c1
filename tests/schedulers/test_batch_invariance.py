"""Which rows have the same bits whatever stands beside them, and which need not.

A row's result depends on the order in which its elements are combined, and so on the plan; plans
see the number of rows by its power of two alone. So:

- Rows of `inner` (softmax, layer norm, rms norm, reductions of rows) are batch-invariant wherever
  they are not cut over the grid: the plan of a row then follows from its length. Of rows that are
  no multiple of a vector, those are that start at the same place of a line of 128 bytes.
- Few long rows (fewer blocks than the GPU has processors, 2^11 elements or more) are cut over the
  grid, or take two kernels; adding rows may change their bits.
- Columns (`outer`) and the sums over rows of a norm's backward depend on the number of rows, which
  is what they reduce, and on the number of columns, which decides the cut over the grid.
- dx of a norm's backward is invariant: a row is combined within its block.

Equal calls give equal bits always; that is another promise (tests/lower/test_reproducible.py).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fuser import _core
from tests.reducing import PROGRAMS, Inputs, plan_for, plans_for, random_inputs

F32, BF16 = torch.float32, torch.bfloat16
INVARIANT = ["softmax", "layer_norm", "rms_norm", "over_norm", "var_rows", "logsumexp"]
BATCHES = [1, 2, 3, 64, 127, 132, 133, 1000, 100_000]


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("length", [100, 768, 1023, 2048])
@pytest.mark.parametrize("name", INVARIANT)
def test_plans_of_rows_that_are_not_cut(name: str, length: int, arch: int) -> None:
    """From 2 rows on: of a single one the definition is another, without the dim."""
    plans = {str(plan_for(name, (rows, length), BF16, arch)) for rows in BATCHES if rows > 1}
    assert len(plans) == 1


@pytest.mark.parametrize("length", [8192, 65_536])
def test_plans_of_many_rows(length: int) -> None:
    """Long rows are invariant as long as they keep the GPU busy."""
    processors = _core.known_device(90).processors
    plans = {
        str(plan_for("softmax", (rows, length), BF16)) for rows in BATCHES if rows > 4 * processors
    }
    assert len(plans) == 1


def test_few_long_rows_are_not_invariant() -> None:
    """The trade: a single row of a million elements by all processors."""
    few, many = plan_for("sum_rows", (4, 1 << 20)), plan_for("sum_rows", (4096, 1 << 20))
    assert few["blocks"] > 0
    assert many["blocks"] == 0
    assert len(plans_for("softmax", (4, 1 << 20))) == 2


def rows_of(inputs: Inputs, count: int) -> Inputs:
    """The same weights, and the first rows."""
    return [x[:count].contiguous() if x.dim() == 2 else x for x in inputs]


@pytest.mark.parametrize("shape", [(64, 100), (64, 1023), (64, 4001)], ids=str)
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm"])
def test_bits_of_rows(name: str, shape: tuple[int, int], rng: np.random.Generator) -> None:
    """The first rows alone, beside others, and at another place of the batch."""
    fd = PROGRAMS[name].definition()
    inputs = random_inputs(name, shape, F32, rng)
    whole = fd.execute(inputs)[0]
    for count in (2, 5, shape[0] - 1):
        assert torch.equal(fd.execute(rows_of(inputs, count))[0], whole[:count])
    # Rows of odd lengths are walked from a line of memory, 32 elements: what moves with them is
    # where they start in one, and every 32nd row starts at the same place.
    moved = [inputs[0].roll(32, 0), *inputs[1:]]
    assert torch.equal(fd.execute(moved)[0], whole.roll(32, 0))


def test_bits_of_dx(rng: np.random.Generator) -> None:
    fd = PROGRAMS["norm_backward"].definition()
    inputs = random_inputs("norm_backward", (40, 256), F32, rng)
    whole = fd.execute(inputs)[0]
    assert torch.equal(fd.execute(rows_of(inputs, 7))[0], whole[:7])
