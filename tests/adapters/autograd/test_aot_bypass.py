"""fuser/adapters/autograd/aot_bypass.py: graphs compiled by AOTAutograd, called without its
wrappers.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fuser

WRAPPERS = "_aot_autograd/runtime_wrappers.py"


def leaf(*shape: int) -> torch.Tensor:
    return torch.linspace(0.1, 2, torch.Size(shape).numel()).reshape(shape).requires_grad_()


def is_wrapped(run: Callable[..., Any], *inputs: Any) -> bool:
    """Return True if a call executes AOTAutograd's wrappers."""
    files: set[str] = set()

    def look(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    sys.setprofile(look)
    try:
        run(*inputs)
    finally:
        sys.setprofile(None)
    return any(name.endswith(WRAPPERS) for name in files)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    return fuser.compile(function, dynamic=False)


def gradients(results: Any, inputs: Any, seeds: Any = None) -> Any:
    return torch.autograd.grad(results, inputs, seeds, retain_graph=True)


def same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("saved", [False, True])
def test_gradients(saved: bool) -> None:
    """With the AOT cache both graphs are compiled at once; otherwise the first backward pass
    compiles its graph. Then both graphs form one autograd node. Expanded and transposed gradients,
    and retained graphs, are supported."""

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x * y).exp(), x.sin() + 1

    run = compiled(f)
    x, y = leaf(4, 8), leaf(8)
    with torch._functorch.config.patch(enable_autograd_cache=saved):
        early = run(x, y)
    assert is_wrapped(run, x, y) is not saved
    seeds = [torch.ones(()).expand(4, 8), torch.rand(8, 4).t()]
    wanted = gradients(f(x, y), [x, y], seeds)
    for results in (early, run(x, y), early):
        same(results, f(x, y))
        for _ in range(2):
            same(gradients(results, [x, y], seeds), wanted)
    assert not is_wrapped(run, x, y)
    with torch.no_grad():
        assert not run(x, y)[0].requires_grad
    again = torch.autograd.grad(run(x, y)[0].sum(), [x, y], create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        again[0].sum().backward()


def test_graphs_of_several_steps() -> None:
    """Matrix products between regions, and a view among the saved activations."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = torch.nn.functional.gelu(x @ w).view(2, -1)
        return (h.softmax(-1).view(4, 8) @ w).tanh()

    run = compiled(f)
    x, w = leaf(4, 8), leaf(8, 8)
    for _ in range(3):
        result = run(x, w)
        same(result, f(x, w))
        same(gradients(result.sum(), [x, w]), gradients(f(x, w).sum(), [x, w]))
    assert not is_wrapped(run, x, w)


def test_results_without_gradients() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x > y, x.sin() * y, (x * 3).detach(), x.exp()

    run = compiled(f)
    x, y = leaf(4, 8), leaf(8)
    for _ in range(3):
        results, expected = run(x, y), f(x, y)
        same(results, expected)
        assert [t.requires_grad for t in results] == [False, True, False, True]
        for n in (1, 3):
            found, wanted = (
                torch.autograd.grad(r[n].sum(), [x, y], retain_graph=True, allow_unused=True)
                for r in (results, expected)
            )
            same(found[0], wanted[0])
    assert not is_wrapped(run, x, y)


def test_what_gets_no_gradient_is_not_shown_to_autograd() -> None:
    """A detached input must not be connected to autograd. Otherwise a hook on it would receive a
    zero gradient, and the first backward pass would free its graph."""

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sin() * y.detach()

    run = compiled(f)
    x, source = leaf(4), leaf(4)
    for _ in range(3):
        seen: list[torch.Tensor] = []
        y = source * 2
        y.register_hook(seen.append)
        run(x, y).sum().backward()
        assert not seen
        y.sum().backward()
    assert not is_wrapped(run, x, y)


def test_inference() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin() * 2 + 1, (x @ x.t()).softmax(-1)

    run = compiled(f)
    x = leaf(4, 4).detach()
    same(run(x), f(x))
    assert not is_wrapped(run, x)
    kept = leaf(4, 4)
    with torch.no_grad():
        assert not any(t.requires_grad for t in run(kept))


def test_autocast() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x @ w) * 2

    run = compiled(f)
    x, w = leaf(4, 8), leaf(8, 8)
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result, expected = run(x, w), f(x, w)
            assert result.dtype == expected.dtype
        torch.testing.assert_close(result, expected, rtol=0.02, atol=0.02)
        result.float().sum().backward()
    same(run(x, w), f(x, w))


@pytest.mark.parametrize("with_gradients", [True, False])
def test_what_autocast_was_switched_off_for_is_not_cast(with_gradients: bool) -> None:
    def f(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            angles = (x.float() @ v.float()).sin()  # a matrix product in float32 by a library
        return (x @ w).float() + angles

    run, eager = compiled(f), f
    x, v = torch.linspace(1.0, 3.0, 64).view(8, 8), torch.linspace(5.0, 9.0, 64).view(8, 8)
    w = leaf(8, 8) if with_gradients else torch.zeros(8, 8)
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result, expected = run(x, w, v), eager(x, w, v)
        # Angles of 300 rounded to bfloat16 would change the sines by 1.
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
        if with_gradients:
            result.sum().backward()


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: y.add_(1) * x,
        lambda x, y: (x * y, x.view(-1)),
        lambda x, y: ((h := x * y) + 1, h.view(-1), h),
    ],
)
def test_mutation_and_aliases_keep_the_wrappers(function: Callable[..., Any]) -> None:
    run = compiled(function)
    for _ in range(3):
        x, mine, theirs = leaf(4, 4), torch.ones(4, 4), torch.ones(4, 4)
        found, expected = run(x, mine), function(x, theirs)
        same(found, expected)
        same(mine, theirs)
        last = found[-1] if isinstance(found, tuple) else found
        last.sum().backward()
    assert is_wrapped(run, leaf(4, 4), torch.ones(4, 4))


def test_an_argument_given_twice() -> None:
    run = compiled(lambda x, y: x * y + 1)
    x = leaf(4)
    for _ in range(3):
        same(run(x, x), x * x + 1)
        same(gradients(run(x, x).sum(), [x]), [2 * x])
    assert not is_wrapped(run, x, x)


def test_hooks_of_saved_tensors_see_them() -> None:
    run = compiled(lambda x, y: (x * y).exp() * y)
    x, y = leaf(4), leaf(4)
    gradients(run(x, y).sum(), [x, y])
    seen: list[int] = []

    def pack(t: torch.Tensor) -> torch.Tensor:
        seen.append(t.numel())
        return t

    expected = gradients(((x * y).exp() * y).sum(), [x, y])
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        same(gradients(run(x, y).sum(), [x, y]), expected)
    assert seen


def test_a_saved_input_that_was_overwritten_is_refused() -> None:
    run = compiled(lambda x, y: x.exp() * y)
    x, y = leaf(4), torch.ones(4)
    for _ in range(2):
        run(x, y).sum().backward()
    result = run(x, y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="inplace operation"):
        result.sum().backward()


class Holder:
    """Object that autograd saves in place of a tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


HELD: weakref.WeakSet[Holder] = weakref.WeakSet()
SEEN: list[int] = []


@torch.library.custom_op("fuser_tests::after", mutates_args=())
def after(gradient: torch.Tensor) -> torch.Tensor:
    SEEN.append(len(HELD))
    return gradient.clone()


@torch.library.custom_op("fuser_tests::before", mutates_args=())
def before(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


after.register_fake(torch.empty_like)
before.register_fake(torch.empty_like)
before.register_autograd(lambda context, gradient: after(gradient))


@pytest.mark.parametrize("retained", [False, True])
def test_what_is_kept_is_freed_at_its_last_use(retained: bool) -> None:
    """A saved activation is freed at its last use, not at the end of the backward pass; with a
    retained graph it stays."""

    def hold(t: torch.Tensor) -> Holder:
        holder = Holder(t)
        HELD.add(holder)
        return holder

    run, x = compiled(lambda x: before(x * 2).exp().sin()), leaf(8, 8)
    SEEN.clear()
    for _ in range(2):
        with torch.autograd.graph.saved_tensors_hooks(hold, lambda holder: holder.tensor):
            result = run(x)
        assert len(HELD) > 0
        result.sum().backward(retain_graph=retained)
        if retained:
            result.sum().backward()
    assert [n > 0 for n in SEEN] == ([True, False] * 2 if retained else [False, False])
    assert len(HELD) == 0
