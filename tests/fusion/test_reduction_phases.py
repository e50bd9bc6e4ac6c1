"""Phases of the reduction loops of a kernel: the loop that stores each output, and the total
work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuser import DataType, FusionDefinition, _core, _core_testing, evaluate
from tests.support.groups import Grouped, check
from tests.support.stages import stage_text

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
Define = Callable[[Any, Any], list[Any]]


def walks_of_stores(define: Define) -> tuple[list[int], str]:
    """For each output, the number of reductions complete before it is stored; the kernel."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], dtype=DataType.Float)
    for output in define(fd.ops, x):
        fd.add_output(output)
    text = stage_text(fd, [torch.ones(4, 256)], "build")
    written = {}
    finished = 0
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["block_reduce"]:
            finished += 1
        if words[:1] == ["write"]:
            written[words[words.index("width") + 2].partition("[")[0]] = finished
    return [written[name] for name in sorted(written)], text


def coin(ops: Any, x: Any) -> Any:
    return ops.ge(ops.uniform(0.0, 1.0, [ops.size(x, 0), ops.size(x, 1)]), 0.5)


def test_a_mask_is_drawn_once() -> None:
    """A random mask is drawn once, in the last reduction loop, which needs it for the result."""

    def define(ops: Any, x: Any) -> list[Any]:
        keep = coin(ops, x)
        return [ops.mul(ops.softmax(x, 1), ops.cast(keep, DataType.Float)), keep]

    walks, text = walks_of_stores(define)
    assert walks == [2, 2]
    assert text.count("random32(") == 1


CASES: dict[str, tuple[Define, list[int]]] = {
    "needed by the first walk alone": (lambda o, x: [x * 2.0, o.sum(x * 2.0, 1)], [0, 1]),
    "needed by nothing": (lambda o, x: [o.softmax(x, 1), o.neg(o.exp(x))], [2, 0]),
    "needed by the walk after the first": (
        lambda o, x: [o.sum(o.exp(x) - o.max(x, 1, True), 1), o.exp(x)],
        [2, 1],
    ),
    "waits for a reduction": (lambda o, x: [x - o.max(x, 1, True)], [1]),
}


@pytest.mark.parametrize("case", CASES)
def test_an_output_is_stored_by_the_last_walk_that_computes_it(case: str) -> None:
    define, walks = CASES[case]
    assert walks_of_stores(define)[0] == walks


def less_a_sum(o: Any, x: Any) -> Any:
    return o.tanh(x) - o.sum(x, 1, keepdim=True) / 8.0


def less_a_mean(o: Any, x: Any) -> Any:
    return o.tanh(x) - o.mean(x, 1, keepdim=True)


def less_the_largest(o: Any, x: Any) -> Any:
    return o.tanh(x) - o.max(x, 1, keepdim=True)


def and_its_softmax(o: Any, x: Any) -> Any:
    return o.softmax(x, 1) + 0.5 * x


def normal(o: Any, x: Any) -> Any:
    return o.layer_norm(x, [x.size(1)])[0] * 0.5


def less_a_column(o: Any, x: Any) -> Any:
    return o.tanh(x) - o.mean(x, 0, keepdim=True)


def chain_of(step: Callable[[Any, Any], Any], length: int) -> FusionDefinition:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    for _ in range(length):
        x = step(fd.ops, x)
    fd.add_output(x)
    return fd


@pytest.mark.parametrize(
    "step",
    [less_a_sum, less_a_mean, less_the_largest, and_its_softmax, normal, less_a_column],
)
def test_reductions_that_wait_for_each_other_take_text_linear_in_their_number(
    step: Callable[[Any, Any], Any],
) -> None:
    """A reduction loop that depends on another one rematerializes its operands. For chains of
    reductions the total text grows linearly."""
    size = {}
    for length in (60, 120):
        fd = chain_of(step, length)
        got = check(fd, [X], tolerance=1e-6)
        assert all(len(g["stores"]) == 1 for g in got.groups)
        device = _core.known_device(90)
        kernels = _core_testing.plan.plans(fd._builder, [([6, 8], [8, 1], 0)], device, True)
        size[length] = sum(len(kernel["cuda"].text) for kernel in kernels)
    assert size[120] < 2.25 * size[60]


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Double])
def test_costly_ops_are_cut_before_their_kernel_takes_long_to_compile(dtype: DataType) -> None:
    """A long chain of expensive ops is segmented: compilers inline each sine, and compile time
    grows faster than linearly."""
    fd = FusionDefinition()
    y = fd.define_tensor([-1], dtype=dtype)
    for _ in range(1000):
        y = fd.ops.sin(y)
    fd.add_output(y)
    cost = {row.name: row.cost for row in _core.op_rows()}["sin"]
    device = _core.known_device(90)
    kernels = _core_testing.plan.plans(fd._builder, [([64], [1], 0)], device, True)
    texts = [kernel["cuda"].text for kernel in kernels]
    assert all(text.count("sin_(") * cost < 9000 for text in texts)
    assert len(set(texts)) <= 4
    x = torch.linspace(-3, 3, 64, dtype=getattr(torch, dtype.torch_name))
    fd.validate([x])


def test_reductions_that_wait_for_each_other_run_in_several_kernels() -> None:
    fd = chain_of(less_a_mean, 40)
    assert 2 <= len(Grouped(fd, [X]).groups) <= 5
    torch.testing.assert_close(
        fd.execute([X])[0].double(), evaluate(fd, [X])[0].double(), rtol=1e-5, atol=1e-6
    )
