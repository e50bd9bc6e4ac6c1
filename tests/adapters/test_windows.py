"""Averages over windows and fake quantization, computed by decompositions, equal torch's bit for
bit, with equal strides."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fuser.adapters import aten


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_averages_of_windows_side_by_side(layout: Any, dtype: torch.dtype) -> None:
    op = torch.ops.aten.avg_pool2d.default
    x = torch.randn(2, 3, 9, 7, dtype=dtype).contiguous(memory_format=layout)
    average = aten.decompositions()[op]
    for settings in ([[2, 2]], [[2], [2], [0], False, False], [[3, 1], [], [0], False, True, 5]):
        found, expected = average(x, *settings), op(x, *settings)
        assert found.stride() == expected.stride()
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    overlapping = [[[3, 3], [1, 1]], [[2, 2], [2, 2], [1, 1]], [[2, 2], [], [0], True], [[4, 4]]]
    assert all(average(x, *settings) is NotImplemented for settings in overlapping)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("fake_quantize_per_tensor_affine_cachemask", [0.037, 3]),
        (
            "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
            [torch.tensor([0.1]), torch.tensor([-3]), torch.tensor([1])],
        ),
        ("fake_quantize_per_channel_affine_cachemask", [torch.rand(4) + 0.1, torch.arange(4), 1]),
    ],
)
def test_fake_quantization(name: str, how: list[Any], dtype: torch.dtype) -> None:
    op = getattr(torch.ops.aten, name).default
    how = [t.int() if isinstance(t, torch.Tensor) and t.dtype == torch.int64 else t for t in how]
    x = torch.randn(3, 4, 5).mul(20).to(dtype)
    x[0, 0, 0] = torch.nan
    found, expected = aten.decompositions()[op](x, *how, -8, 120), op(x, *how, -8, 120)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
