"""The family of transposed copies: pointwise ops on tensors with different innermost axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.case import Case, Data, Goal, Row, Shape

bf16, f32, f64, i8 = torch.bfloat16, torch.float32, torch.float64, torch.int8

_GOAL = Goal(copy=0.95)
# Fraction of a copy's speed; odd rows use only part of their 32-byte sectors.
_ODD = Goal(copy=0.75)


def _row_major(ops: Any, x: Any, rank: int) -> Any:
    return ops.stride_order(x, list(reversed(range(rank))))


def permuted(*dims: int, name: str, output: torch.dtype | None = None) -> Any:
    """relu(1.5 x - 0.25) with permuted dims, row-major in and out; integers are only copied."""

    def build(shape: Shape, dtype: torch.dtype) -> Case:
        def eager(x: Tensor) -> Tensor:
            x = x.to(torch.promote_types(x.dtype, output or dtype))
            y = torch.relu(x * 1.5 - 0.25) if dtype.is_floating_point else x
            return y.permute(dims).contiguous()

        def define(ops: Any, x: Any) -> Any:
            y = ops.relu(x * 1.5 - 0.25) if dtype.is_floating_point else x
            return _row_major(ops, ops.cast(ops.permute(y, dims), output or dtype), len(dims))

        odd = any(size % 2 for size in shape)
        return Case(
            name=name,
            shape=shape,
            dtype=dtype,
            make=lambda data: [data.normal(shape, dtype)],
            eager=lambda x: eager(x).to(output or dtype),
            define=define,
            outputs=(output or dtype,),
            exact=eager,
            goal=_ODD if odd else _GOAL,
        )

    return build


transposed = permuted(1, 0, name="transposed")
batched = permuted(0, 2, 1, name="batched")
to_channels_last = permuted(0, 2, 3, 1, name="to_channels_last")
from_channels_last = permuted(0, 3, 1, 2, name="from_channels_last")
heads_last = permuted(0, 2, 3, 1, name="heads_last")


def cast_transposed(output: torch.dtype) -> Callable[[Shape, torch.dtype], Case]:
    name = f"transposed_to_{str(output).removeprefix('torch.')}"
    return permuted(1, 0, name=name, output=output)


def _matrices(
    name: str,
    count: int,
    function: Callable[..., Any],
    outputs: int = 1,
    twice: tuple[int, ...] = (),
) -> Callable[[Shape, torch.dtype], Case]:
    """function(transpose, store, *matrices) of `count` row-major matrices; store() makes a
    row-major result."""

    def build(shape: Shape, dtype: torch.dtype) -> Case:
        square = (shape[0], shape[0])

        def define(ops: Any, *x: Any) -> Any:
            def flipped(t: Any) -> Any:
                return ops.permute(t, [1, 0])

            return function(flipped, lambda t: _row_major(ops, ops.cast(t, dtype), 2), *x)

        def eager(*x: Tensor) -> Any:
            return function(lambda t: t.t(), lambda t: t.contiguous(), *x)

        return Case(
            name=name,
            shape=square,
            dtype=dtype,
            make=lambda data: [data.normal(square, dtype) for _ in range(count)],
            eager=eager,
            define=define,
            outputs=(dtype,) * outputs,
            twice=twice,
            goal=_GOAL,
        )

    return build


add_transposed = _matrices("add_transposed", 2, lambda t, rows, x, y: rows(x + t(y)))
antisymmetric = _matrices("antisymmetric", 1, lambda t, rows, x: rows(x - t(x)), twice=(0,))
both_layouts = _matrices(
    "both_layouts", 1, lambda t, rows, x: (rows(x * 1.5), rows(t(x * 1.5))), outputs=2
)
sum_of_3 = _matrices("sum_of_3_transposed", 3, lambda t, rows, x, y, z: rows(t(x + y + z)))


def biases(shape: Shape, dtype: torch.dtype) -> Case:
    """(x + a).T + b, with a indexed by the columns of x and b by the columns of the result, in
    float32."""

    def make(data: Data) -> list[Tensor]:
        return [data.normal(shape, dtype), data.normal(shape[1:], f32), data.normal(shape[:1], f32)]

    return Case(
        name="biases",
        shape=shape,
        dtype=dtype,
        make=make,
        eager=lambda x, a, b: ((x + a).t() + b).contiguous().to(dtype),
        define=lambda ops, x, a, b: _row_major(
            ops, ops.cast(ops.permute(x + a, [1, 0]) + b, dtype), 2
        ),
        outputs=(dtype,),
        exact=lambda x, a, b: ((x + a).t() + b).contiguous(),
        goal=_GOAL,
    )


TABLE = (
    Row(transposed, (8192, 8192), bf16, main=True),
    Row(transposed, (8192, 8192), f32, main=True),
    Row(transposed, (16384, 4096), bf16),
    Row(transposed, (16384, 4096), f32),
    Row(transposed, (8192, 4096), f64),
    Row(transposed, (8192, 16384), i8, main=True),
    Row(transposed, (8191, 8193), bf16, main=True),
    Row(transposed, (8191, 8193), f32),
    Row(batched, (64, 1024, 1024), bf16),
    Row(batched, (64, 1024, 1024), f32),
    Row(batched, (64, 1024, 2048), bf16, main=True),
    Row(to_channels_last, (64, 256, 56, 56), bf16, main=True),
    Row(to_channels_last, (64, 256, 56, 56), f32),
    Row(from_channels_last, (64, 56, 56, 256), bf16, main=True),
    Row(from_channels_last, (64, 56, 56, 256), f32),
    Row(to_channels_last, (64, 64, 112, 112), bf16),
    Row(to_channels_last, (256, 3, 224, 224), bf16, main=True),
    Row(heads_last, (8, 2048, 32, 128), bf16, main=True),
    Row(cast_transposed(f32), (8192, 8192), bf16, main=True),
    Row(cast_transposed(bf16), (8192, 8192), f32, main=True),
    Row(add_transposed, (8192, 8192), bf16, main=True),
    Row(add_transposed, (8192, 8192), f32),
    Row(antisymmetric, (8192, 8192), f32, main=True),
    Row(both_layouts, (8192, 8192), bf16, main=True),
    Row(sum_of_3, (8192, 8192), bf16, main=True),
    Row(biases, (8192, 8192), bf16, main=True),
)
