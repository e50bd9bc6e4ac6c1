"""Helpers for tests of definitions: batch compilation, comparison in units in the last place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fuser._native import load_torch
from fuser.plan import plan_fields

if TYPE_CHECKING:
    import torch

    from fuser.definition import FusionDefinition
    from fuser.plan import Plans

__all__ = ["assert_close_ulp", "compile_batch", "ulp_error"]


def compile_batch(
    calls: Iterable[
        tuple[FusionDefinition, Sequence[Any]] | tuple[FusionDefinition, Sequence[Any], Plans]
    ],
) -> int:
    """Compiles the kernels of many fd.execute(inputs), or fd.execute(inputs, plan=plan), at once;
    returns the number of kernels.

    All inputs are on one device. Later calls only launch. For hundreds of small definitions on the
    CPU this is many times as fast as separate builds, because a compiler starts once. Raises the
    errors of execute(); then nothing is built.
    """
    runs = [(call[0].fec.executor, call[1], plan_fields(*call[2:])) for call in calls]
    return int(load_torch().compile_batch(runs))


def ulp_error(actual: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """|actual - exact| in units in the last place of the type of `actual` at `exact`, elementwise.

    `actual` has a real floating type, `exact` is the float64 reference. If `exact` rounds to
    `actual`, the error is at most 0.5, also at overflow. Two NaN differ by 0, a NaN and a number by
    infinity.
    """
    import torch

    info = torch.finfo(actual.dtype)
    got, exact = actual.double(), exact.double()
    # frexp: exact = m * 2^e with 0.5 <= m < 1; below the normal range the unit is constant.
    exponent = torch.frexp(exact.abs().clamp(info.smallest_normal, info.max))[1] - 1
    error = (got - exact).abs() / torch.ldexp(torch.full_like(exact, info.eps), exponent)
    nearest = exact.float() if actual.dtype.itemsize < 4 else exact
    is_nearest = got == nearest.to(actual.dtype).double()
    error = torch.where(is_nearest, error.nan_to_num(0.5).clamp(max=0.5), error)
    same = (got == exact) | (got.isnan() & exact.isnan())
    error = torch.where(same, 0.0, error)
    return torch.where(error.isnan(), torch.inf, error)


def assert_close_ulp(actual: torch.Tensor, exact: torch.Tensor, ulp: float = 0.5) -> None:
    """Asserts equal shapes and ulp_error(actual, exact) <= ulp everywhere; integers and bool must
    be equal.

    0.5 means correctly rounded. The message names the worst element.
    """
    import torch

    assert actual.shape == exact.shape, f"shape {list(actual.shape)}, not {list(exact.shape)}"
    if not actual.numel():
        return
    if actual.is_floating_point():
        error = ulp_error(actual, exact)
    else:
        error = torch.where(actual == exact.to(actual.dtype), 0.0, torch.inf)
    worst = int(error.argmax())
    place = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), actual.shape))
    assert error.flatten()[worst] <= ulp, (
        f"element {list(place)}: {actual[place].item()!r}, exact {exact[place].item()!r}: "
        f"{error[place].item():.3g} ULP, allowed {ulp:g} "
        f"({int((error > ulp).sum())} of {actual.numel()} are off)"
    )
