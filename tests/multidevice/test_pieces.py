"""fuser/multidevice/pieces.py: cuts at collectives, and work that runs beside them."""

from __future__ import annotations

from typing import Any

import torch

from fuser.multidevice.plan import Plan
from tests.multidevice.compared import P, R, S
from tests.multidevice.planned import kinds, planned

X = torch.randn(8, 12)


def shape_of(plan: Plan) -> list[tuple[int, int, int]]:
    """Numbers of ops, of stored tensors and of collectives that begin, for each piece."""
    return [(len(p.nodes), len(p.outputs), len(p.issued)) for p in plan.pieces]


def test_a_definition_without_collectives_is_one_piece() -> None:
    plan = planned(lambda fd, x: [fd.ops.softmax(x, 1)], [X], [[S(0)]])
    assert len(plan.pieces) == 1


def test_cheap_ops_are_repeated_rather_than_stored() -> None:
    """softmax stores the two sums of rows, and reads its input three times, as on one device."""
    plan = planned(lambda fd, x: [fd.ops.softmax(x, 1)], [X], [[S(1)]])
    assert kinds(plan) == ["all_reduce", "all_reduce"]
    assert [len(p.outputs) for p in plan.pieces] == [1, 1, 1]
    assert all(plan.graph.inputs[0] in p.inputs for p in plan.pieces)


def test_a_stored_tensor_is_read_if_that_moves_fewer_bytes() -> None:
    def build(fd: Any, x: Any, y: Any, z: Any) -> Any:
        total = x * y * z
        return [total, total - fd.ops.sum(total, [1], keepdim=True)]

    plan = planned(build, [X, X + 1, X + 2], [[S(1)]] * 3)
    last = plan.pieces[-1]
    assert len(last.inputs) == 2
    assert not set(plan.graph.inputs.values()) & set(last.inputs)


def test_products_run_beside_a_collective() -> None:
    """The product without a collective runs after the all_reduce began, before its reader."""

    def build(fd: Any, x: Any, w: Any, v: Any) -> Any:
        return [fd.ops.relu(fd.ops.matmul(x, w)), fd.ops.matmul(v, v)]

    plan = planned(build, [X, X.T.contiguous(), X[:, :8]], [[S(1)], [S(0)], [R]])
    assert shape_of(plan) == [(1, 1, 1), (1, 1, 0), (1, 1, 0)]
    reduced = plan.pieces[0].issued[0]
    assert [reduced in p.inputs for p in plan.pieces] == [False, False, True]


def test_gradients_are_reduced_beside_the_next_product() -> None:
    """Sums over a divided batch begin one by one, as the backward pass goes."""

    def build(fd: Any, x: Any, g: Any, w: Any) -> Any:
        first = fd.ops.matmul(fd.ops.permute(x, [1, 0]), g)
        below = fd.ops.matmul(g, w)
        return [first, fd.ops.matmul(fd.ops.permute(x, [1, 0]), below)]

    plan = planned(build, [X, X[:, :4], torch.randn(4, 4)], [[S(0)], [S(0)], [R]])
    assert kinds(plan) == ["all_reduce", "all_reduce"]
    assert [len(p.issued) for p in plan.pieces] == [1, 1]


def test_collectives_of_inputs_begin_first() -> None:
    def build(fd: Any, x: Any, y: Any) -> Any:
        return [fd.ops.exp(y), fd.ops.sin(x)]

    plan = planned(build, [X, X + 1], [[R], [P]])
    assert shape_of(plan) == [(0, 0, 1), (1, 1, 0), (1, 1, 0)]
