"""TorchScript fuser: runs scripted and traced functions on generated kernels, forward and backward.

    fuser.enable_torchscript_fuser()          # for all functions compiled from now on
    with fuser.torchscript_fuser(cpu=True):   # for a while; cpu: scripts on CPU tensors too

A C++ pass of torch's profiling executor collects nodes into groups after a function was profiled
(by its second call, or third with gradients). The first call of a group with arguments of a new
kind (ranks, dtypes, dims of size 1, values that affect the computation) calls write_definition(),
which converts the group to a definition. Later calls do not run Python.
"""

from __future__ import annotations

import functools
import importlib
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from fuser import DataType, FusionDefinition, Scalar, Tensor, Unsupported, _core
from fuser._native import load_torch
from fuser.adapters import aten, torchscript_ops
from fuser.adapters.aten import gradients, pointwise
from fuser.adapters.aten.emitter import Emitter
from fuser.adapters.torch_compat import replace_in_c, schema_of
from fuser.debug.interpreter import torch_dtype
from fuser.debug.repro import graph_script, input_spec, keep_script, said_where

# Argument kinds of a group: ArgumentRole of csrc/torch/script/group.h.
_TENSOR, _NUMBER, _SIZES, _CONSTANT = range(4)
# Sizes of an op's first result: SizesOf of csrc/torch/script/torchscript.h.
_UNKNOWN, _FIRST, _BROADCAST = range(3)

# (name, attributes, operands, results); operands and results are numbers of values.
Node = tuple[str, Mapping[str, Any], Sequence[int], Sequence[int]]
Graph = tuple[Sequence[int], Sequence[Node], Sequence[int]]


# ---- switching


def enable_torchscript_fuser(enabled: bool = True, cpu: bool = False) -> None:
    """Fuses functions that torch.jit compiles from now on, on CUDA tensors and, if `cpu`, on CPU
    tensors.

    Functions that torch has already optimized are not changed. Switches of other fusers are not
    changed: this fuser processes a graph before them.
    """
    global _state
    _state = (enabled, cpu)
    _set_rules(enabled)


@contextmanager
def torchscript_fuser(cpu: bool = False) -> Iterator[None]:
    """enable_torchscript_fuser() for a `with` block."""
    global _state
    before = _state
    enable_torchscript_fuser(True, cpu)
    try:
        yield
    finally:
        _state = before
        _set_rules(before[0])


_state = (False, False)
_on = False  # True if the rules are set in C++


@dataclass
class _Modes:
    single_nodes: bool = False
    siblings: bool = True
    skipped: frozenset[str] = frozenset()  # node kinds left to torch: "aten::add"


_modes = _Modes()


def _set_rules(on: bool) -> None:
    global _on
    if on or _on:
        taken = {n: op for n, op in _ops().items() if n.partition(".")[0] not in _modes.skipped}
        forms = {n: form for n, form in torchscript_ops.FORMS.items() if n in taken}
        _module().set_rules(
            on,
            on and _state[1],
            _modes.single_nodes,
            _modes.siblings,
            taken if on else {},
            forms if on else {},
            torchscript_ops.OUT_OF_PLACE if on else {},
            torchscript_ops.MAKERS if on else {},
        )
    _on = on


@functools.cache
def _module() -> Any:
    load_torch()
    module = importlib.import_module("fuser._torchscript")
    module.install(importlib.import_module(__name__))
    for name, function in _SWITCHES.items():
        replace_in_c(name, function)
    return module


def _enable(enable: bool) -> bool:
    was = _on
    if _state[0]:
        _set_rules(enable)
    return was


def _set_mode(name: str, value: Any) -> Any:
    was = getattr(_modes, name)
    setattr(_modes, name, value)
    _set_rules(_on)
    return was


def _skip(kind: str, flip: bool = True) -> bool:
    """Returns whether this node kind was left to torch before the call. If `flip`, toggles it."""
    was = kind in _modes.skipped
    if flip:
        _set_mode("skipped", _modes.skipped ^ {kind})
    return was


