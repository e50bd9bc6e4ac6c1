"""Kernels of typical pointwise families as text, as inputs of GPU compilers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from typing import Any

import torch

from fuser import DataType, FusionDefinition, Plan, testing
from fuser.ops import as_dtype

HALF = torch.bfloat16
DATA = torch.zeros(1 << 14)


def zeros(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(sizes, dtype=dtype)


def bias_gelu(fd: FusionDefinition, x: Any, bias: Any) -> list[Any]:
    return [fd.ops.cast(fd.ops.gelu(x + bias, approximate="tanh"), DataType.BFloat16)]


def residual(fd: FusionDefinition, x: Any, y: Any) -> list[Any]:
    return [fd.ops.cast(x + y, DataType.BFloat16)]


def adamw(fd: FusionDefinition, p: Any, g: Any, m: Any, v: Any) -> list[Any]:
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return [p * 0.999 - m * 1e-3 / (fd.ops.sqrt(v) + 1e-8), m, v]


def copy(fd: FusionDefinition, x: Any) -> list[Any]:
    return [fd.ops.set(x)]


def square(fd: FusionDefinition, x: Any) -> list[Any]:
    return [x * x]


def scale_float16(fd: FusionDefinition, x: Any) -> list[Any]:
    return [fd.ops.cast(x * 0.5, DataType.Half)]


def add(fd: FusionDefinition, x: Any, y: Any) -> list[Any]:
    return [x + y]


def where(fd: FusionDefinition, condition: Any, x: Any) -> list[Any]:
    return [fd.ops.where(condition, x, 0.0)]


def scale_float8(fd: FusionDefinition, x: Any) -> list[Any]:
    return [fd.ops.cast(x * 0.5, DataType.Float8_e4m3fn)]


def transposed(fd: FusionDefinition, x: Any) -> list[Any]:
    return [x - fd.ops.permute(x, [1, 0])]


@dataclass(frozen=True)
class Family:
    """A definition with inputs. `wide`: number of vectorized 16-byte accesses in each of its
    kernels. `into`: the inputs that its results overwrite."""

    define: Callable[..., list[Any]]
    inputs: tuple[torch.Tensor, ...]
    wide: int
    into: tuple[int, ...] = ()


FAMILIES = {
    "bias_gelu_bf16": Family(bias_gelu, (zeros(8, 64, dtype=HALF), zeros(64, dtype=HALF)), 3),
    "bias_gelu_bf16_odd": Family(bias_gelu, (zeros(7, 63, dtype=HALF), zeros(63, dtype=HALF)), 2),
    "cast_bf16_f32": Family(
        lambda fd, x: [fd.ops.cast(x, DataType.Float)], (zeros(512, dtype=HALF),), 1
    ),
    "cast_f32_bf16": Family(lambda fd, x: [fd.ops.cast(x, DataType.BFloat16)], (zeros(512),), 1),
    "scale_f16": Family(scale_float16, (zeros(512, dtype=torch.float16),), 2),
    "residual_bf16": Family(residual, (zeros(512, dtype=HALF),) * 2, 3),
    "adamw_f32": Family(adamw, (zeros(512),) * 4, 7),
    "adamw_in_place_f32": Family(
        # Four separate tensors: inputs that share memory would require a copy.
        adamw,
        tuple(zeros(512) for _ in range(4)),
        7,
        into=(0, 2, 3),
    ),
    "rows_f32_odd": Family(add, (zeros(7, 63), zeros(63)), 2),
    "channels_last_f32": Family(
        add,
        (zeros(2, 8, 4, 4).to(memory_format=torch.channels_last), zeros(2, 8, 4, 4)),
        2,
    ),
    "strided_f32": Family(copy, (DATA.as_strided((16, 16), (48, 2)),), 1),
    "padded_rows_f32": Family(copy, (DATA.as_strided((16, 16), (48, 1)),), 2),
    "transposed_f32": Family(transposed, (zeros(16, 16),), 2),
    "complex64": Family(square, (zeros(512, dtype=torch.complex64),), 2),
    "complex128": Family(square, (zeros(512, dtype=torch.complex128),), 2),
    "int8": Family(square, (zeros(512, dtype=torch.int8),), 2),
    "bool": Family(copy, (zeros(512, dtype=torch.bool),), 2),
    "int8_add": Family(add, (zeros(512, dtype=torch.int8),) * 2, 3),
    "int64": Family(add, (zeros(512, dtype=torch.int64),) * 2, 3),
    "where_bool": Family(where, (zeros(512, dtype=torch.bool), zeros(512)), 2),
    "float64": Family(square, (zeros(512, dtype=torch.float64),), 2),
    "float8": Family(scale_float8, (zeros(512, dtype=torch.float8_e4m3fn),), 2),
}


@dataclass(frozen=True)
class Kernel:
    """One kernel as CUDA C. `wide`: number of 16-byte accesses in it."""

    family: str
    vector: int
    name: str
    text: str
    wide: int


@cache
def kernels() -> list[Kernel]:
    """The kernels of each family at its planned vector width and at every smaller one."""
    runs = {}
    for name, family in FAMILIES.items():
        fd = FusionDefinition()
        tensors = [fd.define_tensor([-1] * t.dim(), dtype=as_dtype(t.dtype)) for t in family.inputs]
        results = family.define(fd, *tensors)
        targets = [tensors[i] for i in family.into]
        for result, target in zip_longest(results, targets):
            fd.add_output(result, target)
        runs[name] = (fd, list(family.inputs))
    testing.compile_batch(runs.values())
    found = []
    for name, (fd, inputs) in runs.items():
        plan = fd.plan(inputs)
        assert isinstance(plan, Plan)
        # One vector width, or one per layout group of a transpose.
        widths = {field: int(plan[field]) for field in plan if field.partition("_")[0] == "vector"}
        widest = vector = max(widths.values())
        while vector >= 1:
            changed = dict(plan.replace(**{f: min(w, vector) for f, w in widths.items()}))
            (info,) = fd.fec.executor.kernels(inputs, None, changed)
            wide = FAMILIES[name].wide if vector == widest else 0
            found.append(Kernel(name, vector, info.name, info.text, wide))
            vector //= 2
    return found
