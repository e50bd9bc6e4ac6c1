"""A benchmark case: one computation, written for torch and for fuser, and the data to run it on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fuser import FusionDefinition
from fuser.debug.validation import TOLERANCES, Tolerance
from fuser.ops import as_dtype

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Data:
    """Random tensors on a device, equal for equal seeds."""

    device: torch.device
    seed: int = 0

    def normal(self, shape: Shape, dtype: torch.dtype) -> Tensor:
        """Standard normal numbers; integers from -50 to 50; bools that are true with probability
        0.9."""
        if dtype == torch.bool:
            return torch.rand(shape, generator=self._generator(), device=self.device) < 0.9
        if not (dtype.is_floating_point or dtype.is_complex):
            return torch.randint(
                -50, 51, shape, generator=self._generator(), device=self.device, dtype=dtype
            )
        return torch.randn(shape, generator=self._generator(), device=self.device, dtype=dtype)

    def _generator(self) -> torch.Generator:
        # One generator per device and seed, so that the tensors of a case differ from each other.
        return _GENERATORS.setdefault(
            (self.device, self.seed), torch.Generator(self.device).manual_seed(self.seed)
        )


_GENERATORS: dict[tuple[torch.device, int], torch.Generator] = {}


@dataclass(frozen=True)
class Bound:
    """Tolerance of a result, in addition to the relative tolerance of its dtype.

    absolute  for float32 results
    half      for float16 and bfloat16 results; `absolute` if None

    fuser.debug.validation.TOLERANCES has absolute tolerances for values near 1. A sum of n standard
    normal numbers is about sqrt(n), and its rounding error grows likewise; elements of a softmax
    are about 1 / n.
    """

    absolute: float = 1e-5
    half: float | None = None

    def of(self, dtype: torch.dtype) -> float:
        narrow = dtype in (torch.float16, torch.bfloat16) and self.half is not None
        return self.half if narrow else self.absolute  # type: ignore[return-value]


@dataclass(frozen=True)
class Goal:
    """Speed required of a case; without fields only PEER is required.

    copy     fraction of the speed of a copy of equally many bytes
    probe    fraction of the speed of a kernel that only reads equally many bytes
    aligned  key of the case with rows of complete 16-byte vectors; this case must reach ODD_RATE of
             its bytes per second
    beside   key of a case that does less work on equally many bytes, and the required fraction of
             its bytes per second
    """

    copy: float | None = None
    probe: float | None = None
    aligned: str | None = None
    beside: tuple[str, float] | None = None


PEER = 0.97  # fraction of the best contender's speed, required in every case
ODD_RATE = 0.85
COMPILE_MS = 250.0  # median per kernel of a family


# prepare(*inputs) -> call without arguments: computes a case with another library. It may import
# and compile; an exception is reported in place of a time. A result is None if the library does not
# compute it.
Peer = Callable[..., Callable[[], Any]]


@dataclass(frozen=True)
class Case:
    """One computation on one shape.

    make     the inputs
    eager    the computation in torch
    define   the computation in fd.ops: define(ops, *tensors) -> tensor or list; casts to `outputs`
             follow
    outputs  the dtypes of the results
    aliases  the inputs that the outputs overwrite, one per output; empty: fresh tensors
    updates  inputs that both `eager` and `define` update in place, in addition to their results
    compiled the function for torch.compile if another one than `eager` is faster
    exact    `eager` for float64 copies of the inputs, if `eager` itself names a dtype
    bounds   tolerance by result; empty: Bound() for all
    peers    Peer by contender
    reads    True if the case writes almost no bytes: it is compared with the read-only probe too
    twice    inputs read at two coordinates too far apart for a cache: their bytes count twice
    """

    name: str
    shape: Shape
    dtype: torch.dtype
    make: Callable[[Data], list[Tensor]]
    eager: Callable[..., Any]
    define: Callable[..., Any]
    outputs: tuple[torch.dtype, ...]
    aliases: tuple[int, ...] = ()
    updates: tuple[int, ...] = ()
    compiled: Callable[..., Any] | None = None
    exact: Callable[..., Any] | None = None
    bounds: tuple[Bound, ...] = ()
    peers: Mapping[str, Peer] = field(default_factory=dict)
    reads: bool = False
    twice: tuple[int, ...] = ()
    goal: Goal = Goal()

    @property
    def key(self) -> str:
        return key(self.name, self.dtype, self.shape)

    def definition(self, inputs: Sequence[Tensor], static_sizes: bool = False) -> FusionDefinition:
        fd = FusionDefinition()
        tensors = [fd.from_pytorch(t, static_sizes) for t in inputs]
        results = as_list(self.define(fd.ops, *tensors))
        for place, (result, dtype) in enumerate(zip(results, self.outputs, strict=True)):
            if result.dtype() != as_dtype(dtype):
                result = fd.ops.cast(result, dtype)
            fd.add_output(result, tensors[self.aliases[place]] if self.aliases else None)
        return fd

    def results(self, call: Callable[..., Any], inputs: Sequence[Tensor]) -> list[Tensor]:
        """Results of call(*inputs), then the inputs that it updates. In-place calls get copies."""
        if not (self.aliases or self.updates):
            return as_list(call(*inputs))
        copies = [t.clone() for t in inputs]
        given = call(*copies)
        if self.aliases:
            return [copies[i] for i in self.aliases]
        return [*as_list(given), *(copies[i] for i in self.updates)]

    def reference(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The results in float64."""
        return self.results(self.exact or self.eager, [widened(t) for t in inputs])


