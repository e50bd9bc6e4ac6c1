"""The pipeline of torch.compile: passes on torch's graphs, in order, as four tables.

    PROGRAM_PASSES  Dynamo's graph, before AOTAutograd traces it with its gradients
    JOINT_PASSES    the joint graph of both passes of autograd, before the min-cut partitioner
    CUT_PASSES      the forward and the backward graph that the partitioner returns
    GRAPH_PASSES    each forward, backward or inference graph that AOTAutograd hands over

fuser.adapters.graph.phases wraps the partitioner together with JOINT_PASSES and CUT_PASSES: it
copies mutated tensors in the joint graph before them and drops unneeded copies after them. The last
table ends with regions, which fuser.adapters.wrapper_codegen makes a Python function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from torch import fx

from fuser.adapters.autograd.aot_metadata import Facts
from fuser.adapters.graph.attention import drop_constant_masks, make_mask_rows_contiguous
from fuser.adapters.graph.channels_last import turn_channels_last
from fuser.adapters.graph.constants import keep_constants
from fuser.adapters.graph.cpu_products import choose_library
from fuser.adapters.graph.dense_views import replace_dense_strided_views
from fuser.adapters.graph.donation import take_memory
from fuser.adapters.graph.eager_strides import correct_strides
from fuser.adapters.graph.empty_parts import drop_empty_parts
from fuser.adapters.graph.folding import fold_affine_maps
from fuser.adapters.graph.freezing import freeze
from fuser.adapters.graph.layouts import lay_out_for_readers, write_slices_apart, write_without_gaps
from fuser.adapters.graph.mutation import final_writes
from fuser.adapters.graph.one_hot import sum_one_place
from fuser.adapters.graph.padding import pad_products, take_strides
from fuser.adapters.graph.partial_reductions import reduce_in_two_steps
from fuser.adapters.graph.prepacking import pack_weights
from fuser.adapters.graph.rematerialization import (
    drop_draw_numbers,
    keep_what_is_widened,
    number_draws,
    reduce_again_what_is_compared,
)
from fuser.adapters.graph.scatter_adds import gather_scatter_adds
from fuser.adapters.graph.sizes import settle_sizes
from fuser.adapters.graph.upsampling import repeat_by_views
from fuser.adapters.graph.views import drop_views, memory_of, merge_copies
from fuser.adapters.nodes import results_of
from fuser.adapters.partition import Partition, partition

S = TypeVar("S")


@dataclass(frozen=True)
class Pass(Generic[S]):
    """One row of a table.

    run     function of a graph, or of a graph with its state
    before  precondition
    does    effect
    after   postcondition
    reason  reason for the position in the table
    """

    name: str
    run: Callable[[S], object]
    before: str
    does: str
    after: str
    reason: str


def run(passes: Sequence[Pass[S]], state: S) -> None:
    """Runs the passes of a table in order."""
    for row in passes:
        row.run(state)


@dataclass(eq=False)
class GraphState:
    """A forward, backward or inference graph during GRAPH_PASSES.

    graph       graph of nodes with FakeTensors, rewritten by the passes
    inputs      inputs of AOTAutograd, one per placeholder
    name        "forward", "backward" or "inference"
    facts       AOT metadata
    min_nodes   minimum ops of a region
    may_donate  True if a result may overwrite an operand
    freezing    True if values of parameters are kept between calls
    donated     saved activations that are dead after the backward graph (donated buffers)
    parts       regions
    kept        results that only the backward graph reads
    """

    graph: fx.Graph
    inputs: Sequence[Any]
    name: str
    facts: Facts
    min_nodes: int
    may_donate: bool
    freezing: bool = False
    donated: set[fx.Node] = field(default_factory=set)
    parts: Partition = field(default_factory=lambda: Partition([], {}))
    kept: set[fx.Node] = field(default_factory=set)

    @property
    def makers(self) -> set[fx.Node]:
        """Nodes of regions, with results that may have any layout."""
        return {n for nodes in self.parts.regions for n in nodes}


def kept_for_backward(graph: fx.Graph, facts: Facts) -> range:
    """Indices of results that only the backward graph reads."""
    count = len(results_of(graph))
    return range(count if facts.kept is None else facts.kept, count)


def _find_donated(s: GraphState) -> None:
    nodes = [n for n in s.graph.nodes if n.op == "placeholder"]
    sharing = Counter(memory for n in nodes for memory in memory_of(n))
    given = ((nodes[i], memory_of(nodes[i])) for i in s.facts.donated)
    s.donated = {n for n, memory in given if memory and all(sharing[m] == 1 for m in memory)}


def _repeat_by_views(s: GraphState) -> None:
    if s.name == "inference":
        repeat_by_views(s.graph)


def _fold_affine_maps(s: GraphState) -> None:
    if s.freezing:
        fold_affine_maps(s.graph, s.facts.static)


def _pack_weights(s: GraphState) -> None:
    if s.freezing:
        pack_weights(s.graph, s.facts.static)


def _freeze(s: GraphState) -> None:
    if s.freezing:
        freeze(s.graph, s.facts.static)


def _partition(s: GraphState) -> None:
    s.parts = partition(s.graph, s.min_nodes, final_writes(s.graph))


def _find_kept(s: GraphState) -> None:
    results, places = results_of(s.graph), kept_for_backward(s.graph, s.facts)
    s.kept = {results[i] for i in places} - {results[i] for i in range(places.start)}


def _turn_channels_last(s: GraphState) -> None:
    _find_kept(s)
    turn_channels_last(s.graph, s.kept)


def _pad_products(s: GraphState) -> None:
    s.parts.regions += [[copy] for copy in pad_products(s.graph, s.makers, s.kept)]


def _take_memory(s: GraphState) -> None:
    if s.may_donate:
        take_memory(s.graph, s.parts.regions, s.donated)


PROGRAM_PASSES: tuple[Pass[fx.GraphModule], ...] = (
    Pass(
        "drop_constant_masks",
        drop_constant_masks,
        before="attention may have a mask that depends on no input",
        does="drops masks that are true everywhere, makes a lower triangle is_causal",
        after="masks depend on inputs; without a mask torch selects its fastest kernels",
        reason="before AOTAutograd, which selects the attention kernel by its mask",
    ),
    Pass(
        "make_mask_rows_contiguous",
        make_mask_rows_contiguous,
        before="the last dim of a mask may be strided, e.g. of a position bias",
        does="copies such masks",
        after="torch's fused kernels of attention take each mask that is not expanded",
        reason="after drop_constant_masks, which drops some masks; before AOTAutograd as well",
    ),
)

JOINT_PASSES: tuple[Pass[fx.Graph], ...] = (
    Pass(
        "repeat_by_views",
        repeat_by_views,
        before="a gather may repeat elements by an index that is known at compile time",
        does="rewrites it as an expanded view",
        after="no gather repeats elements of one dim",
        reason="before the cut, which would save the index",
    ),
    Pass(
        "gather_scatter_adds",
        gather_scatter_adds,
        before="the gradient of a gather adds elements by index",
        does="rewrites sums of such scatters with known indices as gathers and sums",
        after="no gradient sorts indices that are known at compile time",
        reason="before the cut: all scatters of one gradient are in one graph",
    ),
    Pass(
        "sum_one_place",
        sum_one_place,
        before="a sum may run over one-hot rows",
        does="replaces the sum by the selected element",
        after="no kernel loops over the classes of a one-hot row",
        reason="before the cut, which would save the operands of the sum",
    ),
    Pass(
        "keep_what_is_widened",
        keep_what_is_widened,
        before="the backward pass may read a float32 copy of a half-precision value",
        does="marks the copy as preferably recomputed",
        after="the partitioner saves the half-precision value",
        reason="after all rewrites of the joint graph: marks belong to the final nodes",
    ),
    Pass(
        "reduce_again_what_is_compared",
        reduce_again_what_is_compared,
        before="the backward pass may compare a maximum with its operand",
        does="marks the maximum as preferably recomputed",
        after="one kernel computes both sides of the comparison",
        reason="after all rewrites of the joint graph: marks belong to the final nodes",
    ),
    Pass(
        "number_draws",
        number_draws,
        before="two random ops may have equal targets and arguments",
        does="gives each random op its number as an attribute",
        after="no two random ops are equal; no op accepts the attribute",
        reason="last: no pass may evaluate an op with this attribute",
    ),
)

CUT_PASSES: tuple[Pass[fx.Graph], ...] = (
    Pass(
        "drop_draw_numbers",
        drop_draw_numbers,
        before="random ops have the attribute of number_draws",
        does="removes the attribute",
        after="torch can evaluate each op",
        reason="first after the cut, the only reader of the attribute",
    ),
)

GRAPH_PASSES: tuple[Pass[GraphState], ...] = (
    Pass(
        "find_donated",
        _find_donated,
        before="placeholders have the FakeTensors of the trace",
        does="finds donated buffers whose memory no other placeholder shares",
        after="GraphState.donated",
        reason="first: take_strides replaces the FakeTensors of placeholders",
    ),
    Pass(
        "settle_sizes",
        lambda s: settle_sizes(s.graph),
        before="sizes may be read from tensors inside the graph",
        does="computes sizes from the graph's inputs, if the inputs determine them",
        after="these sizes depend on no computed tensor, so no region ends at them",
        reason="before every pass that reads or writes sizes as nodes",
    ),
    Pass(
        "repeat_by_views",
        _repeat_by_views,
        before="a gather of an inference graph may repeat elements",
        does="rewrites the gather as in JOINT_PASSES; other graphs stay unchanged",
        after="no gather repeats elements of one dim",
        reason="after settle_sizes, whose arithmetic gives the sizes of the views",
    ),
    Pass(
        "take_strides",
        lambda s: take_strides(s.graph, s.inputs),
        before="placeholders have the traced strides",
        does="gives placeholders the strides of the actual inputs",
        after="FakeTensors follow the layouts that the other graph chose",
        reason="before passes that decide by strides",
    ),
    Pass(
        "fold_affine_maps",
        _fold_affine_maps,
        before="batch norm is ops after a convolution; the option freezing is on",
        does="folds maps of channels into weight and bias",
        after="the folded weight depends on parameters alone",
        reason="before turn_channels_last, which copies weights",
    ),
    Pass(
        "turn_channels_last",
        _turn_channels_last,
        before="images of convolutions may be row-major",
        does="turns images of all convolutions if that saves copies between layouts",
        after="FakeTensors of images are channels-last; results of the graph keep their strides",
        reason="after take_strides: the backward graph follows the layouts of saved images",
    ),
    Pass(
        "reduce_in_two_steps",
        lambda s: reduce_in_two_steps(s.graph),
        before="group norms may reduce few channels of channels-last images",
        does="reduces the pixels of each channel, then the channels of a group",
        after="no kernel reads an image in runs of few channels",
        reason="after turn_channels_last, which decides the layouts of images",
    ),
    Pass(
        "correct_strides",
        lambda s: correct_strides(s.graph),
        before="tracing may have given an elementwise result the strides of another operand",
        does="gives FakeTensors of elementwise results the strides of eager mode",
        after="strides of results are the strides of eager mode",
        reason="after take_strides, because results follow the strides of inputs",
    ),
    Pass(
        "drop_empty_parts",
        lambda s: drop_empty_parts(s.graph),
        before="operands may have no elements",
        does="rewrites ops that read them; a cat drops empty operands",
        after="these ops have nonempty operands, which regions accept",
        reason="before the passes on views, which see the slices that replace a split",
    ),
    Pass(
        "replace_dense_strided_views",
        lambda s: replace_dense_strided_views(s.graph),
        before="an as_strided may show each element of a tensor once",
        does="replaces it by permutations and a view",
        after="as_strided with gaps or overlaps only, and as results of the graph",
        reason="after all changes of strides, before drop_views merges the new views",
    ),
    Pass(
        "choose_library",
        lambda s: choose_library(s.graph),
        before="large float32 products of CPU tensors are MKL's",
        does="replaces them by oneDNN's, of the transposed matrix, if that is faster here",
        after="no large product is slow on this processor",
        reason="before drop_views, which joins the transposition with the program's own",
    ),
    Pass(
        "drop_views",
        lambda s: drop_views(s.graph, kept_for_backward(s.graph, s.facts)),
        before="views may be redundant",
        does="replaces chains of views by their source or by one reshape",
        after="views that change the layout only",
        reason="last before partition, whose regions end at views",
    ),
    Pass(
        "merge_copies",
        lambda s: merge_copies(s.graph),
        before="each layer may copy the same tensor, e.g. a mask of attention",
        does="replaces equal copies by the first one",
        after="a kernel writes such a copy once",
        reason="after drop_views, which makes operands of copies equal; before partition",
    ),
    Pass(
        "pack_weights",
        _pack_weights,
        before="oneDNN packs the weight in each call; the option freezing is on",
        does="packs weights of CPU products and convolutions, and joins lone activations",
        after="packed weights depend on parameters alone",
        reason="after drop_views: a view of a weight is its last form",
    ),
    Pass(
        "freeze",
        _freeze,
        before="an inference graph computes values of parameters in each call",
        does="keeps these values between calls, by one function of the parameters; an option",
        after="casts, layouts and views of parameters are results of that function",
        reason="after all rewrites of ops, which add such values; before regions take them",
    ),
    Pass(
        "partition",
        _partition,
        before="the ops of the graph are final",
        does="groups nodes into acyclic regions and finds final writes into inputs",
        after="GraphState.parts",
        reason="after all rewrites of ops, before all rewrites of layouts",
    ),
    Pass(
        "keep_constants",
        lambda s: keep_constants(s.graph, s.makers),
        before="an op of torch may read a tensor that a factory makes in each call",
        does="makes it once, if it is a small CPU tensor that nothing writes or returns",
        after="such a tensor is an attribute of the module",
        reason="after partition, whose regions compute factories themselves",
    ),
    Pass(
        "write_slices_apart",
        lambda s: write_slices_apart(s.graph, s.parts.regions),
        before="torch may read a region's result through slices only",
        does="makes the region write these slices as separate tensors",
        after="no result stays alive for the sake of its slice",
        reason="before find_kept: a slice may be a result of the graph and is replaced",
    ),
    Pass(
        "find_kept",
        _find_kept,
        before="the results of the graph are final nodes",
        does="finds results that only the backward graph reads",
        after="GraphState.kept",
        reason="before the passes that may change the layouts of these results",
    ),
    Pass(
        "write_without_gaps",
        lambda s: write_without_gaps(s.graph, s.parts.regions, s.kept),
        before="a region's result may have strides with gaps",
        does="makes the result dense; other readers of the strides get a copy",
        after="a definition can have each result's layout",
        reason="before the passes that choose among dense layouts",
    ),
    Pass(
        "lay_out_for_readers",
        lambda s: lay_out_for_readers(s.graph, s.makers, s.kept),
        before="regions write results in the traced layout",
        does="writes images channels-last, rows of norms and biases dense, copies as columns",
        after="these readers need no copy in another layout",
        reason="after write_without_gaps: a dense result can be laid out again",
    ),
    Pass(
        "pad_products",
        _pad_products,
        before="a large matrix product may have sizes that GPUs multiply slowly",
        does="pads its matrices, by their regions or by copies that become regions",
        after="sizes of these products are multiples of 8",
        reason="after all other layouts: padding changes the strides of rows",
    ),
    Pass(
        "take_memory",
        _take_memory,
        before="each result of a region has memory of its own",
        does="marks results that are stored into a dead operand; not for CUDA graphs",
        after="node meta names the operand",
        reason="last: the operand must have the final layout of the result",
    ),
)
