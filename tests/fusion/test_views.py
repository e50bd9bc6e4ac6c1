"""Outputs that are views of inputs or of extern results share their memory; other outputs have
their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuser import DataType, FusionDefinition

X = torch.arange(120.0).reshape(4, 5, 6)
Define = Callable[[Any, Any], Any]

VIEWS: dict[str, tuple[Define, Callable[[torch.Tensor], torch.Tensor]]] = {
    "itself": (lambda o, x: x, lambda x: x),
    "permute": (lambda o, x: o.permute(x, [2, 0, 1]), lambda x: x.permute(2, 0, 1)),
    "slice": (
        lambda o, x: o.slice(x, [1, 0, 2], [3, None, 6], [1, 2, 1]),
        lambda x: x[1:3, ::2, 2:6],
    ),
    "negative bounds": (lambda o, x: o.slice(x, [0, -3, 0], [4, -1, 6]), lambda x: x[:, -3:-1]),
    "nothing": (lambda o, x: o.slice(x, [4, 0, 0], [4, 5, 6]), lambda x: x[4:4]),
    "select": (lambda o, x: o.select(x, -2, 1), lambda x: x.select(1, -2)),
    "reshape": (lambda o, x: o.reshape(x, [10, -1]), lambda x: x.view(10, 12)),
    "unsqueeze": (lambda o, x: o.unsqueeze(x, 1), lambda x: x.unsqueeze(1)),
    "unfold": (lambda o, x: o.unfold(x, 1, 3, 2), lambda x: x.unfold(1, 3, 2)),
    "one window": (lambda o, x: o.unfold(x, 0, 4, 9), lambda x: x.unfold(0, 4, 9)),
    "expand": (
        lambda o, x: o.broadcast_in_dim(x, [4, 3, 5, 6], [0, 2, 3]),
        lambda x: x.unsqueeze(1).expand(4, 3, 5, 6),
    ),
    "some of them": (
        lambda o, x: o.split_dim(
            o.slice(o.permute(x, [1, 0, 2]), [1, 0, 0], [4, 4, 6]), 2, [2, -1]
        ),
        lambda x: x.permute(1, 0, 2)[1:4].unflatten(2, (2, 3)),
    ),
}
COPIES: dict[str, tuple[Define, Callable[[torch.Tensor], torch.Tensor]]] = {
    "set": (lambda o, x: o.set(x), lambda x: x),
    "stride_order": (
        lambda o, x: o.stride_order(o.permute(x, [2, 1, 0]), [2, 1, 0]),
        lambda x: x.permute(2, 1, 0).contiguous(),
    ),
    "flip": (lambda o, x: o.flip(x, [0]), lambda x: x.flip(0)),
    "merged apart": (
        lambda o, x: o.reshape(o.permute(x, [1, 0, 2]), [20, 6]),
        lambda x: x.permute(1, 0, 2).reshape(20, 6),
    ),
    "computed": (lambda o, x: o.permute(x + 1.0, [1, 0, 2]), lambda x: (x + 1).permute(1, 0, 2)),
}


def run(define: Define, x: torch.Tensor, static: bool) -> torch.Tensor:
    fd = FusionDefinition()
    fd.add_output(define(fd.ops, fd.from_pytorch(x, static_sizes=static)))
    (got,) = fd.execute([x])
    return got


def share(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str, static: bool) -> None:
    define, torch_form = VIEWS[name]
    wide = torch.cat([X, X])
    for x in (X, wide[2:6], X[..., :1]) if name in ("itself", "permute", "unsqueeze") else (X,):
        got, want = run(define, x, static), torch_form(x)
        assert share(got, x)
        assert torch.equal(got, want)
        real = [d for d in range(want.dim()) if want.shape[d] != 1]
        assert [got.stride(d) for d in real] == [want.stride(d) for d in real]
        assert got.storage_offset() == want.storage_offset() or not want.numel()


def test_dims_of_one_element_have_torchs_strides() -> None:
    got = run(lambda o, x: o.unsqueeze(o.unsqueeze(x, 1), 4), X, False)
    assert got.stride() == X.unsqueeze(1).unsqueeze(4).stride()


@pytest.mark.parametrize("name", COPIES)
def test_copies(name: str) -> None:
    define, torch_form = COPIES[name]
    got = run(define, X, True)
    assert not share(got, X)
    assert torch.equal(got, torch_form(X))


@pytest.mark.parametrize("shape", [(1, 3, 4), (3, 1, 4), (3, 4, 1), (2, 1, 1, 3)], ids=str)
def test_dims_of_one_element_keep_their_strides_where_they_are_moved(
    shape: tuple[int, ...],
) -> None:
    x = torch.randn(shape)
    for dims in itertools.permutations(range(len(shape))):
        with FusionDefinition() as fd:
            moved = fd.ops.permute(fd.from_pytorch(x), dims)
            fd.add_output(moved)
            fd.add_output(fd.ops.unsqueeze(moved, 1))
        views = [x.permute(dims), x.permute(dims).unsqueeze(1)]
        for got, view in zip(fd.execute([x]), views, strict=True):
            assert got.stride() == view.stride()
            assert got.data_ptr() == x.data_ptr()


def test_views_take_no_kernel() -> None:
    fd = FusionDefinition()
    x = fd.from_pytorch(X)
    fd.add_output(fd.ops.permute(x, [2, 1, 0]))
    fd.add_output(fd.ops.relu(x))
    fd.add_output(x)
    turned, computed, same = fd.execute([X])
    assert len(fd.fec.executor.kernels(None)) == 1
    assert share(turned, X)
    assert share(same, X)
    assert torch.equal(computed, X)


def test_merged_dims_are_a_view_where_they_lie_together() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1, -1])
    fd.add_output(fd.ops.reshape(x, [-1]))
    assert share(fd.execute([X])[0], X)
    turned = X.permute(2, 1, 0)
    (got,) = fd.execute([turned])
    assert not share(got, X)
    assert torch.equal(got, turned.reshape(-1))


def test_results_keep_what_an_input_was() -> None:
    """An input overwritten in place has no views, nor has an input that may overlap it."""
    fd = FusionDefinition()
    x, y = fd.from_pytorch(X), fd.from_pytorch(X)
    fd.add_output(x + 1.0, x)
    fd.add_output(fd.ops.permute(x, [1, 0, 2]))
    fd.add_output(fd.ops.slice(y, [0, 0, 0], [2, 5, 6]))
    a, b = X.clone(), X.clone()
    old, part = fd.execute([a, b])
    assert torch.equal(old, X.permute(1, 0, 2))
    assert share(part, b)
    a = X.clone()
    old, part = fd.execute([a, a])
    assert torch.equal(old, X.permute(1, 0, 2))
    assert torch.equal(part, X[:2])
    assert torch.equal(a, X + 1)


def test_bounds_that_only_the_run_knows() -> None:
    fd = FusionDefinition()
    x, n = fd.define_tensor([-1, -1, -1]), fd.define_scalar(DataType.Int)
    fd.add_output(fd.ops.slice(x, [n, 0, 0], [None, None, None]))
    for start in (0, 2, -1, 9):
        (got,) = fd.execute([X, start])
        assert torch.equal(got, X[start:])
        assert share(got, X)


def test_autograd_does_not_see_them() -> None:
    x = X.clone().requires_grad_()
    got = run(lambda o, t: o.permute(t, [1, 0, 2]), x, False)
    assert not got.requires_grad
    assert share(got, x)


def test_results_of_library_calls_have_views() -> None:
    """Slices, selects and permutes of a scan's result share its memory, as in torch."""
    fd = FusionDefinition()
    o, x = fd.ops, fd.define_tensor([-1, -1, -1])
    total = o.cumsum(x, 1)
    parts = [
        o.permute(total, [2, 0, 1]),
        o.slice(total, [0, 1, 0], [4, 5, 6], [1, 2, 1]),
        o.select(total, 2, 1),
        o.reshape(total, [20, -1]),
        o.set(o.permute(total, [1, 0, 2])),
    ]
    for part in parts:
        fd.add_output(part)
    exact = X.cumsum(1)
    want = [exact.permute(2, 0, 1), exact[:, 1::2], exact[:, 2], exact.view(20, 6)]
    got = fd.execute([X])
    for g, w in zip(got, want, strict=False):
        assert torch.equal(g, w)
        assert (g.stride(), g.storage_offset()) == (w.stride(), w.storage_offset())
        assert share(g, got[0])
    assert torch.equal(got[4], exact.permute(1, 0, 2))
    assert not share(got[4], got[0])
    assert len(fd.fec.executor.kernels(None)) == 1  # for the copy


