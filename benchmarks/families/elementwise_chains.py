"""The family of long definitions: elementwise chains, and a graph that needs several kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.case import Bound, Case, Row, Shape

bf16, f32 = torch.bfloat16, torch.float32


def chain(ops_of_it: int) -> Callable[[Shape, torch.dtype], Case]:
    """A chain of `ops_of_it` ops whose values stay near 1: sigmoid, two multiplications and an
    addition, repeated."""

    def compute(x: Any, y: Any, sigmoid: Callable[[Any], Any]) -> Any:
        for i in range(ops_of_it // 4):
            x = sigmoid(x) * 1.5 + y * (0.5 + i / ops_of_it)
        return x

    def build(shape: Shape, dtype: torch.dtype) -> Case:
        return Case(
            name=f"chain_of_{ops_of_it}",
            shape=shape,
            dtype=dtype,
            make=lambda data: [data.normal(shape, dtype) for _ in range(2)],
            eager=lambda x, y: compute(x, y, torch.sigmoid),
            define=lambda ops, x, y: compute(x, y, ops.sigmoid),
            outputs=(dtype,),
        )

    return build


def segments(shape: Shape, dtype: torch.dtype) -> Case:
    """Ten softmaxes, alternately along rows and columns: they need several kernels."""

    def compute(x: Any, softmax: Callable[[Any, int], Any]) -> Any:
        for i in range(10):
            x = softmax(x * 2.0, i % 2)
        return x

    return Case(
        name="ten_segments",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(shape, dtype)],
        eager=lambda x: compute(x, torch.softmax),
        define=lambda ops, x: compute(x, ops.softmax),
        outputs=(dtype,),
        bounds=(Bound(1e-6, half=1e-4),),
    )


TABLE = (
    Row(chain(8), (1024, 1024), f32),
    Row(chain(8), (8192, 8192), bf16, main=True),
    Row(chain(32), (1024, 1024), f32, main=True),
    Row(chain(32), (8192, 8192), bf16),
    Row(chain(128), (8192, 8192), f32, main=True),
    Row(segments, (4096, 4096), f32),
)
