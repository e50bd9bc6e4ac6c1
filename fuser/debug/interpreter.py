"""Interprets a definition op by op in float64 on the CPU, for fuser.evaluate. Imports torch."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fuser._core import DataType
from fuser._native import load_torch
from fuser.debug.deferred import Deferred, elementwise, iota, joined, padded, rearranged
from fuser.errors import DTypeError, LaunchError, ShapeError, Unsupported, UserError
from fuser.ops.reference import LIBRARY, MOVEMENTS, REDUCTIONS, REFERENCES

if TYPE_CHECKING:
    from fuser.debug.error_bounds import ErrorBounds
    from fuser.definition import FusionDefinition
    from fuser.fusion import Fusion

_EXACT = {"Float": torch.float64, "Complex": torch.complex128}


def torch_dtype(dtype: DataType) -> torch.dtype:
    """The torch dtype of the same name."""
    found = getattr(torch, dtype.torch_name)
    assert isinstance(found, torch.dtype)
    return found


def interpret(fd: FusionDefinition, inputs: Sequence[Any], aliased: bool) -> list[torch.Tensor]:
    """See fuser.evaluate."""
    return [exact.value for exact in interpret_exactly(fd.fusion, inputs, aliased)]


class Exact(NamedTuple):
    """A result with the properties that determine its tolerance.

    terms    length of the longest sum or product that it depends on, or 1
    single   True if it depends on an op computed in float32
    bound    elementwise error bound of a run, if requested
    """

    value: torch.Tensor
    terms: int
    single: bool
    bound: torch.Tensor | None = None


def interpret_exactly(
    fusion: Fusion,
    inputs: Sequence[Any],
    aliased: bool,
    bounds_of: Callable[[dict[str, Any]], ErrorBounds] | None = None,
) -> list[Exact]:
    """Returns the results, with error bounds if `bounds_of` is given. Visits the definition once
    and frees each value after its last use.
    """
    with torch.device("cpu"):  # the steps' own tensors, if torch has another default device
        return _interpret(fusion, inputs, aliased, bounds_of)


def _interpret(
    fusion: Fusion,
    inputs: Sequence[Any],
    aliased: bool,
    bounds_of: Callable[[dict[str, Any]], ErrorBounds] | None,
) -> list[Exact]:
    records = fusion.records()
    bound = _bind(records, inputs)
    seed, offset, random_ops = records["random"]
    if random_ops:
        position = _next_random_position(inputs, random_ops)
        bound[False, seed], bound[False, offset] = position
    run = Run(records, bound)
    errors = bounds_of(records) if bounds_of else None
    kept = {tensor for tensor, _ in records["outputs"]}
    last_use = {t: r["id"] for r in records["tensors"] for t in r["operands"]}
    terms: dict[int, int] = {}
    single: dict[int, bool] = {}
    for record in records["tensors"]:
        place, operands = record["id"], record["operands"]
        terms[place] = max((terms[t] for t in operands), default=1)
        single[place] = any(single[t] for t in operands) or _is_single(record)
        run.require_scalars(record)
        try:
            run.values[place] = run.value(record)
        except (UserError, Unsupported, LaunchError):  # RuntimeErrors too, but raised by fuser
            raise
        except (RuntimeError, IndexError) as error:
            raise ShapeError(
                f"{record.get('op', record['kind'].lower())}: {error}{run.describe(record)}",
                rule="evaluate-1",
            ) from None
        run.shapes[place] = run.values[place].shape
        if errors:
            errors = errors.extended(run, record)
        if record.get("rounds"):
            length = math.prod(run.shapes[operands[0]][d] for d in record["dims"])
            terms[place] = max(terms[place], length)
        if record["kind"] == "Library":
            terms[place] = max(terms[place], run.library_terms(record))
        for t in operands:
            if last_use[t] == place and t not in kept:
                run.values.pop(t, None)
                run.results.pop(t, None)
                if errors:
                    errors.bounds.pop(t, None)
    outputs = [t for t, alias in records["outputs"] if aliased or alias < 0]
    for t in outputs:
        if isinstance(run.values[t], Deferred):
            raise run.too_large(records["tensors"][t])
    return [
        Exact(run.values[t], terms[t], single[t], errors.of(t) if errors else None) for t in outputs
    ]


def _is_single(record: dict[str, Any]) -> bool:
    """True if the op rounds to float32 or narrower; movement ops do not round."""
    dtype = torch_dtype(record["dtype"])
    floats = dtype.is_floating_point or dtype.is_complex
    computes = record["kind"] in ("Pointwise", "Cast", "Reduction", "Library")
    return computes and floats and dtype not in (torch.float64, torch.complex128)


def tensor_sizes(fd: FusionDefinition, inputs: Sequence[Any]) -> dict[int, tuple[int, ...]]:
    """Sizes of every tensor of the definition on these inputs, by id; computes no tensor."""
    records = fd.fusion.records()
    return sizes_of(records, _bind(records, inputs))[0]


def sizes_of(
    records: dict[str, Any], bound: dict[tuple[bool, int], Any]
) -> tuple[dict[int, tuple[int, ...]], Callable[[int], Any]]:
    """Sizes of every tensor by id, and a function that evaluates a scalar of the definition.
    `bound` has inputs by (is tensor, id or index); tensors need no data.
    """
    seed, offset, random_ops = records["random"]
    if random_ops:
        bound[False, seed] = bound[False, offset] = 0
    run = Run(records, bound)
    for record in records["tensors"]:
        run.require_scalars(record)
        run.shapes[record["id"]] = torch.Size(run.sizes(record))
    sizes = {tensor: tuple(found) for tensor, found in run.shapes.items()}
    return sizes, lambda place: run.scalars[place].item()


def _next_random_position(inputs: Sequence[Any], ops: int) -> tuple[int, int]:
    """Seed and offset that execute() would draw now; the generator is not advanced."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    device = next((t.get_device() for t in tensors if t.is_cuda), -1)
    if not tensors and torch.cuda.is_available():
        device = torch.cuda.current_device()
    state = torch.get_rng_state() if device < 0 else torch.cuda.get_rng_state(device)
    try:
        position: tuple[int, int] = load_torch().take_random_position(device, ops)
        return position
    finally:
        if device < 0:
            torch.set_rng_state(state)
        else:
            torch.cuda.set_rng_state(state, device)


