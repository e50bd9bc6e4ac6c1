"""Inputs of the cases, expected results, and error bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from tests.norms.cases import Norm, Shape, widened


def roundings(terms: int) -> float:
    """Number of roundings in a result of a pairwise sum of `terms` terms: a few per level, and a
    few for exp, division and square root."""
    return 32.0 + 2.0 * math.log2(max(terms, 1))


def nudged(t: Tensor, unit: float, generator: torch.Generator) -> Tensor:
    """t with each float multiplied by 1 + `unit` times a normal number."""
    if not t.is_floating_point():
        return t
    draw = torch.randn(t.shape, generator=generator, device=t.device, dtype=torch.float64)
    return t.double() * (1 + unit * draw)


def moved(
    norm: Norm, inputs: Sequence[Tensor], exact: Sequence[Tensor], unit: float
) -> list[Tensor]:
    """Condition of each result: its root-mean-square change if every input changes by a normal
    number times `unit`, relatively."""
    generator = torch.Generator(inputs[0].device).manual_seed(1)
    squares = [torch.zeros_like(e, dtype=torch.float64) for e in exact]
    draws = 12
    for _ in range(draws):
        rounded = [nudged(t, unit, generator) for t in inputs]
        for square, value, other in zip(squares, norm.exact(rounded), exact, strict=True):
            square += ((value - other) ** 2).nan_to_num(0.0, 0.0, 0.0) / draws
    return [square.sqrt() for square in squares]


@dataclass(frozen=True)
class Expected:
    """An expected result and its error bound. A result in float32 (or float64) may change by
    roundings() relative perturbations of inputs and result; half types add half a rounding step."""

    value: Tensor
    wide: Tensor
    floor: float

    def bound(self, dtype: torch.dtype) -> Tensor:
        bound = self.wide
        if dtype.itemsize < 4:
            half = torch.finfo(dtype)
            # Half a rounding step, and the short forms for half types: up to 2^-13 of an operand.
            bound = bound + self.value.abs() * (half.eps * 0.5625) + half.tiny * half.eps
            bound = bound + 2.0**-13 * self.floor
        return torch.where(self.value.isfinite(), bound, 0.0)


@dataclass(frozen=True)
class Sample:
    """Inputs of one shape, and expected results."""

    norm: Norm
    shape: Shape
    inputs: list[Tensor]

    @cached_property
    def expected(self) -> list[Expected]:
        norm, inputs = self.norm, self.inputs
        exact = norm.exact(inputs)
        compute = torch.float64 if inputs[0].dtype == torch.float64 else torch.float32
        unit = torch.finfo(compute).eps / 2
        seen = max(unit, 2.0**-48)  # a smaller unit would be below rounding errors of the reference
        moves = [move * (unit / seen) for move in moved(norm, inputs, exact, seen)]
        slack = roundings(norm.reduced(self.shape))
        absolute: Any = norm.floor
        if callable(absolute):
            absolute = absolute(*(widened(t) for t in inputs))
        number = norm.floor if isinstance(norm.floor, float) else 0.0
        found = []
        for place, (value, move) in enumerate(zip(exact, moves, strict=True)):
            size = value.abs() + (absolute if place == 0 else 0.0)
            found.append(Expected(value, slack * (move + unit * size), number))
        return found

    def check(self, got: Sequence[Tensor]) -> None:
        """Assert that the results are within their bounds."""
        for place, (one, expected) in enumerate(zip(got, self.expected, strict=True)):
            where = f"{self.norm.name} {list(self.shape)} {self.inputs[0].dtype}: result {place}"
            value = expected.value
            assert one.shape == value.shape, f"{where}: shape {list(one.shape)}"
            if not one.numel():
                continue
            bound = expected.bound(one.dtype)
            same = (one.double() == value) | (one.isnan() & value.isnan())
            wrong = ~(same | ((one.double() - value).abs() <= bound))
            if wrong.any():
                at = tuple(wrong.nonzero()[0].tolist())
                raise AssertionError(
                    f"{where}: {int(wrong.sum())} of {one.numel()} wrong, at {list(at)} "
                    f"{one[at].item()!r}, exact {value[at].item()!r}, "
                    f"allowed +-{bound[at].item():.3g}"
                )
