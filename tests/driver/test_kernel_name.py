"""csrc/driver/cuda/kernel_name.cpp; cache keys do not depend on names."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

import fuser
from fuser import DataType, FusionDefinition, Tensor
from tests.support.definitions import gained


@pytest.fixture(autouse=True)
def fresh(set_option: Callable[[str, object], None]) -> None:
    """Disable the disk cache: a kernel keeps the name under which its text was first compiled, also
    by another process."""
    set_option("FUSER_CACHE", 0)


def names(write: Callable[[FusionDefinition, Tensor], Tensor], rows: int = 4) -> list[str]:
    """Names of the kernels of a definition on one tensor, without their digests."""
    fuser.clear_caches()
    with FusionDefinition() as fd:
        fd.add_output(write(fd, fd.define_tensor([-1, -1], contiguity=True)))
    kernels = fd.fec.executor.kernels([torch.randn(rows, 64)])
    for kernel in kernels:
        assert re.fullmatch(r"[a-z_]\w{0,47}_[0-9a-f]{8}", kernel.name)
    return [kernel.name[:-9] for kernel in kernels]


@pytest.mark.parametrize(
    ("expected", "write"),
    [
        ("softmax_fwd", lambda fd, x: fd.ops.softmax(x, 1)),
        ("layer_norm_fwd", lambda fd, x: fd.ops.layer_norm(x, [-1])[0]),
        ("rms_norm_fwd", lambda fd, x: fd.ops.rms_norm(x, [-1])[0]),
        ("add_gelu", lambda fd, x: fd.ops.cast(fd.ops.gelu(x + 1.0), DataType.Half)),
        ("add_softmax_fwd", lambda fd, x: fd.ops.softmax(x + 2.0, 1)),
        ("add", lambda fd, x: x * 2.0 + 1.0),  # one fma, named after the sum
        ("exp_sum", lambda fd, x: fd.ops.sum(fd.ops.exp(x), [1])),
        ("cast", lambda fd, x: fd.ops.cast(x, DataType.Half)),
        ("set", lambda fd, x: fd.ops.set(fd.ops.permute(x, [1, 0]))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_names_say_what_is_computed(
    expected: str, write: Callable[[FusionDefinition, Tensor], Tensor]
) -> None:
    assert names(write) == [expected]


def test_a_transpose_is_named() -> None:
    def write(fd: FusionDefinition, x: Tensor) -> Tensor:
        return x + fd.ops.permute(x, [1, 0])

    assert names(write, rows=64) == ["transpose_add"]


def test_names_are_bounded_and_keep_what_works_most() -> None:
    def write(fd: FusionDefinition, x: Tensor) -> Tensor:
        for op in (fd.ops.neg, fd.ops.exp, fd.ops.abs, fd.ops.tanh, fd.ops.erf, fd.ops.floor):
            x = op(x)
        return fd.ops.sum(x, [1])

    assert names(write) == ["exp_tanh_erf_sum"]


def test_names_of_torchs_ops() -> None:
    """Kernels of decomposed torch ops are named after the op, forward and backward."""
    model = torch.compile(nn.LayerNorm(64), backend="fuser")
    report = fuser.explain(model, torch.randn(8, 64, requires_grad=True))
    found = [step.name for region in report.explanations for step in region.steps]
    assert any(name.startswith("layer_norm_fwd_") for name in found)
    assert any(name.startswith("layer_norm_bwd_") for name in found)


def test_equal_kernels_of_other_names_are_one() -> None:
    """The second definition reuses the kernel of the first one, under its name."""
    x = torch.randn(4, 64)
    found = []
    before = fuser.cache_info()
    for as_composite in (True, False):
        with FusionDefinition() as fd:
            t = fd.define_tensor([-1, -1], contiguity=True)
            fd.add_output(fd.ops.square(t) if as_composite else fd.ops.mul(t, t))
        (result,) = fd.execute([x])
        assert result.equal(x * x)
        found += fd.fec.executor.kernels()
    assert gained(before).kernels_compiled + gained(before).kernels_from_disk == 1
    assert found[0].name == found[1].name
    assert found[0].text == found[1].text
