"""Runs sharded definitions on DTensors, and on local shards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from fuser._native import load_torch
from fuser.debug.interpreter import one_by_one, sizes_of, torch_dtype
from fuser.errors import DTypeError, ShapeError, UserError
from fuser.fusion import Fusion
from fuser.multidevice import mesh
from fuser.multidevice.collectives import Pending, agreed, all_equal, begin
from fuser.multidevice.emit import Place
from fuser.multidevice.placements import checked_placements, placed_tensors
from fuser.multidevice.plan import Plan, make_plan
from fuser.multidevice.propagate import Sizes
from fuser.multidevice.shards import REPLICATE, Placements, parts_of

if TYPE_CHECKING:
    from fuser.definition import FusionDefinition


def execute_with_dtensors(
    fd: FusionDefinition,
    in_dtensors: Sequence[Any],
    out_placements: Sequence[Sequence[Any] | None] | None = None,
) -> list[torch.Tensor]:
    """Runs `fd` on DTensors, on all ranks of their mesh, and returns DTensors.

    Placements are carried through the definition (docs/design/multidevice.md). A collective moves
    a tensor only before an op that cannot compute with its shards.

    in_dtensors     inputs in order: DTensors of one mesh, and numbers that are equal on all ranks
    out_placements  placements of each result; None, or without it, as they follow from the inputs,
                    with partial results completed

    If the definition has placements itself, then local shards of equal sizes may be passed in place
    of DTensors, and local shards are returned.

    Raises UserError `sharded-mesh-1` to `sharded-mesh-3` for no mesh or several,
    `sharded-placement-1` for placements without a rule, `sharded-results-1` for another number of
    `out_placements`, `sharded-mixed-1` for a tensor among DTensors, `sharded-sizes-1` for shards of
    unexpected sizes, `sharded-rank-1` on a rank outside of the mesh, and the errors of execute().
    """
    return executor_of(fd).execute(in_dtensors, out_placements)


def executor_of(fd: FusionDefinition) -> ShardedExecutor:
    """The executor of a definition, made at its first use."""
    found = fd._sharded
    if found is None:
        fd.validate_definition()
        fusion = fd.fusion
        fusion.builder.seal()
        found = fd._sharded = ShardedExecutor(fusion, *placed_tensors(fusion.builder))
    return found


def run_of(fd: FusionDefinition, whole: Callable[..., Any] | None) -> Callable[..., Any]:
    """Executor.execute for calls with DTensors. Other calls run `whole`, or local shards of a
    definition with placements if it is None.
    """

    def execute(inputs: Sequence[Any], device: Any = None, plan: Any = None) -> Any:
        if whole and not fd._is_sharded(inputs):
            return whole(inputs, device) if plan is None else whole(inputs, device, plan)
        if plan is not None:
            raise UserError(
                "execute(): plan, schedules: expected none, since a sharded definition runs as "
                "several local ones\n  hint: print(fuser.explain(fd, inputs)) shows them",
                rule="sharded-plan-1",
            )
        return executor_of(fd).execute(inputs)

    return execute


class ShardedExecutor:
    """Plans and runs of one definition.

    mesh       mesh of the definition, or None
    annotated  placements of tensors that the definition places
    """

    def __init__(
        self, fusion: Fusion, mesh: Any = None, annotated: Mapping[int, Placements] | None = None
    ) -> None:
        self.records = fusion.records()
        self.mesh, self.annotated = mesh, dict(annotated or {})
        steering = _steering(self.records)
        self._steers = [not t and at in steering for t, at, _ in self.records["arguments"]]
        self._prepared: dict[Any, Prepared] = {}
        self._lock = threading.Lock()

    def execute(
        self, inputs: Sequence[Any], out_placements: Sequence[Any] | None = None
    ) -> list[torch.Tensor]:
        """Runs the definition; see execute_with_dtensors()."""
        with torch.no_grad():
            flat = one_by_one(self.records, inputs)
            return self.prepared(flat, out_placements).run(flat)

    def prepared(self, flat: Sequence[Any], out_placements: Any = None) -> Prepared:
        """The plan of a call; made at the first call of its placements, sizes and types."""
        if len(flat) != len(self._steers):
            raise UserError(
                f"execute(): expected {len(self._steers)} inputs, got {len(flat)}",
                rule="argument-count",
            )
        asked = out_placements and tuple(p if p is None else tuple(p) for p in out_placements)
        key = (asked, *map(_layout, flat, self._steers))
        found = self._prepared.get(key)
        if found is None:
            with self._lock:
                found = self._prepared[key] = Prepared(self, flat, asked)
        return found


def _layout(x: Any, steers: bool) -> Any:
    """The properties of an argument that its plan depends on."""
    if isinstance(x, DTensor):
        return x.device_mesh, x.placements, x.shape, x.dtype
    if isinstance(x, torch.Tensor):
        return x.shape, x.dtype, x.device.type
    return x if steers else None


class Prepared:
    """Calls with arguments of one layout: their mesh, placements and whole sizes, and the plan.

    given     placements of tensor inputs
    wanted    placements of outputs that are returned or stored, None for the natural ones
    as_local  True if the caller passes local shards, and gets local shards
    """

    def __init__(self, executor: ShardedExecutor, flat: Sequence[Any], asked: Any) -> None:
        records = executor.records
        arguments = records["arguments"]
        self.records, self.mesh = records, executor.mesh
        self.given: dict[int, Placements] = {}
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.as_local = not any(isinstance(x, DTensor) for x in flat)
        self._specs: dict[Any, Any] = {}
        for i, (x, (is_tensor, at, _)) in enumerate(zip(flat, arguments, strict=True)):
            if is_tensor and isinstance(x, DTensor):
                self._take(i, at, x)
        if self.mesh is None:
            raise UserError(
                "execute_with_dtensors(): expected a DTensor among the inputs, or a mesh of the "
                "definition\n  hint: distribute_tensor(x, mesh, [Replicate()]), or "
                "fuser.multidevice.set_placements(tensor, mesh, placements)",
                rule="sharded-mesh-3",
            )
        if isinstance(self.mesh, mesh.DeviceMesh):
            self.mesh = self.mesh.on(_device_type(flat))
        for i, (x, (is_tensor, at, _)) in enumerate(zip(flat, arguments, strict=True)):
            if is_tensor:
                if not isinstance(x, DTensor):
                    self._take_local(executor, i, at, x)
                _check(records, at, x, self.shapes[at])
        self.wanted = self._wanted(asked)
        self.plan = self._planned(executor, flat)

    def _planned(self, executor: ShardedExecutor, flat: Sequence[Any]) -> Plan:
        coordinate = self.mesh.get_coordinate()
        if coordinate is None:
            raise UserError(
                f"execute(): this rank is not in the mesh {self.mesh}\n"
                "  hint: call execute() on ranks of the mesh alone",
                rule="sharded-rank-1",
            )
        bound: dict[tuple[bool, int], Any] = {}
        for x, (is_tensor, at, _) in zip(flat, self.records["arguments"], strict=True):
            bound[is_tensor, at] = torch.empty(self.shapes[at], device="meta") if is_tensor else x
        sizes = Sizes(self.records, *sizes_of(self.records, bound))
        place = Place(tuple(self.mesh.shape), tuple(coordinate))
        self._check_shards(flat, place)
        annotated = {t: p for t, p in executor.annotated.items() if t not in self.given}
        return make_plan(sizes, place, self.given, self.wanted, annotated)

    def _check_shards(self, flat: Sequence[Any], place: Place) -> None:
        """Raises UserError `sharded-sizes-1` on all ranks if a rank has shards of other sizes than
        those of torch.chunk(), or local shards that stand for other whole sizes.
        """
        wrong = ""
        for x, (is_tensor, at, _) in zip(flat, self.records["arguments"], strict=True):
            expected = place.sizes(self.shapes[at], self.given[at]) if is_tensor else ()
            if is_tensor and tuple(_shard_of(x).shape) != expected:
                wrong = wrong or (
                    f"T{at}: expected a shard of sizes {list(expected)} of {list(self.shapes[at])} "
                    f"at {place.coordinate} of the mesh, got {list(_shard_of(x).shape)}"
                )
        whole = [n for shape in self.shapes.values() for n in shape]
        if not all_equal([*whole, len(wrong)], self.mesh) or wrong:
            raise UserError(
                f"execute(): {wrong or 'the inputs of another rank have other sizes'}\n"
                "  hint: shards are those of torch.chunk(); local shards have equal sizes on all "
                "ranks, DTensors may have uneven ones",
                rule="sharded-sizes-1",
            )

    def _take(self, i: int, at: int, x: DTensor) -> None:
        if isinstance(self.mesh, mesh.DeviceMesh):
            self.mesh = self.mesh.on(x.device_mesh.device_type)
        if self.mesh is not None and x.device_mesh != self.mesh:
            raise UserError(
                f"execute(): argument {i} is on {x.device_mesh}, an earlier one or the definition "
                f"on {self.mesh}; expected one mesh\n  hint: place all tensors on one mesh",
                rule="sharded-mesh-2",
            )
        self.mesh = x.device_mesh
        self.given[at] = checked_placements(
            x.placements, x.dim(), self.mesh.ndim, f"execute(): argument {i}"
        )
        self.shapes[at] = tuple(x.shape)

    def _take_local(self, executor: ShardedExecutor, i: int, at: int, x: Any) -> None:
        """A tensor of an annotated definition is this rank's shard, of equal size on all ranks."""
        if not isinstance(x, torch.Tensor):
            raise UserError(
                f"execute(): argument {i}: expected a tensor, got {type(x).__name__}",
                rule="argument-type",
            )
        if not self.as_local and x.dim():
            raise UserError(
                f"execute(): argument {i} is a torch.Tensor among DTensors\n"
                "  hint: distribute_tensor(x, mesh, [Replicate()]), or DTensor.from_local()",
                rule="sharded-mixed-1",
            )
        placed = executor.annotated.get(at, (REPLICATE,) * self.mesh.ndim)
        fixed = _fixed_sizes(self.records, at)
        shape = list(x.shape)
        for axis in range(len(shape)):
            parts = parts_of(axis, placed, tuple(self.mesh.shape))
            if axis < len(fixed) and fixed[axis] > 1:
                shape[axis] = fixed[axis]
            elif parts > 1:
                shape[axis] *= parts
        self.given[at], self.shapes[at] = placed, tuple(shape)

    def _wanted(self, asked: Any) -> tuple[Placements | None, ...]:
        outputs = self.records["outputs"]
        returned = [t for t, alias in outputs if alias < 0]
        if asked is None:
            return (None,) * len(outputs)
        if len(asked) != len(returned):
            raise UserError(
                f"out_placements: expected {len(returned)} entries (one a result), got "
                f"{len(asked)}",
                rule="sharded-results-1",
            )
        ranks = {r["id"]: len(r["shape"]) for r in self.records["tensors"]}
        rest = iter(asked)
        found: list[Placements | None] = []
        for tensor, alias in outputs:
            wanted = next(rest) if alias < 0 else None
            found.append(
                None
                if wanted is None
                else checked_placements(
                    wanted, ranks[tensor], self.mesh.ndim, f"out_placements of T{tensor}"
                )
            )
        return tuple(found)

    # ---- one call

    def run(self, flat: Sequence[Any]) -> list[torch.Tensor]:
        """The results of a call: DTensors, or local shards. Stores in-place outputs."""
        local: dict[int, torch.Tensor] = {}
        numbers: dict[int, Any] = {}
        for x, (is_tensor, at, _) in zip(flat, self.records["arguments"], strict=True):
            if is_tensor:
                local[at] = _shard_of(x)
            else:
                numbers[at] = x
        if self.records["random"][2]:
            self._draw(local, numbers)
        found = _run(self.plan, self.mesh, local, numbers)
        returned, stored = [], []
        outputs = zip(self.records["outputs"], self.plan.graph.outputs, found, strict=True)
        for (_, alias), index, value in outputs:
            if alias >= 0:
                stored.append((local[alias], value))
            else:
                returned.append(value if self.as_local else self._as_dtensor(index, value))
        for into, value in stored:
            into.copy_(value)
        return returned

    def _draw(self, local: Mapping[int, torch.Tensor], numbers: dict[int, Any]) -> None:
        """Random numbers are a function of the element, so all ranks take one seed and offset."""
        seed, offset, ops = self.records["random"]
        device = next((t.get_device() for t in local.values() if t.is_cuda), -1)
        position = load_torch().take_random_position(device, ops)
        numbers[seed], numbers[offset] = agreed(list(position), self.mesh)

    def _as_dtensor(self, index: int, local: torch.Tensor) -> DTensor:
        """The DTensor of a node's shard; its strides have the order of the shard's."""
        key = (index, local.stride())
        spec = self._specs.get(key)
        if spec is not None:  # 80 us less than from_local()
            made: DTensor = DTensor(local, spec, requires_grad=False)  # type: ignore[no-untyped-call]
            return made
        node = self.plan.graph.nodes[index]
        sizes = node.sizes
        order = sorted(range(len(sizes)), key=lambda d: (local.stride(d), -d))
        stride, step = [0] * len(sizes), 1
        for d in order:
            stride[d] = step
            step *= max(sizes[d], 1)
        made = DTensor.from_local(
            *(local, self.mesh, node.placements),
            run_check=False,
            shape=torch.Size(sizes),
            stride=tuple(stride),
        )
        self._specs[key] = made._spec
        return made


