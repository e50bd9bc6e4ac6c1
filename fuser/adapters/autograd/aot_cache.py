"""AOT cache: graphs traced by another process, in torch's AOTAutograd cache.

Torch looks up graphs of Dynamo in its cache folder, by a key of the graph, its inputs and all
settings that torch depends on. A hit gives the forward and the backward graph as AOTAutograd passed
them to the compilers, without tracing and partitioning. They are compiled again, with kernels from
disk. Torch manages files, folder, lookup and serialization.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import fx
from torch.compiler import config as compiler_config
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import fuser
from fuser.adapters.autograd.aot_metadata import Facts, facts_now
from fuser.adapters.compile_graph import COMPILERS, Options, compile_graph, result_strides
from fuser.adapters.torch_compat import (
    AutoDispatchBelowAutograd,
    DisableAutocast,
    DispatchKey,
    DispatchKeySet,
    ExcludeDispatchKeyGuard,
    FakeTensor,
    FakeTensorMode,
    GraphPickler,
    OpOverload,
    OpOverloadPacket,
    OutputCode,
    PicklerOptions,
    SerializableAOTDispatchCompiler,
    autograd_cache,
    codecache,
    detect_fake_mode,
    disable_current_modes,
    functorch_config,
    inductor_config,
    pytree,
    triton_kernel_wrapper_mutation,
)

# Other features that this module needs. Older or newer torch versions may lack some.
for _owner, _name in (
    (functorch_config, "bundled_autograd_cache"),
    (functorch_config, "force_non_lazy_backward_lowering"),
    (compiler_config, "cache_key_tag"),
    (autograd_cache, "BypassAOTAutogradCache"),
    (autograd_cache, "should_bundle_autograd_cache"),
    (autograd_cache, "should_use_local_autograd_cache"),
    (autograd_cache, "should_use_remote_autograd_cache"),
):
    if not hasattr(_owner, _name):
        raise ImportError(f"torch has no {_name}")

# Replacements for Inductor's code generators in torch's key. They are not used here, and loading
# them takes longer than tracing a small network.
_GENERATORS: dict[str, Any] = {
    "init_backend_registration": lambda: None,
    "custom_backend_passes": {},
    "custom_backend_codegen_configs": {},
}
# Namespaces of ops that may be in a saved graph; the key does not cover the tracing rules of other
# ops.
_NAMESPACES = {"aten", "prims", "prim", "rngprims"}
# Dispatch key that makes results views for autograd.
_VIEWS = DispatchKeySet(DispatchKey.ADInplaceOrView)
_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)

Strides = list[tuple[int, ...] | None]


@dataclass(eq=False)
class SavedGraph(OutputCode):
    """A compiled graph that torch calls, serializes and deserializes.

    traced   graph and example inputs as passed by AOTAutograd, until serialized
    strides  strides of a forward graph's results, which the backward graph depends on
    """

    name: str
    options: Options
    facts: Facts
    strides: Strides
    call: Callable[[list[Any]], Any] | None
    traced: list[Any]
    content: bytes = b""

    def __post_init__(self) -> None:
        self._boxed_call = True  # on the instance: torch's wrappers copy its attributes

    def __call__(self, inputs: Any) -> Any:
        assert self.call is not None
        return self.call(inputs)

    def prepare_for_serialization(self) -> None:
        """Prepares a copy of this object for pickling; called by torch."""
        if not self.content:
            if not self.traced:
                raise autograd_cache.BypassAOTAutogradCache(
                    "fuser: the graph was compiled outside of the cache"
                )
            self.content = _written(*self.traced)
            self.traced.clear()
        self.call, self.traced = None, []

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """Compiles a deserialized graph, as AOTAutograd would; called by torch."""
        if self.call is not None:
            return
        mode = detect_fake_mode(example_inputs) or FakeTensorMode(shape_env=ShapeEnv())
        with torch.no_grad(), DisableAutocast():
            module, inputs = _read(self.content, mode)
            self.call = compile_graph(
                module,
                inputs,
                name=self.name,
                options=self.options,
                facts=self.facts,
                loaded=True,
            )
            if self.name == "forward" and self.strides != result_strides(module.graph, self.facts):
                raise autograd_cache.BypassAOTAutogradCache("fuser: results with other strides")

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Required by torch; there is no Triton bundle."""


def is_on() -> bool:
    """True if torch's settings enable the AOTAutograd cache."""
    cached = (
        autograd_cache.should_use_local_autograd_cache()
        or autograd_cache.should_use_remote_autograd_cache()
    )
    return bool(cached and inductor_config.fx_graph_cache)


