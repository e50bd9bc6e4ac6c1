"""fuser/adapters/graph/pipeline.py: tables of passes, and the loop that runs them."""

from dataclasses import fields

import pytest
import torch

from fuser.adapters.autograd.aot_metadata import Facts
from fuser.adapters.graph import pipeline
from fuser.adapters.graph.pipeline import (
    CUT_PASSES,
    GRAPH_PASSES,
    JOINT_PASSES,
    PROGRAM_PASSES,
    GraphState,
    Pass,
    kept_for_backward,
    run,
)
from tests.adapters.graphs import names, traced

TABLES = {
    "PROGRAM_PASSES": PROGRAM_PASSES,
    "JOINT_PASSES": JOINT_PASSES,
    "CUT_PASSES": CUT_PASSES,
    "GRAPH_PASSES": GRAPH_PASSES,
}


@pytest.mark.parametrize("table", TABLES)
def test_rows_are_complete(table: str) -> None:
    """Each pass has a name of its own and states its contract and position."""
    rows = TABLES[table]
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        for f in fields(Pass):
            assert getattr(row, f.name), f"{row.name}: {f.name}"


def test_passes_run_in_order() -> None:
    """run() calls each pass once, in the order of the table, on one state."""
    rows = [
        Pass(name, lambda state, name=name: state.append(name), "", "", "", "") for name in "bac"
    ]
    state: list[str] = []
    run(rows, state)
    assert state == ["b", "a", "c"]


@pytest.mark.parametrize("table", TABLES)
def test_rows_are_named_after_their_functions(table: str) -> None:
    for row in TABLES[table]:
        assert {row.name, f"_{row.name}"} & vars(pipeline).keys(), row.name


def test_state_after_all_passes() -> None:
    """Regions, kept results and their makers of a forward graph with two results, the last of
    which is a saved activation.
    """

    def forward(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        saved = x.sin() * 2
        return saved.cos() @ x, saved

    x = torch.randn(4, 4)
    graph = traced(forward, x).graph
    facts = Facts(kept=1)
    assert kept_for_backward(graph, facts) == range(1, 2)
    state = GraphState(graph, [x], "forward", facts, min_nodes=2, may_donate=True)
    run(GRAPH_PASSES, state)
    assert [names(nodes) for nodes in state.parts.regions] == [["sin", "mul", "cos"]]
    assert names(state.kept) == ["mul"]
    assert sorted(names(state.makers)) == ["cos", "mul", "sin"]
    assert list(state.parts.left.values()) == ["a library call"]
