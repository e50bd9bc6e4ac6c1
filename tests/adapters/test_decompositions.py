"""fuser/adapters/aten/decompositions.py and torch_ops.py: decompositions compute with torch as the
composites of fd.ops do in kernels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fuser import FusionDefinition
from fuser.adapters.aten.decompositions import decompositions

aten = torch.ops.aten


def exact(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("parameters", [True, False])
@pytest.mark.parametrize("shape", [(3, 8), (2, 8, 5), (2, 8, 3, 4)])
def test_group_norm(shape: tuple[int, ...], parameters: bool) -> None:
    """The variance is over all dims of a group, so its count is a product of several sizes."""
    x, (n, c, *rest) = exact(*shape), shape
    weight, bias = (exact(c), exact(1, c)[0] + 1) if parameters else (None, None)
    length = torch.Size(rest).numel()
    given = (x, weight, bias, n, c, length, 2, 1e-5)
    result = decompositions()[aten.native_group_norm.default](*given)
    torch.testing.assert_close(result, aten.native_group_norm(*given), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_group_norm_of_half_types(dtype: torch.dtype) -> None:
    """Computed in float32; the statistics have the type of the weight."""
    x, weight = exact(2, 4, 6).to(dtype), exact(4).float()
    y, mean, rstd = decompositions()[aten.native_group_norm.default](
        x, weight, None, 2, 4, 6, 2, 1e-5
    )
    assert (y.dtype, mean.dtype, rstd.dtype) == (dtype, torch.float32, torch.float32)
    expected = aten.native_group_norm(x.double(), weight.double(), None, 2, 4, 6, 2, 1e-5)
    torch.testing.assert_close(y, expected[0].to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=1e-6)
    torch.testing.assert_close(mean.double(), expected[1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(rstd.double(), expected[2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [[5], [4, 5]])
def test_layer_norm_without_parameters(dtype: torch.dtype, shape: list[int]) -> None:
    """Results have torch's types; a norm with parameters is not decomposed."""
    norm = decompositions()[aten.native_layer_norm.default]
    x = exact(3, 4, 5).to(dtype)
    results = norm(x, shape, None, None, 1e-5)
    expected = aten.native_layer_norm(x.double(), shape, None, None, 1e-5)
    for result, want, torchs in zip(
        results, expected, aten.native_layer_norm(x, shape, None, None, 1e-5), strict=True
    ):
        assert (result.dtype, result.shape) == (torchs.dtype, torchs.shape)
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(result.double(), want, rtol=4 * eps, atol=4 * eps)
    assert norm(x, shape, torch.ones(shape, dtype=dtype), None, 1e-5) is NotImplemented


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [None, 1, [0, -1]])
def test_vector_norm(dtype: torch.dtype, dim: object) -> None:
    """A root of a sum of squares in float32 or float64; other norms are not decomposed."""
    norm = decompositions()[aten.linalg_vector_norm.default]
    x = exact(3, 4, 5).to(dtype)
    result, expected = norm(x, 2, dim, True), aten.linalg_vector_norm(x.double(), 2, dim, True)
    assert (result.dtype, result.shape) == (dtype, expected.shape)
    torch.testing.assert_close(result.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=0)
    assert norm(x, 2, dim, dtype=torch.float64).dtype == torch.float64
    assert norm(exact(3)[0].float(), 2) == exact(3)[0].float().abs()
    assert norm(x, 1, dim) is NotImplemented


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dim: int) -> None:
    x = exact(3, 4, 5)
    result = decompositions()[aten._softmax.default](x, dim, False)
    torch.testing.assert_close(result, x.softmax(dim), rtol=1e-12, atol=0)
    half = x.to(torch.float16)
    widened = decompositions()[aten._softmax.default](half, dim, True)
    assert widened.dtype == torch.float32
    torch.testing.assert_close(widened.double(), half.double().softmax(dim), rtol=1e-5, atol=0)


def test_decompositions_and_composites_give_equal_results() -> None:
    """On the same float32 input both divide once per row, and differ by rounding alone."""
    x = exact(2, 6, 10).float()
    with FusionDefinition() as fd:
        given = fd.from_pytorch(x)
        y, mean, rstd = fd.ops.group_norm(given, 3)
        for result in (fd.ops.softmax(given, 1), y, mean, rstd):
            fd.add_output(result)
    softmax = decompositions()[aten._softmax.default](x, 1, False)
    norm = decompositions()[aten.native_group_norm.default](x, None, None, 2, 6, 10, 3, 1e-5)
    torch.testing.assert_close(fd.execute([x]), [softmax, *norm], rtol=1e-5, atol=1e-6)
