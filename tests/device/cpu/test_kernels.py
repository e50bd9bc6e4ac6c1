"""Whole CPU kernels for each instruction set that this processor has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fuser import DataType, FusionDefinition, _core
from fuser.ops import as_dtype
from tests.support.reducing import PROGRAMS, assert_close, random_inputs

# Every name that FUSER_CPU_ISA takes.
ISAS = ("generic", "neon", "avx2", "avx512")

# Rows shorter than a vector, with tails, and of whole vectors.
SHAPES = [(3, 5), (37, 203), (16, 256)]


@pytest.fixture(autouse=True, params=ISAS)
def isa(request: pytest.FixtureRequest, set_option: Callable[[str, object], None]) -> str:
    if not _core.can_run_isa(request.param):
        pytest.skip(f"this processor lacks {request.param}")
    set_option("FUSER_HOST_ARCH", 0)
    set_option("FUSER_CPU_ISA", request.param)
    return request.param


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "sum_columns", "argmax_rows"])
def test_reductions(name: str, dtype: torch.dtype, rng: np.random.Generator) -> None:
    program = PROGRAMS[name]
    fd = program.definition(dtype)
    for shape in SHAPES:
        inputs = random_inputs(name, shape, dtype, rng)
        for got, exact in zip(fd.execute(inputs), program.exact(inputs), strict=True):
            assert_close(got, exact, dtype, scale=8.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_pointwise(dtype: torch.dtype, rng: np.random.Generator) -> None:
    """A bias by columns, an operand by rows and a transposed one."""
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], dtype=as_dtype(dtype)) for _ in range(2))
        bias = fd.define_tensor([-1], dtype=as_dtype(dtype))
        total = fd.ops.gelu(x + bias) + fd.ops.permute(y, [1, 0])
        fd.add_output(fd.ops.cast(total, as_dtype(dtype)))
        fd.add_output(fd.ops.cast(fd.ops.tanh(total) * fd.ops.exp(bias), as_dtype(dtype)))
    for rows, columns in SHAPES:
        x, y, bias = (
            torch.from_numpy(rng.standard_normal(shape)).to(dtype)
            for shape in ((rows, columns), (columns, rows), (columns,))
        )
        total = torch.nn.functional.gelu(x.double() + bias.double()) + y.double().T
        exact = [total, total.tanh() * bias.double().exp()]
        for got, wanted in zip(fd.execute([x, y, bias]), exact, strict=True):
            assert_close(got, wanted, dtype, scale=8.0)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64], ids=str)
def test_integers(dtype: torch.dtype, rng: np.random.Generator) -> None:
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], dtype=as_dtype(dtype)) for _ in range(2))
        for result in (x * y, fd.ops.floor_divide(x, y), fd.ops.remainder(x, y)):
            fd.add_output(fd.ops.cast(result, as_dtype(dtype)))
        fd.add_output(fd.ops.cast(x, DataType.Float) * 0.5)
        fd.add_output(x < y)
    for shape in SHAPES:
        x = torch.from_numpy(rng.integers(0, 127, shape)).to(dtype)
        y = torch.from_numpy(rng.integers(1, 12, shape)).to(dtype)
        expected = [x * y, x // y, x % y, x.float() * 0.5, x < y]
        for got, wanted in zip(fd.execute([x, y]), expected, strict=True):
            assert torch.equal(got, wanted)


def test_random_bits_are_those_of_the_emulation(
    set_option: Callable[[str, object], None],
) -> None:
    """The host executor computes them element by element."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        kept, mask = fd.ops.dropout(x, 0.25)
        fd.add_output(kept)
        fd.add_output(mask)
    for shape in SHAPES:
        x = torch.arange(1.0, 1.0 + shape[0] * shape[1]).reshape(shape)
        results = []
        for arch in (0, 80):
            set_option("FUSER_HOST_ARCH", arch)
            torch.manual_seed(7)
            results.append(fd.execute([x]))
        set_option("FUSER_HOST_ARCH", 0)
        for got, wanted in zip(*results, strict=True):
            assert torch.equal(got, wanted)
