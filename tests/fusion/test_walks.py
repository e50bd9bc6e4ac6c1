"""What the walks of a kernel with reductions are for: which of them stores an output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuser import DataType, FusionDefinition
from tests.stages import stage_text

Define = Callable[[Any, Any], list[Any]]


def walks_of_stores(define: Define) -> tuple[list[int], str]:
    """By output, how many reductions are finished before it is stored; the kernel."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], dtype=DataType.Float)
    for output in define(fd.ops, x):
        fd.add_output(output)
    text = stage_text(fd, [torch.ones(4, 256)], "loops")
    written = {}
    finished = 0
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["combine"]:
            finished += 1
        if words[:1] == ["write"]:
            written[words[words.index("width") + 2].partition("[")[0]] = finished
    return [written[name] for name in sorted(written)], text


def coin(ops: Any, x: Any) -> Any:
    return ops.ge(ops.uniform(0.0, 1.0, [ops.size(x, 0), ops.size(x, 1)]), 0.5)


def test_a_mask_is_drawn_once() -> None:
    """The last walk needs it for the result; the first would draw it for the mask alone."""

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
