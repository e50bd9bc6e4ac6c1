"""AOT metadata of a graph, as provided by AOTAutograd. A graph from the AOT cache is compiled with
equal metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fuser.adapters.torch_compat import TracingContext

# Fields of AOTAutograd's ViewAndMutationMeta that require its wrappers. Some torch versions lack
# some of them.
_WRAPPED = (
    "num_mutated_inp_runtime_indices",
    "num_mutated_graph_handled_indices",
    "num_outputs_aliased",
    "num_intermediate_bases",
    "num_outputs_rng_offset",
    "num_graphsafe_rng_states",
    "num_symints_saved_for_bw",
    "num_tensors_saved_with_no_vc_check",
    "num_opaque_objects_saved_for_bw",
    "num_backward_tokens",
    "tokens",
    "act_input_indices",
    "act_input_paths",
    "dynamic_outputs",
    "indices_of_inputs_that_requires_grad_with_mutations_in_bw",
)


@dataclass(frozen=True)
class Facts:
    """Metadata of a forward, backward or inference graph; numbers are indices of its inputs or
    results.

    plain    True if AOTAutograd's wrappers have nothing to do
    tokens   leading results that only order ops with side effects
    kept     first saved activation, if torch needs strides of results
    donated  saved activations that are dead after the backward graph
    static   inputs with fixed addresses
    outputs  results of the function
    wanted   results of the function with gradients
    inner    inputs with gradients that are not leaves
    """

    plain: bool = False
    tokens: int = 0
    kept: int | None = None
    donated: tuple[int, ...] = ()
    static: tuple[int, ...] = ()
    outputs: int = 0
    wanted: tuple[int, ...] = ()
    inner: tuple[int, ...] = ()


def facts_now(name: str) -> Facts:
    """Metadata of the graph that AOTAutograd is compiling. AOTAutograd refuses a second backward
    pass of graphs with donated buffers; fuser checks the caller itself and removes the donation
    from the metadata.
    """
    context, metadata = TracingContext.try_get(), metadata_now()
    if context is None or metadata is None:
        return Facts()
    tokens = len(metadata.tokens)
    told = name == "forward" and context.output_strides is not None
    donated: tuple[int, ...] = ()
    if name == "backward":
        donated = tuple(metadata.bw_donated_idxs or ())
        metadata.bw_donated_idxs = []
    return Facts(
        plain=not any(getattr(metadata, name, None) for name in _WRAPPED)
        and getattr(metadata, "grad_enabled_mutation", None) is None,
        tokens=tokens,
        kept=tokens + metadata.num_forward if told else None,
        donated=donated,
        static=tuple(metadata.static_input_indices or ()),
        outputs=len(metadata.output_info),
        wanted=tuple(n for n, info in enumerate(metadata.output_info) if info.requires_grad),
        inner=tuple(
            n
            for n, info in enumerate(metadata.input_info)
            if info.requires_grad and not info.is_leaf
        ),
    )


def metadata_now() -> Any | None:
    """AOTAutograd's ViewAndMutationMeta, shared by the forward and the backward graph."""
    context = TracingContext.try_get()
    return context.fw_metadata if context is not None else None


def strides_now() -> list[Any] | None:
    """The list to which AOTAutograd expects the strides of a forward graph's results to be
    added.
    """
    context = TracingContext.try_get()
    return context.output_strides if context is not None else None
