"""A region of a graph as a definition that runs in place of its nodes."""

from __future__ import annotations

import operator
from collections import ChainMap
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from typing import Any

import torch
from sympy import Integer
from torch import fx

from fuser import (
    CompileError,
    FusionDefinition,
    IndexRangeError,
    InternalError,
    LaunchError,
    LRUCache,
    Tensor,
    Unsupported,
    UserError,
    _core,
)
from fuser._native import load_torch
from fuser.adapters import aten
from fuser.adapters.graph.donation import DONOR
from fuser.adapters.graph.gemm_padding import with_zeros_behind, zeros_behind
from fuser.adapters.graph.padding import MEMORY
from fuser.adapters.graph.views import stride_order
from fuser.adapters.nodes import (
    device_of,
    hint,
    in_order,
    is_number,
    is_write,
    specialised,
    tensor_of,
)
from fuser.adapters.partition import is_made_anywhere
from fuser.adapters.report import is_keeping_runs, note_fallback, note_run
from fuser.adapters.torch_compat import pytree
from fuser.adapters.tuning import tuned
from fuser.arguments import as_dtype
from fuser.debug.repro import keep_repro
from fuser.kernel_names import recorded_as

# Skip torch's own frames when locating the user's line.
_core.skip_frames_in(str(Path(torch.__file__).parent) + "/")

# Errors of a definition for which torch's ops can run instead.
RECOVERABLE = (Unsupported, UserError, CompileError, InternalError)
# Errors that name a file with a repro script.
_KEPT = (CompileError, LaunchError, InternalError)

# Executors shared by equal regions, e.g. the layers of a network. Separate for the option autotune,
# so that timed plans do not affect other users.
_DEFINITIONS = {False: LRUCache(), True: LRUCache()}

# Movement ops that only rename dims: their sizes may be symbolic.
_RENAMING = {
    *("aten.permute.default", "aten.transpose.int", "aten.t.default", "aten.movedim.int"),
    *("aten.unsqueeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze.default"),
    *("aten.alias.default", "aten.detach.default", "aten.expand.default"),
}


