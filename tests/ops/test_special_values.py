"""Complex functions at zeros, infinities, NaN, poles and branch cuts, and at magnitudes near the
ends of the range: a grid of every real part with every imaginary part.

References are torch on the device, torch on the CPU and numpy, which follows annex G of C, in the
dtype and in complex128. They differ at some points because torch's formulas overflow; a result is
correct if it equals one of them.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from fuser import FusionDefinition

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
DTYPES = [torch.complex64, torch.complex128]

SIZES = (0.0, 0.5, 1.0, 1.5, math.pi / 2, 2.0, 20.0, 100.0, 800.0, 1e10, math.inf)
EXTREMES = {torch.complex64: (3e38, 1e20, 1e-30), torch.complex128: (1.7e308, 1e160, 1e-200)}
FEW = (0.0, 0.5, 1.0, 2.0, 1e10, math.inf)

NUMPY = {
    **{f.__name__: f for f in (np.exp, np.expm1, np.log, np.log2, np.log10, np.log1p, np.sqrt)},
    **{f.__name__: f for f in (np.sin, np.cos, np.tan, np.sinh, np.cosh, np.tanh, np.reciprocal)},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "exp2": lambda z: np.exp(z * math.log(2)),
    "rsqrt": lambda z: 1 / np.sqrt(z),
    "sigmoid": lambda z: np.where(z.real < 0, np.exp(z) / (1 + np.exp(z)), 1 / (1 + np.exp(-z))),
    "abs": np.abs,
}
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide}
# Results below 1e-30 are compared with 0.
TINY = 1e-30


def grid(dtype: torch.dtype, sizes: tuple[float, ...]) -> Tensor:
    """All complex numbers of these parts, with both signs, and NaN."""
    parts = [sign * size for size in sizes for sign in (1, -1)] + [math.nan]
    real = torch.float32 if dtype == torch.complex64 else torch.float64
    pairs = torch.tensor(list(itertools.product(parts, parts)), dtype=real)
    return torch.view_as_complex(pairs)


def same_part(a: np.ndarray, b: np.ndarray, tolerance: np.ndarray) -> np.ndarray:
    finite = np.isfinite(a) & np.isfinite(b)
    return (np.isnan(a) & np.isnan(b)) | (a == b) | (finite & (np.abs(a - b) <= tolerance))


def agrees(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Elementwise: both parts are equal, if finite within the rounding error of the complex
    number."""
    eps = 1e-4 if got.dtype in (np.complex64, np.float32) else 1e-10
    whole = np.abs(np.where(np.isfinite(expected), expected, 0))
    right = np.ones(got.shape, bool)
    for part in (np.real, np.imag):
        size = np.maximum(whole, np.abs(np.nan_to_num(part(expected), posinf=0, neginf=0)))
        right &= same_part(part(got), part(expected), eps * size + TINY)
    return right


def check(name: str, inputs: list[Tensor], got: Tensor, references: list[np.ndarray]) -> None:
    result = got.cpu().numpy()
    right = np.zeros(result.shape, bool)
    for reference in references:
        right |= agrees(result, reference.astype(result.dtype))
    if not right.all():
        worst = int(np.argmin(right))
        raise AssertionError(
            f"{name} of {[t[worst].item() for t in inputs]}: {result[worst]}, expected one of "
            f"{[r[worst] for r in references]} ({int((~right).sum())} of {len(right)} wrong)"
        )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_at_every_pair_of_special_parts(device: str, dtype: torch.dtype) -> None:
    z = grid(dtype, SIZES + EXTREMES[dtype])
    assert len(z) * len(NUMPY) == 841 * 24
    fd = FusionDefinition()
    x = fd.from_pytorch(z.to(device))
    for name in NUMPY:
        fd.add_output(getattr(fd.ops, name)(x))
    results = fd.execute([z.to(device)])
    with np.errstate(all="ignore"):
        for (name, exact), got in zip(NUMPY.items(), results, strict=True):
            torchs = getattr(torch, name)
            references = [torchs(z.to(device)).cpu().numpy(), torchs(z).numpy(), exact(z.numpy())]
            references.append(exact(z.numpy().astype(np.complex128)))
            check(name, [z], got, references)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic_at_every_pair_of_special_numbers(device: str, dtype: torch.dtype) -> None:
    few = grid(dtype, FEW)
    p, q = few.repeat_interleave(len(few)), few.repeat(len(few))
    assert len(p) * len(BINARY) == 28561 * 4
    fd = FusionDefinition()
    x, y = (fd.from_pytorch(t.to(device)) for t in (p, q))
    for name in BINARY:
        fd.add_output(getattr(fd.ops, name)(x, y))
    results = fd.execute([p.to(device), q.to(device)])
    with np.errstate(all="ignore"):
        for (name, exact), got in zip(BINARY.items(), results, strict=True):
            torchs = getattr(torch, name.replace("true", ""))
            references = [torchs(p.to(device), q.to(device)).cpu().numpy(), torchs(p, q).numpy()]
            check(name, [p, q], got, [*references, exact(p.numpy(), q.numpy())])


def test_exponentials_of_infinities_follow_annex_g() -> None:
    inf, nan = math.inf, math.nan
    z = torch.tensor([complex(-inf, inf), complex(-inf, nan), complex(nan, 0), complex(0, inf)])
    fd = FusionDefinition()
    x = fd.from_pytorch(z)
    for name in ("exp", "exp2", "sigmoid"):
        fd.add_output(getattr(fd.ops, name)(x))
    exp, exp2, sigmoid = fd.execute([z])
    for result in (exp, exp2):
        assert result[:2].tolist() == [0, 0]
        assert math.isnan(result[2].real)
        assert result[2].imag == 0
        assert torch.view_as_real(result)[3].isnan().all()
    assert sigmoid[:2].tolist() == [0, 0]