def _shard_of(x: torch.Tensor) -> torch.Tensor:
    if not isinstance(x, DTensor):
        return x
    local = x.to_local()
    # A redistribution of the caller may be under way.
    return local.wait() if hasattr(local, "wait") else local


def _run(
    plan: Plan, mesh: DeviceMesh, local: Mapping[int, torch.Tensor], numbers: Mapping[int, Any]
) -> list[torch.Tensor]:
    """Runs the pieces, begins collectives after them, and waits for those that a step reads."""
    graph = plan.graph
    values: dict[int, torch.Tensor] = {n: local[t] for t, n in graph.inputs.items()}
    pending: dict[int, Pending] = {}

    def value(n: int) -> torch.Tensor:
        if n not in values:
            values[n] = pending.pop(n).wait()
        return values[n]

    for piece, part, dead in zip(plan.pieces, plan.local, plan.dead, strict=True):
        if part:
            tensors = [value(n) for n in piece.inputs]
            given = [a.value if a.of is None else numbers[a.of] for a in part.arguments]
            device = None if tensors else next((t.device for t in local.values()), mesh.device_type)
            made = part.execute([*tensors, *given], device)
            values.update(zip(piece.outputs, made, strict=True))
        for n in piece.issued:
            node = graph.nodes[n]
            assert node.step
            pending[n] = begin(node.step, value(node.operands[0]), plan.without(n), mesh)
        for n in dead:
            values.pop(n, None)
    return [value(n) for n in graph.outputs]


