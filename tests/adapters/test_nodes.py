"""fuser/adapters/nodes.py: classification and traversal of graph nodes."""

from __future__ import annotations

import torch
from torch import fx

from fuser.adapters.nodes import (
    computed,
    in_order,
    is_number,
    is_view,
    reads_of,
    specialised,
    tensor_of,
)
from tests.adapters.graphs import names, traced


def test_in_order() -> None:
    """Each node is visited once, after its operands; known nodes are skipped."""
    needs: dict[int, list[int]] = {0: [], 1: [0], 2: [1, 0], 3: [2, 1], 4: [3, 2]}
    known: set[int] = {0}
    found = []
    for n in in_order(4, needs.__getitem__, known):
        assert known.issuperset(needs[n])
        found.append(n)
        known.add(n)
    assert found == [1, 2, 3, 4]
    assert list(in_order(4, needs.__getitem__, known)) == []


def find(graph: fx.Graph, op: str) -> fx.Node:
    return next(n for n in graph.nodes if str(n.target).startswith(f"aten.{op}."))


def test_what_reads_a_node_or_a_view_of_it() -> None:
    """reads_of() follows views of views, and returns each view before its readers."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x.sin()
        b = a.t()
        return b.unsqueeze(0).cos(), b.exp(), a.neg()

    sine = find(traced(f, torch.ones(3, 4)).graph, "sin")
    seen, readers = {sine}, []
    for source, user in reads_of(sine):
        assert source in seen
        if is_view(user):
            seen.add(user)
        else:
            readers.append(user)
    assert sorted(names(readers)) == ["cos", "exp", "neg"]


def test_what_a_node_gives() -> None:
    graph = traced(lambda x: (x * 2).sum(0), torch.ones(3, 4)).graph
    product, total = find(graph, "mul"), find(graph, "sum")
    assert not is_number(product)
    assert tensor_of(product).shape == (3, 4)
    assert computed(total).shape == (4,)
    with tensor_of(product).fake_mode:
        longer = torch.ones(3, 7)
    assert computed(total, {product: longer}).shape == (7,)


def test_a_symbol_that_became_a_number() -> None:
    graph = traced(lambda x: x.sin(), torch.ones(5, 4), dynamic=True).graph
    rows, columns = tensor_of(find(graph, "sin")).shape
    assert specialised(columns) is columns
    assert columns == 4  # torch turns it into a guard
    assert type(columns) is torch.SymInt
    assert type(specialised(columns)) is int
    assert specialised(columns) == specialised(4) == 4
    assert specialised(rows) is rows