def one_by_one(records: dict[str, Any], inputs: Sequence[Any]) -> list[Any]:
    """Flattens the inputs as a run does: a list or tuple, e.g. a shape, is expanded if the
    definition has scalars at its position (define_vector()).
    """
    arguments = records["arguments"]
    flat: list[Any] = []
    for value in inputs:
        scalars = len(flat) < len(arguments) and not arguments[len(flat)][0]
        flat += value if scalars and isinstance(value, list | tuple) else [value]
    return flat


def _bind(records: dict[str, Any], inputs: Sequence[Any]) -> dict[tuple[bool, int], Any]:
    """Checks inputs and returns them by (is tensor, id or index)."""
    arguments = records["arguments"]
    inputs = one_by_one(records, inputs)
    if len(inputs) != len(arguments):
        raise UserError(
            f"evaluate(): expected {len(arguments)} inputs, got {len(inputs)}",
            rule="argument-count",
        )
    bound: dict[tuple[bool, int], Any] = {}
    for place, (value, (is_tensor, index, _)) in enumerate(zip(inputs, arguments, strict=True)):
        if isinstance(value, torch.Tensor) != is_tensor:
            wanted = "a tensor" if is_tensor else "a number"
            raise UserError(
                f"evaluate(): input {place}: expected {wanted}, got {type(value).__name__}",
                rule="argument-type",
            )
        if is_tensor:
            _check_tensor(place, value, records["tensors"][index], records["scalars"])
        bound[is_tensor, index] = value
    return bound


def _check_tensor(
    place: int, value: torch.Tensor, record: dict[str, Any], scalars: list[Any]
) -> None:
    where = f"evaluate(): input {place} (t{record['id']}"
    where += f", defined at {record['location']})" if record["location"] else ")"
    if value.dtype != torch_dtype(record["dtype"]):
        raise DTypeError(
            f"{where}: expected {record['dtype'].torch_name}, "
            f"got {str(value.dtype).removeprefix('torch.')}\n"
            "  hint: convert the input, or define the tensor with that type",
            rule="argument-dtype",
        )
    sizes = [scalars[s][2] if scalars[s][0] == "constant" else -1 for s in record["shape"]]
    message = f"{where}: expected shape {sizes} (-1: any), got {list(value.shape)}"
    if value.dim() != len(sizes):
        raise ShapeError(message, rule="argument-rank")
    if not all(wanted in (-1, n) for wanted, n in zip(sizes, value.shape, strict=True)):
        raise ShapeError(message, rule="argument-size")