def _check(records: dict[str, Any], at: int, x: torch.Tensor, shape: tuple[int, ...]) -> None:
    record = records["tensors"][at]
    if x.dtype != torch_dtype(record["dtype"]):
        raise DTypeError(
            f"execute(): T{at}: expected {record['dtype'].torch_name}, got {x.dtype}",
            rule="argument-dtype",
        )
    fixed = _fixed_sizes(records, at)
    if len(fixed) != len(shape):
        raise ShapeError(
            f"execute(): T{at}: expected {len(fixed)} dims, got {list(shape)}", rule="argument-rank"
        )
    if not all(wanted in (-1, n) for wanted, n in zip(fixed, shape, strict=True)):
        raise ShapeError(
            f"execute(): T{at}: expected sizes {fixed} (-1: any), got {list(shape)} over all ranks",
            rule="argument-size",
        )


def _fixed_sizes(records: dict[str, Any], at: int) -> list[int]:
    scalars = records["scalars"]
    shape = records["tensors"][at]["shape"]
    return [scalars[s][2] if scalars[s][0] == "constant" else -1 for s in shape]


def _device_type(inputs: Sequence[Any]) -> str:
    return next((x.device.type for x in inputs if isinstance(x, torch.Tensor)), "cpu")


def _steering(records: dict[str, Any]) -> list[int]:
    """Scalar inputs on which sizes and attributes depend; each of their values has a plan."""
    scalars = records["scalars"]
    asked: set[int] = set()
    for record in records["tensors"]:
        asked.update(record["shape"])
        asked.update(record.get("given", {}).values())
        for name in (*record.get("scalar_fields", ()), "before", "after"):
            places = record.get(name, [])
            asked.update(places if isinstance(places, list) else [places])
    found = set()
    for at in reversed(range(len(scalars))):
        if at in asked:
            kind, _, *rest = scalars[at]
            if kind == "input":
                found.add(rest[0])
            elif kind == "apply":
                asked.update(rest[-1])
            elif kind == "cast":
                asked.add(rest[0])
    return sorted(found)
