"""fuser/adapters/graph/effects.py: ops with side effects run in the order of the graph."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives  # registers the ops
from torch import fx
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from fuser.adapters.graph.effects import Effects, reaches_outside
from fuser.adapters.partition import Partition, partition
from fuser.adapters.wrapper_codegen import program
from tests.adapters.graphs import Written, names, traced

aten, c10d = torch.ops.aten, torch.ops._c10d_functional


def _halve(x: torch.Tensor) -> None:
    x.mul_(0.5)


def bits(value: Any) -> Any:
    return value.numpy().tobytes() if isinstance(value, torch.Tensor) else value


_LIBRARY = torch.library.Library("fuser_effects", "DEF")
_LIBRARY.define("seen(Tensor x, int n) -> Tensor")
_LIBRARY.impl("seen", lambda x, n: x + n, "CompositeExplicitAutograd")
_LIBRARY.define("written(Tensor(a!) x) -> ()")
_LIBRARY.impl("written", _halve, "CompositeExplicitAutograd")
SEEN, WRITTEN = torch.ops.fuser_effects.seen.default, torch.ops.fuser_effects.written.default


@pytest.fixture(scope="module")
def group() -> Iterator[str]:
    """A process group of two with a fake peer: collectives return their inputs."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield dist.group.WORLD.group_name
    dist.destroy_process_group()


class Log(TorchDispatchMode):
    """Records each external effect in order of execution, with the values that it reads. A wait is
    local to the process.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[Any] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        counted = func.namespace in ("_c10d_functional", "fuser_effects")
        if counted and func is not c10d.wait_tensor.default:
            self.ran.append((str(func), [*map(bits, args)]))
        return func(*args, **kwargs or {})


def random_graph(rng: random.Random, group: str, count: int = 40) -> fx.GraphModule:
    """A random graph of small matrices: fusible ops, matrix products, and all kinds of effects."""
    made, s = Written(), (4, 4)
    values = [made.input(*s) for _ in range(3)]
    waiting: list[fx.Node] = []
    for n in range(count):
        x, y = (rng.choice(values[-8:]) for _ in range(2))
        kind = rng.choices(
            ["fused", "mm", "start", "wait", "seen", "random", "draw", "write"],
            [40, 8, 8, 8, 5, 4, 3, 1],
        )[0]
        if kind == "fused":
            op = rng.choice([aten.add.Tensor, aten.mul.Tensor, aten.sin.default, aten.sub.Tensor])
            made_here = made.call(op, *[x, y][: 1 + (op is not aten.sin.default)], sizes=s)
        elif kind == "mm":
            made_here = made.call(aten.mm.default, x, y, sizes=s)
        elif kind == "start":
            waiting.append(made.call(c10d.all_reduce.default, x, "sum", group, sizes=s))
            continue
        elif kind == "wait":
            if not waiting:
                continue
            sent = waiting.pop(rng.randrange(len(waiting)))
            made_here = made.call(c10d.wait_tensor.default, sent, sizes=s)
        elif kind == "seen":
            made_here = made.call(SEEN, x, n, sizes=s)
        elif kind == "random":
            made_here = made.call(aten.rand_like.default, x, sizes=s)  # may be part of a region
        elif kind == "draw":
            made_here = made.call(aten.normal.Tensor_float, x, 0.5, sizes=s)
        else:
            target = made.call(aten.mm.default, x, y, sizes=s)
            made.call(WRITTEN, target, sizes=s)
            made_here = target
        values.append(made_here)
    values += [made.call(c10d.wait_tensor.default, sent, sizes=s) for sent in waiting]
    unread = [n for n in values[3:] if not n.users]
    graph = made.finished(*unread, *rng.sample(values[3:], 3))
    return fx.GraphModule(torch.nn.Module(), graph)


def run_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run regions node by node with torch: without kernels, and with equal bits."""
    monkeypatch.setattr(
        "fuser.adapters.wrapper_codegen.runner", lambda fd, instead, strict: instead
    )


def outcome(function: Any, inputs: list[torch.Tensor]) -> tuple[list[Any], list[Any]]:
    torch.manual_seed(0)
    with Log() as log:
        results = function(*[t.clone() for t in inputs])
    return log.ran, [*map(bits, results)]


def spans(parts: Partition, module: fx.GraphModule) -> int:
    """Number of regions with nodes before and after an external effect."""
    order = {n: i for i, n in enumerate(module.graph.nodes)}
    places = [order[n] for n in order if reaches_outside(n)]
    found = ((order[nodes[0]], order[nodes[-1]]) for nodes in parts.regions)
    return sum(any(first < place < last for place in places) for first, last in found)


