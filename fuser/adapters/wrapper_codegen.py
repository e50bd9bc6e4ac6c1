"""A compiled graph as one flat Python function: torch ops and regions in order; each value is
deleted after its last use.

    def call(args):
        p0, p1, s0 = args
        args.clear()
        v0 = f0(p0, p1)
        del p1
        v1, v2 = r0(v0, p0, s0)
        del p0
        return [v1, v2]
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import fx

from fuser import InternalError, Unsupported, UserError, _core
from fuser.adapters.flex_attention import is_flex_attention, kernel_of
from fuser.adapters.graph.donation import DONOR
from fuser.adapters.graph.effects import effects_before
from fuser.adapters.graph.mutation import readers_before
from fuser.adapters.graph.overlap import overlapped
from fuser.adapters.graph.padding import MEMORY, write_by_copies
from fuser.adapters.graph.views import (
    bases_of_views,
    has_numbers,
    laid_out,
    owner_of,
)
from fuser.adapters.nodes import is_number, is_view, tensor_of, writes
from fuser.adapters.partition import Partition
from fuser.adapters.region import Definition, runner
from fuser.adapters.report import note_fallback
from fuser.adapters.torch_compat import OpOverload, keeps_graph, reinterpret_tensor
from fuser.adapters.triton_kernels import is_triton_kernel, launch_of


@dataclass
class _Step:
    """One line of the function: a node that torch computes, or a region."""

    position: int
    reads: list[fx.Node]
    gives: list[fx.Node]
    text: Callable[[_Writer], str]
    after: set[int] = field(default_factory=set)


class _Writer:
    """Names of values and constants in the generated function."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict  # no op of torch replaces a kernel that failed
        self.names: dict[fx.Node, str] = {}
        self.globals: dict[str, Any] = {}
        self.constants: dict[int, str] = {}
        self.checked: set[fx.Node] = set()  # nodes whose strides views depend on
        self.written: set[fx.Node] = set()  # caller's memory that may be overwritten

    def name(self, node: fx.Node, letter: str = "v") -> str:
        return self.names.setdefault(node, f"{letter}{len(self.names)}")

    def constant(self, value: Any, letter: str = "c") -> str:
        found = self.constants.get(id(value))
        if found is None:
            found = self.constants[id(value)] = f"{letter}{len(self.constants)}"
            self.globals[found] = value
        return found

    def argument(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self.name(value)
        if isinstance(value, list | tuple):
            inner = ", ".join(self.argument(v) for v in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * bool(inner)})"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{k!r}: {self.argument(v)}' for k, v in value.items())}}}"
        if value is None or type(value) in (bool, int, str) or _plain_float(value):
            return repr(value)
        return self.constant(value)

    def call(self, node: fx.Node) -> str:
        """The line of a node that torch computes."""
        name = self.name(node)
        if node.target is operator.getitem:
            source, index = node.args
            return f"{name} = {self.argument(source)}[{self.argument(index)}]"
        function = node.target
        if isinstance(function, OpOverload):
            function = _quickest(function, node)
        elif is_flex_attention(node):
            function = kernel_of(node, self.strict)
        elif is_triton_kernel(node):
            function = launch_of(node)
        arguments = [self.argument(a) for a in node.args]
        arguments += [f"{key}={self.argument(a)}" for key, a in node.kwargs.items()]
        return f"{name} = {self.constant(function, 'f')}({', '.join(arguments)})"

    def view(self, node: fx.Node, base: fx.Node) -> str:
        """The line of a view, created directly from the base of a chain of views."""
        value, whole = tensor_of(node), tensor_of(base)
        offset = value.storage_offset() - whole.storage_offset()
        layout = f"{tuple(value.shape)}, {tuple(value.stride())}, {offset}"
        view = self.constant(reinterpret_tensor, "f")
        return f"{self.name(node)} = {view}({self.name(base)}, {layout})"

    def checks(self, nodes: Iterable[fx.Node]) -> list[str]:
        """Lines after the definition of `nodes` that correct unexpected strides."""
        lines = []
        for node in nodes:
            if node in self.checked:
                name, strides = self.name(node), tuple(tensor_of(node).stride())
                copy = self.constant(laid_out, "f")
                lines.append(f"if {name}.stride() != {strides}: {name} = {copy}({name}, {strides})")
        return lines

    def copies(self) -> list[str]:
        """Lines at the beginning that copy arguments that may be overwritten, if the caller will
        read them again: a backward pass with retain_graph.
        """
        if not self.written:
            return []
        keeps = self.constant(keeps_graph, "f")
        copy = self.constant(laid_out, "f")
        names = sorted(map(self.name, self.written))
        copies = [f"    {name} = {copy}({name}, {name}.stride())" for name in names]
        return [f"if {keeps}():", *copies]


