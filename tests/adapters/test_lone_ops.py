"""fuser/adapters/lone_ops.py: ops that form regions alone or with others of their kind."""

from __future__ import annotations

import pytest
import torch

from fuser.adapters.dynamo import backend
from fuser.adapters.lone_ops import is_walked_by_elements, lifetimes, lone_op, pays
from fuser.adapters.nodes import kind_of
from fuser.adapters.partition import partition
from fuser.adapters.report import recording
from tests.adapters.graphs import Written, names, regions, traced


def attention(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    """Attention whose products take batches with one stride, so that heads are copied."""
    q, k, v = (x.matmul(w).view(2, 6, 4, 8).transpose(1, 2) for w in weights)
    return torch.relu(q @ k.transpose(2, 3)) @ v


def test_copies_of_heads_are_one_region() -> None:
    inputs = [torch.randn(2, 6, 32), *(torch.randn(32, 32) for _ in range(3))]
    found = regions(attention, *inputs)
    assert found == [["clone", "clone", "clone"]]
    with recording() as report:
        result = torch.compile(attention, backend=backend)(*inputs)
    torch.testing.assert_close(result, attention(*inputs), rtol=1e-4, atol=1e-3)
    assert [g.regions for g in report.graphs] == [[["aten.clone.default"] * 3]]


def test_operands_of_a_launch_exist_when_it_starts() -> None:
    """The second copy depends on a product that reads the first one."""

    def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a = x.mm(w).t().contiguous()
        return a.mm(w).t().contiguous().mm(w)

    assert regions(chain, torch.ones(8, 8), torch.ones(8, 8)) == []


def test_copies_of_inputs_wait_for_their_readers() -> None:
    """Copies of inputs that all exist early would hold memory; those that fit into a fraction of
    the largest tensor are one region."""

    def layers(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for w in weights:
            x = x.mm(w.t().contiguous())
        return x

    weights = [torch.ones(128, 128) for _ in range(4)]
    assert regions(layers, torch.ones(64, 128), *weights) == []
    # The largest tensor has 16 times the elements of two copies: a region of three.
    found = regions(layers, torch.ones(128 * 32, 128), *weights)
    assert found == [["clone", "clone", "clone"]]


def test_a_lone_op() -> None:
    def ops(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.mT.contiguous(), x.sum(1), x.relu()

    nodes = traced(ops, torch.ones(4, 8)).graph.nodes
    copy, total, relu = (n for n in nodes if kind_of(n) == "compute")
    assert lone_op([copy]) is copy
    assert lone_op([total]) is None
    assert lone_op([copy, relu]) is None
    assert pays([total], 2)
    assert not pays([copy], 2)
    assert pays([copy, relu], 2)


@pytest.mark.parametrize(("sizes", "expected"), [((64, 64), False), ((1024, 1024), True)])
def test_small_strided_copies_are_torchs(sizes: tuple[int, ...], expected: bool) -> None:
    graph = traced(lambda x: x.t().contiguous(), torch.ones(sizes)).graph
    (copy,) = (n for n in graph.nodes if "clone" in str(n.target))
    assert is_walked_by_elements(copy) == expected
    # Torch moves whole vectors if the layouts are equal.
    graph = traced(lambda x: x.relu(), torch.ones(sizes)).graph
    assert not any(is_walked_by_elements(n) for n in graph.nodes)


def test_held_bytes() -> None:
    """A copy takes the memory of an operand that nothing else reads later."""

    def copies(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = x.mm(x), x.mm(x)
        return a.t().contiguous(), b.t().contiguous(), b.sin(), x.t().contiguous()

    graph = traced(copies, torch.ones(8, 8)).graph
    order = {n: i for i, n in enumerate(graph.nodes)}
    lives = lifetimes(graph)
    found = [lives.held(n, order[n]) for n in graph.nodes if "clone" in str(n.target)]
    assert found == [0, 4 * 64, 4 * 64]
    assert lives.spare == 4 * 64 // 16


def test_many_copies_of_one_tensor() -> None:
    """Thousands of views and copies of one tensor; owners and readers are found in one pass."""
    made = Written()
    x = made.views(made.input(16, 16), 5000)
    results = [
        made.call(torch.ops.aten.sin.default, made.views(x, 2), sizes=(16, 16)) for _ in range(3000)
    ]
    graph = made.finished(*results)
    assert lifetimes(graph).last
    assert sum(len(names(nodes)) for nodes in partition(graph).regions) >= 3000
