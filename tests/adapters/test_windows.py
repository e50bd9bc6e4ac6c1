"""Averages over windows and fake quantization, computed by decompositions, equal torch's bit for
bit, with equal strides. Gradients of maxima over windows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fuser.adapters import aten, report
from fuser.adapters.dynamo import backend


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


_MAXIMUM = torch.ops.aten.max_pool2d_with_indices
_MAXIMUM_GRADIENT = torch.ops.aten.max_pool2d_with_indices_backward.default


@pytest.mark.parametrize("sizes", [(8, 9), (7, 7), (16, 5)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    ("window", "stride", "padding", "ceil"),
    [
        ([3, 3], [2, 2], [1, 1], False),
        ([2, 2], [], [0, 0], False),
        ([3, 2], [1, 2], [1, 0], True),
        ([3], [3], [1], True),
        ([3, 3], [2, 2], [0, 0], True),
        ([2, 2], [3, 3], [0, 0], False),  # some elements are in no window
        ([3, 3], [1, 1], [1, 1], False),
    ],
)
def test_gradients_of_maxima_over_windows(
    window: list[int],
    stride: list[int],
    padding: list[int],
    ceil: bool,
    layout: Any,
    sizes: tuple[int, int],
) -> None:
    gradient = aten.decompositions()[_MAXIMUM_GRADIENT]
    # Few different values: equal maxima have one index.
    x = torch.randint(-3, 3, (2, 3, *sizes)).double().contiguous(memory_format=layout)
    y, indices = _MAXIMUM(x, window, stride, padding, [1], ceil)
    g = torch.randn_like(y)
    settings = (window, stride, padding, [1], ceil)
    found, expected = (f(g, x, *settings, indices) for f in (gradient, _MAXIMUM_GRADIENT))
    assert found.stride() == expected.stride()
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14)
    if layout == torch.contiguous_format:  # images without a batch
        found = gradient(g[0], x[0], *settings, indices[0])
        torch.testing.assert_close(found, expected[0], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    ("window", "stride", "dilation"), [([5, 5], [1, 1], [1, 1]), ([3, 3], [2, 2], [2, 2])]
)
def test_maxima_that_torch_differentiates(
    window: list[int], stride: list[int], dilation: list[int]
) -> None:
    gradient = aten.decompositions()[_MAXIMUM_GRADIENT]
    x = torch.randn(1, 2, 12, 12)
    y, indices = _MAXIMUM(x, window, stride, [1, 1], dilation)
    settings = (window, stride, [1, 1], dilation, False)
    assert gradient(torch.ones_like(y), x, *settings, indices) is NotImplemented


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_gradient_of_maxima_joins_its_neighbours(dtype: torch.dtype, layout: Any) -> None:
    """The backward graph is one region. Sums of four terms of 8 bits are exact in float32."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.max_pool2d(x.relu() * 2, 3, 2, 1)

    torch._dynamo.reset()
    x = torch.randn(2, 8, 13, 16, dtype=dtype).contiguous(memory_format=layout).requires_grad_()
    with report.recording() as seen:
        y = torch.compile(program, backend=backend)(x)
        g = torch.randint(-4, 5, y.shape).to(dtype)
        y.backward(g)
    found, x.grad = x.grad, None
    program(x).backward(g)
    assert found is not None
    assert x.grad is not None
    assert found.stride() == x.grad.stride()
    torch.testing.assert_close(found, x.grad, rtol=0, atol=0)
    (backward,) = (graph for graph in seen.graphs if graph.name == "backward")
    assert len(backward.regions) == 1
    assert not backward.left