class Definition:
    """A definition, the nodes that are its arguments, and the nodes that are its outputs."""

    def __init__(
        self, nodes: Sequence[fx.Node], outputs: Sequence[fx.Node], autotune: bool = False
    ) -> None:
        self.nodes, self.outputs, self.autotune = nodes, outputs, autotune
        self.inside = set(nodes)
        self.fd = FusionDefinition()
        self.arguments: list[fx.Node] = []
        self.buffers: list[fx.Node] = []  # outputs with given memory, passed after the arguments
        self.values: dict[fx.Node, Any] = {}
        self.traces: list[tuple[int, str]] = []  # (last tensor defined by a node, its stack trace)
        self.sizes: dict[Any, Any] = {}  # size scalars by sympy expression
        self.fixed = any(
            aten.moves(str(n.target)) and str(n.target) not in _RENAMING for n in nodes
        )
        self.define_inputs()
        self.on_gpu = any(d.type != "cpu" for d in map(device_of, nodes) if d is not None)
        for node in nodes:
            self.write(node)
        for node in outputs:
            self.add_output(node)
        self.fd.validate_definition()
        self.fd.fec = _DEFINITIONS[autotune].cache_compile(self.fd.fusion)

    # ---- inputs

    def define_inputs(self) -> None:
        device = next(d for d in map(device_of, self.nodes) if d is not None)
        for node in self.nodes:
            for source in node.all_input_nodes:
                if source in self.inside or source in self.values or is_number(source):
                    continue
                if is_made_anywhere(source):
                    continue  # recomputed in each region
                self.define_tensor(source, device)

    def define_tensor(self, node: fx.Node, device: Any) -> None:
        value = tensor_of(node)
        if value is None:
            raise Unsupported(f"{node}: expected a tensor")
        on_host = value.ndim == 0 and value.device.type == "cpu" and device.type != "cpu"
        if value.device != device and not on_host:
            raise Unsupported(f"{node}: expected a tensor on {device}, got one on {value.device}")
        sizes = [specialised(n) for n in value.shape]
        shape = [n if isinstance(n, int) and (n < 2 or self.fixed) else -1 for n in sizes]
        t = self.fd.define_tensor(shape=shape, dtype=as_dtype(value.dtype), is_cpu=on_host)
        for d, n in enumerate(value.shape):
            if isinstance(n, torch.SymInt):
                self.sizes.setdefault(n.node.expr, t.size(d))
        self.values[node] = t
        self.arguments.append(node)

    def number(self, node: fx.Node) -> Any:
        """A size or another number: computed from the sizes of inputs if possible, otherwise an
        argument.
        """
        value = node.meta["val"]
        if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return value
        if isinstance(value, torch.SymInt):
            found = self.of_sizes(value.node.expr)
            if found is not None:
                return found
        dtype = _core.DataType.Int if isinstance(value, torch.SymInt) else _core.DataType.Double
        if isinstance(value, torch.SymBool):
            raise Unsupported(f"{node}: a condition known only at run time")
        scalar = self.values[node] = self.fd.define_scalar(dtype)
        self.arguments.append(node)
        if isinstance(value, torch.SymInt):
            self.sizes.setdefault(value.node.expr, scalar)
        return scalar

    def of_sizes(self, expr: Any) -> Any:
        """Evaluates a sympy expression over the definition's Scalars, if all its symbols are
        known.
        """
        return _evaluated(expr, self.sizes)

    def numbers(self, nodes: Sequence[fx.Node], arguments: Sequence[Any]) -> list[Any]:
        """Evaluates nodes that give sizes, for a run with these arguments."""
        table: dict[Any, Any] = {}
        for node, value in zip(self.arguments, arguments, strict=True):
            if is_number(node):
                if isinstance(node.meta["val"], torch.SymInt):
                    table[node.meta["val"].node.expr] = value
                continue
            for symbolic, size in zip(tensor_of(node).shape, value.shape, strict=True):
                if isinstance(symbolic, torch.SymInt):
                    table[symbolic.node.expr] = size
        return [_evaluated(_expression(n.meta["val"]), table) for n in nodes]

    def described(self) -> list[Any]:
        """Inputs in the form of compile_described(): size hints without memory."""
        return [_described(node) for node in (*self.arguments, *self.buffers)]

    # ---- nodes

    def value(self, node: fx.Node) -> Any:
        if node in self.values:
            return self.values[node]
        if is_number(node):
            return self.number(node)
        self.write(node)  # a factory op, recomputed here
        return self.values[node]

    def argument(self, value: Any) -> Any:
        """Converts an argument of a node to the form that rows of the op table take."""
        if isinstance(value, fx.Node):
            return self.value(value)
        if isinstance(value, list | tuple):
            return [self.argument(v) for v in value]
        return value

    def write(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            source, index = node.args
            assert isinstance(source, fx.Node)
            self.values[node] = self.values[source][index]
            return
        if is_write(node):
            self.overwrite(*node.args[:2])
            return
        name = str(node.target)
        args, kwargs = aten.bind(name, node.args, node.kwargs)
        given = [self.argument(a) for a in args]
        named = {key: self.argument(a) for key, a in kwargs.items()}
        # The kernel is named after the original op, even if it was decomposed.
        with recorded_as(self.fd.ops._builder, str(node.meta.get("original_aten") or name)):
            result = aten.emit(self.fd, name, given, named, self.on_gpu)
        wanted = tensor_of(node)
        if isinstance(result, Tensor) and wanted is not None and result.ndim != wanted.ndim:
            raise InternalError(
                f"{name}: expected rank {wanted.ndim} as in torch, got {result.ndim}"
            )
        self.values[node] = result
        ids = [t.id for t in pytree.tree_leaves(result) if isinstance(t, Tensor)]
        self.traces.append((max(ids, default=-1), node.meta.get("stack_trace") or ""))

    # ---- outputs

    def result(self, node: fx.Node) -> Tensor:
        """The value of the node, in torch's dtype."""
        value, result = tensor_of(node), self.value(node)
        if value is None or not isinstance(result, Tensor):
            raise Unsupported(f"{node}: expected a single tensor as result")
        dtype = as_dtype(value.dtype)
        return result if result.dtype() == dtype else self.fd.ops.cast(result, dtype)

    def overwrite(self, target: Any, node: Any) -> None:
        self.fd.add_output(self.result(node), alias_input=self.values[target])

    def add_output(self, node: fx.Node) -> None:
        value, result, ops = tensor_of(node), self.result(node), self.fd.ops
        if DONOR in node.meta:
            self.fd.add_output(result, self.values[node.meta[DONOR]])
            return
        if MEMORY in node.meta:
            self.buffers.append(node)
            memory = self.fd.define_tensor([-1] * value.ndim, dtype=result.dtype())
            self.fd.add_output(result, memory)
            return
        # Always set the stride order: by default the layout of the operands decides.
        self.fd.add_output(ops.stride_order(result, stride_order(value)))


def _expression(value: Any) -> Any:
    """The sympy expression of a size."""
    return value.node.expr if isinstance(value, torch.SymInt) else Integer(value)


def _evaluated(expr: Any, table: dict[Any, Any]) -> Any:
    """Evaluates a sum or product over the table and stores it there. Returns None for other
    expressions.
    """
    if expr.is_Integer:
        return int(expr)
    unknown: dict[Any, None] = {}
    known = ChainMap[Any, Any](table, unknown)
    for part in in_order(expr, _terms, known):
        values = (
            [int(e) if e.is_Integer else known[e] for e in part.args] if _combines(part) else []
        )
        if not values or any(v is None for v in values):
            unknown[part] = None
        else:
            table[part] = reduce(operator.mul if part.is_Mul else operator.add, values)
    return known[expr]


def _combines(expr: Any) -> bool:
    return bool(expr.is_Mul or expr.is_Add)


def _terms(expr: Any) -> list[Any]:
    """Operands of a sum or product that are no numbers."""
    return [e for e in expr.args if not e.is_Integer] if _combines(expr) else []


def _described(node: fx.Node) -> Any:
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        return hint(value) if isinstance(value, int | torch.SymInt) else 1.0
    sizes, strides = ([hint(n) for n in numbers] for numbers in (value.shape, value.stride()))
    offset = hint(value.storage_offset()) * value.element_size()
    return sizes, strides, as_dtype(value.dtype), offset, _ordinal(value.device)


def _ordinal(device: torch.device) -> int:
    """CUDA ordinal of a device; -1 for the CPU."""
    if device.type == "cpu":
        return -1
    return torch.cuda.current_device() if device.index is None else device.index


def build_together(definitions: Sequence[Definition]) -> None:
    """Compiles all kernels for the first run of a graph at once. Kernels that cannot be foreseen,
    or fail to compile, are left to that run.
    """
    by_device: dict[int, list[Any]] = {}
    for definition in definitions:
        device = next(d for d in map(device_of, definition.nodes) if d is not None)
        call = definition.fd.fec.executor, definition.described()
        by_device.setdefault(_ordinal(device), []).append(call)
    for device, calls in by_device.items():
        with suppress(*RECOVERABLE):
            load_torch().compile_described(calls, device)


def runner(definition: Definition, instead: Callable[..., Any], strict: bool) -> Callable[..., Any]:
    """Returns the definition as a function of its arguments; in C++ unless result memory must be
    allocated first (csrc/torch/functions.h). If it fails, `instead` runs from then on, and one line
    is logged. An index out of range fails that run alone, with torch's error.
    """
    run: Any = definition.fd.execute
    if definition.autotune:
        run = tuned(definition.fd, run, list)
    failed = False
    plain = True
    stored = any(MEMORY in n.meta or DONOR in n.meta for n in definition.outputs)
    if stored:
        run, instead = _into_memory(definition, run, instead)
        plain = not definition.buffers
    elif all(is_number(n) for n in definition.arguments):  # no tensor determines the device
        run = partial(run, device=next(d for d in map(device_of, definition.nodes) if d))
        plain = False

    def call(arguments: list[Any], error: Exception | None = None) -> Any:
        nonlocal failed
        if failed:
            return instead(*arguments)
        if error is None:
            if is_keeping_runs() and not definition.buffers:
                note_run(definition.fd, arguments, definition.traces)
            try:
                return run(arguments)
            except RECOVERABLE as raised:
                error = raised
        elif isinstance(error, _KEPT):
            keep_repro(repr(definition.fd), arguments, error)
        if strict or not isinstance(error, RECOVERABLE):
            raise error
        results = None
        if isinstance(error, IndexRangeError):
            if stored:  # arguments may be overwritten
                raise error
            results = instead(*arguments)  # raises torch's error
        note_fallback(definition.nodes, error)
        failed = True
        return instead(*arguments) if results is None else results

    if not plain:
        return lambda *arguments: call(list(arguments))
    places: dict[Any, int] = {node: place for place, node in enumerate(definition.arguments)}
    results = [places.get(n.meta.get(DONOR), -1) for n in definition.outputs]
    made: Callable[..., Any] = load_torch().region_function(
        definition.fd.fec.executor, results, call
    )
    if definition.autotune:
        made = tuned(definition.fd, made, lambda *arguments: arguments)
    return made


def _into_memory(
    definition: Definition, execute: Callable[..., Any], instead: Callable[..., Any]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns the function that runs the definition, and its torch fallback, if some results are
    stored into an argument or into zero-padded memory.
    """
    outputs = definition.outputs
    full = [n.meta.get(MEMORY) for n in outputs]
    values = [(n.meta["val"], n.meta[MEMORY]) for n in definition.buffers]
    layouts = [(v.shape, sizes, v.dtype, v.device) for v, sizes in values]
    sources = [*definition.arguments, *definition.buffers]
    memory_at = {node: place for place, node in enumerate(sources)}
    places = [memory_at.get(n.meta.get(DONOR, n)) for n in outputs]

    def run(arguments: list[Any]) -> list[Any]:
        memory = [*arguments, *(zeros_behind(*layout) for layout in layouts)]
        results = iter(execute(memory))
        return [next(results) if place is None else memory[place] for place in places]

    def copied(*arguments: Any) -> list[Any]:
        results = zip(instead(*arguments), full, strict=True)
        return [with_zeros_behind(t, sizes) if sizes else t for t, sizes in results]

    return run, copied