# Switches of nvFuser, which torch keeps but does not use. While this fuser is enabled, they control
# it. torch.jit.fuser("fuser2") calls the first.
_SWITCHES: dict[str, Callable[..., Any]] = {
    "_jit_set_nvfuser_enabled": _enable,
    "_jit_nvfuser_enabled": lambda: _on,
    "_jit_nvfuser_can_be_enabled": lambda: True,
    "_jit_set_nvfuser_single_node_mode": functools.partial(_set_mode, "single_nodes"),
    "_jit_nvfuser_single_node_mode": lambda: _modes.single_nodes,
    "_jit_set_nvfuser_horizontal_mode": functools.partial(_set_mode, "siblings"),
    "_jit_nvfuser_horizontal_mode": lambda: _modes.siblings,
    "_jit_set_nvfuser_skip_node_kind": _skip,
    "_jit_nvfuser_set_comparison_callback": lambda unfused, look: _module().compare(unfused, look),
    "_jit_nvfuser_clear_comparison_callback": lambda: _module().compare(False, None),
}


def counters() -> dict[str, int]:
    """Counters of this process: definitions created for groups, runs of groups, and fallbacks."""
    return _module().counters()


# ---- which nodes


@functools.cache
def _ops() -> dict[str, tuple[bool, int, bool]]:
    """Properties by TorchScript's name of the overload: (computes, kind of its sizes, returns
    bools).
    """
    found: dict[str, tuple[bool, int, bool]] = {}
    for row in aten.rows().values():
        if row.kind in ("create", "library"):
            continue
        gives_bools = row.name.split(".")[1] in _GIVE_BOOLS
        found[_script_name(row.name)] = (row.kind != "view", _sizes_of(row.name), gives_bools)
    for name in (*torchscript_ops.OPS, "fuser::region"):
        found[name] = (
            name == torchscript_ops.ADD_BIAS,
            _FIRST if name in torchscript_ops.LIKE_FIRST else _UNKNOWN,
            False,
        )
    return found


def _script_name(name: str) -> str:
    """Converts "aten.relu.default" to "aten::relu"."""
    namespace, _, rest = name.partition(".")
    return f"{namespace}::{rest.removesuffix('.default')}"


def _sizes_of(name: str) -> int:
    if name.split(".")[1] in _LIKE_FIRST:
        return _FIRST
    return _BROADCAST if name in _ELEMENTWISE else _UNKNOWN


_ELEMENTWISE = pointwise.ROWS.keys() | gradients.ROWS.keys()
# Op names without overload, for ops that torch also has in place.
_GIVE_BOOLS = frozenset(
    "eq ne lt le gt ge logical_and logical_or logical_xor logical_not".split()  # noqa: SIM905
)
_LIKE_FIRST = {
    "to",
    "type_as",
    "_to_copy",
    "dropout",
    "native_dropout",
    "native_dropout_backward",
    "softmax",
    "_softmax",
    "log_softmax",
    "_log_softmax",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "layer_norm",
    "native_layer_norm",
    "batch_norm",
    "native_batch_norm",
    "instance_norm",
    "rand_like",
    "contiguous",
    "detach",
    "prelu",
    "copy",
}


# ---- writing definitions


def write_definition(
    graph: Graph,
    roles: Sequence[int],
    arguments: Sequence[Any],
    results_as: Sequence[Sequence[int]],
) -> tuple[FusionDefinition, list[tuple[int, int | None]]]:
    """Converts a group to a definition. Also returns, for each output of the group, the index of
    the definition's result, or (-1, number), or (-1, None) for an undefined tensor. Called from
    C++. Raises Unsupported if there is no definition.

    `results_as`: for each output the positions of its dims in memory in eager mode, 0 the
    innermost; [] follows the operands.
    """
    inputs, nodes, outputs = graph
    fd = FusionDefinition()
    on_gpu = any(isinstance(a, torch.Tensor) and not a.is_cpu for a in arguments)
    _check_devices(arguments)
    emitter = Emitter(fd, on_gpu)
    values = {
        value: _argument(emitter, role, given)
        for value, role, given in zip(inputs, roles, arguments, strict=True)
    }
    for node in _with_parts(nodes):
        _write(emitter, node, values)
    places: list[tuple[int, int | None]] = []
    results = 0
    for output, order in zip(outputs, results_as, strict=True):
        value = values[output]
        if isinstance(value, Tensor):
            # set() gives views of operands their own memory.
            fd.add_output(fd.ops.stride_order(value, order) if order else fd.ops.set(value))
            places.append((results, None))
            results += 1
        elif value is None or type(value) is int:
            places.append((-1, value))
        else:
            raise Unsupported("an output that is not a tensor", rule="script-output")
    return fd, places


