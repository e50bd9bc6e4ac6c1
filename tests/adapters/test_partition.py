"""fuser/adapters/partition.py: which nodes become one definition."""

from __future__ import annotations

import pytest
import torch

from fuser.adapters import aten
from fuser.adapters.partition import partition
from tests.adapters.graphs import Written, names, regions, traced


def test_a_chain_is_one_region() -> None:
    assert regions(lambda x: (x.sin() * 2 + 1).relu(), torch.ones(3, 4)) == [
        ["sin", "mul", "add", "relu"]
    ]


def test_a_library_call_cuts() -> None:
    x = torch.ones(4, 4)
    assert regions(lambda x: (x.sin() + 1).mm(x).cos() * 2, x) == [["sin", "add"], ["cos", "mul"]]


def test_small_casts_of_inputs_and_results_are_together() -> None:
    def f(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = w.half(), v.half()
        y = x.mm(a).mm(b)
        return y, a, b.t(), y.mm(a).float(), y.mm(b).float()

    x, v = torch.ones(4, 4), torch.ones(4, 4)
    assert regions(f, x.half(), x, v) == [["_to_copy", "_to_copy"], ["_to_copy", "_to_copy"]]
    # What is no result is not held from the graph's beginning, unless it is tiny.
    assert regions(lambda x, w, v: x.mm(w.half()).mm(v.half()), x.half(), x, v) == [
        ["_to_copy", "_to_copy"]
    ]
    x = torch.ones(200, 200)
    assert regions(lambda x, w, v: x.mm(w.half()).mm(v.half()), x.half(), x, 2 * x) == []


def test_views_of_views_of_results() -> None:
    """As many as a program makes: casts of inputs are together where a view of each is a result."""
    made, sizes = Written(), (200, 200)
    casts = [
        made.call(torch.ops.aten._to_copy.default, made.input(*sizes), sizes=sizes)
        for _ in range(2)
    ]
    graph = made.finished(*(made.views(node, 10_000) for node in casts))
    assert [names(nodes) for nodes in partition(graph).regions] == [["_to_copy", "_to_copy"]]


def test_what_torch_would_walk_by_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """One op alone is a region where its large operands differ in layout or dtype."""
    monkeypatch.setattr("fuser.adapters.partition.SMALL", 8)
    x, y = torch.ones(4, 4), torch.ones(4, 4)
    assert regions(lambda x, y: x.mm(x) + y.mm(y), x, y) == []
    assert regions(lambda x, y: x.mm(x) + y.mm(y).t(), x, y) == [["add"]]
    assert regions(lambda x, y: x.mm(x) + y[0], x, y) == [["add"]]
    assert regions(lambda x, y: x.mm(y).double(), x, y) == [["_to_copy"]]


def test_a_region_never_waits_for_itself() -> None:
    """sin and the product both enter add: one region of all would wait for mm, which waits for
    it."""

    def diamond(x: torch.Tensor) -> torch.Tensor:
        a = x.sin() * 2
        return (a.mm(x) + a).cos() * 3

    assert regions(diamond, torch.ones(4, 4)) == [["sin", "mul"], ["add", "cos", "mul"]]


def test_waiting_through_two_other_regions() -> None:
    """c and d are independent until e joins; whichever it joins, no circle may arise."""

    def crossing(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = x.sin() * 2, y.cos() * 2
        c, d = a.mm(a), b.mm(b)
        return (a * d).exp() + 1, (b * c).exp() + 1

    found = regions(crossing, torch.ones(4, 4), torch.ones(4, 4))
    assert sum(map(len, found)) == 10
    assert len(found) >= 3


def test_siblings_that_read_one_tensor_are_one_region() -> None:
    found = regions(
        lambda x, y: ((x + 1).sin() @ y, (x * 2).cos() @ y), torch.ones(4, 4), torch.ones(4, 4)
    )
    assert found == [["add", "sin", "mul", "cos"]]


def test_unrelated_work_stays_apart() -> None:
    found = regions(lambda x, y: ((x + 1).sin(), (y * 2).cos()), torch.ones(4, 4), torch.ones(5))
    assert found == [["add", "sin"], ["mul", "cos"]]


def test_views_inside_stay_inside() -> None:
    found = regions(lambda x: (x.sin() * 2).view(2, 6).sum(0), torch.ones(4, 3))
    assert found == [["sin", "mul", "view", "sum"]]


def test_a_single_op_is_left_to_torch_unless_it_reduces() -> None:
    assert regions(lambda x: x.sin(), torch.ones(3)) == []
    assert regions(lambda x: x.sin(), torch.ones(3), smallest=1) == [["sin"]]
    assert regions(lambda x: x.softmax(0), torch.ones(3)) == [["_softmax"]]


def test_no_region_spans_a_write() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() * 2
        x.copy_(y)
        return (y + x).cos()

    assert regions(f, torch.ones(3)) == [["sin", "mul"], ["add", "cos"]]


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (torch.ones(3, dtype=torch.complex64), "complex numbers"),
        (torch.ones(0, 3), "a tensor without elements"),
    ],
    ids=["complex", "empty"],
)
def test_reasons(x: torch.Tensor, reason: str) -> None:
    parts = partition(traced(lambda x: (x.sin() + x).sin(), x).graph)
    assert not parts.regions
    assert set(parts.left.values()) == {reason}


def test_reasons_of_ops() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        image = torch.conv2d(x.mm(x)[None, None], x[None, None])
        return torch.linalg.inv(torch.addmm(x, x, image[0, 0]))

    left = partition(traced(f, torch.ones(1, 1)).graph).left
    reasons = {node.target.overloadpacket.__name__: why for node, why in left.items()}
    library = dict.fromkeys(["mm", "addmm", "convolution"], "a library call")
    assert reasons.pop("linalg_inv_ex") == reasons.pop("_linalg_check_errors") == aten.NO_ROW
    assert reasons == library


def test_ten_thousand_ops() -> None:
    """The walk is near linear: no recursion, no pairs."""

    def deep(x: torch.Tensor) -> torch.Tensor:
        graph_input = x
        for _ in range(300):
            x = (x.sin() + 1).mm(graph_input)
        return x

    assert len(regions(deep, torch.ones(2, 2))) == 300
