"""Comparison of the results of a definition with reference results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fuser.arguments import checked
from fuser.debug.error_bounds import ErrorBounds
from fuser.debug.interpreter import Exact, interpret_exactly, torch_dtype
from fuser.errors import InternalError, UserError

if TYPE_CHECKING:
    from fuser.definition import FusionDefinition
    from fuser.fusion import Fusion


class Tolerance(NamedTuple):
    relative: float
    absolute: float

    def of_sums(self, terms: int) -> Tolerance:
        """Tolerance for sums of `terms` terms: rounding errors of partial sums, which exceed the
        terms, accumulate like a random walk.
        """
        growth = max(1.0, math.sqrt(terms) / 8)
        return Tolerance(self.relative * growth, self.absolute * growth)


# Tolerances by dtype. Ops compute in float32 (float64 for float64 and complex128): chains of ops
# accumulate some tens of ULP, and cancellation of terms near 1 leaves an absolute error. Narrow
# types add half a step of their own, doubled for a value near a tie.
TOLERANCES = {
    torch.float64: Tolerance(1e-9, 1e-11),
    torch.complex128: Tolerance(1e-9, 1e-11),
    torch.float32: Tolerance(1e-5, 1e-5),
    torch.complex64: Tolerance(1e-5, 1e-5),
    torch.float16: Tolerance(1e-3, 1e-5),
    torch.bfloat16: Tolerance(8e-3, 1e-5),
    torch.float8_e4m3fn: Tolerance(0.125, 2.0**-9),
    torch.float8_e5m2: Tolerance(0.25, 2.0**-16),
}
_EXACT = Tolerance(0.0, 0.0)


def validate(
    fd: FusionDefinition,
    inputs: Sequence[Any],
    reference_outputs: Sequence[torch.Tensor] | None = None,
    **kwargs: Any,
) -> list[torch.Tensor]:
    """See FusionDefinition.validate."""
    aliases = [alias for _, alias in fd.fusion.records()["outputs"]]
    # Evaluate before the run, which may overwrite inputs.
    compared = reference_outputs is None
    exact = interpret_exactly(fd.fusion, inputs, True, ErrorBounds) if compared else []
    results = fd.execute(inputs, **kwargs)
    if reference_outputs is None:
        ids = [index for is_tensor, index, _ in fd.fusion.records()["arguments"] if is_tensor]
        tensors = dict(zip(ids, (v for v in inputs if isinstance(v, torch.Tensor)), strict=True))
        returned = iter(results)
        written = [tensors[alias] if alias >= 0 else next(returned) for alias in aliases]
        _compare(written, exact)
        return results
    if len(results) != len(reference_outputs):
        raise UserError(
            f"validate(): expected {len(results)} references, one per result, got "
            f"{len(reference_outputs)}",
            rule="validate-2",
        )
    for place, (got, expected) in enumerate(zip(results, reference_outputs, strict=True)):
        if got.dtype == expected.dtype:
            problem = difference(got, expected)
        else:  # says more than a difference of values
            problem = f"got {got.dtype}, expected {expected.dtype}"
        if problem:
            raise UserError(
                f"result {place} of {len(results)} differs from its reference: {problem}",
                rule="validate-2",
            )
    return results


def _compare(results: Sequence[torch.Tensor], exact: Sequence[Exact]) -> None:
    for place, (got, reference) in enumerate(zip(results, exact, strict=True)):
        problem = difference(got, *reference)
        if problem:
            raise InternalError(
                f"output {place} of {len(results)} differs from fuser.evaluate: {problem}\n"
                "  hint: report fd.repro_script_for(inputs)",
                rule="validate-1",
            )


@checked
def validate_with_auto_inferred_outputs(
    fusion: Fusion, fusion_outputs: Sequence[torch.Tensor], args: Sequence[Any]
) -> None:
    """Compares results of fd.execute(args) with fuser.evaluate, as fd.validate(args) does; `fusion`
    is fd.fusion. Inputs that the run overwrites are to be as they were before it.

    Raises InternalError `validate-1` where they differ, UserError `validate-2` for another number
    of results.
    """
    exact = interpret_exactly(fusion, args, False, ErrorBounds)
    if len(exact) != len(fusion_outputs):
        raise UserError(
            f"validate_with_auto_inferred_outputs(): expected {len(exact)} results, as many as "
            f"the definition has, got {len(fusion_outputs)}",
            rule="validate-2",
        )
    _compare(fusion_outputs, exact)


@checked
def get_val_tolerances(fusion: Fusion, args: Sequence[Any]) -> list[tuple[float, float]]:
    """Absolute and relative tolerance of each result of fd.execute(args) against a reference, by
    its type and the length of its sums; `fusion` is fd.fusion.
    """
    exact = interpret_exactly(fusion, args, False)
    aliases = [alias for _, alias in fusion.records()["outputs"]]
    given = [t.dtype() for t, alias in zip(fusion.outputs(), aliases, strict=True) if alias < 0]
    found = []
    for dtype, result in zip(given, exact, strict=True):
        tolerance = TOLERANCES.get(torch_dtype(dtype), _EXACT).of_sums(result.terms)
        found.append((tolerance.absolute, tolerance.relative))
    return found


def difference(
    got: torch.Tensor,
    expected: torch.Tensor,
    terms: int = 1,
    single: bool = False,
    bound: torch.Tensor | None = None,
) -> str:
    """Describes how `got` differs from `expected` beyond the tolerance; empty if it does not. The
    tolerance is given by the dtype, or by float32 for float32 arithmetic (`single`). It grows with
    the `terms` of sums. `bound` is added per element: the error that earlier steps may have caused.
    """
    if got.shape != expected.shape:
        return f"got shape {list(got.shape)}, expected {list(expected.shape)}"
    tolerance = TOLERANCES.get(got.dtype, _EXACT)
    if single and tolerance == TOLERANCES[torch.float64]:
        tolerance = TOLERANCES[torch.float32]
    wide = wide_type = torch.complex128 if expected.is_complex() else torch.float64
    if tolerance is _EXACT:
        wide = torch.bool if got.dtype == torch.bool else torch.int64
    a, b = got.detach().cpu().to(wide), expected.detach().cpu().to(wide)
    if tolerance is not _EXACT:
        tolerance = tolerance.of_sums(terms)
    equal = torch.isclose(a, b, tolerance.relative, tolerance.absolute, equal_nan=True)
    if bound is not None:
        apart = (a.to(wide_type) - b.to(wide_type)).abs()
        limit = tolerance.absolute + tolerance.relative * b.to(wide_type).abs() + bound
        equal = equal | (apart <= limit) | bound.isinf()
    if bool(equal.all()):
        return ""
    wrong = (~equal).nonzero()
    place = tuple(wrong[0].tolist())
    return (
        f"{len(wrong)} of {a.numel()} elements, the first at {list(place)}: got {a[place].item()}, "
        f"expected {b[place].item()} (rtol {tolerance.relative:g}, atol {tolerance.absolute:g})"
    )
