"""fuser/adapters/graph/upsampling.py: gathers that repeat elements become index arithmetic."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fuser.adapters import report
from fuser.adapters.dynamo import backend
from fuser.adapters.graph.upsampling import repeat_by_views
from tests.adapters.graphs import Written, names


def run(function, x: torch.Tensor) -> tuple[list[torch.Tensor], set[str]]:
    """The function's result and gradient, and the ops left to torch."""
    torch._dynamo.reset()
    x = x.detach().requires_grad_()
    with report.recording() as seen:
        result = torch.compile(function, backend=backend)(x)
        (gradient,) = torch.autograd.grad(result, x, torch.ones_like(result).cumsum(-1))
    return [result, gradient], {op for graph in seen.graphs for op, _ in graph.left}


@pytest.mark.parametrize(
    ("sizes", "factor"),
    [
        *(((2, 3, 4, 5), factor) for factor in (1.0, 2.0, (3.0, 1.0))),
        ((2, 3, 4), 2.0),
        ((1, 2, 2, 3, 2), 2.0),
    ],
    ids=str,
)
def test_nearest_neighbours(sizes: tuple[int, ...], factor) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x.sin(), scale_factor=factor) * 2

    x = torch.randn(sizes, requires_grad=True)
    (result, gradient), left = run(f, x)
    expected = f(x)
    (true,) = torch.autograd.grad(expected, x, torch.ones_like(expected).cumsum(-1))
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(gradient, true)
    assert result.stride() == expected.stride()
    assert not {op for op in left if "index" in op}


@pytest.mark.parametrize(
    ("sizes", "settings"),
    [
        ((2, 3, 4, 5), {"scale_factor": 2.0, "mode": "bilinear"}),
        ((2, 3, 5, 7), {"size": (3, 9), "mode": "bilinear", "align_corners": True}),
        ((2, 3, 7), {"size": 12, "mode": "linear"}),
        ((2, 3, 5, 4), {"size": (7, 6)}),
        ((2, 3, 1, 4), {"size": (2, 3)}),
    ],
    ids=str,
)
@pytest.mark.parametrize("last", [False, True])
def test_what_reads_a_place_is_added_up(sizes: tuple[int, ...], settings: dict, last: bool) -> None:
    x = torch.randn(sizes)
    if last and x.ndim == 4:
        x = x.to(memory_format=torch.channels_last)
    f = lambda x: F.interpolate(x.sin(), **settings) * 2  # noqa: E731
    (result, gradient), left = run(f, x)
    wide = x.double().requires_grad_()
    expected = f(wide)
    (true,) = torch.autograd.grad(expected, wide, torch.ones_like(expected).cumsum(-1))
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.double(), true, rtol=1e-4, atol=1e-4)
    assert result.stride() == f(x).stride()
    assert not {op for op in left if "index" in op}


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize(
    ("sizes", "size"), [((2, 3, 4, 3, 5), (5, 4, 6)), ((1, 2, 3, 4), (4, 6)), ((2, 3, 4), (7,))]
)
def test_users_of_the_gradient_have_constant_sizes(sizes, size, mode: str) -> None:
    f = lambda x: -F.interpolate(-x, size=size, mode=mode)  # noqa: E731
    x = torch.randn(sizes, requires_grad=True)
    (result, gradient), _ = run(f, x)
    expected = f(x)
    (true,) = torch.autograd.grad(expected, x, torch.ones_like(expected).cumsum(-1))
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(gradient, true)


def test_channels_last() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    f = lambda x: F.interpolate(x, scale_factor=2.0).cos()  # noqa: E731
    (result, gradient), left = run(f, x)
    torch.testing.assert_close(result, f(x))
    assert gradient.stride() == x.stride()
    assert result.stride() == f(x).stride()
    assert not {op for op in left if "index" in op}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_batches_of_any_size(mode: str, training: bool) -> None:
    """One graph serves all batch sizes; the batch is a symbol that must not become a node's
    argument."""
    torch._dynamo.reset()
    f = lambda x: F.interpolate(x.sin(), scale_factor=2.0, mode=mode) * 2  # noqa: E731
    run_any = torch.compile(f, backend=backend)
    with report.recording() as seen:
        for batch in (4, 6, 3):
            x = torch.randn(batch, 2, 3, 5, requires_grad=training)
            result, expected = run_any(x), f(x)
            torch.testing.assert_close(result, expected)
            if training:
                found, wanted = (torch.autograd.grad(r.sum(), x) for r in (result, expected))
                torch.testing.assert_close(found, wanted)
    assert len(seen.graphs) == (4 if training else 2)
    assert not {op for graph in seen.graphs for op, _ in graph.left if "index" in op}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.interpolate(x, size=(6, 7)) * 2,
        lambda x: x[:, :, torch.tensor([0, 0, 2, 1])] * 2,
        lambda x: torch.ops.aten._unsafe_index(x, [None, None, x.new_tensor([0, 3]).long()]) * 2,
        lambda x: torch.ops.aten._unsafe_index(
            x, [None, None, x.argmax(2)[0, 0, :, None], torch.arange(10) // 2]
        ),
    ],
    ids=["a_third", "given", "of_the_input", "one_given"],
)
def test_other_gathers_stay(function) -> None:
    x = torch.randn(2, 3, 4, 5)
    (result, gradient), _ = run(function, x)
    wide = x.double().requires_grad_()
    expected = function(wide)
    (true,) = torch.autograd.grad(expected, wide, torch.ones_like(expected).cumsum(-1))
    torch.testing.assert_close(result, expected.float())
    torch.testing.assert_close(gradient, true.float())


def test_indices_by_many_steps() -> None:
    """Indices are constant-folded at compile time, for chains of any length."""
    aten, made = torch.ops.aten, Written()
    x = made.input(2, 3)
    index = made.call(aten.arange.default, 6, sizes=(6,), dtype=torch.int64)
    for _ in range(10_000):
        index = made.call(aten.add.Tensor, index, 0, sizes=(6,), dtype=torch.int64)
    index = made.call(aten.div.Tensor_mode, index, 2, sizes=(6,), dtype=torch.int64)
    index.kwargs = {"rounding_mode": "floor"}
    gathered = made.call(aten._unsafe_index.Tensor, x, [None, index], sizes=(2, 6))
    graph = made.finished(gathered)
    with made.fakes:
        repeat_by_views(graph)
    left = names([n for n in graph.nodes if n.op == "call_function"])
    assert left == ["unsqueeze", "expand", "clone", "view"]
    call = torch.fx.GraphModule({}, graph)
    assert torch.equal(call(torch.arange(6.0).view(2, 3))[0], torch.arange(12).view(2, 6) // 2)
