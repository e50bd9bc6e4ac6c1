"""Random definitions with inputs whose results are exact, to be compared for equality.

Floats hold small integers and every op keeps them small: no rounding, whatever the order of
arithmetic, except in casts to half types, which a definition and its evaluation round alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from fuser import DataType, FusionDefinition
from fuser.ops import as_dtype

Pick = Callable[[int], int]  # pick(n): one of 0 .. n - 1

SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 2, 4, 32, 1, 3, 8, 16, 64, 6, 24, 0)
ELEMENTS = 2048  # of a tensor at most
EXACT = 2.0**22  # float32 counts up to here and a bit more
INPUT_DTYPES = [
    *(torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int64),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.complex64, torch.float8_e5m2),
    torch.float8_e4m3fn,
]
# Largest integer up to which every integer is a number of the type.
WHOLE = {
    torch.float8_e4m3fn: 16.0,
    torch.float8_e5m2: 8.0,
    torch.bfloat16: 256.0,
    torch.float16: 2048.0,
}
LIMIT = {torch.uint8: 255.0, torch.int8: 128.0, torch.int16: 32768.0}


@dataclass
class Node:
    """A tensor of the definition: its sizes in the run, and a bound on its finite values."""

    tensor: Any
    sizes: tuple[int, ...]
    bound: float
    static_one: tuple[bool, ...]  # by dim: the definition knows that its size is 1


@dataclass
class Graph:
    """A definition and inputs for one run."""

    fd: FusionDefinition
    inputs: list[Any]
    written: list[int] = field(default_factory=list)  # tensor inputs that are outputs too

    def __repr__(self) -> str:
        lines = [repr(self.fd)]
        for value in self.inputs:
            if isinstance(value, torch.Tensor):
                lines.append(
                    f"# {value.dtype} {list(value.shape)} strides {list(value.stride())} "
                    f"offset {value.storage_offset()} of {value.untyped_storage().nbytes()} bytes "
                    f"at {value.data_ptr() % 16} past 16"
                )
            else:
                lines.append(f"# {value!r}")
        return "\n".join(lines)


def kind(node: Node) -> str:
    return str(node.tensor.dtype().kind)


def data(pick: Pick, count: int, dtype: torch.dtype) -> torch.Tensor:
    """`count` small whole numbers."""
    generator = torch.Generator().manual_seed(pick(1 << 16))
    low, high = (0, 4) if dtype == torch.uint8 else (-3, 4)
    values = torch.randint(low, high, (count,), generator=generator)
    if dtype == torch.bool:  # any byte but 0 is true
        return torch.randint(0, 3, (count,), generator=generator).to(torch.uint8).view(torch.bool)
    if dtype.is_complex:
        parts = torch.randint(-2, 3, (2, count), generator=generator).double()
        return torch.complex(*parts).to(dtype)
    return values.float().to(dtype) if dtype.is_floating_point else values.to(dtype)


def strided(pick: Pick, sizes: tuple[int, ...], dtype: torch.dtype, dense: bool) -> torch.Tensor:
    """A tensor with permuted, padded, sliced and (unless `dense`) expanded dims, at any offset."""
    rank = len(sizes)
    order = list(range(rank))
    if pick(2):
        order.sort(key=lambda _: pick(64))
    strides = [0] * rank
    step = 1 if pick(3) else 2
    for d in reversed(order):
        if not dense and sizes[d] > 1 and pick(6) == 0:
            continue  # stride 0
        strides[d] = step
        step *= max(sizes[d], 1)
        if pick(5) == 0:
            step += 1 + pick(8)
    offset = pick(4) if pick(3) == 0 else 0
    return data(pick, offset + step + 8, dtype).as_strided(sizes, strides, offset)


class Maker:
    """Grows one graph."""

    def __init__(self, pick: Pick) -> None:
        self.pick = pick
        self.fd = FusionDefinition()
        self.inputs: list[Any] = []
        self.nodes: list[Node] = []
        rank = pick(7)
        sizes: list[int] = []
        for _ in range(rank):
            n = SIZES[pick(len(SIZES))]
            sizes.append(n if n * math.prod(max(s, 1) for s in sizes) <= ELEMENTS else 1)
        self.sizes = tuple(sizes)

    def one_of(self, items: list[Any]) -> Any:
        return items[self.pick(len(items))]

    def keep(self, tensor: Any, sizes: tuple[int, ...], bound: float, ones: Any) -> None:
        self.nodes.append(Node(tensor, sizes, bound, tuple(ones)))

    def add_input(self, dense: bool = False) -> None:
        pick, sizes = self.pick, self.sizes
        if not dense:
            if pick(3) == 0:  # fewer dims
                sizes = sizes[pick(len(sizes) + 1) :]
            if pick(2):  # broadcast dims
                sizes = tuple(1 if pick(3) == 0 else n for n in sizes)
        dtype = INPUT_DTYPES[pick(len(INPUT_DTYPES))]
        value = strided(pick, sizes, dtype, dense)
        shape = [n if pick(4) == 0 else -1 for n in sizes]
        tensor = self.fd.define_tensor(shape, dtype=as_dtype(dtype))
        self.inputs.append(value)
        self.keep(tensor, sizes, 4.0, [n == 1 for n in shape])

    def unary(self) -> None:
        a = self.one_of(self.nodes)
        names = {
            "Bool": ["logical_not", "bitwise_not", "set"],
            "Int": ["neg", "abs", "bitwise_not", "sign", "relu", "isnan"],
            "Float": ["neg", "abs", "relu", "sign", "floor", "isnan", "signbit", "round"],
            "Complex": ["neg", "real", "imag", "isnan"],
        }
        result = getattr(self.fd.ops, self.one_of(names[kind(a)]))(a.tensor)
        self.keep(result, a.sizes, self.limited(result, a.bound + 1), a.static_one)

    def limited(self, tensor: Any, bound: float) -> float:
        """The bound of a result, for narrow integers that of its type."""
        name = tensor.dtype().torch_name
        return max(bound, LIMIT.get(getattr(torch, name), 0.0))

    def binary(self) -> None:
        a, b = self.one_of(self.nodes), self.one_of(self.nodes)
        try:
            sizes = tuple(torch.broadcast_shapes(a.sizes, b.sizes))
        except RuntimeError:
            return
        kinds = {kind(a), kind(b)}
        if kinds == {"Bool"}:
            names = ["add", "mul", "bitwise_xor", "logical_and", "eq", "minimum"]
        elif "Complex" in kinds:
            names = ["add", "sub", "mul", "eq"]
        elif "Float" in kinds:
            names = ["add", "sub", "mul", "maximum", "minimum", "lt", "ge", "eq", "logical_or"]
        else:
            names = ["add", "sub", "mul", "div", "mod", "floor_divide", "remainder", "maximum"]
            names += ["bitwise_and", "bitwise_left_shift", "bitwise_right_shift", "le", "ne"]
        if "Bool" in kinds:
            names = [n for n in names if n not in ("sub", "bitwise_left_shift", "div", "mod")]
        name = self.one_of(names)
        bound = a.bound * b.bound * 2 if name == "mul" else a.bound + b.bound
        if name == "bitwise_left_shift":
            bound = math.inf
        exact = "Float" not in kinds and "Complex" not in kinds
        if not exact and max(a.bound, b.bound, bound) > EXACT:
            return
        result = getattr(self.fd.ops, name)(a.tensor, b.tensor)
        self.keep(result, sizes, self.limited(result, bound), self.ones_of(a, b))

    def ones_of(self, *operands: Node) -> list[bool]:
        rank = max(len(n.sizes) for n in operands)
        padded = [(True,) * (rank - len(n.sizes)) + n.static_one for n in operands]
        return [all(flags) for flags in zip(*padded, strict=True)]

    def where(self) -> None:
        a, b, c = (self.one_of(self.nodes) for _ in range(3))
        try:
            sizes = tuple(torch.broadcast_shapes(a.sizes, b.sizes, c.sizes))
        except RuntimeError:
            return
        if max(b.bound, c.bound) > EXACT:
            return
        condition = a.tensor if kind(a) == "Bool" else self.fd.ops.ne(a.tensor, 1)
        result = self.fd.ops.where(condition, b.tensor, c.tensor)
        self.keep(result, sizes, max(b.bound, c.bound), self.ones_of(a, b, c))

    def with_number(self) -> None:
        a = self.one_of(self.nodes)
        number: Any = self.one_of([2, -1, 3, 2.0])
        if isinstance(number, float) and a.bound > EXACT:
            return
        if self.pick(3) == 0:
            self.inputs.append(number)
            number = self.fd.define_scalar(
                DataType.Double if isinstance(number, float) else DataType.Int
            )
        name = self.one_of(["add", "mul"])
        if kind(a) in ("Float", "Complex") and a.bound * 3 > EXACT:
            return
        result = getattr(self.fd.ops, name)(a.tensor, number)
        self.keep(result, a.sizes, self.limited(result, a.bound * 3 + 3), a.static_one)

    def cast(self) -> None:
        a = self.one_of(self.nodes)
        dtype = self.one_of(INPUT_DTYPES)
        if kind(a) == "Complex" and not dtype.is_complex:
            return
        if (dtype.is_floating_point or dtype.is_complex) and a.bound > EXACT:
            return
        result = self.fd.ops.cast(a.tensor, as_dtype(dtype))
        bound = a.bound * 1.5 if a.bound > WHOLE.get(dtype, EXACT) else a.bound
        self.keep(result, a.sizes, self.limited(result, bound), a.static_one)

    def move(self) -> None:
        a = self.one_of(self.nodes)
        rank = len(a.sizes)
        how = self.pick(5)
        if how == 0 and rank > 1:
            dims = sorted(range(rank), key=lambda _: self.pick(64))
            result = self.fd.ops.permute(a.tensor, dims)
            self.keep(
                result, tuple(a.sizes[d] for d in dims), a.bound, [a.static_one[d] for d in dims]
            )
        elif how == 1 and rank < 6:
            at = self.pick(rank + 1)
            result = self.fd.ops.broadcast(a.tensor, [d == at for d in range(rank + 1)])
            self.keep(
                result,
                (*a.sizes[:at], 1, *a.sizes[at:]),
                a.bound,
                (*a.static_one[:at], True, *a.static_one[at:]),
            )
        elif how == 2 and any(a.static_one):
            d = self.one_of([d for d in range(rank) if a.static_one[d]])
            result = self.fd.ops.squeeze(a.tensor, [d])
            self.keep(
                result,
                a.sizes[:d] + a.sizes[d + 1 :],
                a.bound,
                a.static_one[:d] + a.static_one[d + 1 :],
            )
        elif how == 3 and any(a.static_one):
            d = self.one_of([d for d in range(rank) if a.static_one[d]])
            n = 2 + self.pick(6)
            if n * math.prod(a.sizes) > 2 * ELEMENTS:
                return
            result = self.fd.ops.expand(a.tensor, [n if i == d else -1 for i in range(rank)])
            ones = [one and i != d for i, one in enumerate(a.static_one)]
            self.keep(
                result, tuple(n if i == d else s for i, s in enumerate(a.sizes)), a.bound, ones
            )
        elif how == 4 and rank:
            order = sorted(range(rank), key=lambda _: self.pick(64))
            self.keep(self.fd.ops.stride_order(a.tensor, order), a.sizes, a.bound, a.static_one)

    def full(self) -> None:
        a = self.one_of(self.nodes)
        dtype = self.one_of([DataType.Float, DataType.Int, DataType.Half, DataType.Bool])
        result = self.fd.ops.full(self.fd.ops.shape(a.tensor), self.one_of([0, 1, 3]), dtype)
        self.keep(result, a.sizes, 3.0, a.static_one)

    def outputs(self) -> Graph:
        graph = Graph(self.fd, self.inputs)
        targets = [i for i, n in enumerate(self.nodes) if self.in_place_target(i, n)]
        if targets and self.pick(2):
            place = self.one_of(targets)
            target = self.nodes[place]
            fits = [n for n in self.nodes if n.sizes == target.sizes and n is not target]
            fits = [n for n in fits if not (kind(n) == "Complex" and kind(target) != "Complex")]
            fits = [n for n in fits if n.bound <= EXACT]
            if fits:
                result = self.fd.ops.cast(self.one_of(fits).tensor, target.tensor.dtype())
                self.fd.add_output(result, target.tensor)
                graph.written.append(place)
                self.overlap(place)
        for _ in range(1 + self.pick(4)):
            self.fd.add_output(self.one_of(self.nodes[-8:]).tensor)
        return graph

    def in_place_target(self, place: int, node: Node) -> bool:
        return place < self.tensor_inputs and node.sizes == self.sizes and self.dense[place]

    def overlap(self, place: int) -> None:
        """Sometimes the input that is written shares memory with another one."""
        target = self.inputs[self.tensor_place[place]]
        for other in range(self.tensor_inputs):
            value = self.inputs[self.tensor_place[other]]
            fits = value.dtype == target.dtype and value.shape == target.shape
            if other != place and fits and self.pick(2):
                base = torch.cat(
                    [
                        target.as_strided(
                            (target.untyped_storage().nbytes() // target.element_size(),), (1,), 0
                        )
                    ]
                    * 2
                )
                at = target.storage_offset()
                strides = target.stride()
                self.inputs[self.tensor_place[place]] = base.as_strided(target.shape, strides, at)
                shift = self.pick(5)
                shifted = base.as_strided(target.shape, strides, at + shift)
                self.inputs[self.tensor_place[other]] = shifted
                return

    def steps(self) -> list[Callable[[], None]]:
        steps = [self.unary, self.binary, self.binary, self.binary, self.where, self.cast]
        return [*steps, self.with_number, self.move, self.move, self.full]

    def count(self) -> int:
        """Of ops."""
        return 1 + self.pick(10)

    def make(self) -> Graph:
        self.dense: list[bool] = []
        self.tensor_place: list[int] = []
        for _ in range(1 + self.pick(4)):
            dense = self.pick(2) == 0
            self.tensor_place.append(len(self.inputs))
            self.dense.append(dense)
            self.add_input(dense)
        self.tensor_inputs = len(self.nodes)
        steps = self.steps()
        for _ in range(self.count()):
            steps[self.pick(len(steps))]()
        return self.outputs()


class Reducer(Maker):
    """Also grows reductions, reads at indices, and dims that become two or one."""

    def dims(self, rank: int) -> list[int]:
        chosen = [d for d in range(rank) if self.pick(2)]
        return chosen or [self.pick(rank)]

    def reduce(self) -> None:
        a = self.one_of(self.nodes)
        if not a.sizes:
            return
        dims = self.dims(len(a.sizes))
        count = math.prod(a.sizes[d] for d in dims)
        names = ["sum", "any", "all"]
        if kind(a) != "Complex" and count:
            names += ["max", "min", "argmax", "argmin"]
        if kind(a) in ("Int", "Bool"):
            names += ["prod"]
        name = self.one_of(names)
        if name in ("argmax", "argmin"):
            dims = dims[:1]
        bound = {"sum": a.bound * max(count, 1), "max": a.bound, "min": a.bound}.get(name, 1.0)
        if name.startswith("arg"):
            bound = float(a.sizes[dims[0]])
        if name == "prod":
            bound = math.inf
        if name == "sum" and kind(a) in ("Float", "Complex") and bound > EXACT:
            return
        keepdim = bool(self.pick(2))
        method = getattr(self.fd.ops, name)
        result = method(a.tensor, dims[0] if name.startswith("arg") else dims, keepdim)
        if keepdim:
            sizes = tuple(1 if d in dims else n for d, n in enumerate(a.sizes))
            ones = [d in dims or one for d, one in enumerate(a.static_one)]
        else:
            kept = [d for d in range(len(a.sizes)) if d not in dims]
            sizes, ones = tuple(a.sizes[d] for d in kept), [a.static_one[d] for d in kept]
        self.keep(result, sizes, self.limited(result, bound), ones)

    def take(self) -> None:
        a, b = self.one_of(self.nodes), self.one_of(self.nodes)
        rank = len(a.sizes)
        if kind(b) != "Int" or len(b.sizes) != rank or not rank:
            return
        dim = self.pick(rank)
        if not a.sizes[dim]:
            return
        others = [d for d in range(rank) if d != dim]
        try:
            met = torch.broadcast_shapes([a.sizes[d] for d in others], [b.sizes[d] for d in others])
        except RuntimeError:
            return
        sizes = list(met)
        sizes.insert(dim, b.sizes[dim])
        index = self.fd.ops.remainder(
            self.fd.ops.cast(b.tensor, DataType.Int), self.fd.ops.size(a.tensor, dim)
        )
        result = self.fd.ops.take_along_axis(a.tensor, index, dim)
        ones = [one and a.static_one[d] for d, one in enumerate(b.static_one)]
        ones[dim] = b.static_one[dim]
        self.keep(result, tuple(sizes), a.bound, ones)

    def regroup(self) -> None:
        a = self.one_of(self.nodes)
        rank = len(a.sizes)
        if not rank:
            return
        dim = self.pick(rank)
        if self.pick(2) and rank < 6:
            n = a.sizes[dim]
            outer = self.one_of([k for k in (1, 2, 3, 4, 8) if n % k == 0])
            if n == outer and not a.static_one[dim]:
                return  # a dim that is found to be 1 only when the graph runs does not broadcast
            result = self.fd.ops.split_dim(a.tensor, dim, [outer, -1])
            sizes = (*a.sizes[:dim], outer, n // outer, *a.sizes[dim + 1 :])
            # What is left of a symbolic size is symbolic.
            rest = a.static_one[dim]
            ones = (*a.static_one[:dim], outer == 1, rest, *a.static_one[dim + 1 :])
        elif dim + 1 < rank:
            result = self.fd.ops.merge_dims(a.tensor, dim)
            sizes = (*a.sizes[:dim], a.sizes[dim] * a.sizes[dim + 1], *a.sizes[dim + 2 :])
            both = a.static_one[dim] and a.static_one[dim + 1]
            ones = (*a.static_one[:dim], both, *a.static_one[dim + 2 :])
        else:
            return
        self.keep(result, sizes, a.bound, ones)

    def steps(self) -> list[Callable[[], None]]:
        return [*super().steps(), self.reduce, self.reduce, self.reduce, self.take, self.regroup]


class Mover(Reducer):
    """Also cuts dims, turns them round, pads, joins and reshapes."""

    def resize(self) -> None:
        a = self.one_of(self.nodes)
        rank = len(a.sizes)
        if not rank:
            return
        dim = self.pick(rank)
        n = a.sizes[dim]
        how = self.pick(6)
        if how == 0:
            start, end = self.pick(2 * n + 3) - n - 1, self.pick(2 * n + 3) - n - 1
            step = 1 + self.pick(3) // 2
            starts = [start if d == dim else 0 for d in range(rank)]
            ends = [end if d == dim else None for d in range(rank)]
            steps = [step if d == dim else 1 for d in range(rank)]
            size = len(range(n)[start:end:step])
            cut = self.fd.ops.slice
            self.keep_resized(lambda: cut(a.tensor, starts, ends, steps), a, dim, size)
        elif how == 1:
            result = self.fd.ops.flip(a.tensor, self.dims(rank))
            self.keep(result, a.sizes, a.bound, a.static_one)
        elif how == 2:
            before, after = self.pick(5) - 2, self.pick(5) - 2
            size = n + before + after
            if size >= 0 and n + min(before, 0) + min(after, 0) >= 0 and a.bound <= EXACT:
                widths = [0, 0] * (rank - 1 - dim) + [before, after]
                value = self.one_of([0, 1])
                self.keep_resized(lambda: self.fd.ops.pad(a.tensor, widths, value), a, dim, size)
        elif how == 3:
            fits = [
                b
                for b in self.nodes
                if len(b.sizes) == rank
                and b.tensor.dtype() == a.tensor.dtype()
                and all(d == dim or b.sizes[d] == a.sizes[d] for d in range(rank))
                and all(d == dim or b.static_one[d] == a.static_one[d] for d in range(rank))
            ]
            parts = [a, *(self.one_of(fits) for _ in range(self.pick(3)))]
            size = sum(b.sizes[dim] for b in parts)
            bound = max(b.bound for b in parts)
            tensors = [b.tensor for b in parts]
            self.keep_resized(lambda: self.fd.ops.cat(tensors, dim), a, dim, size, bound)
        elif how == 4 and n:
            result = self.fd.ops.roll(a.tensor, self.pick(2 * n) - n, dim)
            self.keep(result, a.sizes, a.bound, [False] * rank)
        elif how == 5:
            total = math.prod(a.sizes)
            outer = self.one_of([k for k in (1, 2, 3, 4, 6, 8) if total % k == 0])
            if total and total // outer != 1:
                result = self.fd.ops.reshape(a.tensor, [outer, -1])
                self.keep(result, (outer, total // outer), a.bound, [outer == 1, False])

    def keep_resized(
        self, make: Callable[[], Any], a: Node, dim: int, size: int, bound: float | None = None
    ) -> None:
        """A dim that is found to be 1 only when the graph runs does not broadcast: left out."""
        if size == 1 or math.prod(a.sizes[:dim] + a.sizes[dim + 1 :]) * size > 2 * ELEMENTS:
            return
        ones = [one and d != dim for d, one in enumerate(a.static_one)]
        sizes = (*a.sizes[:dim], size, *a.sizes[dim + 1 :])
        self.keep(make(), sizes, a.bound if bound is None else bound, ones)

    def steps(self) -> list[Callable[[], None]]:
        return [*super().steps(), *[self.resize] * 6]


def random_moving_graph(pick: Pick) -> Graph:
    """The same with dims that are cut, padded, joined and reshaped."""
    return Mover(pick).make()


def random_reducing_graph(pick: Pick) -> Graph:
    """The same with reductions and what goes with them."""
    return Reducer(pick).make()


def random_graph(pick: Pick) -> Graph:
    """A graph of up to 4 inputs and about a dozen ops, decided by `pick`."""
    return Maker(pick).make()