@dataclass(frozen=True)
class Row:
    """One row of a table: a case builder, its shape and its dtype.

    main   True for the cases that `--main` runs: one of each kind
    tiny   small shapes of the case, with aligned rows and with odd ones; empty: chosen by rank
    """

    build: Callable[[Shape, torch.dtype], Case]
    shape: Shape
    dtype: torch.dtype
    main: bool = False
    tiny: tuple[Shape, ...] = ()

    def case(self) -> Case:
        return self.build(self.shape, self.dtype)

    def fitted(self, tensor_bytes: int) -> Case:
        """Build the case with a leading dim so small that a tensor of the case's shape has at most
        `tensor_bytes`, or one row of it."""
        leading, *others = self.shape
        row = math.prod(others) * self.dtype.itemsize
        return self.build((min(leading, max(1, tensor_bytes // row)), *others), self.dtype)

    def small(self, odd: bool = False) -> Case:
        """Build the case with a few hundred elements, with rows that are 16-byte aligned or not."""
        if self.tiny:
            return self.build(self.tiny[odd], self.dtype)
        sizes = (5, 7, 9, 11) if odd else (4, 32, 6, 8)
        return self.build(sizes[: len(self.shape)], self.dtype)


def key(name: str, dtype: torch.dtype, shape: Shape) -> str:
    return f"{name} {short(dtype)} {'x'.join(map(str, shape))}"


def as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def widened(t: Tensor) -> Tensor:
    """Convert to float64 or complex128; integers and bool are unchanged."""
    if t.is_complex():
        return t.to(torch.complex128)
    return t.double() if t.is_floating_point() else t


def moved_bytes(inputs: Sequence[Tensor], results: Sequence[Tensor]) -> int:
    """Bytes that must move: each input and each result once; a dim of stride 0 counts as one
    element."""

    def footprint(t: Tensor) -> int:
        elements = 1
        for size, stride in zip(t.shape, t.stride(), strict=True):
            elements *= size if stride else 1
        return elements * t.element_size()

    return sum(map(footprint, [*inputs, *results]))


def case_bytes(case: Case, inputs: Sequence[Tensor], expected: Sequence[Tensor]) -> int:
    """moved_bytes() of the definition, independent of the contender. `expected`: results in
    float64; their sizes count, but not their dtypes."""
    dtypes = [*case.outputs, *(inputs[i].dtype for i in case.updates)]
    pairs = zip(expected, dtypes, strict=True)
    read = [*inputs, *(inputs[i] for i in case.twice)]
    return moved_bytes(read, []) + sum(t.numel() * dtype.itemsize for t, dtype in pairs)


def error(
    results: Sequence[Tensor | None], expected: Sequence[Tensor], bounds: Sequence[Bound] = ()
) -> tuple[float, float]:
    """Return the largest |result - expected| and its largest multiple of the dtype's tolerance.

    A multiple above 1.0 is an error: |result - expected| <= bound + rtol * |expected| is required.
    The relative tolerance is fuser.debug.validation's; without a Bound the absolute one is, too.
    Integers must be equal. An unexpected NaN is an infinite error. Shapes may differ in dims of
    size 1. Missing results (None) are skipped, but at least one result is required.
    """
    largest = share = 0.0
    if all(result is None for result in results):
        return float("inf"), float("inf")
    for place, (result, reference) in enumerate(zip(results, expected, strict=True)):
        if result is None:
            continue
        if result.squeeze().shape != reference.squeeze().shape:
            return float("inf"), float("inf")
        if result.numel() == 0:
            continue
        result, reference = result.squeeze(), reference.squeeze()
        if result.dtype not in TOLERANCES:
            wrong = int((result != reference).sum())
            largest, share = max(largest, float(wrong)), max(share, float("inf") if wrong else 0.0)
            continue
        tolerance: Tolerance = TOLERANCES[result.dtype]
        absolute = bounds[place].of(result.dtype) if bounds else tolerance.absolute
        distance = (widened(result) - reference).abs()
        largest = max(largest, _infinite_if_nan(float(distance.max())))
        allowed = reference.abs().mul_(tolerance.relative).add_(absolute)
        share = max(share, _infinite_if_nan(float(distance.div_(allowed).max())))
    return largest, share


def error_of_norm(results: Sequence[Tensor | None], expected: Sequence[Tensor]) -> float:
    """The norm of result - expected over the norm of expected, in units of the relative tolerance
    of the result's dtype; the maximum over the results. Integers: infinity unless equal."""
    largest = 0.0
    for result, reference in zip(results, expected, strict=True):
        if result is None or result.numel() == 0:
            continue
        if result.numel() != reference.numel():
            return float("inf")
        distance = widened(result).flatten() - reference.flatten()
        if result.dtype not in TOLERANCES:
            largest = max(largest, float("inf") if bool(distance.any()) else 0.0)
            continue
        relative = float(distance.norm() / reference.flatten().norm())
        largest = max(largest, _infinite_if_nan(relative) / TOLERANCES[result.dtype].relative)
    return largest


def _infinite_if_nan(value: float) -> float:
    return float("inf") if value != value else value
