"""fuser/adapters/partition.py: partition of a graph's nodes into definitions."""

from __future__ import annotations

import pytest
import torch

from fuser.adapters import aten
from fuser.adapters.partition import partition
from fuser.adapters.report import explain_model
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
    # A value that is not a graph output is not computed early in the graph, unless it is tiny.
    assert regions(lambda x, w, v: x.mm(w.half()).mm(v.half()), x.half(), x, v) == [
        ["_to_copy", "_to_copy"]
    ]
    x = torch.ones(200, 200)
    assert regions(lambda x, w, v: x.mm(w.half()).mm(v.half()), x.half(), x, 2 * x) == []


def test_views_of_views_of_results() -> None:
    """Casts of inputs form one region if their views are graph outputs, for any number of views."""
    made, sizes = Written(), (200, 200)
    casts = [
        made.call(torch.ops.aten._to_copy.default, made.input(*sizes), sizes=sizes)
        for _ in range(2)
    ]
    graph = made.finished(*(made.views(node, 10_000) for node in casts))
    assert [names(nodes) for nodes in partition(graph).regions] == [["_to_copy", "_to_copy"]]


def test_what_torch_would_walk_by_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single op forms a region if its large operands differ in layout or dtype, which torch
    processes slowly."""
    monkeypatch.setattr("fuser.adapters.lone_ops.SMALL", 8)
    monkeypatch.setattr("fuser.adapters.lone_ops.SMALL_STRIDED", 8)
    x, y = torch.ones(4, 4), torch.ones(4, 4)
    assert regions(lambda x, y: x.mm(x) + y.mm(y), x, y) == []
    assert regions(lambda x, y: x.mm(x) + y.mm(y).t(), x, y) == [["add"]]
    assert regions(lambda x, y: x.mm(x) + y[0], x, y) == [["add"]]
    assert regions(lambda x, y: x.mm(y).double(), x, y) == [["_to_copy"]]


def test_a_region_never_waits_for_itself() -> None:
    """mm depends on mul, and add on both: a region of all ops would depend on itself, so it is
    split."""

    def diamond(x: torch.Tensor) -> torch.Tensor:
        a = x.sin() * 2
        return (a.mm(x) + a).cos() * 3

    assert regions(diamond, torch.ones(4, 4)) == [["sin", "mul"], ["add", "cos", "mul"]]


def test_waiting_through_two_other_regions() -> None:
    """c and d are independent until e joins one of them; either choice must not create a cycle."""

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


def adamw(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor):
    p = p * (1 - 1e-5) - 1e-3 * (m * 0.9 + g * 0.1) / ((v * 0.999 + g * g * 0.001).sqrt() + 1e-8)
    return p, m * 0.9 + g * 0.1, v * 0.999 + g * g * 0.001


@pytest.mark.parametrize("sizes", [(300,), (10, 30), (2, 3, 5)])
def test_results_that_share_operands_are_one_region(sizes: tuple[int, ...]) -> None:
    inputs = [torch.rand(sizes) for _ in range(4)]
    (found,) = regions(adamw, *inputs)
    assert len(found) == 20


def test_one_kernel_of_results_that_share_operands() -> None:
    """Each operand is read once and each result written once: 28 bytes per element."""
    inputs = [torch.rand(300) for _ in range(4)]
    (explanation,) = explain_model(adamw, *inputs).explanations
    assert [step.bytes for step in explanation.steps] == [28 * 300]


def test_vectors_of_rows_join_nothing() -> None:
    """Regions do not join because of a common bias, which is a small fraction of their bytes, nor
    because of a scalar."""
    x, y, bias = torch.ones(8, 4), torch.ones(6, 4), torch.ones(4)
    apart = [["add", "sin"], ["add", "cos"]]
    assert regions(lambda x, y, b: ((x + b).sin(), (y + b).cos()), x, y, bias) == apart
    assert regions(lambda x, y, b: ((x + b).sin(), (y + b).cos()), x, y, bias.sum()) == apart
    assert regions(lambda x, b: ((x + b).sin(), (2 * b).cos()), x, bias) == [
        ["add", "sin"],
        ["mul", "cos"],
    ]


def test_siblings_join_where_the_first_one_cannot() -> None:
    """Two regions per layer read the angles; the second layer's depend on the first's, so only
    regions of one layer join."""

    def layers(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            q, k = x.mm(x), x.mm(x.t())
            x = (q * angles).cos().mm((k * angles).sin())
        return x

    assert regions(layers, torch.ones(4, 4), torch.ones(4, 4)) == [["mul", "cos", "mul", "sin"]] * 3


def test_thousands_of_siblings() -> None:
    """Thousands of regions that read one tensor, some at the size limit, some dependent.
    Partitioning stays near-linear, because each region is tried with few regions only."""
    made, sizes = Written(), (4, 4)
    x = last = made.input(*sizes)
    results = []
    for i in range(3000):
        work = made.call(torch.ops.aten.add.Tensor, last if i % 3 == 0 else x, x, sizes=sizes)
        results.append(made.call(torch.ops.aten.sin.default, work, sizes=sizes))
        if i % 3 == 2:
            last = made.call(torch.ops.aten.mm.default, results[-1], results[-3], sizes=sizes)
    found = partition(made.finished(*results)).regions
    assert sum(map(len, found)) == 6000
    assert len(found) <= 1000


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
    """Partitioning is near-linear: without recursion, and without comparing all pairs."""

    def deep(x: torch.Tensor) -> torch.Tensor:
        graph_input = x
        for _ in range(300):
            x = (x.sin() + 1).mm(graph_input)
        return x

    assert len(regions(deep, torch.ones(2, 2))) == 300
