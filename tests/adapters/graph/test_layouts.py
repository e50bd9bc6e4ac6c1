"""fuser/adapters/graph/layouts.py: layouts of region outputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fuser.adapters import report
from fuser.adapters.dynamo import backend
from fuser.adapters.graph.layouts import (
    followed,
    lay_out_for_readers,
    write_slices_apart,
    write_without_gaps,
)
from fuser.adapters.graph.views import has_gaps
from fuser.adapters.partition import partition
from fuser.adapters.wrapper_codegen import program
from tests.adapters.graphs import Written, traced

LAST = torch.channels_last


def made(function, *inputs: torch.Tensor):
    module = traced(function, *inputs)
    parts = partition(module.graph)
    lay_out_for_readers(module.graph, {n for nodes in parts.regions for n in nodes}, set())
    images = [n.args[0] for n in module.graph.nodes if "convolution" in str(n.target)]
    call, _ = program(module, parts, strict=True)
    return call, [n.meta["val"].is_contiguous(memory_format=LAST) for n in images]


def test_images_for_convolutions() -> None:
    """A region stores images channels-last for a channels-last weight, unless the image is also a
    graph output."""
    x, w = torch.randn(2, 4, 5, 5), torch.randn(3, 4, 3, 3)

    def conv(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d((x.sin() * 2).contiguous(), w)

    def given(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.sin() * 2
        return F.conv2d(y, w), y

    for function, weight, wanted in (
        (conv, w.to(memory_format=LAST), True),
        (conv, w, False),
        (given, w.to(memory_format=LAST), False),
    ):
        call, found = made(function, x, weight)
        assert found == [wanted]
        torch.testing.assert_close(call([x, weight]), function(x, weight))


def test_rows_of_norms_lie_together() -> None:
    """Rows of a norm are stored contiguously if only regions and the backward graph read them, but
    not for graph outputs."""

    def mixed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = x.transpose(1, 2) + y.transpose(1, 2)
        return F.layer_norm(z.float(), (4,)).sin(), z

    x, y = torch.randn(2, 4, 5).bfloat16(), torch.randn(2, 4, 5).bfloat16()
    for is_kept in (True, False):
        module = traced(mixed, x, y)
        parts = partition(module.graph)
        makers = {n for nodes in parts.regions for n in nodes}
        (total,) = (n for n in makers if "add" in str(n.target))
        lay_out_for_readers(module.graph, makers, {total} if is_kept else set())
        call, _ = program(module, parts, strict=True)
        results = call([x, y])
        torch.testing.assert_close(results, list(mixed(x, y)), rtol=1e-2, atol=1e-2)
        assert results[1].is_contiguous() == is_kept


def test_slices_are_written_apart() -> None:
    """Slices of a value, as in the gradient of a concatenation, are stored separately instead of
    the complete value. A graph output, or a value whose slices cover it, remains a view."""

    def gradient(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.sin() * 2
        z = y[:, :3].cos() + 1
        return ((z.mm(w) + y[:, 3:5]).exp() * 2,)

    def whole(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.sin() * 2
        return ((y[:, :4].mm(w) + y[:, 4:].mm(w)).exp() * 2,)

    def given(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return ((x.sin() * 2)[:, 3:5],)

    for function, rows, shapes in (
        (gradient, 3, [(4, 2), (4, 3)]),
        (whole, 4, [(4, 8)]),
        (given, 4, [(4, 8)]),
    ):
        x, w = torch.randn(4, 8), torch.randn(rows, 2)
        module = traced(function, x, w)
        parts = partition(module.graph)
        write_slices_apart(module.graph, parts.regions)
        call, definitions = program(module, parts, strict=True)
        assert sorted(tuple(n.meta["val"].shape) for n in definitions[0].outputs) == shapes
        torch.testing.assert_close(call([x, w]), list(function(x, w)))


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_put_between_others_is_written_without_gaps(dynamic: bool) -> None:
    """Values written into strided columns, or into columns of a wider buffer, are stored densely
    first."""

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = x * 2
        z[:, ::2] = y[:, ::2].sin() * 2
        rows = x.new_zeros(5, 12)[:, :6]
        rows[:, 2:4] = (y[:, 2:4] + 1).exp()
        return z.cos(), rows.sin(), rows

    torch._dynamo.reset()
    inputs = torch.randn(5, 6), torch.randn(5, 6)
    with report.recording() as seen:
        results = torch.compile(f, backend="fuser", dynamic=dynamic)(*inputs)
    for got, want in zip(results, f(*inputs), strict=True):
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
    assert not [f for graph in seen.graphs for f in graph.fallbacks]


def columns(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for t in range(x.shape[1]):
        out[:, t] = x[:, t].sin() * 2
    return out


def states(x: torch.Tensor) -> torch.Tensor:
    out, h = torch.zeros_like(x), x[:, 0] * 0
    for t in range(x.shape[1]):
        h = (h * 0.5 + x[:, t]).tanh()
        out[:, t] = h
    return out * 2


def recurrent(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    out = x * 1
    for t in range(1, x.shape[1]):
        out[:, t] = out[:, t - 1] * 0.3 + x[:, t].sin()
    return out, out.sum(1)


def steps(x: torch.Tensor) -> torch.Tensor:
    out = x.new_zeros(x.shape[0], x.shape[1], x.shape[2] * 2)
    for t in range(x.shape[1]):
        out[:, t, ::2] = x[:, t].exp() * 0.1
        out[:, t, 1::2] = x[:, t].cos() + out[:, t, ::2]
    return out


def transposed(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x).transpose(0, 1)
    for t in range(x.shape[1]):
        out[t] = x[:, t] * t
        out[t, 1:] += x[:-1, t].sin()
    return out


def products(x: torch.Tensor) -> torch.Tensor:
    out, w = torch.zeros_like(x), x[0].t() @ x[0] * 0.1
    for t in range(x.shape[1]):
        out[:, t] = (x[:, t] @ w).relu() + x[:, t]
    return out


def grown(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for t in range(x.shape[1]):
        out[:, : t + 1] += x[:, t : t + 1] * 0.1
        out[:, t].mul_(2)
    return out.flip(1)


def normalized(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for t in range(x.shape[1]):
        out[:, t] = x[:, t].softmax(-1)
        out[:, t, 0] = x[:, t].mean(-1)
    return out


def copied(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Slices that torch reads, and slices as graph outputs, keep their strides."""
    y = x * 2
    part = y[:, 1::2]
    part.add_(1)
    for t in range(part.shape[1]):
        part[:, t] = part[:, t] * 3
    return y, part, part[:, 1] @ part[:, 0].t()