def _check_devices(arguments: Sequence[Any]) -> None:
    """Checks that devices in arguments equal the device of the tensors. Devices that are constants
    of the script are checked when it is profiled, and a guard ensures that the tensors stay there.
    """
    tensors = [a.device for a in arguments if isinstance(a, torch.Tensor)]
    here = next((d for d in tensors if d.type != "cpu"), torch.device("cpu"))
    for device in arguments:
        if isinstance(device, torch.device) and torch.empty(0, device=device).device != here:
            raise Unsupported(f"a copy of tensors from {here} to {device}", rule="script-device")


def _argument(e: Emitter, role: int, given: Any) -> Any:
    """Defines an argument of the group. The order equals the order of run inputs in C++."""
    fd = e.fd
    if isinstance(given, torch.Tensor):
        on_cpu = e.on_gpu and given.is_cpu
        tensor = fd.define_tensor(
            shape=[1 if n == 1 else -1 for n in given.shape],
            contiguity=False,
            dtype=given.dtype,
            is_cpu=on_cpu,
        )
        if on_cpu:
            e.cpu_scalars.add(tensor.id)
        return tensor
    if role == _NUMBER and type(given) in (int, float):
        return fd.define_scalar(DataType.Int if type(given) is int else DataType.Double)
    if role == _SIZES and type(given) is int:
        return _size_argument(fd, given)
    if role == _SIZES and isinstance(given, list):
        return [_size_argument(fd, n) for n in given]
    return given


def _size_argument(fd: FusionDefinition, n: int) -> Any:
    return fd.define_scalar(DataType.Int) if _is_size(n) else n


def _is_size(n: int) -> bool:
    """True if the number is an input of runs, as in is_size() of torchscript_group.cpp. Other
    numbers are constants that select the definition.
    """
    return 1 < n < 1 << 40


def _with_parts(nodes: Sequence[Node]) -> list[Node]:
    """Adds the number of parts to ops whose schema lacks it, from the node that unpacks their
    list.
    """
    parts = {operands[0]: len(results) for name, _, operands, results in nodes if name == _UNPACK}
    return [
        (name, {**attributes, "parts": parts.get(results[0], 0)}, operands, results)
        if name in torchscript_ops.PARTED
        else (name, attributes, operands, results)
        for name, attributes, operands, results in nodes
    ]


_UNPACK = "prim::ListUnpack"


def _write(e: Emitter, node: Node, values: dict[int, Any]) -> None:
    name, attributes, operands, results = node
    name = _view_name(name)
    given = [values[v] for v in operands]
    if name in _STRUCTURE:
        made = _STRUCTURE[name](e, values, given, **attributes)
    elif name in torchscript_ops.OPS:
        made = _one_or_all(torchscript_ops.OPS[name](e.fd, *given, **attributes), results)
    elif name.partition(".")[0] in _ON_NUMBERS and not any(isinstance(g, Tensor) for g in given):
        made = [_on_numbers(e.fd, name.partition(".")[0], given)]
    else:
        args, kwargs = _by_schema(name, given)
        made = _one_or_all(aten.emit(e.fd, _table_name(name), args, kwargs, e.on_gpu), results)
        if name in _WEIGHTS and not e.on_gpu:
            made = _with_narrow_statistics(e, made, given[0], given[_WEIGHTS[name]])
    for value, result in zip(results, made, strict=True):
        values[value] = result


# Norms that also return mean and rstd, and the operand index of their weight. On a GPU these have
# their compute type, as in definitions. On the CPU they have the type of the weight, or else of the
# input.
_WEIGHTS = {
    "aten::native_layer_norm": 2,
    "aten::native_batch_norm": 1,
    "aten::_native_batch_norm_legit": 1,
    "aten::_native_batch_norm_legit.no_stats": 1,
    "aten::_native_batch_norm_legit_functional": 1,
    "aten::_native_batch_norm_legit_no_training": 1,
    "aten::_batch_norm_impl_index": 1,
}