def is_known(module: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """True if torch's key covers this graph of Dynamo completely: no foreign ops, no tensor
    attributes, no subclasses, no inputs that share memory (AOTAutograd adds unsaved guards for
    these).
    """
    tensors = [t for t in inputs if isinstance(t, torch.Tensor)]
    if any(type(t) not in _PLAIN or t.layout != torch.strided for t in tensors):
        return False
    if len({t.untyped_storage()._cdata for t in tensors}) != len(tensors):
        return False
    modules = [m for m in module.modules() if isinstance(m, fx.GraphModule)]
    return all(_is_known(m, node) for m in modules for node in m.graph.nodes)


def _is_known(module: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "get_attr":
        value: Any = module
        for name in str(node.target).split("."):
            value = getattr(value, name, None)
        return isinstance(value, fx.GraphModule)
    op = node.target
    if op is triton_kernel_wrapper_mutation:  # the node names its kernel by a number of the process
        return False
    if isinstance(op, OpOverloadPacket):
        return op._qualified_op_name.split("::")[0] in _NAMESPACES
    return not isinstance(op, OpOverload) or op.namespace in _NAMESPACES


@contextmanager
def saving(options: Options, as_eager: bool) -> Iterator[dict[str, Any]]:
    """Yields AOTAutograd's compiler arguments with serializable results. AOTAutograd stores both
    graphs of a function in one file, so the backward graph is compiled together with the forward
    graph instead of at its first use.
    """
    made: list[SavedGraph] = []
    ours = (fuser.__version__, _sources(), options, as_eager)
    key = (compiler_config.cache_key_tag, *ours, *_state())
    halves: Any = {"bundled_autograd_cache": True, "force_non_lazy_backward_lowering": True}
    tag: Any = {"cache_key_tag": repr(key)}
    try:
        with (
            functorch_config.patch(halves),
            compiler_config.patch(tag),  # type: ignore[attr-defined]
            _replaced(codecache, _GENERATORS),
        ):
            yield {
                f"{short}_compiler": _compiler(name, options, made)
                for short, name in COMPILERS.items()
            }
    finally:
        for graph in made:
            graph.traced.clear()


@contextmanager
def _replaced(module: ModuleType, names: dict[str, Any]) -> Iterator[None]:
    """Sets names in a module for a `with` block and restores or removes them afterwards."""
    before = {name: vars(module)[name] for name in names if name in vars(module)}
    try:
        vars(module).update(names)
        yield
    finally:
        for name in names:
            vars(module).pop(name, None)
        vars(module).update(before)


def _compiler(name: str, options: Options, made: list[SavedGraph]) -> Any:
    def compile_one(module: fx.GraphModule, inputs: Sequence[Any]) -> SavedGraph:
        facts = facts_now(name)
        traced = [_copied(module), _known_to_torch(list(inputs))]
        call = compile_graph(module, inputs, name=name, options=options, facts=facts)
        strides = result_strides(module.graph, facts) if name == "forward" else []
        made.append(SavedGraph(name, options, facts, strides, call, traced))
        return made[-1]

    return SerializableAOTDispatchCompiler(SavedGraph, compile_one)


@cache
def _sources() -> str:
    """Digest of the source files of this package, which rewrite graphs before and after
    serialization.
    """
    digest = hashlib.sha256()
    folder = Path(__file__).parents[2]
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _state() -> Iterator[Any]:
    """Settings that affect tracing and are missing from the key of some torch versions."""
    for device in ("cpu", "cuda"):
        yield torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    for kernels in ("flash", "mem_efficient", "math", "cudnn"):
        yield getattr(torch.backends.cuda, f"{kernels}_sdp_enabled")()
    yield torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic
    yield torch.backends.mkldnn.enabled


def _copied(module: fx.GraphModule) -> fx.GraphModule:
    """Copies a graph before passes change it, with the node meta that passes read."""
    result = copy.deepcopy(module.graph)
    known: dict[str, str] = {}  # share equal stack traces
    for node in result.nodes:
        meta = node.meta
        node.meta = {"val": _known_to_torch(meta["val"])} if "val" in meta else {}
        for name in ("original_aten", "stack_trace"):
            if meta.get(name):
                text = str(meta[name])
                node.meta[name] = known.setdefault(text, text)
    inside = {str(n.target) for n in result.nodes if n.op in ("get_attr", "call_module")}
    return fx.GraphModule({name: attrgetter(name)(module) for name in inside}, result)


def _known_to_torch(values: Any) -> Any:
    """Replaces FakeTensors that are autograd views, which cannot be serialized, by aliases of their
    memory.
    """

    def known(value: FakeTensor) -> Any:
        return torch.ops.aten.alias.default(value) if value._is_view() else value

    with AutoDispatchBelowAutograd(), ExcludeDispatchKeyGuard(_VIEWS):
        return pytree.tree_map_only(FakeTensor, known, values)


def _written(module: fx.GraphModule, inputs: Sequence[Any]) -> bytes:
    """Serializes a graph in torch's format. Raises BypassAOTAutogradCache if that is impossible.
    Tensor attributes are constants of the function, which the key covers.
    """
    for node in module.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            value = attrgetter(str(node.target))(module)
            if type(value) is not torch.Tensor or value.device.type != "cpu":
                raise autograd_cache.BypassAOTAutogradCache(
                    f"fuser: a graph with {type(value).__name__} inside"
                )
    try:
        with disable_current_modes():
            return GraphPickler.dumps((module, inputs), PicklerOptions(ops_filter=_is_of_torch))
    except Exception as error:
        raise autograd_cache.BypassAOTAutogradCache(f"fuser: {error}") from error


def _is_of_torch(name: str) -> bool:
    return any(name.startswith(f"torch.ops.{namespace}.") for namespace in _NAMESPACES)


def _read(content: bytes, mode: FakeTensorMode) -> tuple[fx.GraphModule, Sequence[Any]]:
    with disable_current_modes():
        read: Any = GraphPickler.loads(content, mode)
    module, inputs = read
    return module, inputs
