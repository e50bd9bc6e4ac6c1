"""csrc/torch/direct: autograd functions that behave like torch's ops."""

from __future__ import annotations

import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import fuser


def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (x * w + b).sin().softmax(-1)


@pytest.fixture
def run():
    return fuser.memory_efficient_fusion(f)


def leaves(*wanted: bool) -> list[torch.Tensor]:
    torch.manual_seed(3)
    tensors = [torch.randn(3, 4, 8), torch.randn(8), torch.randn(8)]
    return [t.requires_grad_(w) for t, w in zip(tensors, wanted or (True,) * 3, strict=True)]


def close(a: torch.Tensor | None, b: torch.Tensor | None) -> None:
    assert (a is None) == (b is None)
    if a is not None:
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_no_python_where_each_graph_is_one_region(run) -> None:
    """Forward and backward run without Python frames; the backward pass ends in the gradients of a
    gain and a bias."""
    tensors = leaves()
    run(*tensors).sum().backward()
    before = fuser.cache_info().hits
    frames: list[str] = []
    sys.setprofile(lambda frame, event, arg: frames.append(frame.f_code.co_filename))
    try:
        run(*tensors).sum().backward()
    finally:
        sys.setprofile(None)
    assert fuser.cache_info().hits == before + 2
    assert frames
    assert "<fuser graph>" not in frames


@pytest.mark.parametrize("wanted", [(1, 0, 0), (0, 1, 0), (0, 1, 1), (1, 0, 1)], ids=str)
def test_who_requires_gradients(run, wanted) -> None:
    mine, theirs = (leaves(*map(bool, wanted)) for _ in range(2))
    run(*mine).square().sum().backward()
    f(*theirs).square().sum().backward()
    for a, b in zip(mine, theirs, strict=True):
        close(a.grad, b.grad)


def test_gradients_expanded_transposed_and_absent() -> None:
    def two(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin() * 2, x.cos() + 1

    run = fuser.memory_efficient_fusion(two)
    x = torch.randn(4, 6, requires_grad=True)
    seeds = (torch.ones(()).expand(4, 6), torch.randn(6, 4).t(), torch.randn(4, 6))
    for seed in seeds:
        (mine,), (theirs,) = (torch.autograd.grad(g(x)[1], x, seed) for g in (run, two))
        close(mine, theirs)


def test_a_graph_is_kept_or_gone(run) -> None:
    x, w, b = leaves()
    y = run(x, w, b).sum()
    first = torch.autograd.grad(y, w, retain_graph=True)
    close(first[0], torch.autograd.grad(y, w)[0])
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, w)


def test_hooks_see_what_they_see_in_torch(run) -> None:
    seen: list[str] = []
    tensors = leaves()
    y = run(*tensors)
    y.register_hook(lambda g: (seen.append("result"), g * 2)[1])
    assert y.grad_fn is not None
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(f"node {len(inputs)}"))
    tensors[1].register_hook(lambda g: seen.append("input"))
    y.square().sum().backward()
    assert seen[0] == "result"
    assert set(seen) == {"result", "input", "node 3"} or set(seen) == {"result", "input", "node 4"}
    others = leaves()
    (f(*others).square().sum() * 2).backward()
    for a, b in zip(tensors, others, strict=True):
        close(a.grad, b.grad)


def test_saved_tensors_may_be_packed(run) -> None:
    tensors, packed = leaves(), []

    def pack(t: torch.Tensor) -> torch.Tensor:
        packed.append(t.shape)
        return t.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = run(*tensors)
    y.square().sum().backward()
    others = leaves()
    f(*others).square().sum().backward()
    assert packed
    close(tensors[1].grad, others[1].grad)


def test_what_was_saved_must_not_change(run) -> None:
    tensors = leaves()
    y = run(*tensors).sum()
    with torch.no_grad():
        for t in tensors:
            t.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_checkpoint(run) -> None:
    tensors, others = leaves(), leaves()
    checkpoint(run, *tensors, use_reentrant=False).square().sum().backward()
    f(*others).square().sum().backward()
    close(tensors[0].grad, others[0].grad)


def test_without_gradients(run) -> None:
    tensors = leaves()
    run(*tensors)
    with torch.no_grad():
        assert not run(*tensors).requires_grad
    with torch.inference_mode():
        assert run(*tensors).is_inference()


def test_gradients_of_gradients_are_refused_to_each_source(run) -> None:
    x, w, b = leaves()
    seed = torch.ones(3, 4, 8, requires_grad=True)
    (g,) = torch.autograd.grad(run(x, w, b), w, seed, create_graph=True)
    for source in (x, seed):
        with pytest.raises(RuntimeError, match="double backward"):
            torch.autograd.grad(g.sum(), source, retain_graph=True)


def test_threads(run) -> None:
    expected = [t.grad for t in backward(f, leaves())]

    def work(tensors: list[torch.Tensor]) -> None:
        for _ in range(20):
            for t in tensors:
                t.grad = None
            for a, b in zip(backward(run, tensors), expected, strict=True):
                close(a.grad, b)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, [leaves() for _ in range(4)]))


def backward(function, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    function(*tensors).square().sum().backward()
    return tensors


def test_a_function_goes_with_its_last_graph() -> None:
    def g(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * x

    run = fuser.memory_efficient_fusion(g)
    x = torch.randn(5, requires_grad=True)
    y = run(x)
    alive = weakref.ref(run)
    del run
    torch._dynamo.reset()
    gc.collect()
    assert alive() is None
    y.sum().backward()
    close(x.grad, x.cos() * x + x.sin())


def test_jit_tracing_sees_the_ops(run) -> None:
    tensors = leaves()
    run(*tensors)
    traced = torch.jit.trace(run, tuple(tensors))
    others = [t.detach() + 1 for t in tensors]
    close(traced(*others), f(*others))


def test_a_result_that_is_a_view_of_what_is_kept() -> None:
    """The result and the saved activation have a common version counter, even if autograd does not
    know that the result is a view."""
    fused = fuser.memory_efficient_fusion(lambda x: torch.tanh(x).view(-1))
    x = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_()
    result = fused(x)
    with torch.no_grad():
        result.mul_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()
