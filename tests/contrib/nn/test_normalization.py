"""fuser/contrib/nn: instance norms as definitions, compared with torch.nn."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import fuser
from fuser.contrib.nn import InstanceNorm1dNVFuser, InstanceNorm2dNVFuser, InstanceNorm3dNVFuser

PAIRS = [
    (InstanceNorm1dNVFuser, torch.nn.InstanceNorm1d),
    (InstanceNorm2dNVFuser, torch.nn.InstanceNorm2d),
    (InstanceNorm3dNVFuser, torch.nn.InstanceNorm3d),
]


def step(norm: Any, x: torch.Tensor) -> list[torch.Tensor]:
    """The result, the gradients of input and parameters, and the buffers of one step."""
    x = x.detach().requires_grad_()
    y = norm(x)
    (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum().backward()
    found = [y, x.grad, *(p.grad for p in norm.parameters()), *norm.buffers()]
    return [t.detach() for t in found if t is not None]


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("tracks", [False, True])
def test_as_torch_has_it(dim: int, affine: bool, tracks: bool) -> None:
    ours, theirs = PAIRS[dim - 1]
    torch.manual_seed(dim)
    norm = ours(5, momentum=0.3, affine=affine, track_running_stats=tracks)
    with torch.no_grad():
        for p in norm.parameters():
            p.normal_()
    expected = theirs(5, momentum=0.3, affine=affine, track_running_stats=tracks)
    expected.load_state_dict(copy.deepcopy(norm.state_dict()))
    shape = (2, 5, 7, 3, 2)[: dim + 2]
    for x in (torch.randn(shape), torch.randn(shape) + 2, torch.randn(shape[1:])):
        got, wanted = step(norm, x), step(expected, x)
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)
    norm.eval(), expected.eval()
    norm.zero_grad(), expected.zero_grad()
    for a, b in zip(step(norm, x), step(expected, x), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)


def test_half_and_channels_last() -> None:
    norm, expected = InstanceNorm2dNVFuser(4, affine=True), torch.nn.InstanceNorm2d(4, affine=True)
    x = torch.randn(2, 4, 5, 6).to(torch.bfloat16)
    for last in (x, x.to(memory_format=torch.channels_last)):
        y = norm(last)
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(y.float(), expected(x.float()), rtol=1e-2, atol=1e-2)
    assert fuser.contrib.nn.InstanceNorm2dNVFuser is InstanceNorm2dNVFuser
    with pytest.raises(ValueError, match="expected 3D or 4D"):
        norm(torch.randn(3, 3))