def _with_narrow_statistics(
    e: Emitter, made: Sequence[Any], x: Tensor, weight: Tensor | None
) -> list[Any]:
    dtype = (x if weight is None else weight).dtype()
    result, mean, rstd, *rest = made
    return [result, e.narrow(mean, dtype), e.narrow(rstd, dtype), *rest]


def _one_or_all(made: Any, results: Sequence[int]) -> Any:
    return [made] if len(results) == 1 else made


# ---- structure: nodes that hold other nodes, lists and constants

Values = dict[int, Any]


def _block(e: Emitter, values: Values, block: Graph, given: Sequence[Any]) -> list[Any]:
    inputs, nodes, outputs = block
    values.update(zip(inputs, given, strict=True))
    for node in _with_parts(nodes):
        _write(e, node, values)
    return [values[v] for v in outputs]


def _region(e: Emitter, _: Values, given: Sequence[Any], body: Graph) -> list[Any]:
    return _block(e, {}, body, given)


def _if(e: Emitter, values: Values, given: Sequence[Any], blocks: Sequence[Graph]) -> list[Any]:
    return _block(e, values, blocks[0 if _known(given[0]) else 1], [])


def _loop(e: Emitter, values: Values, given: Sequence[Any], blocks: Sequence[Graph]) -> list[Any]:
    count, goes_on, *carried = given
    turn = 0
    while turn < _known(count) and _known(goes_on):
        goes_on, *carried = _block(e, values, blocks[0], [turn, *carried])
        turn += 1
    return carried


def _known(value: Any) -> Any:
    if isinstance(value, bool | int):
        return value
    raise Unsupported("a branch on a number known only at run time", rule="script-branch")


_STRUCTURE: dict[str, Callable[..., Sequence[Any]]] = {
    "prim::Constant": lambda e, values, given, value: [_constant(e.fd, value)],
    "prim::ListConstruct": lambda e, values, given: [given],
    "prim::ListUnpack": lambda e, values, given: given[0],
    "prim::dtype": lambda e, values, given: [
        torchscript_ops.DTYPE_NUMBERS[torch_dtype(given[0].dtype())]
    ],
    "prim::unchecked_cast": lambda e, values, given: given,
    "aten::__is__": lambda e, values, given: [given[0] is given[1]],
    "aten::__isnot__": lambda e, values, given: [given[0] is not given[1]],
    "aten::dim": lambda e, values, given: [given[0].ndim],
    "aten::size": lambda e, values, given: [torchscript_ops.sizes_of(given[0])],
    "aten::size.int": lambda e, values, given: [torchscript_ops.sizes_of(given[0])[given[1]]],
    "aten::numel": lambda e, values, given: [_product(e.fd, torchscript_ops.sizes_of(given[0]))],
    "prim::If": _if,
    "prim::Loop": _loop,
    "fuser::region": _region,
}


def _set_item(items: list[Any], place: int, value: Any) -> list[Any]:
    items[place] = value
    return items


def _append(items: list[Any], value: Any) -> list[Any]:
    items.append(value)
    return items


# Ops on numbers and lists that a region may contain, as in csrc/torch/script/region.cpp.
_ON_NUMBERS: dict[str, Callable[..., Any]] = {
    "aten::len": len,
    "aten::add": operator.add,
    "aten::sub": operator.sub,
    "aten::mul": lambda a, b: list(a) * b if isinstance(a, list) else a * b,
    "aten::eq": operator.eq,
    "aten::ne": operator.ne,
    "aten::lt": operator.lt,
    "aten::le": operator.le,
    "aten::gt": operator.gt,
    "aten::ge": operator.ge,
    "aten::__not__": operator.not_,
    "aten::__round_to_zero_floordiv": lambda a, b: int(a / b),
    "aten::__getitem__": operator.getitem,
    "aten::_set_item": _set_item,
    "aten::append": _append,
}


def _on_numbers(fd: FusionDefinition, name: str, given: Sequence[Any]) -> Any:
    """Computes an op on numbers. For numbers that are only known at run time, including sizes of
    tensors, only sums and products are supported.
    """
    if not any(isinstance(g, Scalar) for g in given) or name in ("aten::_set_item", "aten::append"):
        return _ON_NUMBERS[name](*given)
    if name not in ("aten::add", "aten::sub", "aten::mul"):
        raise Unsupported(
            "an op other than add, sub or mul on numbers known only at run time",
            rule="script-branch",
        )
    return getattr(fd.ops, name.removeprefix("aten::"))(*given)


