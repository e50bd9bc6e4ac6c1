"""Definitions for every scheduler, and plans that change any field of the planned ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fuser import FusionDefinition, _core_testing
from fuser.ops import as_dtype
from tests.support.reducing import PROGRAMS

F8, BF16, F16 = torch.float8_e4m3fn, torch.bfloat16, torch.float16
I8, F32, F64, C128 = torch.int8, torch.float32, torch.float64, torch.complex128


@dataclass(frozen=True)
class Case:
    """A definition and its inputs."""

    name: str
    fd: FusionDefinition
    inputs: list[Tensor]

    def kernels(self, device: Any) -> list[Any]:
        layouts = [(list(x.shape), list(x.stride()), x.data_ptr() % 16) for x in self.inputs]
        segmented = _core_testing.plan.Segmented(self.fd._builder, layouts, device.cpu)
        return list(segmented.planned(device))


def values(shape: tuple[int, ...], dtype: torch.dtype, rng: np.random.Generator) -> Tensor:
    """Small integers: every dtype represents them, and their sums are exact."""
    return torch.from_numpy(rng.integers(-3, 4, size=shape)).to(dtype)


Define = Callable[[Any, list[Any]], Any]


def define(
    write: Define, inputs: list[Tensor], result: torch.dtype | None = None
) -> FusionDefinition:
    """A definition with symbolic sizes. `result`: dtype of all outputs."""
    fd = FusionDefinition()
    out = write(fd.ops, [fd.from_pytorch(x) for x in inputs])
    for tensor in out if isinstance(out, tuple | list) else [out]:
        fd.add_output(fd.ops.cast(tensor, as_dtype(result)) if result else tensor)
    return fd


def turned(ops: Any, x: Any) -> Any:
    """Transposes the last two dims and stores the result row-major."""
    rank = x.ndim
    order = [*range(rank - 2), rank - 1, rank - 2]
    return ops.stride_order(ops.permute(x, order), list(reversed(range(rank))))


def _stacked(ops: Any, t: list[Any]) -> Any:
    return ops.cat(t, 1)


def _padded(ops: Any, t: list[Any]) -> Any:
    return ops.pad(t[0], [1, 2, 0, 1])


def _rotary(ops: Any, t: list[Any]) -> Any:
    """Rotary embedding: the halves of each head, rotated by angles common to all heads."""
    x, cos, sin = t
    sizes = [ops.size(x, d) for d in range(4)]
    half = sizes[3] // 2
    low = ops.slice(x, [0, 0, 0, 0], [*sizes[:3], half])
    high = ops.slice(x, [0, 0, 0, half], sizes)
    cos, sin = (ops.broadcast(a, [True, True, False, False]) for a in (cos, sin))
    return x * cos + ops.cat([ops.neg(high), low], 3) * sin


def _repeated(ops: Any, t: list[Any]) -> Any:
    """Repeat each element of a row twice, and add a second row."""
    x, y = t
    rows, columns = ops.size(x, 0), ops.size(x, 1)
    twice = ops.expand(ops.broadcast(x, [False, False, True]), [rows, columns, 2])
    return ops.reshape(twice, [rows, columns * 2]) + y


def _kept(ops: Any, t: list[Any]) -> Any:
    """Arithmetic between reduction loops that takes longer than the memory traffic."""
    y = t[0]
    for _ in range(3):
        y = ops.sin(ops.tanh(y))
    return _centered(ops, [y])


def _across(ops: Any, t: list[Any]) -> Any:
    z, x = t
    y = z + ops.permute(x, [0, 2, 1])
    return y - ops.broadcast(ops.mean(y, 2), [False, False, True])


def _across_gradient(ops: Any, t: list[Any]) -> Any:
    """_across with additional column sums."""
    y = _across(ops, t)
    return y, ops.sum(y, [0, 1])


def _by_columns(ops: Any, t: list[Any]) -> Any:
    x, *columns = t
    for column in columns:
        x = x * ops.broadcast(column, [True, False])
    return x


def _strided(ops: Any, t: list[Any]) -> Any:
    return ops.slice(t[0], [0, 0], [ops.size(t[0], 0), ops.size(t[0], 1)], [1, 2])


def _centered(ops: Any, t: list[Any]) -> Any:
    return t[0] - ops.broadcast(ops.mean(t[0], 1), [False, True])


# name: definition, shapes of the inputs, dtypes
SIMPLE: dict[str, tuple[Define, list[list[tuple[int, ...]]], list[torch.dtype]]] = {
    "add": (
        lambda o, t: t[0] + t[1],
        [[(40, 64)] * 2, [(33, 47)] * 2, [(3, 5)] * 2],
        [I8, F8, BF16, F32, C128],
    ),
    "row": (
        lambda o, t: t[0] + o.broadcast(t[1], [False, True]),
        [[(40, 100), (40,)], [(129, 37), (129,)], [(16, 1001), (16,)]],
        [BF16, F64],
    ),
    "cat": (_stacked, [[(24, 16), (24, 32)], [(7, 13), (7, 5)]], [I8, F16, F32]),
    "pad": (_padded, [[(24, 61)], [(9, 30)]], [BF16, F32]),
    "slice": (_strided, [[(24, 64)], [(24, 34)]], [BF16, F32]),
    "by_columns": (_by_columns, [[(70, 64)] + [(64,)] * 4, [(37, 30)] + [(30,)] * 4], [BF16, F32]),
    "rotary": (
        _rotary,
        [[(2, 8, 20, 64), (20, 64), (20, 64)], [(1, 3, 9, 40), (9, 40), (9, 40)]],
        [BF16, F32],
    ),
    "transpose": (
        lambda o, t: turned(o, t[0]),
        [[(40, 24)], [(64, 64)], [(33, 47)], [(130, 257)], [(2, 96, 50)]],
        [I8, BF16, F32, F64],
    ),
    "transpose_add": (
        lambda o, t: turned(o, t[0]) + t[1],
        [[(64, 48), (48, 64)], [(33, 65), (65, 33)]],
        [BF16, F32],
    ),
    "both_ways": (
        lambda o, t: (t[0] + turned(o, t[1]), turned(o, t[0]) * turned(o, t[0])),
        [[(64, 64), (64, 64)]],
        [F16, F32],
    ),
    "sum_rows": (
        lambda o, t: o.sum(t[0], 1),
        [[(40, 512)], [(5, 9000)], [(300, 17)], [(33, 1023)], [(64, 3)]],
        [I8, BF16, F32, F64],
    ),
    "sum_columns": (
        lambda o, t: o.sum(t[0], 0),
        [[(300, 64)], [(2000, 17)], [(40, 1000)], [(1025, 33)]],
        [BF16, F32, F64],
    ),
    "centered": (
        _centered,
        [[(40, 512)], [(9, 4100)], [(300, 17)], [(33, 1023)], [(3, 20000)]],
        [BF16, F32],
    ),
    "kept": (_kept, [[(40, 512)], [(24, 256)]], [BF16, F32]),
    "repeated": (_repeated, [[(16, 64), (16, 128)]], [BF16, F32]),
    # Sizes large enough that a staging tile is chosen.
    "across": (_across, [[(64, 40, 512), (64, 512, 40)]], [BF16, F32]),
    "across_gradient": (_across_gradient, [[(632, 52, 32), (632, 32, 52)]], [BF16]),
    "sum_all": (lambda o, t: o.sum(t[0]), [[(64, 1000)]], [F32]),
}
# Programs of tests/support/reducing.py, with shapes of their first inputs.
NORMS: dict[str, tuple[list[tuple[int, ...]], list[torch.dtype]]] = {
    "softmax": ([(40, 256), (60, 49), (6, 5000)], [BF16, F32]),
    "softmax_columns": ([(40, 64), (500, 33)], [F32]),
    "layer_norm": ([(40, 768), (33, 1023), (4, 12000), (2, 50_000)], [BF16, F32]),
    "var_rows": ([(12, 3000)], [F32]),
    "argmax_rows": ([(40, 600)], [BF16]),
    "norm_backward": ([(64, 768), (40, 1000), (48, 96), (6, 9000)], [BF16, F32]),
    "centered": ([(64, 256), (64, 96), (6, 9000)], [BF16, F32]),
    "batch_norm": ([(4, 12, 14, 14)], [F32]),
}


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for name, (write, shapes, dtypes) in SIMPLE.items():
        for of in shapes:
            for dtype in dtypes:
                inputs = [values(shape, dtype, rng) for shape in of]
                if name == "rotary":  # angles are float32
                    inputs[1:] = [x.float() for x in inputs[1:]]
                result = dtype if dtype.is_floating_point and dtype.itemsize < 4 else None
                yield Case(f"{name} {of[0]} {dtype}", define(write, inputs, result), inputs)
    for name, (firsts, dtypes) in NORMS.items():
        for first in firsts:
            for dtype in dtypes:
                inputs = [values(shape, dtype, rng) for shape in PROGRAMS[name].shapes(*first)]
                fd = PROGRAMS[name].definition(dtype)
                yield Case(f"{name} {first} {dtype}", fd, inputs)


# ---- Values of fields

EDGES = [0, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 31, 32, 33, 48, 64, 96, 100, 127, 128]
EDGES += [192, 256, 384, 512, 768, 1000, 1024, 1025, 2048, 4096, 65536, 2**20, 2**20 + 1]
EDGES += [2**31 - 1, 2**31, -(2**31), 2**32, 2**32 + 1, 2**62, 2**63 - 1, -(2**63)]
HUGE = [2**63, 2**64, 2**64 + 1, 2**96 - 1, -(2**63) - 1, -(2**64), 2**200, 10**1000, 2**5000]
NO_INTS = ["3", None, 1.5, 2.0, [1], (), {}, b"1", 1j]


def near(planned: int) -> list[int]:
    """Values that a user would try first, and a mask with one access less or more."""
    found = [2 * planned, planned // 2, 4 * planned, planned // 4, 1, 0, planned + 1, planned - 1]
    return [*found, planned & (planned - 1), planned | 1 << planned.bit_length()]


def changes(plan: dict[str, Any], count: int, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """`count` changes of a plan, in three kinds: a field set to any value above; one to three
    fields set to values near the planned ones; two or three fields set to either."""
    planned = {name: value for name, value in plan.items() if name != "scheduler"}

    def any_of(values: list[Any]) -> Any:
        return values[int(rng.integers(len(values)))]

    def fields(least: int) -> list[str]:
        most = min(3, len(planned))
        return list(rng.choice(list(planned), int(rng.integers(least, most + 1)), replace=False))

    for turn in range(count):
        if turn % 4 == 0:
            name = any_of(list(planned))
            yield {name: any_of([*EDGES, *HUGE, *NO_INTS])}
        elif turn % 4 == 1:
            yield {str(name): any_of([*near(planned[name]), *EDGES]) for name in fields(2)}
        else:
            yield {str(name): any_of(near(planned[name])) for name in fields(1)}
