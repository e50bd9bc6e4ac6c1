"""The benchmark cases on small shapes: correct on the GPU, without spills, in few kernels."""

from __future__ import annotations

import pytest
import torch

import fuser
from benchmarks.case import Case, Data, Row, error
from benchmarks.families import TABLES
from fuser.errors import UserError

pytestmark = pytest.mark.gpu


def small_cases(row: Row) -> list[Case]:
    cases = [row.small(), row.small(odd=True)]
    if not row.tiny:  # a row with its own small shapes supports these only
        cases.append(row.build((37, 258, 3, 5)[: len(row.shape)], row.dtype))
    return cases


CASES = {case.key: case for table in TABLES.values() for row in table for case in small_cases(row)}


@pytest.mark.parametrize("key", CASES)
def test_case(key: str, device: torch.device) -> None:
    case = CASES[key]
    inputs = case.make(Data(device))
    fd = case.definition(inputs)
    expected = case.reference(inputs)
    got = case.results(lambda *tensors: fd.execute(tensors), inputs)
    largest, share = error(got, expected, case.bounds)
    assert share <= 1.0, f"off by {largest}, {share} of the tolerance"
    assert [t.dtype for t in got[: len(case.outputs)]] == list(case.outputs)
    assert all(t.device.type == device.type for t in got)
    for kernel in fd.fec.executor.kernels():
        assert kernel.local_bytes == 0, f"{kernel.name} spills {kernel.local_bytes} bytes"


def test_shapes_share_a_kernel(device: torch.device) -> None:
    fd = fuser.FusionDefinition()
    x = fd.define_tensor([-1, -1], True, fuser.DataType.BFloat16)
    b = fd.define_tensor([-1], True, fuser.DataType.BFloat16)
    fd.add_output(fd.ops.cast(fd.ops.gelu(x + b), fuser.DataType.BFloat16))
    kernels = []
    # Small shapes of one wave of threads (csrc/schedulers/pointwise.cpp) have their own kernels.
    for shape in ((16, 64), (3000, 1024), (8, 32768), (30000, 8), (1000, 1024), (700, 512)):
        x_data = torch.randn(shape, device=device).bfloat16()
        b_data = torch.randn(shape[1], device=device).bfloat16()
        fd.validate([x_data, b_data])
        kernels.append([k.name for k in fd.fec.executor.kernels()])
    assert all(names == kernels[0] for names in kernels[:4])
    assert kernels[4] == kernels[5]


def test_random_shapes_need_few_kernels(device: torch.device, rng: object) -> None:
    """200 shapes, odd and even mixed, need at most 8 kernels; shapes with 16-byte rows at most
    4."""
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))  # type: ignore[attr-defined]
    for multiple, most in ((1, 8), (8, 4)):
        fd = fuser.FusionDefinition()
        x = fd.define_tensor([-1, -1], True, fuser.DataType.BFloat16)
        b = fd.define_tensor([-1], True, fuser.DataType.BFloat16)
        fd.add_output(fd.ops.cast(x * 2.0 + b, fuser.DataType.BFloat16))
        names = set()
        for _ in range(200):
            rows, columns = torch.randint(2, 200, (2,), generator=generator).tolist()
            x_data = torch.randn(rows, columns * multiple, device=device).bfloat16()
            b_data = torch.randn(columns * multiple, device=device).bfloat16()
            (y,) = fd.execute([x_data, b_data])
            names |= {k.name for k in fd.fec.executor.kernels()}
            exact = x_data.double() * 2 + b_data.double()
            assert error([y], [exact])[1] <= 1.0
        assert len(names) <= most, f"{len(names)} kernels: {sorted(names)}"


def test_devices_do_not_mix(device: torch.device) -> None:
    fd = fuser.FusionDefinition()
    x, y = (fd.define_tensor([-1], True, fuser.DataType.Float) for _ in range(2))
    fd.add_output(x + y)
    with pytest.raises(UserError, match="another device"):
        fd.execute([torch.ones(3, device=device), torch.ones(3)])
