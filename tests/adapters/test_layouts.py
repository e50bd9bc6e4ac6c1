"""fuser/adapters/layouts.py: what regions write for convolutions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fuser.adapters import report
from fuser.adapters.layouts import followed, lay_out_for_readers, write_slices_apart
from fuser.adapters.partition import partition
from fuser.adapters.program import program
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
    """Channels last for a weight that lies so, but not what the caller gets too."""
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
    """Where only regions and the backward graph read them, not where the caller gets them."""

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
    """The gradient of a concatenation, of which a part is read much later: the whole is never
    stored. What the caller gets, or all of it taken apart, stays a view.
    """

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
    """Columns that follow each other with a step, and those of a buffer with more of them."""

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


def test_views_of_views_are_followed() -> None:
    """As deep as they are: up to a reader that counts on the strides, where there is one."""
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