class Run:
    """Values of one evaluation: tensors by id, scalars by index."""

    def __init__(self, records: dict[str, Any], bound: dict[tuple[bool, int], Any]) -> None:
        self.bound = bound
        self.values: dict[int, Any] = {}  # torch tensors or Deferred
        self.results: dict[int, tuple[torch.Tensor, ...]] = {}  # all results of multi-result ops
        self.shapes: dict[int, torch.Size] = {}
        self.types = {r["id"]: r["dtype"] for r in records["tensors"]}
        self.scalar_records = records["scalars"]
        self.scalars: list[torch.Tensor] = []  # evaluated so far

    def require_scalars(self, record: dict[str, Any]) -> None:
        """Evaluates the scalars that a tensor needs. Sizes of tensors are scalars too, so scalars
        are evaluated as late as possible.
        """
        end = max(record["scalars"], default=-1) + 1
        for scalar in self.scalar_records[len(self.scalars) : end]:
            self.scalars.append(self.scalar(scalar))

    def scalar(self, record: tuple[Any, ...]) -> torch.Tensor:
        kind, dtype, *rest = record
        if kind == "constant":
            return _exact_tensor(rest[0], dtype)
        if kind == "input":
            return convert(_exact_tensor(self.bound[False, rest[0]], dtype), dtype)
        if kind == "size":
            tensor, dim = rest
            bound = self.bound.get((True, tensor))
            return torch.tensor((self.shapes[tensor] if bound is None else bound.shape)[dim])
        if kind == "cast":
            return convert(self.scalars[rest[0]], dtype)
        op, compute, places = rest
        return _apply(op, compute, dtype, [self.scalars[p] for p in places])

    def number(self, place: int) -> int:
        return int(self.scalars[place].item())

    def wanted(self, record: dict[str, Any], places: Sequence[int]) -> list[int]:
        """Evaluates sizes. Only a constant of the definition may be -1."""
        sizes = [self.number(place) for place in places]
        for place, size in zip(places, sizes, strict=True):
            if size < 0 and self.scalar_records[place][0] != "constant":
                raise ShapeError(
                    f"{record['composite'] or record['kind'].lower()}(): a Scalar gives a size of "
                    f"{size} at run time; expected at least 0{self.describe(record)}\n"
                    "  hint: write -1 as a number in the definition",
                    rule="size-1",
                )
        return sizes

    def sizes(self, record: dict[str, Any]) -> list[int]:
        return self.require_sizes(record, [self.number(place) for place in record["shape"]])

    def require_sizes(self, record: dict[str, Any], sizes: list[int]) -> list[int]:
        for d, size in enumerate(sizes):
            if size < 0:
                name = record["composite"] or record["kind"].lower()
                raise ShapeError(
                    f"{name}(): axis {d} gets a size of {size}; expected at least 0"
                    f"{self.describe(record)}",
                    rule="size-1",
                )
        return sizes

    def value(self, record: dict[str, Any]) -> torch.Tensor | Deferred:
        """Evaluates a tensor. Returns a Deferred if it exceeds memory, or if an operand is Deferred
        and the result exceeds memory too.
        """
        try:
            if not any(isinstance(self.values[t], Deferred) for t in record["operands"]):
                return self.tensor(record)
        except (RuntimeError, MemoryError) as error:
            if not (isinstance(error, MemoryError) or OF_MEMORY.search(str(error))):
                raise
        deferred = self.in_parts(record)
        if deferred is None:
            raise self.too_large(record)
        return deferred.whole() if _fits(math.prod(deferred.shape)) else deferred

    def in_parts(self, record: dict[str, Any]) -> Deferred | None:
        """Evaluates a tensor as Deferred, if its op can be computed slice by slice."""
        dtype = record["dtype"]
        args = [self.values[t] for t in record["operands"]]
        match record["kind"]:
            case "Iota":
                return iota(self.sizes(record)[0])
            case "Pointwise":
                args = [(self.values if t else self.scalars)[place] for t, place in record["args"]]
                apply = functools.partial(_apply, record["op"], record["compute"], dtype)
                return elementwise(lambda *given: apply(given), args)
            case "Cast":
                return elementwise(lambda a: convert(a, dtype), args)
            case "Expand":
                wanted = [
                    args[0].shape[d] if n == -1 else n
                    for d, n in enumerate(self.wanted(record, record["shape"]))
                ]
                return elementwise(lambda a, _: a, [*args, torch.zeros(()).expand(wanted)])
            case "Pad":
                before, sizes = self.padding(record, args[0].shape)
                fill = convert(self.scalars[record["value"]], dtype)
                return padded(args[0], before, sizes, fill)
            case "Cat":
                return joined(args, record["dim"])
        known = len(args) == 1 and isinstance(args[0], Deferred)
        return rearranged(record, args[0], self.number) if known else None

    def tensor(self, record: dict[str, Any]) -> torch.Tensor:
        dtype = record["dtype"]
        match record["kind"]:
            case "Input":
                # Copy, because the caller may overwrite an input before it compares.
                value: torch.Tensor = self.bound[True, record["id"]].detach()
                return value.to("cpu", _exact_dtype(dtype), copy=True)
            case "Pointwise":
                args = [
                    self.values[place] if is_tensor else self.scalars[place]
                    for is_tensor, place in record["args"]
                ]
                return _apply(record["op"], record["compute"], dtype, args)
            case "Cast":
                return convert(self.values[record["arg"]], dtype)
            case "Full":
                return convert(self.scalars[record["value"]], dtype).expand(self.sizes(record))
            case "Reduction":
                return self.reduction(record)
            case "Result":
                value = self.results[record["operands"][0]][int(record["index"])]
                return convert(value, dtype)
            case "Iota":
                (length,) = self.sizes(record)
                _require_memory(length)
                return torch.arange(length)
            case "TakeAlongAxis":
                return self.take_along_axis(record)
            case "Pad":
                value = self.values[record["arg"]]
                before, sizes = self.padding(record, value.shape)
                _require_memory(math.prod(sizes))
                fill = convert(self.scalars[record["value"]], dtype)
                return padded(value, before, sizes, fill).whole()
            case "Library":
                return self.library(record)
            case "Cat":
                values = [self.values[t] for t in record["operands"]]
                _require_memory(sum(value.numel() for value in values))
                return torch.cat(values, record["dim"])
        assert "fields" in record, f"evaluate() does not implement the tensor op {record['kind']}"
        return self.movement(record)

    def movement(self, record: dict[str, Any]) -> torch.Tensor:
        value: torch.Tensor = self.values[record["arg"]]
        given = {name: record[name] for name in record["fields"]}
        for name in record["scalar_fields"]:
            places = given[name] if isinstance(given[name], list) else [given[name]]
            sizes = record["kind"] in ("Expand", "SplitDim", "MergeDims")
            numbers = self.wanted(record, places) if sizes else [self.number(n) for n in places]
            given[name] = numbers if isinstance(given[name], list) else numbers[0]
        match record["kind"]:
            case "Squeeze" if not record["squeeze_expanded"]:
                self.require_ones(record, value)
            case "SplitDim":
                given["sizes"] = self.regrouped(record, value, 1, given["sizes"])
            case "MergeDims":
                self.regrouped(record, value, 2, [given["size"]])
        return MOVEMENTS[record["op"]](value, **given)

    def reduction(self, record: dict[str, Any]) -> torch.Tensor:
        """Returns result 0 and stores all results."""
        op, dims, compute = record["op"], record["dims"], record["compute"]
        value: torch.Tensor = self.values[record["operands"][0]]
        if record["selects"] and not record["identity"]:
            self.require_elements(record, dims)
        kept = [n for d, n in enumerate(value.shape) if d not in dims]
        last = [d for d in range(value.dim()) if d not in dims] + dims
        length = math.prod(value.shape[d] for d in dims)
        _require_memory(value.numel())
        rows = _exact(value, compute).permute(last).reshape(*kept, length)
        self.results[record["id"]] = REDUCTIONS[op](rows)
        return self.results[record["id"]][0]

    def library(self, record: dict[str, Any]) -> torch.Tensor:
        """Returns result 0 and stores all results. Result 0 is rounded to its dtype because it is
        stored to memory.
        """
        args = [self.values[t] for t in record["operands"]]
        given = LIBRARY[record["op"]].compute(*args, **self.attributes(record))
        results = given if isinstance(given, tuple) else (given,)
        first = convert(results[0], record["dtype"])
        self.results[record["id"]] = (first, *results[1:])
        return first

    def library_terms(self, record: dict[str, Any]) -> int:
        """Length of the longest sum or product in a library op."""
        args = [self.values[t] for t in record["operands"]]
        row = LIBRARY[record["op"]]
        return row.terms(*args, **self.attributes(record)) if row.terms else 1

    def attributes(self, record: dict[str, Any]) -> dict[str, Any]:
        """Attributes of the op, with scalar inputs replaced by their values in this run."""
        given = {name: self.scalars[place].item() for name, place in record["given"].items()}
        return record["attributes"] | given

    def take_along_axis(self, record: dict[str, Any]) -> torch.Tensor:
        value, index = (self.values[t] for t in record["operands"])
        dim, dtype = record["dim"], value.dtype
        if dtype in _SIGNED:  # torch has no gather for these dtypes
            value = value.view(_SIGNED[dtype])
        if math.prod(self.sizes(record)):
            self.require_elements(record, [dim])
        size = value.shape[dim]
        index = index.long()
        index = torch.where(index < 0, index + size, index).clamp(0, max(size - 1, 0))
        take = torch.gather if record["same_sizes"] else _take_along_dim
        return take(value, dim, index).view(dtype)

    def padding(self, record: dict[str, Any], shape: Sequence[int]) -> tuple[list[int], list[int]]:
        """Returns the elements before each axis, and the sizes of the result. An operand that was
        broadcast may be larger than its sizes in the record: these are the sizes of one tensor of
        the broadcast, e.g. 1.
        """
        before, after = ([self.number(n) for n in record[side]] for side in ("before", "after"))
        sizes = [b + n + a for b, n, a in zip(before, shape, after, strict=True)]
        return before, self.require_sizes(record, sizes)

    def regrouped(
        self, record: dict[str, Any], value: torch.Tensor, count: int, wanted: list[int]
    ) -> list[int]:
        """Returns the sizes that replace `count` dims from `dim` on; one size may be -1."""
        dim = record["dim"]
        before = list(value.shape[dim : dim + count])
        product = math.prod(before)
        known = math.prod(n for n in wanted if n != -1)
        after = [product // max(known, 1) if n == -1 else n for n in wanted]
        if math.prod(after) != product:
            raise ShapeError(
                f"{record['composite'] or record['op']}(): sizes {before} cannot become {wanted}: "
                f"expected as many elements{self.describe(record)}",
                rule="evaluate-1",
            )
        return after

    def require_ones(self, record: dict[str, Any], value: torch.Tensor) -> None:
        for d in reversed(record["dims"]):
            if value.shape[d] != 1:
                raise ShapeError(
                    f"{record['composite'] or 'squeeze'}(): axis {d} has size "
                    f"{value.shape[d]}, expected 1{self.describe(record)}",
                    rule="squeeze-2",
                )

    def require_elements(self, record: dict[str, Any], dims: list[int]) -> None:
        """Raises ShapeError `reduce-empty-1` for empty dims, like Fusion::nonempty for kernels."""
        shape = list(self.values[record["operands"][0]].shape)
        for d in dims:
            if shape[d] == 0:
                raise ShapeError(
                    f"{record.get('op', 'take_along_axis')}: axis {d} has size 0, expected at "
                    f"least one element{self.describe(record)}",
                    rule="reduce-empty-1",
                )

    def too_large(self, record: dict[str, Any]) -> LaunchError:
        def bytes_of(shape: Sequence[int], dtype: DataType) -> int:
            return math.prod(shape) * _exact_dtype(dtype).itemsize

        lines, wanted = self.describe(record), bytes_of(self.sizes(record), record["dtype"])
        for t in record["operands"]:
            if isinstance(self.values.get(t), Deferred):  # operands that must be complete tensors
                wanted = max(wanted, bytes_of(self.shapes[t], self.types[t]))
        return LaunchError(
            f"evaluate(): {record['composite'] or record.get('op') or record['kind'].lower()}: "
            f"t{record['id']} needs {wanted} bytes, more memory than this machine has{lines}\n"
            "  hint: use smaller sizes; evaluate() and validate() materialize every tensor, "
            "execute() only inputs and outputs",
            rule="evaluate-3",
        )

    def describe(self, record: dict[str, Any]) -> str:
        lines = [f"\n  t{t}: sizes {list(self.shapes[t])}" for t in record["operands"]]
        if record["location"]:
            lines.append(f"\n  defined at {record['location']}")
        return "".join(lines)


# Messages of torch about too little memory, or byte counts that overflow.
OF_MEMORY = re.compile(r"memory|overflow")


def _fits(elements: int) -> bool:
    return elements * 8 <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _require_memory(elements: int) -> None:
    """Raises MemoryError before torch allocates: overcommitting systems would kill the process."""
    if not _fits(elements):
        raise MemoryError


def _once(
    function: Callable[..., torch.Tensor], *args: torch.Tensor, **kwargs: Any
) -> torch.Tensor:
    """Applies an elementwise function once along dims that all arguments repeat (stride 0), so that
    expanded dims take no memory.
    """
    shape = torch.broadcast_shapes(*(a.shape for a in args))  # type: ignore[no-untyped-call]
    whole = [a.expand(shape) for a in args]
    repeated = [n > 1 and all(a.stride(d) == 0 for a in whole) for d, n in enumerate(shape)]
    part = tuple(slice(0, 1) if again else slice(None) for again in repeated)
    _require_memory(math.prod(1 if again else n for n, again in zip(shape, repeated, strict=True)))
    return function(*(a[part] for a in whole), **kwargs).expand(shape)


# Signed dtypes with equal bits.
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def _take_along_dim(value: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    return torch.take_along_dim(value, index, dim)


def _exact_dtype(dtype: DataType) -> torch.dtype:
    return _EXACT.get(dtype.kind) or torch_dtype(dtype)


def _exact(value: torch.Tensor, dtype: DataType) -> torch.Tensor:
    return value.to(_exact_dtype(dtype))


def _exact_tensor(value: Any, dtype: DataType) -> torch.Tensor:
    # Convert through the exact type of the number: torch alone would read a float as float32.
    types = {float: torch.float64, complex: torch.complex128}
    return _exact(torch.tensor(value, dtype=types.get(type(value))), dtype)


def _apply(
    op: str, compute: DataType, dtype: DataType, args: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Applies one row of the op table; converts operands to `compute`, but not a condition."""

    def compute_once(*given: torch.Tensor) -> torch.Tensor:
        exact = [_exact(a, compute) for a in given]
        if op == "where":
            exact[0] = given[0].to(torch.bool)
        return _exact(REFERENCES[op](*exact), dtype)

    return _once(compute_once, *args)


def convert(value: torch.Tensor, dtype: DataType) -> torch.Tensor:
    """A cast with the semantics of kernels, stored in the exact type. Floats round to `dtype`.
    Float to integer drops the fraction, saturates, and maps NaN to 0. Integers wrap. A nonzero
    value becomes True.
    """
    return _once(_convert, value, dtype=dtype)


def _convert(value: torch.Tensor, *, dtype: DataType) -> torch.Tensor:
    target = torch_dtype(dtype)
    if dtype.kind == "Int" and value.is_floating_point():
        limits = torch.iinfo(target)
        inside = (value >= limits.min) & (value < float(limits.max) + (limits.bits < 64))
        # The upper half of uint64 has the bits of negative int64 numbers.
        folded = torch.where(value < 2.0**63, value, value - 2.0**64)
        whole = torch.where(inside, folded, 0.0).to(torch.int64)
        largest = limits.max if limits.max < 2**63 else -1
        whole = torch.where(inside | value.isnan(), whole, largest)
        return torch.where(value < limits.min, limits.min, whole).to(target)
    if target == torch.float8_e4m3fn:  # saturates without infinity, as torch does from 2.13 on
        value = value.double().clamp(-448.0, 448.0)
    return _exact(value.to(target), dtype)