def test_random_graphs_keep_the_order(
    rng: np.random.Generator, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 200 graphs, effects run in the graph's order on the graph's values. Random numbers are
    drawn in the graph's order too, so all results are equal bit for bit. Regions still span
    effects."""
    run_by_torch(monkeypatch)
    choices, spanning = random.Random(int(rng.integers(1 << 31))), 0
    for _ in range(200):
        module = random_graph(choices, group)
        inputs = [torch.randn(4, 4) for _ in range(3)]
        expected = outcome(fx.Interpreter(module).run, inputs)
        parts = partition(module.graph)
        spanning += spans(parts, module)
        call, _ = program(module, parts, strict=True)
        assert outcome(lambda *args, call=call: call([*args]), inputs) == expected, call.text
    assert spanning > 200


def later(x: torch.Tensor, w: torch.Tensor, group: str) -> tuple[torch.Tensor, ...]:
    """Ops of the region that feeds the first collective continue after the second one."""
    u = (x * 2 + 1).sin()
    a, b = c10d.all_reduce(u, "sum", group), c10d.all_reduce(w, "sum", group)
    return c10d.wait_tensor(a), c10d.wait_tensor(b), (u + 3) * x


def circle(x: torch.Tensor, w: torch.Tensor, group: str) -> tuple[torch.Tensor, ...]:
    """As a single region, the operand of the first collective would depend on the second one."""
    u = (x * 2 + 1).sin()
    a, b = c10d.all_reduce(u, "sum", group), c10d.all_reduce(w, "sum", group)
    return c10d.wait_tensor(a), (u + c10d.wait_tensor(b)).cos()


def held_back(x: torch.Tensor, w: torch.Tensor, group: str) -> tuple[torch.Tensor, ...]:
    """As a single region, the operand of the collective would be delayed by an independent
    product."""
    u = (x * 2 + 1).sin()
    a = c10d.all_reduce(u, "sum", group)
    return c10d.wait_tensor(a), (u + w.mm(w)).cos()


@pytest.mark.parametrize(
    ("function", "sizes"), [(later, [5]), (circle, [3, 2]), (held_back, [3, 2])]
)
def test_regions_around_collectives(
    function: Any, sizes: list[int], group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    module = traced(lambda x, w: function(x, w, group), x, w)
    parts = partition(module.graph)
    assert [len(nodes) for nodes in parts.regions] == sizes
    run_by_torch(monkeypatch)
    call, _ = program(module, parts, strict=True)
    assert outcome(lambda *args: call([*args]), [x, w]) == outcome(module, [x, w])


def test_no_collective_no_cut() -> None:
    """Without collectives, an independent product does not split a region."""
    x = torch.randn(4, 4)
    parts = partition(traced(lambda x, w: ((x * 2).sin() + w.mm(w)).cos(), x, x).graph)
    assert [names(nodes) for nodes in parts.regions] == [["mul", "sin", "add", "cos"]]


def test_what_has_an_effect(group: str) -> None:
    """Effects are collectives, ops of other libraries, assertions, and, in a separate order, random
    ops; ops with subgraphs are in both orders. An in-place op of torch is ordered by its data
    dependence."""
    made, s = Written(), (4, 4)
    x = made.input(*s)
    first = made.call(c10d.all_reduce.default, x, "sum", group, sizes=s)
    draw = made.call(aten.rand_like.default, x, sizes=s)
    made.call(aten.sin.default, x, sizes=s)
    made.call(aten.copy_.default, x, draw, sizes=s)
    check = made.call(aten._assert_async.msg, x, "no", sizes=s)
    drop = made.call(aten.native_dropout.default, x, 0.5, True, sizes=s)
    seen = made.call(SEEN, first, 1, sizes=s)
    last = made.call(torch.ops.higher_order.wrap, seen, sizes=s)
    effects = Effects(made.finished(last).nodes)
    assert effects.previous == {
        first: (),
        draw: (),
        check: (first,),
        drop: (draw,),
        seen: (check,),
        last: (drop, seen),
    }
    assert effects.sources(seen) == [first, check]
    assert [n for n in effects.previous if reaches_outside(n)] == [first, check, seen, last]


def test_many_effects() -> None:
    """Partitioning stays near-linear if regions and effects alternate and regions extend past the
    effects."""
    made, s = Written(), (4, 4)
    x = made.input(*s)
    results = []
    for n in range(500):
        work = made.call(aten.sin.default, made.call(aten.cos.default, x, sizes=s), sizes=s)
        x = made.call(SEEN, work, n, sizes=s)
        results.append(made.call(aten.add.Tensor, work, x, sizes=s))
    assert len(partition(made.finished(*results)).regions) >= 500


_PROCESS = """
    import sys, torch, torch.distributed as dist, torch.distributed._functional_collectives as fc
    from fuser.adapters.dynamo import backend

    rank, file = int(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)

    def f(x, w):
        u = (x * 2 + 1).sin()
        a = fc.all_reduce(u, "sum", dist.group.WORLD)
        b = fc.all_reduce(w, "sum", dist.group.WORLD)
        return (a, b, (u + 3) * x) if rank == 0 else (a, b, u)

    torch.manual_seed(rank)
    x, w = torch.randn(8, 16), torch.randn(8, 16) * 5
    for got, want in zip(torch.compile(f, backend=backend)(x, w), f(x, w), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    dist.destroy_process_group()
"""


def test_two_processes(tmp_path: Any) -> None:
    """Two processes with different local ops run their collectives in matching order."""
    program = textwrap.dedent(_PROCESS)
    command = [sys.executable, "-c", program]
    running = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=300)[1].decode() for process in running]
    assert [process.returncode for process in running] == [0, 0], "\n".join(errors)
