"""Kernels of a definition before scheduling: their outputs, and their values computed one by one in
float64.

The run checks the assumptions of schedules: operands precede their users, a value varies over its
declared axes only, every output is stored completely and once, and every tensor is stored before it
is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fuser import FusionDefinition, _core_testing, evaluate
from fuser.debug.interpreter import _apply, _exact, convert
from fuser.ops import as_dtype
from fuser.ops.reference import REDUCTIONS

Group = dict[str, Any]
# Single-pass forms, which only the compiler generates.
ONE_PASS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "welford": lambda x: (
        x.mean(-1),
        (x - x.mean(-1, keepdim=True)).square().sum(-1),
        torch.full(x.shape[:-1], x.shape[-1]),
    ),
    "online_softmax": lambda x: (
        x.amax(-1),
        (x - x.amax(-1, keepdim=True)).exp().sum(-1),
    ),
}
SIZE, SCALAR, AXIS, LOADED = 0, 2, 5, 10  # values of Symbol in ir/expr.h


class Grouped:
    """The kernels (groups) of a definition for inputs of these sizes and strides."""

    def __init__(self, fd: FusionDefinition, inputs: Sequence[Any]) -> None:
        self.tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
        self.scalars = [x for x in inputs if not isinstance(x, torch.Tensor)]
        layouts = [(list(x.shape), list(x.stride())) for x in self.tensors]
        self.core = _core_testing.fusion.Groups(fd._builder, layouts)
        self.groups: list[Group] = self.core.groups
        # Temporaries between kernels; fission() appends more outputs.
        self.temps = [tensor for tensor, _, temp in self.outputs if temp]
        self.records = {r["id"]: r for r in fd.fusion.records()["tensors"]}

    @property
    def outputs(self) -> list[tuple[int, int, bool]]:
        """(tensor, alias, temp) of each output, including temporaries."""
        return self.core.outputs

    def fission(self, group: int = 0) -> list[Group]:
        return self.core.fission(group)

    def single_pass(self, group: int = 0) -> Group | None:
        return self.core.single_pass(group)

    def problems(self, in_place: Sequence[bool] | None = None) -> list[Group]:
        return self.core.problems(in_place or [False] * len(self.outputs))

    def stored(self) -> list[list[int]]:
        """The outputs of each group."""
        return [[s["output"] for s in g["stores"]] for g in self.groups]

    def run(self, groups: Sequence[Group] | None = None) -> list[torch.Tensor | None]:
        """Run the groups in this order; return all outputs including temporaries."""
        memory: list[torch.Tensor | None] = [None] * len(self.outputs)
        for group in self.groups if groups is None else groups:
            _Run(self, group, memory).run()
        return memory


class _Run:
    def __init__(self, of: Grouped, group: Group, memory: list[torch.Tensor | None]) -> None:
        self.of, self.group, self.memory = of, group, memory
        self.values: list[torch.Tensor] = []
        self.extents: list[int] = []
        for extent in group["axes"]:
            self.extents.append(int(self.expression(extent)))

    def expression(self, node: Any) -> torch.Tensor:
        """An expression over all axes; a dim has size 1 if the expression does not vary over it."""
        what, dtype, *rest = node
        exact = as_dtype(getattr(torch, dtype))
        if what == "constant":
            kind = torch.float64 if isinstance(rest[0], float) else torch.int64
            return convert(torch.tensor(rest[0], dtype=kind), exact)
        if what == "cast":
            return convert(self.expression(rest[0]), exact)
        if what == "apply":
            args = [self.expression(a) for a in rest[1]]
            compute = as_dtype(getattr(torch, rest[1][-1][1]))
            return _apply(rest[0], compute, exact, args)
        symbol, a, b = rest
        if symbol == SIZE:
            return torch.tensor(self.of.tensors[a].shape[b])
        if symbol == SCALAR:
            return convert(torch.as_tensor(self.of.scalars[a]), exact)
        if symbol == LOADED:
            assert self.values[a].dtype == torch.int64
            return self.values[a]
        assert symbol == AXIS
        shape = [1] * len(self.extents)
        shape[a] = self.extents[a]
        return torch.arange(self.extents[a]).reshape(shape)

    def places(self, where: Sequence[Any], shape: Sequence[int]) -> tuple[torch.Tensor, ...]:
        coordinates = [self.expression(w) for w in where]
        for c, size in zip(coordinates, shape, strict=True):
            assert c.numel() == 0 or (int(c.min()) >= 0 and int(c.max()) < size)
        return tuple(torch.broadcast_tensors(*coordinates)) if coordinates else ()

    def operand(self, arg: Any) -> torch.Tensor:
        if isinstance(arg, int):
            assert arg < len(self.values), "an operand stands behind its user"
            return self.values[arg]
        return self.expression(arg)

    def read(self, value: Any) -> torch.Tensor:
        if value["output"] >= 0:
            source = self.memory[value["output"]]
            assert source is not None, f"output {value['output']} is read before it is stored"
            assert self.of.outputs[value["output"]][0] == value["tensor"]
        else:
            record = self.of.records[value["tensor"]]
            assert record["kind"] == "Input"
            place = [r["id"] for r in self.of.records.values() if r["kind"] == "Input"]
            source = self.of.tensors[place.index(value["tensor"])]
            source = convert(
                source.double() if source.is_floating_point() else source, record["dtype"]
            )
        return source[self.places(value["where"], source.shape)]

    def reduce(self, value: Any) -> tuple[torch.Tensor, ...]:
        over = value["over"]
        kept = [a for a in range(len(self.extents)) if a not in over]
        assert value["axes"] == kept
        compute = as_dtype(getattr(torch, value["compute"]))

        def rows(arg: Any) -> torch.Tensor:
            x = self.operand(arg)
            x = x.reshape([1] * (len(self.extents) - x.dim()) + list(x.shape))
            x = x.expand(self.extents).permute([*kept, *over])
            return x.reshape(*[self.extents[a] for a in kept], -1)

        x = _exact(rows(value["args"][0]), compute)
        if len(value["args"]) > 1:  # sort by their positions
            order = rows(value["args"][1]).argsort(-1)
            x = x.gather(-1, order)
        op = value["how"].split()[1]
        shape = [1 if a in over else n for a, n in enumerate(self.extents)]
        return tuple(r.reshape(shape) for r in (REDUCTIONS | ONE_PASS)[op](x))

    def value(self, value: Any) -> torch.Tensor:
        how, args = value["how"], value["args"]
        dtype = as_dtype(getattr(torch, value["dtype"]))
        if how == "read":
            return self.read(value)
        if how == "convert":
            return convert(self.operand(args[0]), dtype)
        if how in ("splat", "coordinate"):
            return convert(self.expression(args[0]), dtype)
        if how.startswith("reduce"):
            self.results[len(self.values)] = self.reduce(value)
            return self.results[len(self.values)][0]
        if how.startswith("project"):
            return self.results[args[0]][int(how.split()[1])]
        compute = as_dtype(getattr(torch, value["compute"]))
        how = how.removesuffix("_half")
        return _apply(how, compute, dtype, [self.operand(a) for a in args])

    def run(self) -> None:
        self.results: dict[int, tuple[torch.Tensor, ...]] = {}
        for value in self.group["values"]:
            result = self.value(value)
            for axis, size in enumerate(result.shape if result.dim() else ()):
                assert size == 1 or axis in value["axes"], (value, result.shape)
            self.values.append(result)
        for store in self.group["stores"]:
            self.store(store)

    def store(self, store: Any) -> None:
        output = store["output"]
        assert self.memory[output] is None, f"output {output} is stored twice"
        tensor = self.of.outputs[output][0]
        shape = [int(self.expression(e)) for e in self.of.core.shape(tensor)]
        value = self.values[store["value"]]
        result = torch.zeros(shape, dtype=value.dtype)
        count = torch.zeros(shape, dtype=torch.int64)
        places = self.places(store["where"], shape)
        # Expand the value to the axes of the store's coordinates only. Then a value that varies
        # over other axes, which several threads would store, is an error here.
        over = places[0].shape if places and places[0].dim() else [1] * len(self.extents)
        value = value.expand(over)
        if places:
            places = tuple(p.expand(over) for p in places)
            result[places] = value
            count.index_put_(places, torch.ones(()).long(), accumulate=True)
        else:
            result, count = value.reshape(()), count + 1
        assert bool((count == 1).all()), f"output {output} is not stored once everywhere"
        self.memory[output] = result


def values(group: Group, how: str) -> list[dict[str, Any]]:
    """Values computed by `how`, or by a variant of it: "reduce", "project"."""
    return [v for v in group["values"] if v["how"] == how or v["how"].startswith(how + " ")]


def check(
    fd: FusionDefinition,
    inputs: Sequence[Any],
    expected: Callable[..., Any] | None = None,
    tolerance: float = 1e-9,
) -> Grouped:
    """The groups, after running the groups, their single-pass forms and their fission; all must
    equal the evaluated definition (and the results of `expected` in torch)."""
    grouped = Grouped(fd, inputs)
    wanted = evaluate(fd, inputs, aliased=True)
    _compare(grouped.run(), wanted, tolerance)
    shorter = [grouped.single_pass(i) or g for i, g in enumerate(grouped.groups)]
    _compare(grouped.run(shorter), wanted, tolerance)
    split = [p for i, g in enumerate(grouped.groups) for p in (grouped.fission(i) or [g])]
    _compare(grouped.run(split), wanted, tolerance)
    if expected is not None:
        doubles = [x.double() if x.is_floating_point() else x for x in grouped.tensors]
        results = expected(*doubles)
        results = results if isinstance(results, tuple) else (results,)
        _compare(grouped.run(), list(results), tolerance)
    return grouped


def _compare(got: list[torch.Tensor | None], wanted: list[torch.Tensor], tolerance: float) -> None:
    for one, other in zip(got[: len(wanted)], wanted, strict=True):
        assert one is not None
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
