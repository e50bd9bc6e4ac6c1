"""What AOTAutograd says of a graph beside the graph; a saved graph is compiled by the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch._guards import TracingContext

# Of AOTAutograd's ViewAndMutationMeta: what its wrappers are for. Not every torch has all of them.
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
    """Of a forward, a backward or an inference graph; numbers are places of its inputs or results.

    plain    AOTAutograd's wrappers have nothing to do
    tokens   first results that only keep ops with effects in order
    kept     the first result that only the backward graph reads; None: torch wants no strides of it
    donated  of that which the backward graph is given: its memory is nobody's afterwards
    static   inputs that lie where they lay
    outputs  results of the function
    wanted   those of them that have gradients
    inner    inputs with gradients that something computed
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
    """Of the graph that AOTAutograd has compiled now. It refuses a second backward pass of graphs
    that may write into what is donated; ours look who calls, so it is not told of any.
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
    """AOTAutograd's ViewAndMutationMeta, which both halves of a function are compiled with."""
    context = TracingContext.try_get()
    return context.fw_metadata if context is not None else None


def strides_now() -> list[Any] | None:
    """The list in which AOTAutograd wants the strides of all results of a forward graph."""
    context = TracingContext.try_get()
    return context.output_strides if context is not None else None