LOOPS = [columns, states, recurrent, steps, transposed, products, grown, normalized, copied]


def trained(function: Any, x: torch.Tensor) -> list[torch.Tensor]:
    """The results, and the gradient."""
    x = x.clone().requires_grad_()
    results = function(x)
    results = list(results) if isinstance(results, tuple) else [results]
    sum(t.square().sum() for t in results).backward()
    return [*results, x.grad]


def agree(function: Any, x: torch.Tensor, dynamic: bool = False) -> None:
    """Assert that no region falls back, and that results and strides equal eager's."""
    torch._dynamo.reset()
    with report.recording() as seen:
        found = trained(torch.compile(function, backend=backend, dynamic=dynamic), x)
    assert [graph.name for graph in seen.graphs] == ["forward", "backward"]
    assert not [why for graph in seen.graphs for _, why in graph.fallbacks]
    for got, want in zip(found, trained(function, x), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        assert got.stride() == want.stride()


@pytest.mark.parametrize(
    ("largest", "dynamic", "functions"), [(5, False, LOOPS), (6, True, [columns, copied])]
)
def test_regions_are_cut_anywhere(
    largest: int, dynamic: bool, functions: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loops that write slices of a tensor, split into regions after every few ops: 11 programs.
    Regions are lowered to definitions, but torch computes them."""
    monkeypatch.setattr("fuser.adapters.partition.LARGEST", largest)
    monkeypatch.setattr(
        "fuser.adapters.wrapper_codegen.runner", lambda fd, instead, strict: instead
    )
    monkeypatch.setattr("fuser.adapters.compile_graph.build_together", lambda definitions: None)
    for function in functions:
        agree(function, torch.randn(5, 4, 6), dynamic)


def test_a_loop_longer_than_a_region() -> None:
    agree(columns, torch.randn(4, 45, 8))


def test_others_read_a_copy_as_it_was_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The region stores a slice densely; its graph outputs, and its views that torch reads, have
    eager's strides."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.new_zeros(4, 12)[:, :6]
        z = torch.ops.aten.copy(y, x.sin() * 2)
        return z, z.t().mm(x), z.view(4, 2, 3).sum(2).cos(), torch.as_strided(z, (4, 3), (12, 2))

    module = traced(f, torch.ones(4, 6))
    parts = partition(module.graph)
    write_without_gaps(module.graph, parts.regions, ())
    call, definitions = program(module, parts, strict=True)
    assert all(not has_gaps(n.meta["val"]) for d in definitions for n in d.outputs)
    x = torch.randn(4, 6)
    for got, want in zip(call([x]), f(x), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        assert got.stride() == want.stride()


def test_views_of_views_are_followed() -> None:
    """Chains of views of any length are followed up to a reader that depends on the strides."""
    for reader, found in ((torch.ops.aten.mm.default, None), (torch.ops.aten.sin.default, 1501)):
        made = Written()
        node = made.call(torch.ops.aten.cos.default, made.input(4, 6), sizes=(4, 6))
        last = made.views(node, 1500)
        read = made.call(reader, last, *([last] if found is None else []), sizes=(4, 6))
        made.finished(read)
        wanted = node.meta["val"].clone()
        makers = {node, read} if found else {node}
        views = followed(node, wanted, makers, (), ())
        assert (views and len(views)) == found
        if views:
            assert views[node] is wanted
            assert views[last].shape == (4, 6)


def laid_out_nodes(function, *inputs: torch.Tensor, op: str):
    """The compiled function, and the FakeTensors of its ops of this name after the pass."""
    module = traced(function, *inputs)
    parts = partition(module.graph)
    lay_out_for_readers(module.graph, {n for nodes in parts.regions for n in nodes}, set())
    call, _ = program(module, parts, strict=True)
    return call, [n.meta["val"] for n in module.graph.nodes if op in str(n.target)]


@pytest.mark.parametrize("head", [8, 6], ids=["aligned columns", "unaligned columns"])
def test_copies_for_products_keep_columns(head: int) -> None:
    """Keys with exchanged dims are copied as rows, unless rows alone are aligned. Readers other
    than products get the traced layout."""

    def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        k = (k * 2).transpose(1, 2).transpose(2, 3)
        return q @ k

    def read_twice(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        k = (k * 2).transpose(1, 2).transpose(2, 3).contiguous()
        return q @ k, k

    q, k = torch.randn(2, 3, 8, head), torch.randn(2, 8, 3, head)
    call, found = laid_out_nodes(scores, q, k, op="clone")
    assert [t.stride(-2) for t in found] == [1 if head == 8 else 8]
    torch.testing.assert_close(call([q, k]), scores(q, k))
    call, found = laid_out_nodes(read_twice, q, k, op="clone")
    assert all(t.is_contiguous() for t in found)
    for result, expected in zip(call([q, k]), read_twice(q, k), strict=True):
        torch.testing.assert_close(result, expected)


def test_a_bias_of_each_head_is_row_major() -> None:
    """The bias is gathered with heads innermost. Other regions read it along keys for each batch
    element, so it is stored so."""

    def layers(x: torch.Tensor, w: torch.Tensor, table: torch.Tensor, i: torch.Tensor):
        bias = table[i].permute(2, 0, 1)
        for _ in range(2):
            x = torch.softmax(x + bias, -1) @ w
        return x

    x, w = torch.randn(4, 3, 5, 5), torch.randn(5, 5)
    table, i = torch.randn(7, 3), torch.randint(7, (5, 5))
    call, found = laid_out_nodes(layers, x, w, table, i, op="permute")
    assert [t.is_contiguous() for t in found] == [True]
    torch.testing.assert_close(call([x, w, table, i]), layers(x, w, table, i))

    def given(x: torch.Tensor, w: torch.Tensor, table: torch.Tensor, i: torch.Tensor):
        return layers(x, w, table, i), table[i].permute(2, 0, 1)

    call, found = laid_out_nodes(given, x, w, table, i, op="permute")
    results, expected = call([x, w, table, i]), given(x, w, table, i)
    assert results[1].stride() == expected[1].stride()
    torch.testing.assert_close(results[0], expected[0])