def _product(fd: FusionDefinition, sizes: Sequence[Any]) -> Any:
    return functools.reduce(lambda a, b: _on_numbers(fd, "aten::mul", [a, b]), sizes, 1)


def _constant(fd: FusionDefinition, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.ndim:
        raise Unsupported("a constant tensor", rule="script-constant")
    return fd.ops.full([], value.item(), value.dtype)


def _table_name(name: str) -> str:
    namespace, _, rest = name.partition("::")
    return f"{namespace}.{rest}" if "." in rest else f"{namespace}.{rest}.default"


def _view_name(name: str) -> str:
    """Maps prim::view_copy to aten::view: results of a definition have their own memory anyway."""
    if not name.startswith("prim::") or "_copy" not in name:
        return name
    return name.replace("prim::", "aten::").replace("_copy", "")


def _by_schema(name: str, given: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Converts TorchScript's arguments, all positional and with dtypes as numbers, to args and
    kwargs.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    _check_dims(name, given)
    for (argument, by_name, is_dtype), value in zip(_signature(name), given, strict=False):
        if is_dtype and isinstance(value, int):
            value = torchscript_ops.DTYPES[value]
        if by_name:
            kwargs[argument] = value
        else:
            args.append(value)
    return args, kwargs


# Argument names that contain dims of the tensors (of the largest if they broadcast), and ops that
# add a dim, which counts too.
_NAME_DIMS = frozenset(
    "dim dims dim0 dim1 dim2 start_dim end_dim source destination".split()  # noqa: SIM905
)
_MAKE_A_DIM = ("aten::unsqueeze", "aten::stack", "aten::select_backward")
_REPEAT = "aten::tile"  # its argument dims contains counts


def _check_dims(name: str, given: Sequence[Any]) -> None:
    """Rejects dims that are out of range, so that torch raises its own error."""
    tensors = aten.tensors_of(list(given))
    if not tensors or name == _REPEAT:
        return
    most = max(x.ndim for x in tensors)
    rank = most + 1 if name in _MAKE_A_DIM else max(most, 1)
    for (argument, _, _), value in zip(_signature(name), given, strict=False):
        named = value if isinstance(value, list) else [value]
        if argument in _NAME_DIMS and any(type(d) is int and not -rank <= d < rank for d in named):
            raise Unsupported(
                f"{name}: {argument}={value} is out of range for rank {rank}", rule="script-dim"
            )


@functools.cache
def _signature(name: str) -> list[tuple[str, bool, bool]]:
    """For each argument its name, whether it is keyword-only, and whether it is a dtype."""
    base, _, overload = name.partition(".")
    schema = schema_of(base, overload)
    return [(a.name, a.kwarg_only, "ScalarType" in str(a.real_type)) for a in schema.arguments]


def report_fallback(
    graph: str,
    definition: FusionDefinition | None,
    roles: Sequence[int],
    arguments: Sequence[Any],
    error: str,
) -> bool:
    """Warns once per group that eager mode computes it, with the reason and the path of a repro
    script: of its definition if there is one, otherwise of the graph. Returns True if the error
    should be raised instead.
    """
    if _core.get_option("FUSER_STRICT") == "1":
        return True
    if definition is None:
        script = graph_script(graph, [input_spec(value) for value in arguments])
    else:
        script = definition.repro_script_for(_run_inputs(roles, arguments))
    strict = f"FUSER_STRICT=1 raises the error; {said_where(keep_script(script, error))}"
    warnings.warn(f"a group of a script runs unfused: {error}\n{strict}", stacklevel=1)
    return False


def _run_inputs(roles: Sequence[int], arguments: Sequence[Any]) -> list[Any]:
    """Inputs of a run: the arguments for which _argument() defined an input."""
    found: list[Any] = []
    for role, given in zip(roles, arguments, strict=True):
        if role == _SIZES:
            sizes = given if isinstance(given, list) else [given]
            found += [n for n in sizes if type(n) is int and _is_size(n)]
        elif isinstance(given, torch.Tensor) or (role == _NUMBER and type(given) in (int, float)):
            found.append(given)
    return found
