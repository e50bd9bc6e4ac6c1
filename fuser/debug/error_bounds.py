"""Error bounds of a run against the exact results of a definition, for validate().

A running error analysis (Higham, "Accuracy and Stability of Numerical Algorithms", ch. 3): each
exact value has a bound on the rounding errors of the steps before it. A step evaluates its operands
at both ends of their bounds and adds its own rounding error. A cast to a half type adds an error
only if the value is so close to the middle of two neighbours that the other neighbour may result;
later steps propagate that difference. Imports torch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from fuser import _core
from fuser._core import DataType
from fuser.debug.deferred import Deferred
from fuser.debug.interpreter import OF_MEMORY, convert
from fuser.ops.reference import LIBRARY, REDUCTIONS

if TYPE_CHECKING:
    from fuser.debug.interpreter import Run

_ROWS = {row.name: row for row in _core.op_rows()}
# Error of a library's sum, in units scaled by the square root of its length: its order is unknown,
# and tensor cores drop bits.
_LIBRARY_UNITS = 64.0
# Relative error of the short form of an op whose result is cast to 16 bits or fewer (ir/ops.h:
# half_form).
_SHORT = 2.0**-13
# Bound of an element that may have any value.
_ANYTHING = math.inf


class ErrorBounds:
    """The bounds of one evaluation, by tensor and result."""

    def __init__(self, records: dict[str, Any]) -> None:
        self.bounds: dict[int, list[torch.Tensor]] = {}
        self.ends_narrow = _ends_narrow(records)
        self.signs = torch.Generator().manual_seed(0)

    def of(self, tensor: int) -> torch.Tensor:
        return self.bounds[tensor][0]

    def extended(self, run: Run, record: dict[str, Any]) -> ErrorBounds | None:
        """Adds the bounds of a tensor as add() does. Returns None if they exceed memory."""
        if isinstance(run.values[record["id"]], Deferred):
            return None
        try:
            self.add(run, record)
        except (RuntimeError, MemoryError) as error:
            if not (isinstance(error, MemoryError) or OF_MEMORY.search(str(error))):
                raise
            return None
        return self

    def add(self, run: Run, record: dict[str, Any]) -> None:
        """Adds the bounds of a tensor that the run has just evaluated."""
        place, value = record["id"], run.values[record["id"]]
        if record["kind"] == "Result":
            self.bounds[place] = [self.bounds[record["operands"][0]][int(record["index"])]]
            return
        results = run.results.get(place)
        wide = _unrounded(record)
        exact = _results(run, wide)
        bounds = [torch.zeros(r.shape, dtype=torch.float64) for r in exact]
        for operand in dict.fromkeys(record["operands"]):
            if bool((self.of(operand) > 0).any()):
                for bound, change in zip(bounds, self._moved(run, wide, operand), strict=True):
                    bound += change
        bounds[0] += self._rounded(run, wide, exact[0])
        if wide is not record:  # a library rounds its accumulated sum
            ends = [convert(exact[0] + sign * bounds[0], record["dtype"]) for sign in (1.0, -1.0)]
            bounds[0] = torch.maximum(*(_distance(end, value) for end in ends))
        if results is not None:
            run.results[place] = results
        self.bounds[place] = bounds

    def _moved(self, run: Run, record: dict[str, Any], operand: int) -> list[torch.Tensor]:
        """Changes of the results if an operand moves to the ends of its bounds."""
        nominal, bound = run.values[operand], self.of(operand)
        if record["kind"] == "TakeAlongAxis" and operand != record["arg"]:
            found = torch.where(bound > 0, _ANYTHING, 0.0)  # another element may be read
            return [found.expand(run.tensor(record).shape)]
        if _adds(record):
            return [self._magnified(run, record, operand)]
        exact = _results(run, record)
        changes = [torch.zeros(r.shape, dtype=torch.float64) for r in exact]
        try:
            for end in self._ends(record, nominal, bound):
                run.values[operand] = end
                for change, a, b in zip(changes, _results(run, record), exact, strict=True):
                    torch.maximum(change, _distance(a, b), out=change)
        finally:
            run.values[operand] = nominal
        if record.get("op") in ("eq", "ne"):  # values between the ends may be equal too
            a, b = (run.values[t] if tensor else run.scalars[t] for tensor, t in record["args"])
            changes[0] = torch.maximum(changes[0], (_distance(a, b) <= bound).double())
        return changes

    def _ends(
        self, record: dict[str, Any], value: torch.Tensor, bound: torch.Tensor
    ) -> list[torch.Tensor]:
        ends = _both_ends(value, bound)
        if record["kind"] == "Library" or record.get("takes_positions"):
            for _ in range(4):  # move elements in opposite directions
                signs = torch.randint(0, 2, bound.shape, generator=self.signs) * 2 - 1
                ends += _both_ends(value, bound * signs)
        return ends

    def _magnified(self, run: Run, record: dict[str, Any], operand: int) -> torch.Tensor:
        """Changes of the results of a sum whose terms have mixed signs: computed with
        magnitudes.
        """
        kept = {t: run.values[t] for t in record["operands"]}
        try:
            run.values.update({t: _magnitude(value) for t, value in kept.items()})
            less = run.tensor(record)
            whole = not (less.is_floating_point() or less.is_complex())
            bound = self.of(operand).clamp(max=2.0**31) if whole else self.of(operand)
            run.values[operand] = (run.values[operand] + bound).to(kept[operand].dtype)
            return _distance(run.tensor(record), less)
        finally:
            run.values.update(kept)

    def _rounded(
        self, run: Run, record: dict[str, Any], exact: torch.Tensor
    ) -> torch.Tensor | float:
        """Rounding error of the step itself, except casts."""
        kind, op = record["kind"], record.get("op", "")
        if not (exact.is_floating_point() or exact.is_complex()):
            return 0.0
        computed = record["dtype"] if kind == "Reduction" else record.get("compute")
        size = exact.abs().double().nan_to_num(0.0, 0.0, 0.0)
        if kind == "Pointwise" and op != "where":
            share = (_ROWS[op].ulp + 1.0) * _unit(computed) * (8.0 if exact.is_complex() else 1.0)
            if self.ends_narrow[record["id"]] and f"{op}_half" in _ROWS:
                share += _SHORT
            return share * size
        if record.get("rounds"):
            return self._of_terms(run, record, _unit(computed), size)
        if kind == "Library" and LIBRARY[op].terms:
            return self._of_library(run, record, size)
        return 0.0

    def _of_terms(
        self, run: Run, record: dict[str, Any], unit: float, size: torch.Tensor
    ) -> torch.Tensor:
        operand = run.values[record["operands"][0]]
        if not operand.numel():
            return 0.0 * size
        length = math.prod(operand.shape[d] for d in record["dims"])
        if not record["adds"]:
            return 2.0 * length * unit * size
        kept = [d for d in range(operand.dim()) if d not in record["dims"]]
        rows = _magnitude(operand).abs().double().permute([*kept, *record["dims"]])
        total = REDUCTIONS["sum"](rows.reshape([*(operand.shape[d] for d in kept), length]))[0]
        return (math.log2(length) + 16.0) * unit * total.nan_to_num(0.0, 0.0, 0.0)

    def _of_library(self, run: Run, record: dict[str, Any], size: torch.Tensor) -> torch.Tensor:
        terms = run.library_terms(record)
        if _adds(record):
            kept = {t: run.values[t] for t in record["operands"]}
            try:
                run.values.update({t: _magnitude(value) for t, value in kept.items()})
                size = run.tensor(record).abs().double().nan_to_num(0.0, 0.0, 0.0)
            finally:
                run.values.update(kept)
        elif size.numel():
            size = size.amax().expand(size.shape)
        exact_inputs = all(
            run.types[t].torch_name in ("float64", "complex128") for t in record["operands"][:1]
        )
        unit = 2.0**-52 if exact_inputs else 2.0**-23
        return _LIBRARY_UNITS * math.sqrt(max(terms, 1)) * unit * size


def _adds(record: dict[str, Any]) -> bool:
    """True if the step is linear in each operand: a sum of terms or products."""
    if record["kind"] == "Library":
        return LIBRARY[record["op"]].linear
    return bool(record.get("rounds"))


def _unrounded(record: dict[str, Any]) -> dict[str, Any]:
    """The step without its final rounding, for library ops on half types."""
    dtype = record["dtype"]
    if record["kind"] != "Library" or dtype.kind != "Float" or dtype == DataType.Double:
        return record
    return {**record, "dtype": DataType.Double}


def _results(run: Run, record: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    first = run.tensor(record)
    return (first, *run.results.get(record["id"], ())[1:])


def _magnitude(value: torch.Tensor) -> torch.Tensor:
    if value.dtype == torch.bool:
        return value
    return value.abs().to(value.dtype)


def _unit(dtype: Any) -> float:
    """Distance between 1 and the next number in the compute type of an op."""
    return 2.0**-52 if dtype.torch_name in ("float64", "complex128") else 2.0**-23


def _distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """|a - b|: 0 for two NaN or equal infinities, infinite if the difference is not finite."""
    wide = torch.complex128 if a.is_complex() else torch.float64
    x, y = a.to(wide), b.to(wide)
    same = (x == y) | (x.isnan() & y.isnan())
    return torch.where(same, 0.0, (x - y).abs().nan_to_num(_ANYTHING, _ANYTHING))


def _both_ends(value: torch.Tensor, reach: torch.Tensor) -> list[torch.Tensor]:
    if value.dtype == torch.bool:
        return [value ^ (reach != 0)]
    if value.is_complex():
        turned = reach.clamp(-1e300, 1e300).to(value.dtype)
        return [value + turned * turn for turn in (1, -1, 1j, -1j)]
    if not value.is_floating_point():
        reach = reach.clamp(-(2.0**31), 2.0**31).to(value.dtype)
    return [value + reach, value - reach]


def _ends_narrow(records: dict[str, Any]) -> list[bool]:
    """By tensor: True if every output depends on it only through casts to floats of 16 bits or
    fewer.
    """
    narrow = [True] * len(records["tensors"])
    used = [False] * len(records["tensors"])  # True if the tensor is live
    outputs = {tensor for tensor, _ in records["outputs"]}
    for record in reversed(records["tensors"]):
        place, dtype = record["id"], record["dtype"]
        if place in outputs:
            narrow[place] = False
        elif not used[place]:
            continue
        cast = record["kind"] == "Cast" and dtype.kind == "Float"
        small = cast and dtype not in (DataType.Float, DataType.Double)
        for operand in record["operands"]:
            narrow[operand] = narrow[operand] and (small or narrow[place])
            used[operand] = True
    return [n and u for n, u in zip(narrow, used, strict=True)]
