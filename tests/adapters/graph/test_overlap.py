"""fuser/adapters/graph/overlap.py: steps between the start of a collective and its wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives  # registers the ops
from torch import fx, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from fuser.adapters import wrapper_codegen
from fuser.adapters.dynamo import backend
from fuser.adapters.graph.mutation import final_writes
from fuser.adapters.graph.overlap import overlapped
from fuser.adapters.partition import partition
from fuser.adapters.wrapper_codegen import program
from tests.adapters.graphs import Written, traced

aten, c10d = torch.ops.aten, torch.ops._c10d_functional


@pytest.fixture(scope="module")
def group() -> Iterator[str]:
    """A process group of two with a fake peer."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield dist.group.WORLD.group_name
    dist.destroy_process_group()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The names of the steps of each graph in the order that the pass gives."""
    found: list[list[str]] = []

    def recorded(order: Any, nodes: Any, *others: Any) -> list[int]:
        result = overlapped(order, nodes, *others)
        found.append([_name(nodes[i]) for i in result])
        return result

    monkeypatch.setattr(wrapper_codegen, "overlapped", recorded)
    return found


def _name(nodes: Any) -> str:
    first = next(iter(nodes))
    return "region" if len(nodes) > 1 else str(first.target).split(".")[1]


def _run(function: Any, *inputs: torch.Tensor) -> list[torch.Tensor]:
    module = traced(function, *inputs)
    final = final_writes(module.graph)
    call, _ = program(module, partition(module.graph, final=final), strict=True)
    return call([*inputs])


def _products_beside(names: list[str]) -> list[int]:
    """For each all_reduce, the number of matrix products up to the next wait."""
    starts = [i for i, name in enumerate(names) if name == "all_reduce"]
    ends = [names.index("wait_tensor", start) for start in starts]
    return [names[start:end].count("mm") for start, end in zip(starts, ends, strict=True)]


def test_the_gradient_of_a_weight_runs_beside_the_collective(
    group: str, seen: list[list[str]]
) -> None:
    def backward(dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        dw = dy.t().mm(x)
        dx = c10d.wait_tensor(c10d.all_reduce(dy.mm(w), "sum", group))
        return dw, dx.mm(w)

    inputs = [torch.randn(8, 8) for _ in range(3)]
    for got, want in zip(_run(backward, *inputs), backward(*inputs), strict=True):
        torch.testing.assert_close(got, want)
    assert [n for n in seen[0] if n != "t"] == ["mm", "all_reduce", "mm", "wait_tensor", "mm"]


def test_collectives_of_different_layers_are_under_way_together(
    group: str, seen: list[list[str]]
) -> None:
    def f(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = c10d.wait_tensor(c10d.all_reduce(a, "sum", group)).mm(w)
        second = c10d.wait_tensor(c10d.all_reduce(b, "sum", group)).mm(first)
        return (second,)

    _run(f, *(torch.randn(8, 8) for _ in range(3)))
    assert seen[0] == ["all_reduce", "all_reduce", "wait_tensor", "mm", "wait_tensor", "mm"]


def test_no_write_into_an_operand_that_a_collective_reads(
    group: str, seen: list[list[str]]
) -> None:
    """The region that overwrites the operand runs after the wait."""

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = c10d.wait_tensor(c10d.all_reduce(x, "sum", group))
        new = (w.sin() + 1).cos()
        x.copy_(new)
        return total, new.mm(w)

    _run(f, torch.randn(8, 8), torch.randn(8, 8))
    assert seen[0].index("wait_tensor") < seen[0].index("region")


def test_random_orders(rng: np.random.Generator) -> None:
    """All steps keep their dependencies, the starts their order, and the writes their place."""
    kinds = (c10d.all_reduce.default, c10d.wait_tensor.default, aten.sin.default)
    for _ in range(100):
        made, before = Written(), []
        steps: list[list[fx.Node]] = []
        x = made.input(4)
        open_: list[int] = []
        for i in range(30):
            kind = kinds[int(rng.integers(3))]
            if kind is kinds[1] and not open_:
                kind = kinds[2]
            needed = {int(n) for n in rng.integers(i, size=2)} if i else set()
            operand = x
            if kind is kinds[1]:
                at = open_.pop(int(rng.integers(len(open_))))
                operand, needed = steps[at][0], {at}
            extra = ("sum", "group") if kind is kinds[0] else ()
            steps.append([made.call(kind, operand, *extra, sizes=(4,))])
            before.append(needed)
            if kind is kinds[0]:
                open_.append(i)
        writing = {i for i in range(30) if rng.integers(10) == 0 and steps[i][0].target is kinds[2]}
        result = overlapped(range(30), steps, before, writing)
        place = {step: n for n, step in enumerate(result)}
        assert sorted(result) == list(range(30))
        assert all(place[b] < place[i] for i in range(30) for b in before[i])
        starts = [i for i in result if steps[i][0].target is kinds[0]]
        assert starts == sorted(starts)
        assert all((place[i] < place[w]) == (i < w) for w in writing for i in range(30) if i != w)


class _Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(x)))


def test_tensor_parallel_overlaps_in_the_backward_graph(group: str, seen: list[list[str]]) -> None:
    """Both products for gradients of weights run beside the all_reduce of a layer."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (2,))
    model = nn.Sequential(_Mlp(), _Mlp())
    for part in model:
        parallelize_module(part, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    torch._dynamo.reset()
    x = torch.randn(8, 64, requires_grad=True)
    torch.compile(model, backend=backend)(x).sum().backward()
    forward, backwards = (names for names in seen if "all_reduce" in names)
    assert forward.count("all_reduce") == backwards.count("all_reduce") == 2
    assert _products_beside(backwards) == [2, 2], backwards
