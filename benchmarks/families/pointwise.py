"""The pointwise family: ops between matrix products, 64 MB to 1 GB, cold L2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.case import PEER, Case, Data, Goal, Row, Shape, key

bf16, f16, f32, f64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
i32, i64, c64 = torch.int32, torch.int64, torch.complex64

_NO_GOAL = Goal()


def _plain(
    name: str,
    shape: Shape,
    dtype: torch.dtype,
    count: int,
    eager: Callable[..., Any],
    define: Callable[..., Any],
    output: torch.dtype | None = None,
    exact: Callable[..., Any] | None = None,
) -> Case:
    """`count` inputs and one output of equal shape."""
    return Case(
        name=name,
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(shape, dtype) for _ in range(count)],
        eager=eager,
        define=define,
        outputs=(output or dtype,),
        exact=exact,
    )


def scale(shape: Shape, dtype: torch.dtype) -> Case:
    return _plain("scale", shape, dtype, 1, lambda x: x * 1.5, lambda ops, x: x * 1.5)


def add(shape: Shape, dtype: torch.dtype) -> Case:
    return _plain("add", shape, dtype, 2, lambda x, y: x + y, lambda ops, x, y: x + y)


def axpy(shape: Shape, dtype: torch.dtype) -> Case:
    """Residual: x + 0.5 y."""
    return _plain("axpy", shape, dtype, 2, lambda x, y: x + 0.5 * y, lambda ops, x, y: x + 0.5 * y)


def sum_of_8(shape: Shape, dtype: torch.dtype) -> Case:
    def total(*tensors: Any) -> Any:
        result = tensors[0]
        for t in tensors[1:]:
            result = result + t
        return result

    return _plain("sum_of_8", shape, dtype, 8, total, lambda ops, *t: total(*t))


def unary(name: str) -> Callable[[Shape, torch.dtype], Case]:
    def build(shape: Shape, dtype: torch.dtype) -> Case:
        return _plain(
            name, shape, dtype, 1, getattr(torch, name), lambda ops, x: getattr(ops, name)(x)
        )

    return build


def cast_to(output: torch.dtype) -> Callable[[Shape, torch.dtype], Case]:
    def build(shape: Shape, dtype: torch.dtype) -> Case:
        name = f"cast_to_{str(output).removeprefix('torch.')}"
        return _plain(
            name,
            shape,
            dtype,
            1,
            lambda x: x.to(output),
            lambda ops, x: ops.cast(x, output),
            output=output,
            exact=lambda x: x,
        )

    return build


def _bias(name: str, function: Callable[..., Any], op: Callable[..., Any]) -> Any:
    """function(x + bias) with one bias per column."""

    def build(shape: Shape, dtype: torch.dtype) -> Case:
        return Case(
            name=name,
            shape=shape,
            dtype=dtype,
            make=lambda data: [data.normal(shape, dtype), data.normal(shape[-1:], dtype)],
            eager=lambda x, b: function(x + b),
            define=lambda ops, x, b: op(ops, x + b),
            outputs=(dtype,),
        )

    return build


bias = _bias("bias", lambda x: x, lambda ops, x: x)
bias_gelu_tanh = _bias(
    "bias_gelu_tanh",
    lambda x: F.gelu(x, approximate="tanh"),
    lambda ops, x: ops.gelu(x, approximate="tanh"),
)
bias_gelu_erf = _bias("bias_gelu_erf", F.gelu, lambda ops, x: ops.gelu(x))


def column_scale(shape: Shape, dtype: torch.dtype) -> Case:
    """x times one number per row."""
    return Case(
        name="column_scale",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(shape, dtype), data.normal((*shape[:-1], 1), dtype)],
        eager=lambda x, c: x * c,
        define=lambda ops, x, c: x * c,
        outputs=(dtype,),
    )


def quickstart(shape: Shape, dtype: torch.dtype) -> Case:
    """gelu(x + bias) * scale + residual, as in examples/quickstart.py."""
    return Case(
        name="quickstart",
        shape=shape,
        dtype=dtype,
        make=lambda data: [
            data.normal(shape, dtype),
            data.normal(shape[-1:], dtype),
            data.normal(shape, dtype),
        ],
        eager=lambda x, b, r: F.gelu(x + b, approximate="tanh") * 0.5 + r,
        define=lambda ops, x, b, r: ops.gelu(x + b, approximate="tanh") * 0.5 + r,
        outputs=(dtype,),
    )


def bias_add(shape: Shape, dtype: torch.dtype) -> Case:
    """x + bias + residual: bias_dropout_add without its dropout."""
    return _bias_add("bias_add", shape, dtype, lambda ops, x: x)


def bias_dropout_add(shape: Shape, dtype: torch.dtype) -> Case:
    """dropout(x + bias) + residual with probability 0, so that the result is known. The random
    numbers are drawn and compared all the same."""
    goal = Goal(beside=(key("bias_add", dtype, shape), PEER))
    name = "bias_dropout_add"
    return _bias_add(name, shape, dtype, lambda ops, x: ops.dropout(x, 0.0)[0], goal)


def _bias_add(
    name: str, shape: Shape, dtype: torch.dtype, op: Callable[..., Any], goal: Goal = _NO_GOAL
) -> Case:
    return Case(
        name=name,
        shape=shape,
        dtype=dtype,
        make=lambda data: [
            data.normal(shape, dtype),
            data.normal(shape[-1:], dtype),
            data.normal(shape, dtype),
        ],
        eager=lambda x, b, r: x + b + r,
        define=lambda ops, x, b, r: op(ops, x + b) + r,
        outputs=(dtype,),
        goal=goal,
    )


def swiglu(shape: Shape, dtype: torch.dtype) -> Case:
    return _plain(
        "swiglu",
        shape,
        dtype,
        2,
        lambda gate, up: F.silu(gate) * up,
        lambda ops, gate, up: ops.silu(gate) * up,
    )


def geglu(shape: Shape, dtype: torch.dtype) -> Case:
    return _plain(
        "geglu",
        shape,
        dtype,
        2,
        lambda gate, up: F.gelu(gate, approximate="tanh") * up,
        lambda ops, gate, up: ops.gelu(gate, approximate="tanh") * up,
    )


def relu_squared(shape: Shape, dtype: torch.dtype) -> Case:
    def squared(y: Any) -> Any:
        return y * y

    return _plain(
        "relu_squared",
        shape,
        dtype,
        1,
        lambda x: squared(torch.relu(x)),
        lambda ops, x: squared(ops.relu(x)),
    )


def _adamw(
    name: str, tensors: int, shape: Shape, dtype: torch.dtype, goal: Goal = _NO_GOAL
) -> Case:
    """One AdamW step on `tensors` parameters with gradients and both moments; parameters and
    moments are updated in place."""
    rate, beta1, beta2, epsilon, decay = 1e-3, 0.9, 0.999, 1e-8, 0.01
    correction1, correction2 = 1 - beta1**10, 1 - beta2**10
    each = (shape[0] // tensors,)

    def make(data: Data) -> list[Tensor]:
        steps = [[data.normal(each, dtype) for _ in range(4)] for _ in range(tensors)]
        return [t for p, g, m, v in steps for t in (p, g, m, v.abs_())]

    def update(p: Any, g: Any, m: Any, v: Any, sqrt: Callable[..., Any]) -> tuple[Any, Any, Any]:
        m = m * beta1 + g * (1 - beta1)
        v = v * beta2 + g * g * (1 - beta2)
        step = (m / correction1) / (sqrt(v / correction2) + epsilon)
        return p * (1 - rate * decay) - rate * step, m, v

    def eager(*given: Tensor) -> None:
        for p, g, m, v in batched(given):
            for old, new in zip((p, m, v), update(p, g, m, v, torch.sqrt), strict=True):
                old.copy_(new)

    def batched(given: Sequence[Any]) -> list[Sequence[Any]]:
        return [given[i : i + 4] for i in range(0, len(given), 4)]

    return Case(
        name=name,
        shape=shape,
        dtype=dtype,
        make=make,
        eager=eager,
        define=lambda ops, *given: [
            new for one in batched(given) for new in update(*one, ops.sqrt)
        ],
        outputs=(dtype,) * (3 * tensors),
        aliases=tuple(4 * i + place for i in range(tensors) for place in (0, 2, 3)),
        goal=goal,
    )


def adamw(shape: Shape, dtype: torch.dtype) -> Case:
    return _adamw("adamw", 1, shape, dtype)


def adamw_of_100(shape: Shape, dtype: torch.dtype) -> Case:
    """The step on 100 tensors with as many elements in total as the one tensor of adamw()."""
    goal = Goal(beside=(key("adamw", dtype, shape), 0.95))
    return _adamw("adamw_of_100", 100, shape, dtype, goal)


def mask_mul(shape: Shape, dtype: torch.dtype) -> Case:
    """Dropout with a given mask."""
    return Case(
        name="mask_mul",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(shape, dtype), data.normal(shape, torch.bool)],
        eager=lambda x, keep: x * keep * (1 / 0.9),
        define=lambda ops, x, keep: x * keep * (1 / 0.9),
        outputs=(dtype,),
    )


def where(shape: Shape, dtype: torch.dtype) -> Case:
    return Case(
        name="where",
        shape=shape,
        dtype=dtype,
        make=lambda data: [
            data.normal(shape, torch.bool),
            data.normal(shape, dtype),
            data.normal(shape, dtype),
        ],
        eager=torch.where,
        define=lambda ops, keep, x, y: ops.where(keep, x, y),
        outputs=(dtype,),
    )


def complex_mul(shape: Shape, dtype: torch.dtype) -> Case:
    return _plain("complex_mul", shape, dtype, 2, torch.mul, lambda ops, x, y: x * y)


def channels_last(shape: Shape, dtype: torch.dtype) -> Case:
    """relu(x * scale + shift) of a channels-last image batch."""
    per_channel = (1, shape[1], 1, 1)
    return Case(
        name="channels_last",
        shape=shape,
        dtype=dtype,
        make=lambda data: [
            data.normal(shape, dtype).contiguous(memory_format=torch.channels_last),
            data.normal(per_channel, dtype),
            data.normal(per_channel, dtype),
        ],
        eager=lambda x, a, b: torch.relu(x * a + b),
        define=lambda ops, x, a, b: ops.relu(x * a + b),
        outputs=(dtype,),
    )


def slice_scale(shape: Shape, dtype: torch.dtype) -> Case:
    """The first half of each row of a matrix twice as wide."""
    return Case(
        name="slice_scale",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal((shape[0], 2 * shape[1]), dtype)[:, : shape[1]]],
        eager=lambda x: x * 1.5,
        define=lambda ops, x: x * 1.5,
        outputs=(dtype,),
    )


TABLE = (
    Row(scale, (4096, 4096), bf16),  # 64 MB in and out
    Row(scale, (8192, 16384), bf16, main=True),
    Row(scale, (16384, 16384), bf16),  # 1 GB
    Row(scale, (8192, 16384), f16),
    Row(scale, (4096, 2048), f32),  # 64 MB
    Row(scale, (8192, 8192), f32, main=True),
    Row(scale, (8192, 16384), f32),  # 1 GB
    Row(add, (8192, 8192), bf16),
    Row(add, (8192, 8192), f32, main=True),
    Row(axpy, (8192, 12288), bf16),
    Row(bias_gelu_tanh, (8192, 12288), bf16, main=True),
    Row(bias_gelu_tanh, (16384, 4096), bf16),
    Row(bias_gelu_tanh, (8192, 12288), f32),
    Row(bias_gelu_erf, (8192, 12288), bf16, main=True),
    Row(bias_gelu_erf, (16384, 4096), bf16),
    Row(bias_gelu_tanh, (8191, 12287), bf16, main=True),
    Row(quickstart, (8192, 12288), bf16, main=True),
    Row(quickstart, (4096, 5120), bf16),
    Row(bias_add, (8192, 8192), bf16),
    Row(bias_add, (8192, 8192), f32),
    Row(bias_dropout_add, (8192, 8192), bf16, main=True),
    Row(bias_dropout_add, (8192, 8192), f32, main=True),
    Row(swiglu, (8192, 14336), bf16, main=True),
    Row(geglu, (8192, 14336), bf16, main=True),
    Row(relu_squared, (8192, 12288), f16, main=True),
    Row(adamw, (1 << 20,), f32),
    Row(adamw, (16 << 20,), f32),
    Row(adamw, (64 << 20,), f32, main=True),
    Row(adamw, (100 << 18,), f32),
    Row(adamw_of_100, (100 << 18,), f32, main=True, tiny=((400,), (900,))),
    Row(cast_to(f32), (8192, 16384), bf16, main=True),
    Row(cast_to(bf16), (8192, 16384), f32, main=True),
    Row(bias, (8192, 8192), f32),
    Row(bias, (8191, 12287), f32),
    Row(column_scale, (8192, 8192), f32, main=True),
    Row(column_scale, (8192, 12288), bf16),
    Row(channels_last, (64, 256, 56, 56), bf16, main=True),
    Row(slice_scale, (8192, 8192), f32),
    Row(slice_scale, (8192, 12288), bf16, main=True),
    Row(unary("exp"), (8192, 8192), f32),
    Row(unary("tanh"), (8192, 8192), f32, main=True),
    Row(unary("sigmoid"), (8192, 8192), f32),
    Row(add, (8192, 8192), i32),
    Row(add, (8192, 4096), i64),
    Row(where, (8192, 8192), f32, main=True),
    Row(mask_mul, (8192, 12288), bf16, main=True),
    Row(mask_mul, (8192, 8192), f32),
    Row(complex_mul, (8192, 4096), c64, main=True),
    Row(sum_of_8, (8192, 4096), f32, main=True),
    Row(sum_of_8, (8192, 8192), bf16),
)
