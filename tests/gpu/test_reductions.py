"""Every reduction on the GPU: narrow and wide, tall and thin, few outputs and many; within the
error bounds of tests/ops/test_reductions_exhaustive.py, without spills, and deterministic."""

from __future__ import annotations

import zlib

import pytest
import torch

from fuser import FusionDefinition, evaluate, testing
from tests.norms.runs import bits
from tests.ops.test_reductions_exhaustive import FAMILIES, Family, check, data

pytestmark = pytest.mark.gpu

SHAPES = (
    *((3, 1), (5, 33), (2, 1025), (4099, 1023), (70000, 32), (64, 50257), (3, 262144)),
    *((1, 4194304), (100003, 2), (2, 1000003)),
)
FEW = ((3, 1), (5, 33), (300, 1025), (2, 300001))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.key)
def test_reduction(family: Family, device: torch.device, request: pytest.FixtureRequest) -> None:
    seed = request.config.option.seed
    print(f"seed {seed}: repeat with --seed={seed}")
    generator = torch.Generator().manual_seed(seed + zlib.crc32(family.key.encode()))
    shapes = SHAPES if family.dtype in (torch.float32, torch.bfloat16) else FEW
    fd = family.define()
    hosts = [data(family, family.arranged(*shape), generator) for shape in shapes]
    inputs = [x.to(device) for x in hosts]
    testing.compile_batch((fd, [x]) for x in inputs)
    for host, x in zip(hosts, inputs, strict=True):
        got = fd.execute([x])
        for one, other in zip(got, fd.execute([x]), strict=True):
            assert torch.equal(bits(one), bits(other))
        check(family, host, [t.cpu() for t in got], evaluate(fd, [host]))
    for kernel in fd.fec.executor.kernels():
        assert kernel.local_bytes == 0, f"{kernel.name} spills {kernel.local_bytes} bytes"


def test_full_sum_of_many(device: torch.device) -> None:
    """The sum of 256 Mi elements is accurate, and equal bit for bit on every launch and stream."""
    x = torch.randn(1 << 28, device=device)
    fd = FusionDefinition()
    fd.add_output(fd.ops.sum(fd.define_tensor([-1], True)))
    (first,) = fd.execute([x])
    bound = 2.0**-24 * (28 + 16) * float(x.abs().sum(dtype=torch.float64))
    assert abs(float(first) - float(x.sum(dtype=torch.float64))) <= bound
    for _ in range(3):
        with torch.cuda.stream(torch.cuda.Stream()):
            assert torch.equal(fd.execute([x])[0], first)
    torch.cuda.synchronize()
