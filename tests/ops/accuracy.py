"""Errors of scalar ops, and their bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fuser import _core
from fuser.ops.reference import REFERENCES

# ULP bounds in float64 and complex, for complex of the absolute value. gelu_tanh multiplies its
# rounding errors by its argument of up to 700, in the reference too.
WIDE_ULP = 64.0
WIDE_ULP_OF = {"gelu_tanh": 1024.0, "gelu_tanh_half": 1024.0}


def widen(x: Tensor) -> Tensor:
    """Operands of references: floats in float64, complex in complex128, other types unchanged."""
    if x.is_complex():
        return x.to(torch.complex128)
    return x.double() if x.is_floating_point() else x


def unit(x: Tensor, dtype: torch.dtype) -> Tensor:
    """One ULP of `dtype` at x (float64)."""
    info = torch.finfo(dtype)
    exponent = torch.frexp(x.abs().clamp(info.smallest_normal, info.max))[1] - 1
    return torch.ldexp(torch.full_like(x, info.eps), exponent)


def scale_of(op: str, inputs: Sequence[Tensor], exact: Tensor, dtype: torch.dtype) -> Tensor:
    """The number whose ULP is the unit of the error: the result, or the largest term if the result
    is a difference that cancels."""
    if op == "lerp":
        a, b, weight = inputs
        parts = [exact, a, b, weight * (b - a), (1 - weight) * (b - a)]
        return torch.stack([part.abs() for part in parts]).amax(0)
    if op == "fma" and dtype == torch.float64:  # the reference is not fused
        return torch.maximum(exact.abs(), (inputs[0] * inputs[1]).abs())
    if op == "lgamma":  # left of 0 it is log(pi / |sin(pi x)|) - lgamma(1 - x)
        reflected = torch.special.gammaln(1 - inputs[0]).clamp(min=1)
        return torch.where(inputs[0] < 0, torch.maximum(exact.abs(), reflected), exact.abs())
    return exact.abs()


def real_error(row: Any, inputs: Sequence[Tensor], got: Tensor, exact: Tensor) -> Tensor:
    """The error in ULP; infinite if only one of both is NaN, or if infinities differ."""
    got64 = got.double()
    limit = torch.finfo(got.dtype).max
    rounded = exact.to(got.dtype).double()
    error = (got64 - exact).abs() / unit(scale_of(row.name, inputs, exact, got.dtype), got.dtype)
    # On overflow, infinity and the largest number are one ULP apart.
    overflow = (rounded.abs() >= limit) & (got64.abs() >= limit) & (got64.sign() == exact.sign())
    error = torch.where(overflow, (got64 != rounded).double(), error)
    error = torch.where(got64.isnan() != exact.isnan(), math.inf, error)
    error = torch.where(got64.isnan() & exact.isnan(), 0.0, error)
    nearest = (got64 == exact) | (got64 == rounded)
    error = torch.where(nearest, error.nan_to_num(0.5).clamp(max=0.5), error)
    if row.name == "lerp":  # b - a may overflow, as in torch
        error = torch.where((inputs[1] - inputs[0]).abs() > limit, 0.0, error)
    if row.name == "erfcinv":  # the reference underflows
        error = torch.where(inputs[0].abs() < 1e-300, 0.0, error)
    if got.dtype == torch.float64 and row.name.startswith(("sigmoid", "silu", "gelu")):
        smallest = torch.finfo(torch.float64).smallest_normal  # the reference underflows early
        error = torch.where((exact.abs() < smallest) & (got64.abs() < smallest), 0.0, error)
    if row.name.endswith("_half"):
        error = torch.where((exact.abs() < 2.0**-100) & (got64.abs() < 2.0**-99), 0.0, error)
    return error


def complex_error(op: str, inputs: Sequence[Tensor], got: Tensor, exact: Tensor) -> Tensor:
    """|error| in ULP of scale_of(); 0 if the reference is not finite."""
    info = torch.finfo(got.dtype)
    size = scale_of(op, inputs, exact, got.dtype).clamp(min=info.smallest_normal)
    error = (got.to(torch.complex128) - exact).abs() / size / info.eps
    error = torch.where(error.isnan(), math.inf, error)
    return torch.where(exact.isfinite() & (exact.abs() < info.max / 4), error, 0.0)


def growth(op: str, inputs: Sequence[Tensor], exact: Tensor) -> Tensor:
    """Factor by which a complex function amplifies a rounding error of an intermediate value."""
    z = inputs[0]
    if op.startswith(("sigmoid", "silu")):  # poles at odd multiples of i pi
        by = exact.abs() * (z.abs() if op.startswith("sigmoid") else 1.0)
    elif op == "pow":  # e^(b log a)
        by = (inputs[1] * z.log()).abs() / 16
    else:
        return torch.ones_like(exact.abs())
    return by.nan_to_num(1.0).clamp(min=1.0)


def bound_of(row: Any, dtype: torch.dtype) -> float:
    if dtype == torch.float32:
        return max(row.ulp, 0.5) + 2.0**-16  # the reference rounds too
    return WIDE_ULP_OF.get(row.name, WIDE_ULP)


def error_of(row: Any, inputs: Sequence[Tensor], got: Tensor, dtype: torch.dtype) -> Tensor:
    """The error of each element of a row computed in `dtype`, in ULP; infinite for wrong
    elements."""
    exact = reference(row, inputs)
    if not (got.is_floating_point() or got.is_complex()):
        return torch.where(got == exact.to(got.dtype), 0.0, math.inf)
    if got.is_complex() or dtype.is_complex:
        wide = [widen(t) for t in inputs]
        return complex_error(row.name, wide, got, exact) / growth(row.name, wide, exact)
    return real_error(row, [widen(t) for t in inputs], got, exact.double())


def reference(row: Any, inputs: Sequence[Tensor]) -> Tensor:
    """The exact results of a row on operands of its compute dtype."""
    wide = [*inputs] if row.name == "nextafter" else [widen(t) for t in inputs]
    return REFERENCES[row.name](*wide)


def check(row: Any, inputs: Sequence[Tensor], got: Tensor, dtype: torch.dtype) -> float:
    """Assert that `got` is within the bound; return the largest error in ULP."""
    error = error_of(row, inputs, got, dtype)
    worst = int(error.argmax())
    bound = bound_of(row, dtype)
    assert error[worst] <= bound, (
        f"{row.name} of {[t[worst].item() for t in inputs]} in {dtype}: {got[worst].item()!r}, "
        f"exact {reference(row, inputs)[worst].item()!r}: {error[worst].item():.3g} ULP, "
        f"bound {bound:.3g} ({int((error > bound).sum())} of {len(error)} wrong)"
    )
    return float(error[worst])


def check_narrow(row: Any, inputs: Sequence[Tensor], got: Tensor) -> None:
    """Assert that `got`, of a dtype below float32, is the rounding of a float32 result within the
    row's bound."""
    exact = reference(row, inputs).double()
    wanted = row.name if row.name.endswith("_half") else f"{row.name}_half"
    half_row = next((r for r in _core.op_rows() if r.name == wanted), row)
    bound = bound_of(half_row, torch.float32) + 1
    slack = bound * unit(
        scale_of(row.name, [widen(t) for t in inputs], exact, torch.float32), torch.float32
    )
    slack = torch.where(exact.isfinite(), slack, 0.0)
    tiny = (exact.abs() < 2.0**-100) & half_row.name.endswith("_half")
    low = torch.where(tiny, (exact - slack).clamp(max=0), exact - slack)
    high = torch.where(tiny, (exact + slack).clamp(min=0), exact + slack)

    def rounded(x: Tensor) -> Tensor:
        return cast(x, got.dtype).double()

    value = got.double()
    right = (rounded(low) <= value) & (value <= rounded(high))
    right |= value.isnan() & exact.isnan()
    if row.name == "erfcinv":  # the reference underflows
        right |= inputs[0].abs() < 1e-300
    if not right.all():
        worst = int((~right).int().argmax())
        raise AssertionError(
            f"{row.name} of {[t[worst].item() for t in inputs]} rounded to {got.dtype}: "
            f"{got[worst].item()!r}, exact {exact[worst].item()!r} "
            f"({int((~right).sum())} of {len(right)} wrong)"
        )


def saturated(x: Tensor, target: torch.dtype) -> Tensor:
    """float to integer: truncated and saturated, NaN gives 0; exact, computed in float64."""
    info = torch.iinfo(target)
    inside = (x > info.min - 1.0) & (x < info.max + 1.0)
    whole = torch.where(inside, x, torch.zeros_like(x)).trunc().to(target)
    whole = torch.where(x >= info.max + 1.0, info.max, whole)
    return torch.where(x <= info.min, info.min, whole).to(target)


def cast(x: Tensor, target: torch.dtype) -> Tensor:
    """Result of to<target>(x): torch's own cast, except for float to integer."""
    integer = not (target.is_floating_point or target.is_complex or target == torch.bool)
    if x.is_complex() and not (target.is_complex or target == torch.bool):
        x = x.real
    if integer and x.is_floating_point():
        return saturated(x.double(), target)
    if target.is_floating_point and target.itemsize < 4:
        x = x.float()
    if target == torch.float8_e4m3fn:  # no infinity: saturates, like torch since 2.13
        x = x.clamp(-448.0, 448.0)
    return x.to(target)
