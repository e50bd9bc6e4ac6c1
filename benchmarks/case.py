"""A benchmark case: one computation, written for torch and for fuser, and the data to run it on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fuser import FusionDefinition
from fuser.ops import as_dtype
from fuser.validation import TOLERANCES, Tolerance

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Data:
    """Random tensors on a device, the same for the same seed."""

    device: torch.device
    seed: int = 0

    def normal(self, shape: Shape, dtype: torch.dtype) -> Tensor:
        """Standard normal numbers; integer types get -50..50, bool is true for nine of ten."""
        if dtype == torch.bool:
            return torch.rand(shape, generator=self._generator(), device=self.device) < 0.9
        if not (dtype.is_floating_point or dtype.is_complex):
            return torch.randint(
                -50, 51, shape, generator=self._generator(), device=self.device, dtype=dtype
            )
        return torch.randn(shape, generator=self._generator(), device=self.device, dtype=dtype)

    def _generator(self) -> torch.Generator:
        # From a shared counter, so that the tensors of a case differ from each other.
        return _GENERATORS.setdefault(
            (self.device, self.seed), torch.Generator(self.device).manual_seed(self.seed)
        )


_GENERATORS: dict[tuple[torch.device, int], torch.Generator] = {}


@dataclass(frozen=True)
class Case:
    """One computation on one shape.

    make     the inputs
    eager    the computation in torch
    define   the same in fd.ops: define(ops, *tensors) -> tensor or list; casts to `outputs` follow
    outputs  the dtypes of the results
    aliases  the inputs that results are written into, one for each output; empty: fresh tensors
    exact    `eager` for float64 images of the inputs, where `eager` itself names a dtype
    """

    name: str
    shape: Shape
    dtype: torch.dtype
    make: Callable[[Data], list[Tensor]]
    eager: Callable[..., Any]
    define: Callable[..., Any]
    outputs: tuple[torch.dtype, ...]
    aliases: tuple[int, ...] = ()
    exact: Callable[..., Any] | None = None

    @property
    def key(self) -> str:
        return f"{self.name} {short(self.dtype)} {'x'.join(map(str, self.shape))}"

    def definition(self, inputs: Sequence[Tensor]) -> FusionDefinition:
        fd = FusionDefinition()
        tensors = [fd.from_pytorch(t) for t in inputs]
        results = as_list(self.define(fd.ops, *tensors))
        for place, (result, dtype) in enumerate(zip(results, self.outputs, strict=True)):
            if result.dtype() != as_dtype(dtype):
                result = fd.ops.cast(result, dtype)
            fd.add_output(result, tensors[self.aliases[place]] if self.aliases else None)
        return fd

    def results(self, call: Callable[..., Any], inputs: Sequence[Tensor]) -> list[Tensor]:
        """What call(*inputs) gives, written into copies of the inputs where it works in place."""
        if not self.aliases:
            return as_list(call(*inputs))
        copies = [t.clone() for t in inputs]
        call(*copies)
        return [copies[i] for i in self.aliases]

    def reference(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The results in float64."""
        return self.results(self.exact or self.eager, [widened(t) for t in inputs])


def as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def widened(t: Tensor) -> Tensor:
    """float64 or complex128; integers and bool as they are."""
    if t.is_complex():
        return t.to(torch.complex128)
    return t.double() if t.is_floating_point() else t


def moved_bytes(inputs: Sequence[Tensor], results: Sequence[Tensor]) -> int:
    """Bytes that must move: each input and each result once; elements of stride 0 count once."""

    def footprint(t: Tensor) -> int:
        elements = 1
        for size, stride in zip(t.shape, t.stride(), strict=True):
            elements *= size if stride else 1
        return elements * t.element_size()

    return sum(map(footprint, [*inputs, *results]))


def error(results: Sequence[Tensor], expected: Sequence[Tensor]) -> tuple[float, float]:
    """The largest |result - expected|, and the largest share of the tolerance of its dtype.

    Above 1.0 is wrong: |result - expected| <= atol + rtol * |expected| as fuser.validation has it,
    integers exactly. A NaN that is not expected is infinitely wrong.
    """
    largest = share = 0.0
    for result, reference in zip(results, expected, strict=True):
        if result.shape != reference.shape:
            return float("inf"), float("inf")
        if result.numel() == 0:
            continue
        if result.dtype not in TOLERANCES:
            wrong = int((result != reference).sum())
            largest, share = max(largest, float(wrong)), max(share, float("inf") if wrong else 0.0)
            continue
        tolerance: Tolerance = TOLERANCES[result.dtype]
        distance = (widened(result) - reference).abs()
        allowed = reference.abs().mul_(tolerance.relative).add_(tolerance.absolute)
        for values, place in ((distance, 0), (distance / allowed, 1)):
            worst = float(values.max())
            worst = float("inf") if worst != worst else worst
            if place == 0:
                largest = max(largest, worst)
            else:
                share = max(share, worst)
    return largest, share
