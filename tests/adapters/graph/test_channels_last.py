"""fuser/adapters/graph/channels_last.py: convolution networks with row-major images, turned."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from fuser.adapters.dynamo import backend
from fuser.adapters.graph.channels_last import _Plan, turn_channels_last
from tests.adapters.graphs import names, traced
from tests.adapters.training import ConvNet, agree

LAST = torch.channels_last
CLONE = torch.ops.aten.clone.default


def turned(
    function: Callable[..., Any], *inputs: torch.Tensor, kept: tuple[int, ...] = ()
) -> fx.GraphModule:
    """The graph after the pass; results at `kept` are saved activations."""
    module = traced(function, *inputs)
    results = next(n for n in module.graph.nodes if n.op == "output").args[0]
    turn_channels_last(module.graph, {results[i] for i in kept})
    module.recompile()
    return module


def layouts(module: fx.GraphModule) -> list[bool]:
    """True for each operand of a convolution that is channels-last."""
    convolutions = [n for n in module.graph.nodes if "convolution" in str(n.target)]
    operands = [
        n.meta["val"]
        for node in convolutions
        for n in node.args[:3]
        if isinstance(n, fx.Node) and n.meta["val"].ndim == 4
    ]
    return [t.is_contiguous(memory_format=LAST) for t in operands]


def copies(module: fx.GraphModule) -> int:
    return sum(n.target is CLONE for n in module.graph.nodes)


def check(module: fx.GraphModule, function: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """The graph gives the function's values and strides, and the nodes have their FakeTensors'
    strides."""

    class Strides(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            if isinstance(result, torch.Tensor) and n.op == "call_function":
                assert result.stride() == n.meta["val"].stride(), n
            return result

    results = Strides(module).run(*inputs)
    for found, wanted in zip(results, function(*inputs), strict=True):
        torch.testing.assert_close(found, wanted)
        assert found.stride() == wanted.stride()


X = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(1))
W, V = (torch.randn(4, 4, 3, 3, generator=torch.Generator().manual_seed(i)) for i in (2, 3))


def two(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor]:
    return (F.conv2d(F.conv2d(x, w, padding=1).relu(), v).sum((2, 3)),)


def test_images_and_weights_are_turned_once() -> None:
    """Of all tensors only the graph's inputs are copied; the pointwise op between follows."""
    module = turned(two, X, W, V)
    assert layouts(module) == [True] * 4
    assert copies(module) == 3
    check(module, two, X, W, V)


def test_a_weight_of_two_convolutions_has_one_copy() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
        return two(x, w, w)

    module = turned(f, X, W)
    assert layouts(module) == [True] * 4
    assert copies(module) == 2
    check(module, f, X, W)


def test_small_kernels_are_views() -> None:
    """A 1x1 weight has equal memory in both layouts."""
    w = torch.randn(4, 4, 1, 1)

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
        return (F.conv2d(x, w).sum((2, 3)),)

    module = turned(f, X, w)
    assert copies(module) == 1
    assert "as_strided" in names([n for n in module.graph.nodes if n.op == "call_function"])
    check(module, f, X, w)


