"""torch.compile(model, backend="fuser").

Dynamo and AOTAutograd make graphs of torch's ops, forward and backward, without mutation; each is
cut into regions, these become definitions, and what is left stays torch's. Compilation sees
FakeTensors only and adds no guards; the kernels of a graph are built at once, for the sizes that it
was traced with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from fuser import UserError
from fuser.adapters import aten
from fuser.adapters.partition import partition
from fuser.adapters.program import program, strict_from_environment
from fuser.adapters.region import build_together
from fuser.adapters.report import note_graph


@dataclass(frozen=True)
class Options:
    """What torch.compile(..., options={...}) takes.

    min_nodes  ops that a region has at least, unless one reduces
    """

    min_nodes: int = 2


def options_of(given: Mapping[str, Any] | None) -> Options:
    """Raises UserError `compile-option` for a name that is none, `compile-option-type` for a value
    of another type.
    """
    names = [f.name for f in fields(Options)]
    for name in given or {}:
        if name not in names:
            raise UserError(
                f"backend='fuser': no option {name!r}; expected one of {', '.join(names)}",
                rule="compile-option",
            )
    for f in fields(Options):
        if type((given or {}).get(f.name, f.default)) is not type(f.default):
            raise UserError(
                f"backend='fuser': option {f.name}: expected {type(f.default).__name__}, got "
                f"{(given or {})[f.name]!r}",
                rule="compile-option-type",
            )
    return Options(**(given or {}))


def compile_graph(
    module: fx.GraphModule, inputs: Sequence[Any], *, name: str = "graph", options: Options
) -> Callable[[list[Any]], Any]:
    """A graph whose nodes carry FakeTensors as a boxed function; what AOTAutograd calls."""
    del inputs
    parts = partition(module.graph, options.min_nodes)
    call, definitions = program(module, parts, strict_from_environment())
    build_together(definitions)
    note_graph(name, parts.regions, parts.left)
    return call


def compilers(options: Options) -> dict[str, Callable[..., Any]]:
    """The arguments that AOTAutograd calls its compilers."""

    def compiler(name: str) -> Callable[..., Any]:
        def compile_one(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            return compile_graph(module, inputs, name=name, options=options)

        return compile_one

    return {
        "fw_compiler": compiler("forward"),
        "bw_compiler": compiler("backward"),
        "inference_compiler": compiler("inference"),
    }


def backend(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """The backend that torch.compile looks up by the name "fuser"."""
    if mode not in (None, "default"):
        raise UserError(f"backend='fuser': no mode {mode!r}", rule="compile-mode")
    compiled: Callable[..., Any] = aot_autograd(
        **compilers(options_of(options)),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=aten.decompositions(),
    )(module, inputs)
    return compiled