def _quickest(op: OpOverload, node: fx.Node) -> Callable[..., Any]:
    """The op without Python wrapper; torch's own builtin function if all arguments are tensors,
    because it parses its arguments faster.
    """
    found = getattr(torch, op._opname, None) if op._overloadname == "default" else None
    tensors = all(isinstance(a, fx.Node) and tensor_of(a) is not None for a in node.args)
    plain = found is not None and op.namespace == "aten" and not node.kwargs and tensors
    return found if plain and isinstance(found, BuiltinFunctionType) else op._op


def _plain_float(value: Any) -> bool:
    return type(value) is float and value - value == 0  # neither infinite nor NaN


def program(
    module: fx.GraphModule, parts: Partition, strict: bool, autotune: bool = False
) -> tuple[Callable[[list[Any]], Any], list[Definition]]:
    """Returns the boxed function of a graph: it takes a list of arguments, which it empties. If
    `autotune`, the first run of each region times its plans.
    """
    definitions: list[Definition] = []
    home: dict[fx.Node, int] = {}
    again: set[fx.Node] = set()  # views inside regions that torch recreates for readers outside
    for nodes in parts.regions:
        outputs, views = _leaving(nodes)
        try:
            definition = Definition(nodes, outputs, autotune)
        except (Unsupported, UserError, InternalError) as error:
            if strict:
                raise
            note_fallback(nodes, error)
            write_by_copies(module.graph, nodes)
            continue
        home.update(dict.fromkeys(nodes, len(definitions)))
        again |= views
        definitions.append(definition)

    order = {node: i for i, node in enumerate(module.graph.nodes)}
    writer = _Writer(strict)
    steps: list[_Step] = []
    for definition in definitions:
        run = runner(definition, _instead(definition), strict)
        steps.append(_region_step(definition, order, run))
    bases = bases_of_views(module.graph)
    read = {n for definition in definitions for n in definition.arguments}
    needed = _needed(module.graph, home.keys() - again, read, bases)
    steps += [_node_step(node, order, bases) for node in needed]
    counted_on = {bases[n] for n in needed if n in bases}
    donors = {n.meta[DONOR] for d in definitions for n in d.outputs if DONOR in n.meta}
    counted_on |= donors
    writer.checked = {n for n in counted_on if n not in home and n.op != "get_attr"}
    writer.written = {n for n in map(owner_of, donors) if n.op == "placeholder"}
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    for node in module.graph.nodes:
        if node.op == "get_attr":
            writer.names[node] = writer.constant(_attribute(module, str(node.target)))
    result = next(n for n in module.graph.nodes if n.op == "output").args[0]
    together = [*(d.nodes for d in definitions), *([node] for node in needed)]
    before = readers_before(module.graph, parts.final, together)
    for first, others in zip(before, effects_before(module.graph, together), strict=True):
        first |= others
    overwrites = {
        i for i, found in enumerate(together) if any(n in parts.final or writes(n) for n in found)
    }
    ordered = _ordered(
        steps,
        order,
        before,
        lambda so_far, needed: overlapped(so_far, together, needed, overwrites),
    )
    call: Any = _compiled(writer, placeholders, ordered, result)
    if len(steps) == 1 and definitions:
        call.whole = _whole(definitions[0], placeholders, result)
    return call, definitions


