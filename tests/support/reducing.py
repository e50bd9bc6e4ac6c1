"""Definitions with reductions and their references in float64; their plans for any GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fuser import DataType, FusionDefinition, _core, _core_testing
from fuser.ops import as_dtype

Inputs = list[Tensor]


@dataclass(frozen=True)
class Program:
    """A definition on tensors of these ranks, and its reference from inputs in float64."""

    define: Callable[..., Any]
    reference: Callable[..., Any]
    ranks: tuple[int, ...]
    # Maps the shape of the first input to the shapes of all inputs.
    shapes: Callable[..., list[tuple[int, ...]]] = lambda *shape: [shape]

    def definition(
        self, dtype: torch.dtype = torch.float32, sizes: Sequence[Sequence[int]] | None = None
    ) -> FusionDefinition:
        """`sizes`: static sizes of all inputs, or None for symbolic ones."""
        fd = FusionDefinition()
        sizes = sizes or [[-1] * rank for rank in self.ranks]
        tensors = [fd.define_tensor(list(of), dtype=as_dtype(dtype)) for of in sizes]
        results = self.define(fd.ops, *tensors)
        for result in results if isinstance(results, tuple | list) else [results]:
            narrow = not dtype.is_floating_point or dtype.itemsize < 4
            floating = result.dtype() in (DataType.Float, DataType.Double)
            fd.add_output(fd.ops.cast(result, as_dtype(dtype)) if narrow and floating else result)
        return fd

    def exact(self, inputs: Inputs) -> list[Tensor]:
        results = self.reference(*(x.double() if x.is_floating_point() else x for x in inputs))
        return list(results) if isinstance(results, tuple | list) else [results]


def per_row(*shape: int) -> list[tuple[int, ...]]:
    """x [..., n], weight [n], bias [n]"""
    return [shape, shape[-1:], shape[-1:]]


def backward_shapes(*shape: int) -> list[tuple[int, ...]]:
    """x, gradient, weight, mean, rstd"""
    return [shape, shape, shape[1:], (shape[0], 1), (shape[0], 1)]


def per_channel(*shape: int) -> list[tuple[int, ...]]:
    return [shape, shape[1:2], shape[1:2], shape[1:2], shape[1:2]]


def _layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Any:
    return torch.native_layer_norm(x, x.shape[-1:], w, b, 1e-5)


def _rms_norm(x: Tensor, w: Tensor) -> Any:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w


def _norm_backward(ops: Any, x: Any, g: Any, w: Any, mean: Any, rstd: Any) -> Any:
    n = ops.size(x, 1)
    normal = (x - mean) * rstd
    scaled = g * ops.broadcast(w, [True, False])
    average = ops.broadcast(ops.sum(scaled, 1) / n, [False, True])
    slope = ops.broadcast(ops.sum(scaled * normal, 1) / n, [False, True])
    dx = (scaled - average - normal * slope) * rstd
    return dx, ops.sum(g * normal, 0), ops.sum(g, 0)


def _norm_backward_exact(x: Tensor, g: Tensor, w: Tensor, mean: Tensor, rstd: Tensor) -> Any:
    normal = (x - mean) * rstd
    scaled = g * w
    slope = (scaled * normal).mean(1, keepdim=True)
    dx = (scaled - scaled.mean(1, keepdim=True) - normal * slope) * rstd
    return dx, (g * normal).sum(0), g.sum(0)


def _centered(ops: Any, x: Any) -> Any:
    y = x - ops.broadcast(ops.mean(x, 1), [False, True])
    return y, ops.sum(y * y, 0)


def _centered_exact(x: Tensor) -> Any:
    y = x - x.mean(1, keepdim=True)
    return y, y.square().sum(0)


def _batch_norm(ops: Any, x: Any, w: Any, b: Any, mean: Any, var: Any) -> Any:
    return ops.batch_norm(x, w, b, mean, var, 0.1, 1e-5, True)[0]


def _batch_norm_exact(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Any:
    return torch.native_batch_norm(x, w, b, mean.clone(), var.clone(), True, 0.1, 1e-5)[0]


PROGRAMS = {
    "sum_rows": Program(lambda o, x: o.sum(x, 1), lambda x: x.sum(1), (2,)),
    "sum_columns": Program(lambda o, x: o.sum(x, 0), lambda x: x.sum(0), (2,)),
    "sum_all": Program(lambda o, x: o.sum(x), lambda x: x.sum(), (2,)),
    "max_rows": Program(lambda o, x: o.max(x, 1), lambda x: x.amax(1), (2,)),
    "argmax_rows": Program(lambda o, x: o.argmax(x, 1), lambda x: x.argmax(1), (2,)),
    "var_rows": Program(lambda o, x: o.var_mean(x, 1), lambda x: (x.var(1), x.mean(1)), (2,)),
    "var_columns": Program(lambda o, x: o.var_mean(x, 0), lambda x: (x.var(0), x.mean(0)), (2,)),
    "logsumexp": Program(lambda o, x: o.logsumexp(x, 1), lambda x: x.logsumexp(1), (2,)),
    "softmax": Program(lambda o, x: o.softmax(x, 1), lambda x: x.softmax(1), (2,)),
    "softmax_columns": Program(lambda o, x: o.softmax(x, 0), lambda x: x.softmax(0), (2,)),
    "layer_norm": Program(
        lambda o, x, w, b: o.layer_norm(x, [-1], w, b), _layer_norm, (2, 1, 1), per_row
    ),
    "rms_norm": Program(
        lambda o, x, w: o.rms_norm(x, [-1], w, 1e-5)[0],
        _rms_norm,
        (2, 1),
        lambda *shape: per_row(*shape)[:2],
    ),
    # Two reduction loops that cannot be merged into a single pass.
    "over_norm": Program(
        lambda o, x: x / o.broadcast(o.norm(x, 2, 1), [False, True]),
        lambda x: x / torch.linalg.vector_norm(x, 2, 1, keepdim=True),
        (2,),
    ),
    "norm_backward": Program(
        _norm_backward, _norm_backward_exact, (2, 2, 1, 2, 2), backward_shapes
    ),
    # Two reduction loops with a single input.
    "centered": Program(_centered, _centered_exact, (2,)),
    "batch_norm": Program(_batch_norm, _batch_norm_exact, (4, 1, 1, 1, 1), per_channel),
}


# ---- Plans for tensors without memory


def dense(shape: Sequence[int]) -> list[int]:
    """Strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return strides[::-1]


