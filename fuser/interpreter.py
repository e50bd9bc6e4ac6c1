"""Runs a definition op by op in float64 on the CPU: what fuser.evaluate calls. Imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from fuser._core import DataType
from fuser.errors import DTypeError, ShapeError, UserError
from fuser.reference import REFERENCES

if TYPE_CHECKING:
    from fuser.definition import FusionDefinition

_EXACT = {"Float": torch.float64, "Complex": torch.complex128}


def torch_dtype(dtype: DataType) -> torch.dtype:
    """The torch dtype of the same name."""
    found = getattr(torch, dtype.torch_name)
    assert isinstance(found, torch.dtype)
    return found


def interpret(fd: FusionDefinition, inputs: Sequence[Any], aliased: bool) -> list[torch.Tensor]:
    """See fuser.evaluate. One pass over the definition; a value is freed after its last use."""
    records = fd.fusion.records()
    run = _Run(records, _bind(records, inputs))
    kept = {tensor for tensor, _ in records["outputs"]}
    last_use = {t: r["id"] for r in records["tensors"] for t in _operands(r)}
    for record in records["tensors"]:
        try:
            run.values[record["id"]] = run.tensor(record)
        except RuntimeError as error:
            raise ShapeError(
                f"{record.get('op', record['kind'].lower())}: {error}{run.describe(record)}",
                rule="evaluate-1",
            ) from None
        for t in _operands(record):
            if last_use[t] == record["id"] and t not in kept:
                run.values.pop(t, None)
    return [run.values[t] for t, alias in records["outputs"] if aliased or alias < 0]


def _operands(record: dict[str, Any]) -> list[int]:
    if "arg" in record:
        return [record["arg"]]
    return [place for is_tensor, place in record.get("args", ()) if is_tensor]


def _bind(records: dict[str, Any], inputs: Sequence[Any]) -> dict[tuple[bool, int], Any]:
    """(is it a tensor?, id or index) -> input, checked."""
    arguments = records["arguments"]
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


class _Run:
    """The values of one evaluation: of tensors by id, of scalars by place."""

    def __init__(self, records: dict[str, Any], bound: dict[tuple[bool, int], Any]) -> None:
        self.bound = bound
        self.values: dict[int, torch.Tensor] = {}
        self.scalars: list[torch.Tensor] = []
        for record in records["scalars"]:
            self.scalars.append(self.scalar(record))

    def scalar(self, record: tuple[Any, ...]) -> torch.Tensor:
        kind, dtype, *rest = record
        if kind == "constant":
            return _exact_tensor(rest[0], dtype)
        if kind == "input":
            return convert(_exact_tensor(self.bound[False, rest[0]], dtype), dtype)
        if kind == "size":
            return torch.tensor(self.bound[True, rest[0]].shape[rest[1]])
        if kind == "cast":
            return convert(self.scalars[rest[0]], dtype)
        op, compute, places = rest
        return _apply(op, compute, dtype, [self.scalars[p] for p in places])

    def sizes(self, record: dict[str, Any]) -> list[int]:
        return [int(self.scalars[place].item()) for place in record["shape"]]

    def tensor(self, record: dict[str, Any]) -> torch.Tensor:
        dtype = record["dtype"]
        match record["kind"]:
            case "Input":
                # A copy: the caller may overwrite an input while it still compares.
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
            case "Broadcast":
                value = self.values[record["arg"]]
                for d, new in enumerate(record["is_broadcast"]):
                    value = value.unsqueeze(d) if new else value
                return value
            case "Expand":
                return self.values[record["arg"]].expand(self.sizes(record))
            case "Squeeze":
                value = self.values[record["arg"]]
                for d in reversed(record["dims"]):
                    value = value.select(d, 0)
                return value
            case "Permute":
                return self.values[record["arg"]].permute(record["dims"])
            case "StrideOrder":
                return self.values[record["arg"]]
        raise AssertionError(f"evaluate() does not know the tensor op {record['kind']}")

    def describe(self, record: dict[str, Any]) -> str:
        lines = [f"\n  t{t}: sizes {list(self.values[t].shape)}" for t in _operands(record)]
        if record["location"]:
            lines.append(f"\n  defined at {record['location']}")
        return "".join(lines)


def _exact_dtype(dtype: DataType) -> torch.dtype:
    return _EXACT.get(dtype.kind) or torch_dtype(dtype)


def _exact(value: torch.Tensor, dtype: DataType) -> torch.Tensor:
    return value.to(_exact_dtype(dtype))


def _exact_tensor(value: Any, dtype: DataType) -> torch.Tensor:
    # Through the exact type of the number itself: torch alone would take a float as float32.
    types = {float: torch.float64, complex: torch.complex128}
    return _exact(torch.tensor(value, dtype=types.get(type(value))), dtype)


def _apply(
    op: str, compute: DataType, dtype: DataType, args: Sequence[torch.Tensor]
) -> torch.Tensor:
    """One row of the op table; the operands of `where` but the first, and all of other ops, are in
    `compute`.
    """
    exact = [_exact(a, compute) for a in args]
    if op == "where":
        exact[0] = args[0].to(torch.bool)
    return _exact(REFERENCES[op](*exact), dtype)


def convert(value: torch.Tensor, dtype: DataType) -> torch.Tensor:
    """A cast as kernels do it, held in the exact type: floats round to `dtype`; float to integer
    drops the fraction, saturates, and takes NaN to 0; integers wrap; anything but 0 is True."""
    target = torch_dtype(dtype)
    if dtype.kind == "Int" and value.is_floating_point():
        limits = torch.iinfo(target)
        inside = (value >= limits.min) & (value < float(limits.max) + (limits.bits < 64))
        whole = torch.where(inside, value, 0.0).to(torch.int64)
        whole = torch.where(inside | value.isnan(), whole, limits.max)
        return torch.where(value < limits.min, limits.min, whole).to(target)
    if target == torch.float8_e4m3fn:  # no infinity: saturates, as torch does from 2.13 on
        value = value.double().clamp(-448.0, 448.0)
    return _exact(value.to(target), dtype)