def _whole(
    definition: Definition, placeholders: Sequence[fx.Node], result: Any
) -> tuple[Any, list[int], list[int | None]] | None:
    """Describes a graph that is one run of a definition for csrc/torch/direct.h. Returns the
    executor, the indices of its arguments among the graph's, and for each result its index in the
    run, or ~n for argument n. Returns None if results are stored into arguments, an argument is a
    number, or the graph does not return a list.
    """
    if isinstance(result, fx.Node):
        return None
    outputs = definition.outputs
    if any(DONOR in n.meta or MEMORY in n.meta for n in outputs) or any(
        map(writes, definition.nodes)
    ):
        return None
    at = {node: ~n for n, node in enumerate(placeholders)}
    arguments = [at.get(n) for n in definition.arguments]
    if not arguments or any(n is None or tensor_of(placeholders[~n]) is None for n in arguments):
        return None
    at |= {node: n for n, node in enumerate(outputs)}
    if any(n is not None and n not in at for n in result):
        return None
    results = [None if n is None else at[n] for n in result]
    return definition.fd.fec.executor, [~n for n in arguments if n is not None], results


def _leaving(nodes: Sequence[fx.Node]) -> tuple[list[fx.Node], set[fx.Node]]:
    """Returns nodes with values used outside the region, and views used outside. Torch recreates
    the views from their sources, so that regions do not write views.
    """
    inside = set(nodes)
    outputs: list[fx.Node] = []
    again: set[fx.Node] = set()
    for node in reversed(nodes):
        if not any(user not in inside or user in again for user in node.users):
            continue
        if is_view(node):
            again.add(node)
        elif not isinstance(node.meta.get("val"), list | tuple):
            outputs.append(node)
    return outputs[::-1], again


def _needed(
    graph: fx.Graph, inside: Set[fx.Node], read: set[fx.Node], bases: dict[fx.Node, fx.Node]
) -> list[fx.Node]:
    """Nodes that torch computes: outside regions, with a user among regions (`read`), other needed
    nodes or results.
    """
    needed: list[fx.Node] = []
    read = set(read)
    for node in reversed(graph.nodes):
        if node.op == "output":
            read.update(node.all_input_nodes)
        if node.op != "call_function" or node in inside:
            continue
        if node in read or writes(node) or node.is_impure():
            needed.append(node)
            read.update([bases[node]] if node in bases else node.all_input_nodes)
    return needed[::-1]


def _node_step(
    node: fx.Node, order: dict[fx.Node, int], bases: dict[fx.Node, fx.Node] | None = None
) -> _Step:
    base = (bases or {}).get(node)
    if base is not None:
        return _Step(order[node], [base], [node], lambda w: w.view(node, base))
    return _Step(order[node], list(node.all_input_nodes), [node], lambda w: w.call(node))


def _region_step(
    definition: Definition, order: dict[fx.Node, int], run: Callable[..., Any]
) -> _Step:
    def text(w: _Writer) -> str:
        results = ", ".join(w.name(n) for n in definition.outputs)
        arguments = ", ".join(w.name(n) for n in definition.arguments)
        call = f"{w.constant(run, 'r')}({arguments})"
        return f"{results}, = {call}" if results else call

    last = max(order[n] for n in definition.nodes)
    return _Step(last, list(definition.arguments), list(definition.outputs), text)


