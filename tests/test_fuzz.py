"""Random definitions on random layouts against fuser.evaluate, every access checked.

A fixed number of them by default; `python -m pytest tests/test_fuzz.py --fuzz 20000` runs so many.
"""

from __future__ import annotations

from collections.abc import Callable

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fuser
from fuser import FusionDefinition, testing
from tests.calls import random_calling_graph
from tests.graphs import Graph, Pick, random_graph, random_moving_graph, random_reducing_graph

BATCH = 24  # graphs that are compiled together
BATCHES = {"debug": 45, "plain": 10}
LARGE = {"calls": 15}  # graphs of these makers take so many times as long: fewer of them


MAKERS: dict[str, Callable[[Pick], Graph]] = {
    "elements": random_graph,
    "reductions": random_reducing_graph,
    "movement": random_moving_graph,
    "calls": random_calling_graph,
}


@st.composite
def graphs(draw: st.DrawFn, make: Callable[[Pick], Graph]) -> Graph:
    return make(lambda n: draw(st.integers(0, n - 1)))


def same(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Equal values; NaN equals NaN."""
    if expected.is_floating_point():
        return torch.equal(got.double().nan_to_num(1e300), expected.nan_to_num(1e300))
    if expected.is_complex():
        return torch.equal(got.to(torch.complex128), expected)
    return torch.equal(got, expected)


def check(graph: Graph) -> None:
    """Runs the graph and compares its results, those in place too."""
    again = FusionDefinition()
    scope = {"DataType": fuser.DataType, "FusionDefinition": FusionDefinition}
    exec(repr(graph.fd), scope)
    scope["nvfuser_fusion"](again)
    assert again.fusion == graph.fd.fusion, f"text rebuilds another definition:\n{graph!r}"
    expected = fuser.evaluate(graph.fd, graph.inputs, aliased=True)
    records = graph.fd.fusion.records()
    ids = [place for is_tensor, place, *_ in records["arguments"]]
    results = iter(graph.fd.execute(graph.inputs))
    for (tensor, alias), want in zip(records["outputs"], expected, strict=True):
        got = next(results) if alias < 0 else graph.inputs[ids.index(alias)]
        assert got.shape == want.shape, f"t{tensor}: {list(got.shape)}, not {list(want.shape)}"
        assert same(got, want), f"t{tensor} of\n{graph!r}\ngot {got}\nexact {want}"


def batches(mode: str, maker: str, wanted: int | None) -> int:
    """How many, in a run that wants so many definitions in all (None: the default)."""
    if wanted is None:
        return max(1, BATCHES[mode] // LARGE.get(maker, 1))
    share = wanted * BATCHES[mode] / (sum(BATCHES.values()) * len(MAKERS) * BATCH)
    return max(1, round(share))


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("mode", BATCHES)
def test_graphs(
    mode: str, maker: str, request: pytest.FixtureRequest, set_option: Callable[[str, object], None]
) -> None:
    seed = request.config.option.seed
    print(f"seed {seed}: repeat with --seed={seed}")
    count = batches(mode, maker, request.config.option.fuzz)
    set_option("FUSER_CACHE", 0)
    set_option("FUSER_HOST_DEBUG", int(mode == "debug"))

    @hypothesis.seed(seed)
    @settings(max_examples=count, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(graphs(MAKERS[maker]), min_size=BATCH, max_size=BATCH))
    def run(batch: list[Graph]) -> None:
        testing.compile_batch((graph.fd, graph.inputs) for graph in batch)
        for graph in batch:
            check(graph)

    run()
