"""Random definitions with inputs whose results are exact, for comparison by equality.

Floats hold small integers, infinities and NaN, and every op keeps them small. So no op rounds in
any order of arithmetic, except casts to half types, which fuser and the evaluation round alike.
Some inputs hold the extremes of their type instead: they are selected, compared and cast, but not
used in arithmetic. The result of a function that rounds is compared with a threshold far from all
of its possible values.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from fuser import DataType, FusionDefinition
from fuser.ops import as_dtype
from fuser.ops.reference import REFERENCES
from tests.support.graph_inputs import Pick, Values, described, strided

SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 2, 4, 32, 1, 3, 8, 16, 64, 6, 24, 0)
ELEMENTS = 2048  # maximum per tensor
EXACT = 2.0**22  # integers up to here, and a little above, are exact in float32
INPUT_DTYPES = [
    *(torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int64),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.complex64, torch.float8_e5m2),
    torch.float8_e4m3fn,
]
# Largest n such that the type represents every integer from 0 to n.
WHOLE = {
    torch.float8_e4m3fn: 16.0,
    torch.float8_e5m2: 8.0,
    torch.bfloat16: 256.0,
    torch.float16: 2048.0,
}
LIMIT = {torch.uint8: 255.0, torch.int8: 128.0, torch.int16: 32768.0}
# Ops on reals whose result is an operand, a component of one, or a bool: exact on any operand.
CHOICES = {"maximum", "minimum", "lt", "le", "gt", "ge", "eq", "ne"}
CHOICES |= {"logical_and", "logical_or", "logical_xor", "copysign"}
TESTS = ["set", "isnan", "isinf", "isfinite", "isreal", "logical_not"]
SIDED = ["isposinf", "isneginf", "signbit", "sign"]
UNARY = {
    "Bool": ["logical_not", "bitwise_not", *TESTS, *SIDED[:2]],
    "Int": ["neg", "abs", "bitwise_not", "relu", "ceil", "trunc", "square", *TESTS, *SIDED],
    "Float": ["neg", "abs", "relu", "floor", "ceil", "trunc", "frac", "round", *TESTS, *SIDED],
    "Complex": ["neg", "real", "imag", *TESTS],
}
# Functions that round, applied to integers up to FEW.
ROUNDED = ["sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "reciprocal"]
ROUNDED += ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh"]
ROUNDED += ["atanh", "sigmoid", "silu", "gelu_erf", "gelu_tanh", "erf", "erfc", "erfinv"]
ROUNDED += ["erfcinv", "erfcx", "lgamma"]
FEW = 64
MANY = 16 * 2048  # maximum elements of an input of a second run


@dataclass
class Node:
    """A tensor of the definition: its sizes in the run, and a bound on its finite values."""

    tensor: Any
    sizes: tuple[int, ...]
    bound: float
    static_one: tuple[bool, ...]  # by dim: True if the definition has the constant size 1


@dataclass
class Graph:
    """A definition and inputs for one run."""

    fd: FusionDefinition
    inputs: list[Any]
    written: list[int] = field(default_factory=list)  # tensor inputs that are in-place outputs too
    others: list[list[Any]] = field(default_factory=list)  # inputs of further runs

    def __repr__(self) -> str:
        return "\n".join([repr(self.fd), *(described(value) for value in self.inputs)])


def kind(node: Node) -> str:
    return str(node.tensor.dtype().kind)


@dataclass(frozen=True)
class Drawn:
    """Parameters of a drawn input tensor. dims: the graph's dim that each of its dims is, None for
    a dim of size 1."""

    values: Values
    dims: tuple[int | None, ...]
    dense: bool


class Maker:
    """Generates one graph."""

    def __init__(self, pick: Pick) -> None:
        self.pick = pick
        self.fd = FusionDefinition()
        self.inputs: list[Any] = []
        self.nodes: list[Node] = []
        self.draws: list[Drawn | list[Any]] = []  # by input: a draw, or possible values of a scalar
        self.fixed: set[int] = set()  # dims of the graph with a static size
        self.special = False  # True if infinities or NaN may occur
        self.counts = False  # True if bounds depend on sizes
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

    def number(self, choices: list[Any]) -> tuple[Any, Any]:
        """Choose a number. Returns it for the definition, often as a scalar input that differs
        between runs, and its value in this run."""
        value = self.one_of(choices)
        if self.pick(3):
            return value, value
        self.inputs.append(value)
        self.draws.append(choices)
        wanted = DataType.Double if isinstance(value, float) else DataType.Int
        return self.fd.define_scalar(wanted), value

    def add_input(self, dense: bool = False) -> None:
        pick, sizes = self.pick, self.sizes
        dims: list[int | None] = list(range(len(sizes)))
        if not dense:
            if pick(3) == 0:  # fewer dims
                dims = dims[pick(len(sizes) + 1) :]
            if pick(2):  # broadcast dims
                dims = [None if pick(3) == 0 else d for d in dims]
        dtype = INPUT_DTYPES[pick(len(INPUT_DTYPES))]
        exact = dtype.is_floating_point and pick(5) == 0
        values = Values(dtype, exact, pick(7) == 0)
        self.special = self.special or exact or values.extreme
        drawn = Drawn(values, tuple(dims), dense)
        value = self.values(drawn, sizes)
        shape = [n if pick(4) == 0 else -1 for n in value.shape]
        self.fixed |= {d for d, n in zip(dims, shape, strict=True) if d is not None and n != -1}
        tensor = self.fd.define_tensor(shape, dtype=as_dtype(dtype))
        self.inputs.append(value)
        self.draws.append(drawn)
        self.keep(tensor, tuple(value.shape), values.bound, [n == 1 for n in shape])

    def values(self, drawn: Drawn, sizes: tuple[int, ...]) -> torch.Tensor:
        own = tuple(1 if d is None else sizes[d] for d in drawn.dims)
        return strided(self.pick, own, drawn.values, drawn.dense)

    def other_sizes(self) -> tuple[int, ...] | None:
        """Sizes for another run. Equal sizes stay equal; sizes that bounds depend on do not
        grow."""
        pick, new = self.pick, {1: 1 if self.pick(4) else 3}
        for n in self.sizes:
            smaller = [0, 1, n // 2, max(n - 1, 0), n]
            larger = [n + 1, 2 * n + 1, 4 * n, 33, 130, 1024]
            choices = smaller if self.counts else smaller + larger
            new.setdefault(n, choices[pick(len(choices))])
        sizes = tuple(n if d in self.fixed else new[n] for d, n in enumerate(self.sizes))
        grown = self.counts and any(a > b for a, b in zip(sizes, self.sizes, strict=True))
        return None if grown or math.prod(max(n, 1) for n in sizes) > MANY else sizes

    def other_inputs(self) -> list[Any] | None:
        sizes = self.other_sizes()
        if sizes is None:
            return None
        return [
            self.values(drawn, sizes) if isinstance(drawn, Drawn) else self.one_of(drawn)
            for drawn in self.draws
        ]

    def unary(self) -> None:
        a = self.one_of(self.nodes)
        name = self.one_of(UNARY[kind(a)])
        tensor = self.signed(a) if name == "signbit" else a.tensor
        result = getattr(self.fd.ops, name)(tensor)
        bound = a.bound * a.bound if name == "square" else a.bound + 1
        self.keep(result, a.sizes, self.limited(result, bound), a.static_one)

    def signed(self, a: Node) -> Any:
        """`a` with NaN and 0 replaced by 1: the sign of NaN is arbitrary, and so is the sign of
        max(-0, 0)."""
        if kind(a) != "Float":
            return a.tensor
        ops = self.fd.ops
        return ops.where(ops.logical_or(ops.isnan(a.tensor), ops.eq(a.tensor, 0)), 1.0, a.tensor)

    def rounded(self) -> None:
        """Add a comparison of a rounding function with a threshold far from all of its values."""
        a = self.one_of(self.nodes)
        if kind(a) not in ("Int", "Float", "Bool") or a.bound > FEW:
            return
        name = self.one_of(ROUNDED)
        if self.special and name.startswith("gelu"):
            return  # fuser returns the limit 0 at -infinity; torch returns NaN
        limit = self.one_of([0.3719, -0.2917, 1.8731, 5.3391, 0.0417])
        whole = torch.arange(-FEW, FEW + 1).double()
        exact = REFERENCES[name](whole)
        if ((exact - limit).abs() < 1e-3 * (1 + abs(limit))).any():
            return
        result = self.fd.ops.lt(getattr(self.fd.ops, name)(a.tensor), limit)
        self.keep(result, a.sizes, 1.0, a.static_one)

    def bounded(self) -> None:
        """Add an op that clamps its operand, or adds a product."""
        ops = self.fd.ops
        a = self.one_of(self.nodes)
        if kind(a) not in ("Int", "Float"):
            return
        floats = kind(a) == "Float"
        how = self.pick(9)
        if how == 0:
            low, _ = self.number([-2.0, 0.0] if floats else [-2, 0])
            high, _ = self.number([1.0, 3.0] if floats else [1, 3])
            result, bound = ops.clamp(a.tensor, low, high), a.bound
        elif how == 1:
            limit, _ = self.number([-1.0, 1.0] if floats else [-1, 1])
            result, bound = ops.threshold(a.tensor, limit, 3.0 if floats else 3), a.bound + 3
        elif how == 2 and floats:
            name = self.one_of(["hardtanh", "relu6", "hardshrink"])
            result, bound = getattr(ops, name)(a.tensor), a.bound + 6
        elif a.bound * a.bound * 4 > EXACT:
            return
        elif how == 3 and floats:
            result, bound = ops.softshrink(a.tensor, 1.0), a.bound + 1
        elif how == 4 and floats:
            result, bound = ops.leaky_relu(a.tensor, 2.0), a.bound * 2
        elif how == 5:
            result, bound = ops.square(a.tensor), a.bound * a.bound
        elif how == 6:
            number, _ = self.number([2.0, -1.0] if floats else [2, -1])
            method = getattr(ops, self.one_of(["rsub", "add_alpha", "sub_alpha"]))
            result, bound = method(a.tensor, a.tensor, number), a.bound * 3
        elif how == 7:
            number = 2.0 if floats else 2
            result = ops.addcmul(a.tensor, a.tensor, a.tensor, number)
            bound = a.bound + 2 * a.bound * a.bound
        elif how == 8 and floats:
            weight = self.one_of([0.0, 1.0, 3.0])
            result = ops.lerp(a.tensor, ops.neg(a.tensor), weight)
            bound = a.bound * 8
            self.special = True  # 0 * infinity
        else:
            return
        self.keep(result, a.sizes, self.limited(result, bound), a.static_one)

    def limited(self, tensor: Any, bound: float) -> float:
        """The bound of a result; at least the range of its type for narrow integers."""
        name = tensor.dtype().torch_name
        return max(bound, LIMIT.get(getattr(torch, name), 0.0))

    def binary(self) -> None:
        a, b = self.one_of(self.nodes), self.one_of(self.nodes)
        try:
            sizes = tuple(torch.broadcast_shapes(a.sizes, b.sizes))
        except RuntimeError:
            return
        kinds = {kind(a), kind(b)}
        tests = ["eq", "ne", "logical_and", "logical_or", "logical_xor"]
        ordered = ["lt", "le", "gt", "ge", "maximum", "minimum"]
        if kinds == {"Bool"}:
            names = ["add", "mul", "bitwise_xor", "bitwise_and", "bitwise_or", *tests, *ordered]
        elif "Complex" in kinds:
            # Torch multiplies the second addend by 1 + 0i, which turns infinities into NaN.
            names = tests if self.special else ["add", "sub", "mul", *tests]
        elif "Float" in kinds:
            names = ["add", "sub", "mul", "add", "sub", "mul", *tests, *ordered, "copysign"]
            names += ["fmod", "remainder", "floor_divide", "quotient"]
        else:
            names = ["add", "sub", "mul", "div", "mod", "floor_divide", "remainder", "ceil_div"]
            names += ["bitwise_and", "bitwise_left_shift", "bitwise_right_shift", "gcd", "fmod"]
            names += ["bitwise_or", "bitwise_xor", "logical_right_shift", "pow", *tests, *ordered]
        if "Bool" in kinds:
            names = [n for n in names if n not in ("sub", "bitwise_left_shift", "div", "mod")]
        name = self.one_of(names)
        bound = a.bound * b.bound * 2 if name in ("mul", "pow") else a.bound + b.bound
        if name in ("bitwise_left_shift", "pow", "logical_right_shift"):
            bound = math.inf
        exact = "Float" not in kinds and "Complex" not in kinds
        exact = exact or (kinds == {"Float"} and name in CHOICES)
        if not exact and max(a.bound, b.bound, bound) > EXACT:
            return
        ops, x, y = self.fd.ops, a.tensor, b.tensor
        if name == "quotient":  # quotients of small integers: round them to integers
            result = ops.floor(ops.truediv(x, y))
        else:
            result = getattr(ops, name)(x, self.signed(b) if name == "copysign" else y)
        # Division by 0.
        self.special = self.special or name in ("quotient", "floor_divide", "fmod", "remainder")
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
        if max(b.bound, c.bound) > EXACT and not kind(b) == kind(c) == "Float":
            return
        condition = a.tensor if kind(a) == "Bool" else self.fd.ops.ne(a.tensor, 1)
        result = self.fd.ops.where(condition, b.tensor, c.tensor)
        self.keep(result, sizes, max(b.bound, c.bound), self.ones_of(a, b, c))

    def with_number(self) -> None:
        a = self.one_of(self.nodes)
        choices: list[Any] = self.one_of([[2, -1, 3], [2, -1, 3], [2.0, -1.0, 3.0]])
        if isinstance(choices[0], float) and a.bound > EXACT:
            return
        number, _ = self.number(choices)
        name = self.one_of(["add", "mul"])
        if kind(a) in ("Float", "Complex") and a.bound * 3 > EXACT:
            return
        if kind(a) == "Complex" and self.special:
            return  # limitation as in binary()
        result = getattr(self.fd.ops, name)(a.tensor, number)
        self.keep(result, a.sizes, self.limited(result, a.bound * 3 + 3), a.static_one)

    def cast(self) -> None:
        a = self.one_of(self.nodes)
        dtype = self.one_of(INPUT_DTYPES)
        if kind(a) == "Complex" and not dtype.is_complex:
            return
        to_float = dtype.is_floating_point or dtype.is_complex
        if to_float and a.bound > EXACT and kind(a) != "Float":
            return
        result = self.fd.ops.cast(a.tensor, as_dtype(dtype))
        bound = a.bound * 1.5 if a.bound > WHOLE.get(dtype, EXACT) else a.bound
        if self.special and kind(a) == "Float" and not to_float:
            bound = math.inf  # an infinity becomes the largest integer
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
        number, _ = self.number([0, 1, 3])
        result = self.fd.ops.full(self.fd.ops.shape(a.tensor), number, dtype)
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
        # A generator of its own: hypothesis limits the number of draws.
        self.pick = random.Random(self.pick(1 << 16)).randrange
        others = [self.other_inputs() for _ in range(2)]
        graph.others = [inputs for inputs in others if inputs is not None]
        return graph

    def in_place_target(self, place: int, node: Node) -> bool:
        return place < self.tensor_inputs and node.sizes == self.sizes and self.dense[place]

    def overlap(self, place: int) -> None:
        """Sometimes let the in-place output share memory with another input."""
        target = self.inputs[self.tensor_place[place]]
        for other in range(self.tensor_inputs):
            value = self.inputs[self.tensor_place[other]]
            fits = value.dtype == target.dtype and value.shape == target.shape
            fits = fits and self.nodes[other].bound >= self.nodes[place].bound
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
        steps += [self.rounded, self.bounded]
        return [*steps, self.with_number, self.move, self.move, self.full]

    def count(self) -> int:
        """Number of ops."""
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
    """Also generates reductions, gathers, and split or merged dims."""

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
            names += ["prod", "xor_sum"]
        name = self.one_of(names)
        if name in ("argmax", "argmin"):
            dims = dims[:1]
        bound = {"sum": a.bound * max(count, 1), "max": a.bound, "min": a.bound}.get(name, 1.0)
        if name.startswith("arg"):
            bound = float(a.sizes[dims[0]])
        if name in ("prod", "xor_sum"):
            bound = math.inf
        if name == "sum" and kind(a) in ("Float", "Complex") and bound > EXACT:
            return
        self.counts = self.counts or name in ("sum", "argmax", "argmin")
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
                return  # a dim whose size 1 is known only at run time does not broadcast
            result = self.fd.ops.split_dim(a.tensor, dim, [outer, -1])
            sizes = (*a.sizes[:dim], outer, n // outer, *a.sizes[dim + 1 :])
            # A split symbolic size stays symbolic.
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


def random_reducing_graph(pick: Pick) -> Graph:
    """A random graph with reductions, gathers, and split or merged dims."""
    return Reducer(pick).make()


def random_graph(pick: Pick) -> Graph:
    """A graph of up to 4 inputs and about a dozen ops, determined by `pick`."""
    return Maker(pick).make()