def test_a_view_of_a_library_result_is_an_operand_too() -> None:
    """An extern op uses a view of an extern result before outputs that are views are created."""
    x, y = torch.randn(3, 4), torch.randn(4, 5)
    fd = FusionDefinition()
    t, u = (fd.define_tensor([-1, -1], contiguity=True) for _ in range(2))
    part = fd.ops.slice(fd.ops.matmul(t, u), [0, 1], [2, 3])
    fd.add_output(part)
    fd.add_output(fd.ops.matmul(part, part))
    square = (x @ y)[0:2, 1:3]
    for got, wanted in zip(fd.execute([x, y]), [square, square @ square], strict=True):
        torch.testing.assert_close(got, wanted)


def test_a_library_result_beside_its_view_and_what_is_computed_of_it() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    values, places = fd.ops.sort(x, 1)
    fd.add_output(fd.ops.permute(places, [1, 0]))
    fd.add_output(values * 2.0)
    fd.add_output(values)
    fd.add_output(fd.ops.cumsum(fd.ops.permute(values, [1, 0]), 0))
    fd.add_output(fd.ops.permute(values, [1, 0]))
    x = torch.randn(5, 7)
    exact, where = x.sort(1)
    got = fd.execute([x])
    for g, w in zip(got, [where.T, exact * 2, exact, exact.T.cumsum(0), exact.T], strict=True):
        assert torch.equal(g, w)
    assert share(got[4], got[2])
    assert not share(got[2], x)
    assert got[0].stride() == (1, 7)


@pytest.mark.parametrize("shape", [(8, 1, 1, 1, 1), (1, 1, 1, 1, 8)], ids=str)
def test_a_dim_merged_of_ones_beside_a_split(shape: tuple[int, ...]) -> None:
    """A split keeps the factors of the remaining dims, including dims of size 1."""
    fd, first = FusionDefinition(), shape[0] == 1
    x = fd.define_tensor([-1 if n > 1 else 1 for n in shape])
    merged = x
    for _ in range(3):
        merged = fd.ops.merge_dims(merged, 0 if first else 1)
    parts = fd.ops.permute(fd.ops.split_dim(merged, int(first), [-1, 2]) * 2.0, [2, 1, 0])
    for result in (fd.ops.sum(parts, [0]), parts + 1.0, fd.ops.sum(x, [0])):
        fd.add_output(result)
    fd.validate([torch.arange(8.0).reshape(shape)])
