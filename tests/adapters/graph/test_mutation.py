"""fuser/adapters/graph/mutation.py: in-place updates of inputs by a compiled program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from fuser import FusionDefinition, Unsupported
from fuser.adapters import report
from fuser.adapters.dynamo import backend
from fuser.adapters.graph.mutation import final_writes
from fuser.adapters.partition import partition
from fuser.adapters.region import Definition
from fuser.inspect.explain import explain
from tests.adapters.graphs import names, traced


@pytest.fixture(autouse=True)
def seen() -> Iterator[report.ModelReport]:
    """Reset torch between tests, and assert that no graph falls back."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with report.recording(keeps_runs=True) as found:
        yield found
    assert [f for graph in found.graphs for f in graph.fallbacks] == []


def compiled(function: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
    return torch.compile(function, backend=backend, **kwargs)


def clones(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [t.detach().clone(memory_format=torch.preserve_format) for t in tensors]


def agree(function: Callable[..., Any], inputs: list[torch.Tensor], **kwargs: Any) -> None:
    """Results and mutated inputs equal eager's bit for bit, with equal strides."""
    mine, theirs = clones(inputs), clones(inputs)
    run = compiled(function, **kwargs)
    for _ in range(2):
        results, expected = run(*mine), function(*theirs)
        pairs = [*zip(results or (), expected or (), strict=True), *zip(mine, theirs, strict=True)]
        for a, b in pairs:
            assert a.equal(b)
            assert a.stride() == b.stride()


def left(seen: report.ModelReport) -> dict[str, str]:
    """The copies left to torch, with the reasons."""
    return {op: why for g in seen.graphs for op, why in g.left if op.startswith("aten.copy_")}


def steps(seen: report.ModelReport) -> list[str]:
    """The kinds of steps of the last run of each region."""
    last = {id(run.fd): run for run in seen.runs}
    return [step.kind for run in last.values() for step in explain(run.fd, run.inputs).steps]


def x_and_y() -> list[torch.Tensor]:
    return [torch.arange(24.0).view(4, 6), torch.arange(24.0).view(4, 6) / 8]


# ---- programs that are one kernel, without a copy


def added(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)


def through_a_view(x: torch.Tensor, y: torch.Tensor) -> None:
    x.t().add_(y.t())


def a_row(x: torch.Tensor, y: torch.Tensor) -> None:
    x[1].copy_(y[2])


def often(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x.add_(y).mul_(2)
    x.copy_(x - 1)
    return (x,)


def and_returned(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = x + y
    x.copy_(z)
    return z, x, x.view(-1)


def old_value_returned(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    old = x.clone()
    x.add_(y)
    return (old,)


def of_another_dtype(x: torch.Tensor, y: torch.Tensor) -> None:
    x.copy_(y.double() * 2)


def zeroed(x: torch.Tensor, y: torch.Tensor) -> None:
    x.zero_()
    y.add_(1)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        added,
        through_a_view,
        a_row,
        often,
        and_returned,
        old_value_returned,
        of_another_dtype,
    ],
)
def test_one_kernel(function: Callable[..., Any], dynamic: bool, seen: report.ModelReport) -> None:
    agree(function, x_and_y(), dynamic=dynamic)
    assert left(seen) == {}
    assert steps(seen) == ["kernel"]


def test_several_inputs_are_one_region(seen: report.ModelReport) -> None:
    def f(*tensors: torch.Tensor) -> None:
        for t in tensors:
            t.mul_(2).add_(1)

    agree(f, [torch.arange(float(n)) for n in range(3, 40)])
    assert [len(g.regions) for g in seen.graphs] == [1]
    assert steps(seen) == ["kernel"] * 37


@pytest.mark.parametrize(
    "layout",
    [
        lambda t: t.t().contiguous().t(),
        lambda t: torch.stack([t, t], 2)[..., 1],
        lambda t: torch.cat([t, t])[2:6],
    ],
    ids=["transposed", "every other", "a part"],
)
def test_inputs_that_lie_in_other_ways(
    layout: Callable[..., Any], seen: report.ModelReport
) -> None:
    bases = [layout(t) for t in x_and_y()]
    expected = bases[0] + bases[1]
    address, strides = bases[0].data_ptr(), bases[0].stride()
    compiled(added)(*bases)
    assert bases[0].equal(expected)
    assert (bases[0].data_ptr(), bases[0].stride()) == (address, strides)
    assert left(seen) == {}


# ---- readers of the old value


def test_a_product_reads_the_old_value(seen: report.ModelReport) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = x.t().mm(y)
        x.mul_(2).add_(1)
        return (z,)

    agree(f, x_and_y())
    assert left(seen) == {}


def test_the_update_waits_for_a_product_that_waits_for_it(seen: report.ModelReport) -> None:
    """A region computes both the operand of a product and the new value, so the write must follow
    the product: torch copies."""

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = (x + y) * 2
        w = z.t().mm(x)
        x.copy_(z + 1)
        return (w,)

    agree(f, x_and_y())
    assert left(seen) == {"aten.copy_.default": "not computed by a region"}


def test_what_torch_computes_is_copied(seen: report.ModelReport) -> None:
    def f(x: torch.Tensor) -> None:
        x.copy_(x.mm(x))

    agree(f, [torch.arange(9.0).view(3, 3) / 8])
    assert steps(seen) == ["kernel"]


def test_read_elsewhere(seen: report.ModelReport) -> None:
    """fuser uses a temporary if threads read elements that other threads write."""

    def f(x: torch.Tensor) -> None:
        x.add_(x.flip(0)).mul_(2)

    agree(f, [torch.arange(24.0).view(4, 6)])
    assert left(seen) == {}
    assert steps(seen) == ["kernel", "copy"]


def test_swapped() -> None:
    """Both new values use both old values, independent of the order of the writes."""

    def f(x: torch.Tensor, y: torch.Tensor) -> None:
        a, b = x * 2 + y, y * 2 + x
        x.copy_(b)
        y.copy_(a)

    (x, y), (mine, other) = x_and_y(), x_and_y()
    compiled(f)(mine, other)
    assert mine.equal(y * 2 + x)
    assert other.equal(x * 2 + y)
    agree(f, x_and_y())
    agree(lambda x, y: torch._foreach_copy_([x, y], [y.clone(), x.clone()]), x_and_y())


def test_a_region_that_cannot_run_is_torchs(
    monkeypatch: pytest.MonkeyPatch, seen: report.ModelReport
) -> None:
    """If a region cannot run, torch's ops update the inputs from the first call on."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise Unsupported("for this test")

    monkeypatch.setattr(FusionDefinition, "execute", refuse)
    agree(and_returned, x_and_y())
    (graph,) = seen.graphs
    assert [why for _, why in graph.fallbacks] == ["for this test"]
    graph.fallbacks.clear()


def test_a_region_without_a_definition_is_torchs(
    monkeypatch: pytest.MonkeyPatch, seen: report.ModelReport
) -> None:
    def refuse(*_: Any) -> Any:
        raise Unsupported("for this test")

    monkeypatch.setattr(Definition, "overwrite", refuse)
    agree(and_returned, x_and_y())
    assert seen.runs == []
    (graph,) = seen.graphs
    assert [why for _, why in graph.fallbacks] == ["for this test"]
    graph.fallbacks.clear()


# ---- inputs that share memory


def doubled_and_added(x: torch.Tensor, y: torch.Tensor) -> None:
    x.mul_(2).add_(y)


@pytest.mark.parametrize("begins", [(40, 0, 40), (0, 40, 0)])
def test_inputs_that_come_to_share_memory(begins: tuple[int, ...]) -> None:
    """torch's own graphs are the reference: they do not check whether views of one tensor
    overlap."""

    def run_by(how: Any) -> torch.Tensor:
        torch._dynamo.reset()
        run = torch.compile(doubled_and_added, backend=how)
        tensors = [torch.arange(64.0) for _ in begins]
        for t, begin in zip(tensors, begins, strict=True):
            run(t[:24], t[begin : begin + 24])
        return torch.stack(tensors)

    try:
        expected = run_by("aot_eager")
    except AssertionError as error:  # raised by torch 2.12
        pytest.skip(f"torch's own graphs cannot: {error}")
    assert run_by(backend).equal(expected)


def test_the_same_input_twice() -> None:
    run = compiled(doubled_and_added)
    for tied in (False, True, False):
        x = torch.arange(24.0)
        run(x, x if tied else x.clone())
        assert x.equal(torch.arange(24.0) * (4 if tied else 3))


def test_an_expanded_input_is_refused_as_torch_refuses_it() -> None:
    x = torch.zeros(1).expand(4)
    with pytest.raises(RuntimeError):
        compiled(lambda x: x.add_(1))(x)


# ---- gradients


def test_the_backward_graph_gets_what_was_overwritten(seen: report.ModelReport) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = (x.clone() * 2).sin() * w
        with torch.no_grad():
            x.add_(1)
        return y

    x, w = torch.randn(4, 6), torch.randn(4, 6, requires_grad=True)
    mine = x.clone()
    run = compiled(f)
    first, second = run(mine, w), run(mine, w)
    assert mine.equal(x + 1 + 1)
    for y, given in ((first, x), (second, x + 1)):
        (g,) = torch.autograd.grad(y.sum(), w)
        torch.testing.assert_close(g.double(), (given.double() * 2).sin(), rtol=1e-6, atol=1e-6)
    assert left(seen) == {}


def test_autograd_sees_that_a_saved_tensor_was_overwritten() -> None:
    weight, x = torch.ones(4, requires_grad=True), torch.ones(4)
    product = weight * x  # saves x
    compiled(lambda x: x.mul_(2).add_(1))(x)
    assert x._version > 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_an_input_that_requires_gradients() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.mul_(3).add_(1)
        return y.sin()

    x = torch.randn(4, 6, requires_grad=True)
    (g,) = torch.autograd.grad(compiled(f)(x).sum(), x)
    wide = x.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(f(wide).sum(), wide)
    torch.testing.assert_close(g.double(), expected, rtol=1e-5, atol=1e-4)


def test_running_statistics(seen: report.ModelReport) -> None:
    """Batch norms update running statistics in the kernels that compute them; no op is left to
    torch."""

    def network() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(*(m for _ in range(3) for m in (nn.BatchNorm1d(6), nn.Tanh())))

    mine, theirs = network(), network().double()
    run = compiled(mine)
    x = torch.randn(3, 16, 6)
    # Run two forward passes before the first backward pass.
    results = [run(x[0]), run(x[1])]
    expected = [theirs(x[0].double()), theirs(x[1].double())]
    for a, b in zip(results, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)
        a.square().sum().backward()
        b.square().sum().backward()
    states = [(*model.buffers(), *model.parameters()) for model in (mine, theirs)]
    for a, b in zip(*states, strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=1e-4, atol=1e-5)
        if b.grad is not None:
            torch.testing.assert_close(a.grad.double(), b.grad, rtol=1e-3, atol=1e-4)
    assert left(seen) == {}
    assert len(seen.graphs[0].regions) == 1
    assert "copy" not in steps(seen)


# ---- optimizers


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=0.01)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 0.1, amsgrad=True)


def rmsprop(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(parameters, 0.1, momentum=0.9, centered=True)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("make", [momentum, adamw, rmsprop])
def test_the_step_of_an_optimizer(
    make: Callable[..., Any], foreach: bool, seen: report.ModelReport
) -> None:
    """Steps agree with float64; after the first step, a step is one region without a copy."""
    shapes = [(5, 3), (16,), (1,), (), (7, 2, 3), (33,)]
    wide = [nn.Parameter(torch.randn(s, dtype=torch.float64)) for s in shapes]
    mine = [nn.Parameter(p.detach().float()) for p in wide]
    optimizers = make(mine), make(wide)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["foreach"] = foreach
    step = compiled(lambda: optimizers[0].step())
    for _ in range(5):
        for a, b in zip(mine, wide, strict=True):
            b.grad = torch.randn_like(b)
            a.grad = b.grad.float()
        step()
        optimizers[1].step()
    for a, b in zip(mine, wide, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)
    assert left(seen) == {}
    assert all(len(g.regions) == 1 and not g.left for g in seen.graphs)
    assert "copy" not in steps(seen)


# ---- ops on lists


@pytest.mark.parametrize(
    "op",
    [
        lambda a, b: torch._foreach_add_(a, b, alpha=2),
        lambda a, b: torch._foreach_add_(a, 1.5),
        lambda a, b: torch._foreach_add_(a, [0.5, 1.5]),
        lambda a, b: torch._foreach_mul_(a, b[0].sum()),
        lambda a, b: torch._foreach_addcmul_(a, b, b, value=0.5),
        lambda a, b: torch._foreach_addcdiv_(a, b, [t + 8 for t in b], [0.5, 2.0]),
        lambda a, b: torch._foreach_maximum_(a, 2.5),
        lambda a, b: torch._foreach_minimum_(a, b),
        lambda a, b: torch._foreach_copy_(a, [t * 2 for t in b]),
        lambda a, b: torch._foreach_neg_(a),
        lambda a, b: torch._foreach_pow_(a, 2),
    ],
    ids=range(11),
)
def test_ops_on_lists(op: Callable[..., Any], seen: report.ModelReport) -> None:
    def f(*tensors: torch.Tensor) -> None:
        op(list(tensors[:2]), list(tensors[2:]))

    agree(f, [torch.arange(8.0), torch.arange(6.0).view(2, 3)] * 2)
    assert left(seen) == {}
    assert not any("foreach" in op for g in seen.graphs for op, _ in g.left)


def test_norms_of_lists_stay_whole(seen: report.ModelReport) -> None:
    def f(*tensors: torch.Tensor) -> None:
        torch._foreach_mul_(tensors, 1 / torch.stack(torch._foreach_norm(tensors)).norm())

    mine = [torch.randn(5, 3), torch.randn(7)]
    wide = [t.double() for t in mine]
    compiled(f)(*mine)
    f(*wide)
    for a, b in zip(mine, wide, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-6, atol=1e-6)
    assert any("_foreach_norm" in op for g in seen.graphs for op, _ in g.left)
    assert left(seen) == {}


# ---- graphs


def written(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    a = x.sin() * 2
    b = x.t().cos()
    x.copy_(a)
    return b, a.view(-1)


def test_readers_of_what_is_overwritten() -> None:
    graph = traced(written, torch.ones(3, 4), torch.ones(3)).graph
    ((_, write),) = final_writes(graph).items()
    assert write.joins
    assert names(write.readers) == ["sin", "t", "cos"]
    parts = partition(graph, final=final_writes(graph))
    assert [names(nodes) for nodes in parts.regions] == [["sin", "mul", "t", "cos", "copy_"]]


def test_what_is_read_again_is_no_final_write() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.copy_(y * 2)
        return x + 1

    assert final_writes(traced(f, torch.ones(3), torch.ones(3)).graph) == {}