def _ordered(
    steps: list[_Step],
    order: dict[fx.Node, int],
    after: Sequence[set[int]] | None = None,
    moved: Callable[[list[int], list[set[int]]], list[int]] = lambda so_far, _: so_far,
) -> list[_Step]:
    """Sorts steps topologically by operands and by `after`, otherwise in graph order. A step that
    writes to a tensor runs after all steps before it in the graph. Built from the end, so that the
    dependencies of an early step run right before it instead of at the position of their last node.
    `moved` gives the order, and for each step those before it, to a further pass.
    """
    maker = {node: i for i, step in enumerate(steps) for node in step.gives}
    waiting: list[set[int]] = []
    for number, step in enumerate(steps):
        before = {maker[n] for n in step.reads if n in maker}
        if after is not None:
            before |= after[number]
        if any(writes(n) for n in step.gives):
            before |= {i for i, other in enumerate(steps) if other.position < step.position}
        waiting.append(before)
    followers = [0] * len(steps)
    for before in waiting:
        for j in before:
            followers[j] += 1
    ready = [(-step.position, i) for i, step in enumerate(steps) if not followers[i]]
    heapq.heapify(ready)
    result: list[int] = []
    while ready:
        _, i = heapq.heappop(ready)
        result.append(i)
        for j in waiting[i]:
            followers[j] -= 1
            if not followers[j]:
                heapq.heappush(ready, (-steps[j].position, j))
    if len(result) != len(steps):
        raise InternalError("the regions of a graph depend on each other")
    return [steps[i] for i in moved(result[::-1], waiting)]


def _compiled(
    writer: _Writer, inputs: Iterable[fx.Node], steps: Sequence[_Step], result: Any
) -> Callable[[list[Any]], Any]:
    names = [writer.name(n, "p") for n in inputs]
    lines = ["def call(args):"]
    if names:
        lines.append(f"    {', '.join(names)}, = args")
    lines.append("    args.clear()")
    lines += [f"    {line}" for line in writer.checks(writer.names)]
    lines += [f"    {line}" for line in writer.copies()]
    kept = set(_nodes_in(result))
    last: dict[fx.Node, int] = {}
    for i, step in enumerate(steps):
        last.update(dict.fromkeys((*step.reads, *step.gives), i))
    dying: dict[int, list[fx.Node]] = {}
    for node, i in last.items():
        if node not in kept and node.op != "get_attr":
            dying.setdefault(i, []).append(node)
    for i, step in enumerate(steps):
        lines.append(f"    {step.text(writer)}")
        lines += [f"    {line}" for line in writer.checks(step.gives)]
        if i in dying:
            lines.append(f"    del {', '.join(writer.name(n) for n in dying[i])}")
    lines.append(f"    return {writer.argument(result)}")
    text = "\n".join(lines)
    code = compile(text, "<fuser graph>", "exec")
    exec(code, writer.globals)
    call: Callable[[list[Any]], Any] = writer.globals["call"]
    call._boxed_call = True  # type: ignore[attr-defined]
    call.text = text  # type: ignore[attr-defined]
    return call


def _instead(definition: Definition) -> Callable[..., Any]:
    """Computes the nodes of a definition with torch ops, from its arguments."""
    nodes, inputs = definition.nodes, definition.arguments
    made: Callable[..., Any] | None = None
    numbers: list[fx.Node] = []

    def call(*arguments: Any) -> Any:
        nonlocal made, numbers
        if made is None:
            known = {*nodes, *inputs}
            extra = dict.fromkeys(n for m in nodes for n in m.all_input_nodes if n not in known)
            numbers = [n for n in extra if is_number(n)]
            made_here = [n for n in extra if not is_number(n)]
            order = {n: i for i, n in enumerate((*made_here, *nodes))}
            steps = [_node_step(n, order) for n in order]
            outputs, writer = list(definition.outputs), _Writer(strict=False)
            writer.checked = {n for n in outputs if has_numbers(n)}
            made = _compiled(writer, (*inputs, *numbers), _ordered(steps, order), outputs)
        return made([*arguments, *definition.numbers(numbers, arguments)])

    return call


def _nodes_in(value: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.node.map_arg(value, found.append)
    return found


def _attribute(module: fx.GraphModule, path: str) -> Any:
    return operator.attrgetter(path)(module)


def strict_from_environment() -> bool:
    """FUSER_STRICT: True if errors are raised instead of falling back."""
    return str(_core.get_option("FUSER_STRICT")) == "1"