def test_results_keep_their_strides() -> None:
    """A result of the graph is copied back; a saved activation is not."""

    def f(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = F.conv2d(x, w, padding=1).relu()
        return F.conv2d(y, v).relu(), y

    module = turned(f, X, W, V)
    check(module, f, X, W, V)
    saved = turned(f, X, W, V, kept=(1,))
    assert copies(module) - copies(saved) == 1
    results = next(n for n in saved.graph.nodes if n.op == "output").args[0]
    assert results[1].meta["val"].is_contiguous(memory_format=LAST)


def test_one_convolution_between_row_major_results_stays() -> None:
    """The library's copies are no larger than copies of the graph's input and result."""

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
        return (F.conv2d(x, w),)

    module = turned(f, X, W)
    assert not any(layouts(module))
    assert copies(module) == 0


def test_views_of_images() -> None:
    """A view that does not exist channels-last reads a copy; other views follow."""

    def f(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.conv2d(F.conv2d(x, w, padding=1).relu(), v)
        return (
            y.view(2, -1).sum(1),
            y.flatten(2).transpose(1, 2).sum(1),
            y.as_strided((2, 2), (1, 2)),
        )

    module = turned(f, X, W, V)
    assert layouts(module) == [True] * 4
    check(module, f, X, W, V)


def test_ops_between_follow_torch() -> None:
    """Pooling, concatenation, interpolation, norms over channels and padding between convolutions:
    each node has the strides of its FakeTensor."""

    def f(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.conv2d(x, w, padding=1)
        y = F.group_norm(y, 2)
        y = torch.cat([F.max_pool2d(y, 2), F.avg_pool2d(y, 2)], 1)[:, 2:6]
        y = F.pad(F.interpolate(y, scale_factor=2.0, mode="bilinear"), (1, 1, 0, 1))
        y = F.conv2d(y, v, groups=1)
        return y.softmax(1).amax((2, 3)), F.adaptive_avg_pool2d(y, 1)

    module = turned(f, X, W, V)
    assert all(layouts(module))
    check(module, f, X, W, V)


def test_other_convolutions_stay() -> None:
    """One and three dims, float64, and symbolic sizes."""

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
        return (F.conv1d(F.conv1d(x, w).relu(), w).sum(2),)

    assert copies(turned(f, X[:, :, 0], W[:, :, 0])) == 0
    wide = [t.double() for t in (X, W, V)]
    assert copies(turned(two, *wide)) == 0
    module = traced(two, X, W, V, dynamic=True)
    turn_channels_last(module.graph, ())
    assert copies(module) == 0


@pytest.mark.parametrize("train", [True, False])
def test_a_training_step(train: bool) -> None:
    """Gradients equal eager's, with its strides; the backward graph reads channels-last images."""
    torch.manual_seed(0)
    model = ConvNet().train(train)
    images, labels = torch.randn(2, 3, 8, 8), torch.tensor([1, 3])
    expected = copy.deepcopy(model)
    expected(images, labels).backward()
    agree(model, (images, labels), backend=backend)
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        assert a.grad.stride() == b.grad.stride()


def test_casts_of_weights_write_channels_last() -> None:
    """Under autocast the cast of a weight has the layout; no second copy is made."""

    def f(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor]:
        return two(x, w.to(torch.bfloat16), v.to(torch.bfloat16))

    module = turned(f, X.bfloat16(), W, V)
    assert layouts(module) == [True] * 4
    assert copies(module) == 1
    check(module, f, X.bfloat16(), W, V)


def test_a_transposed_convolution() -> None:
    up = nn.ConvTranspose2d(4, 4, 2, 2)

    def f(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor]:
        return (F.conv2d(F.conv_transpose2d(x, w, stride=2).relu(), v).sum((2, 3)),)

    module = turned(f, X, up.weight.detach(), V)
    assert all(layouts(module))
    check(module, f, X, up.weight.detach(), V)


def test_inputs_that_the_forward_graph_turned() -> None:
    """A backward graph is traced row-major. Ops on saved images that the forward graph turned
    follow them, so that no copy is needed."""

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
        return (F.conv2d(x.relu() * 2, w).sum((2, 3)),)

    x, w = torch.randn(2, 8, 6, 6), torch.randn(8, 8, 3, 3)
    module = traced(f, x, w)
    image = next(iter(module.graph.nodes))
    image.meta["val"] = image.meta["val"].contiguous(memory_format=LAST)
    turn_channels_last(module.graph, set())
    module.recompile()
    assert all(layouts(module))
    assert copies(module) == 1  # of the weight
    torch.testing.assert_close(module(x.to(memory_format=LAST), w), f(x, w))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_cost_of_reductions_of_short_groups(device: str) -> None:
    """A sum over groups of two channels reads its operand once more, in two steps."""
    graph = traced(lambda x: x.view(2, 16, 2, 6, 6).mean((2, 3, 4)), torch.randn(2, 32, 6, 6)).graph
    (node,) = (n for n in graph.nodes if "mean" in str(n.target))
    fakes = FakeTensorMode()

    def fake(strides: tuple[int, ...]) -> FakeTensor:
        value = torch.empty_strided((2, 16, 2, 6, 6), strides, device="meta")
        return FakeTensor(fakes, value, torch.device(device))

    grouped = node.args[0]
    grouped.meta["val"] = fake((1152, 72, 36, 6, 1))
    plan = _Plan(graph, ())
    assert plan.slower(node) == 0
    plan.values[grouped] = fake((1152, 2, 1, 192, 32))
    assert plan.slower(node) == 4 * 2304


def test_norms_of_groups_follow_on_a_cpu() -> None:
    """A group of two channels is two adjacent elements channels-last, and an image row-major: its
    sums take two steps."""
    x, w = torch.randn(2, 32, 6, 6), torch.randn(32, 32, 3, 3)

    def network(groups: int, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
        y = x
        for _ in range(4):
            y = F.conv2d(y, w, padding=1).view(2, groups, -1, 6, 6)
            y = ((y - y.mean((2, 3, 4), keepdim=True)).relu()).view(2, 32, 6, 6)
        return (y.sum((2, 3)),)

    for groups in (16, 1):
        module = turned(partial(network, groups), x, w)
        assert set(layouts(module)) == {True}