def kernels_for(
    fd: FusionDefinition,
    shapes: Sequence[Sequence[int]],
    arch: int = 90,
    *,
    text: bool = False,
    address: int = 0,
    strides: Sequence[Sequence[int]] | None = None,
) -> list[dict[str, Any]]:
    """The kernels of a definition for inputs of these shapes on a known GPU: `plan`, and with
    `text` their schedule, Kernel IR and CUDA C. `address`: of the inputs, modulo 16. `strides`: of
    all inputs, contiguous by default."""
    strides = strides or [dense(shape) for shape in shapes]
    inputs = [
        (list(shape), list(steps), address) for shape, steps in zip(shapes, strides, strict=True)
    ]
    device = _core.known_device(arch)
    kernels: list[dict[str, Any]] = _core_testing.plan.plans(fd._builder, inputs, device, text)
    return kernels


def plans_for(
    name: str, shape: Sequence[int], dtype: torch.dtype = torch.float32, arch: int = 90
) -> list[dict[str, Any]]:
    """The plans of a program for a first input of this shape."""
    program = PROGRAMS[name]
    shapes = program.shapes(*shape)
    return [k["plan"] for k in kernels_for(program.definition(dtype), shapes, arch)]


def plan_for(
    name: str, shape: Sequence[int], dtype: torch.dtype = torch.float32, arch: int = 90
) -> dict[str, Any]:
    """The plan of a program that is one kernel."""
    (plan,) = plans_for(name, shape, dtype, arch)
    return plan


# values of Place in schedule/schedule.h
REGISTERS, SHARED, RELOAD = 1, 2, 3


# ---- Results


def random_inputs(name: str, shape: Sequence[int], dtype: torch.dtype, rng: Any) -> Inputs:
    """Normal around 1 with a standard deviation of 2; small integers for integer dtypes."""
    made = []
    for size in PROGRAMS[name].shapes(*shape):
        x = torch.from_numpy(rng.normal(1.0, 2.0, size=size))
        made.append(x.to(dtype) if dtype.is_floating_point else x.mul(3).round().to(dtype))
    return made


# |result - exact| <= TOLERANCE * (|exact| + the largest |exact|). Tree sums of these sizes in
# float32 lose a few ULP; results of half types are rounded once.
TOLERANCE = {
    torch.float64: 1e-13,
    torch.float32: 2e-6,
    torch.bfloat16: 2**-8,
    torch.float16: 2**-11,
}


def assert_close(got: Tensor, exact: Tensor, dtype: torch.dtype, scale: float = 1.0) -> None:
    assert got.shape == exact.shape
    if not got.is_floating_point():
        assert torch.equal(got, exact.to(got.dtype))
        return
    tolerance = scale * TOLERANCE[dtype]
    if exact.numel():
        error = (got.double() - exact).abs()
        allowed = tolerance * (exact.abs() + exact.abs().max())
        worst = (error - allowed).max()
        assert bool((error <= allowed).all()), (
            f"off by {error.max():.3g} where {allowed.min():.3g} to {allowed.max():.3g} is allowed "
            f"(by {worst:.3g} too much)"
        )
