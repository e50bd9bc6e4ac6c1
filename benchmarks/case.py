"""A benchmark case: one computation, written for torch and for fuser, and the data to run it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
class Bound:
    """What a result may be off by, beside the relative tolerance of its dtype.

    absolute  where the result is float32
    half      where it is float16 or bfloat16; None: `absolute`

    fuser.validation.TOLERANCES has absolute tolerances for values near 1. Sums of n standard normal
    numbers have the size of sqrt(n), and so does what rounding adds up to; the elements of a
    softmax have the size of 1 / n.
    """

    absolute: float = 1e-5
    half: float | None = None

    def of(self, dtype: torch.dtype) -> float:
        narrow = dtype in (torch.float16, torch.bfloat16) and self.half is not None
        return self.half if narrow else self.absolute  # type: ignore[return-value]


@dataclass(frozen=True)
class Goal:
    """The speed that a case is held to; None: nothing but PEER is asked.

    copy     share of a copy of the same bytes
    probe    share of a kernel that only reads as many bytes
    aligned  the key of the same case with rows of whole 16-byte vectors, ODD_RATE of whose bytes a
             second are asked
    beside   the key of a case that does less on as many bytes, and the share of its bytes a second
             that is asked
    """

    copy: float | None = None
    probe: float | None = None
    aligned: str | None = None
    beside: tuple[str, float] | None = None


PEER = 0.97  # of the speed of the best contender of the run, in every case
ODD_RATE = 0.85
COMPILE_MS = 250.0  # a kernel, the median of a family


# prepare(*inputs) -> a call without arguments: how another library computes a case. It may import
# and compile; what it raises is reported in place of its time. Results that it does not have are
# None.
Peer = Callable[..., Callable[[], Any]]


@dataclass(frozen=True)
class Case:
    """One computation on one shape.

    make     the inputs
    eager    the computation in torch
    define   the same in fd.ops: define(ops, *tensors) -> tensor or list; casts to `outputs` follow
    outputs  the dtypes of the results
    aliases  the inputs that results are written into, one for each output; empty: fresh tensors
    updates  inputs that both `eager` and `define` update by themselves, beside their results
    compiled what torch.compile gets, where it can do better than with `eager`
    exact    `eager` for float64 images of the inputs, where `eager` itself names a dtype
    bounds   by result; empty: Bound() for all
    peers    by contender
    reads    it writes next to nothing: timed beside the read-only probe too
    twice    inputs that are read at two coordinates too far apart for a cache: their bytes count
             twice
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
        """What call(*inputs) gives, then the inputs that it updates: copies, where it works in
        place.
        """
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
    """One line of a table: what is built, on which shape.

    main   a case of `--main`: each kind of case has one
    tiny   shapes of the same kind that take no time, with aligned rows and with odd ones; empty:
           by rank
    """

    build: Callable[[Shape, torch.dtype], Case]
    shape: Shape
    dtype: torch.dtype
    main: bool = False
    tiny: tuple[Shape, ...] = ()

    def case(self) -> Case:
        return self.build(self.shape, self.dtype)

    def small(self, odd: bool = False) -> Case:
        """The same on a few hundred elements, with rows that are 16-byte aligned or not."""
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


def case_bytes(case: Case, inputs: Sequence[Tensor], expected: Sequence[Tensor]) -> int:
    """moved_bytes of the definition, whatever a contender makes of it. `expected`: its results in
    float64, whose dtypes do not count.
    """
    dtypes = [*case.outputs, *(inputs[i].dtype for i in case.updates)]
    pairs = zip(expected, dtypes, strict=True)
    read = [*inputs, *(inputs[i] for i in case.twice)]
    return moved_bytes(read, []) + sum(t.numel() * dtype.itemsize for t, dtype in pairs)


def error(
    results: Sequence[Tensor | None], expected: Sequence[Tensor], bounds: Sequence[Bound] = ()
) -> tuple[float, float]:
    """The largest |result - expected|, and the largest share of the tolerance of its dtype.

    Above 1.0 is wrong: |result - expected| <= bound + rtol * |expected| with the relative tolerance
    of fuser.validation, and without a Bound its absolute one too; integers exactly. A NaN that is
    not expected is infinitely wrong. Shapes may differ in dims of size 1. A result that is None is
    not looked at, but one of them must be there.
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
    """The norm of result - expected over that of expected, as a multiple of the relative tolerance
    of the result's dtype; the largest of the results. Integers: infinity unless equal.
    """
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
