"""Torch's functions, methods and operators on the tensors and scalars of a definition.

`x @ y`, `x.sigmoid()`, `x[0]`, `torch.sin(x)` and torch.nn.functional emit ops of fd.ops. A name of
torch is looked up in fuser/torch_functions.py, which has torch's arguments, then among the ops of
fd.ops. Types are as in fd.ops: most ops of half types give float32. Operations that a definition
cannot do, because it has no values yet, raise an error with a hint.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from fuser._core import Scalar, Tensor
from fuser.arguments import Vector
from fuser.errors import ArgumentTypeError, UserError
from fuser.ops import Ops

__all__ = ["NoSuch", "call", "function_of"]


class NoSuch(UserError, AttributeError):
    """A UserError that Python accepts as AttributeError."""


_VALUES = (
    "is known only at run time\n"
    "  hint: fd.add_output(x), and read it from the results of fd.execute(inputs)"
)
_PLACE = (
    "of a definition has no device: it runs on the device of its inputs\n"
    "  hint: fd.execute([tensor.cuda()]) moves data"
)
_GRADIENTS = (
    "of a definition has no gradient\n"
    "  hint: define the backward pass too, or fuser.memory_efficient_fusion(function), which does"
)
_LAYOUT = (
    "of a definition has no memory: results have torch's layout\n"
    "  hint: fd.add_output(x, stride_order=[...]) sets another layout"
)
# Reasons for attributes that a definition does not have.
_HINTS = {
    **dict.fromkeys(("item", "tolist", "numpy", "data", "data_ptr", "nonzero", "equal"), _VALUES),
    **dict.fromkeys(("allclose", "unique", "is_nonzero"), _VALUES),
    **dict.fromkeys(("cpu", "cuda", "device", "is_cuda", "is_cpu", "get_device"), _PLACE),
    **dict.fromkeys(("pin_memory", "share_memory_", "record_stream"), _PLACE),
    **dict.fromkeys(("backward", "grad", "grad_fn", "requires_grad", "requires_grad_"), _GRADIENTS),
    **dict.fromkeys(("retain_grad", "register_hook", "is_leaf", "detach_"), _GRADIENTS),
    **dict.fromkeys(("stride", "is_contiguous", "storage_offset", "as_strided"), _LAYOUT),
    **dict.fromkeys(("untyped_storage", "storage", "layout"), _LAYOUT),
}
# Names in fd.ops that are no methods of torch tensors.
_NO_METHODS = {"shape", "size", "result", "library", "at", "tensor_sizes", "reduction"}
# Arguments of torch functions that are dropped if they have these values.
_DROPPED: dict[str, tuple[Any, ...]] = {"out": (None,), "inplace": (False,), "generator": (None,)}
# Argument names of torch and their names in fd.ops.
_RENAMED = {"dim": "dims", "axis": "dim", "keepdims": "keepdim"}
_FIRST, _SECOND = ("input", "self", "x"), ("other", "exponent", "x2")


def function_of(name: str, method: bool = False) -> Callable[..., Any] | None:
    """Returns torch's function or method as a function of fd.ops and torch's arguments, if it
    exists.
    """
    # imported here, because few programs need it
    from fuser.torch_functions import ALIASES, FUNCTIONS, METHODS

    for prefix in ("special_", "linalg_"):
        name = name.removeprefix(prefix)
    name = ALIASES.get(name, name)
    if method and name in METHODS:
        return METHODS[name]
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name.startswith("_") or name in _NO_METHODS or not hasattr(Ops, name):
        return None
    return _op(name)


@functools.cache
def _op(name: str) -> Callable[..., Any]:
    """The op of that name, with torch's argument names."""
    method = getattr(Ops, name)
    parameters = list(inspect.signature(method).parameters.values())[1:]
    names = [p.name for p in parameters]
    places = {n: i for i, n in enumerate(names)}
    places |= dict.fromkeys([n for n in _FIRST if n not in places], 0)
    places |= dict.fromkeys([n for n in _SECOND if n not in places and len(names) > 1], 1)

    def function(ops: Ops, *args: Any, **named: Any) -> Any:
        given, rest = list(args), {}
        for key, value in sorted(named.items(), key=lambda item: places.get(item[0], len(names))):
            key = key if key in names else _RENAMED.get(key, key)
            if places.get(key) == len(given) and parameters[len(given)].kind.name != "KEYWORD_ONLY":
                given.append(value)
            else:
                rest[key] = value
        return method(ops, *given, **rest)

    return function


def call(
    shown: str, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
) -> Any:
    """Calls the function with the Ops of the definition that the arguments belong to. `shown` is
    its name in messages.

    Raises UserError `habit-tensor` for a torch tensor among the arguments, `habit-argument` for
    wrong arguments.
    """
    given = [v for value in (*args, *named.values()) for v in _parts(value)]
    owner = next(v for v in given if isinstance(v, Tensor | Scalar))
    for value in given:
        if not isinstance(value, Tensor | Scalar) and hasattr(value, "requires_grad"):
            _refuse_data(shown, value, owner)
    kept = {}
    for key, value in named.items():
        if not any(value is dropped for dropped in _DROPPED.get(key, ())):
            kept[key] = value
    if kept.get("inplace"):
        raise UserError(
            f"{shown}(): inplace=True: a tensor of a definition is immutable\n"
            "  hint: use the result, y = ...; fd.add_output(y, alias_input=x) writes into an input",
            rule="habit-inplace",
        )
    try:
        return function(Ops(owner._builder), *args, **kept)
    except TypeError as error:
        if isinstance(error, UserError):
            raise
        raise ArgumentTypeError(
            f"{shown}(): {_without_scope(error)}", rule="habit-argument"
        ) from None


def _parts(value: Any) -> list[Any]:
    return (
        [v for item in value for v in _parts(item)] if isinstance(value, list | tuple) else [value]
    )


def _without_scope(error: Exception) -> str:
    """Python's message about arguments, without the function's name."""
    return str(error).rpartition("() ")[2]


def _refuse_data(shown: str, value: Any, beside: Tensor | Scalar) -> NoReturn:
    sizes = list(value.shape)
    # Not a TypeError, for which torch's operators would try the other operand.
    raise UserError(
        f"{shown}: a tensor of torch, {str(value.dtype).removeprefix('torch.')} {sizes}, is "
        f"combined with {beside} of a definition\n"
        "  hint: w = fd.define_tensor(...) or fd.from_pytorch(tensor) makes it an input, and "
        "fd.execute([..., tensor]) passes the data",
        rule="habit-tensor",
    )


def _why_not(name: str) -> tuple[str, str]:
    """Message and rule for a torch name without a counterpart."""
    why = _HINTS.get(name)
    if why is not None:
        return f"a tensor {why}", "habit-value"
    plain = name.removesuffix("_")
    if plain != name and function_of(plain, method=True) is not None:
        return (
            "a tensor of a definition is immutable\n"
            f"  hint: x = x.{plain}(...); fd.add_output(y, alias_input=x) writes into an input",
            "habit-inplace",
        )
    near = get_close_matches(name, [n for n in dir(Ops) if not n.startswith("_")], n=1)
    also = f"did you mean fd.ops.{near[0]}? " if near else ""
    return (
        f"fd.ops has no such op\n  hint: {also}call torch before or after fd.execute(inputs)",
        "habit-op",
    )


def _attribute(self: Tensor | Scalar, name: str) -> Any:
    """__getattr__ for the methods of torch.Tensor that the class does not define."""
    if name.startswith("__") or name in ("_pybind11_conduit_v1_", "_fields"):
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
    if name in _VIEWS:
        return _VIEWS[name](self)
    function = function_of(name, method=True)
    if function is None:
        message, rule = _why_not(name)
        raise NoSuch(f"{'x' if isinstance(self, Tensor) else 's'}.{name}: {message}", rule=rule)

    def method(*args: Any, **named: Any) -> Any:
        return call(f"x.{name}()", function, (self, *args), named)

    method.__name__ = name
    return method


def _swapped(x: Any) -> Any:
    return call("x.mT", function_of("transpose"), (x, -2, -1), {})  # type: ignore[arg-type]


# Attributes that are values.
_VIEWS: dict[str, Callable[[Any], Any]] = {
    "T": lambda x: Ops(x._builder).permute(x, list(range(x.ndim))[::-1]),
    "mT": _swapped,
    "real": lambda x: Ops(x._builder).real(x),
    "imag": lambda x: Ops(x._builder).imag(x),
    "itemsize": lambda x: x.dtype.bytes,
}


@classmethod  # type: ignore[misc]
def _torch_function(
    cls: type, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
) -> Any:
    """__torch_function__: handles torch.sin(x), torch.nn.functional.relu(x)."""
    name = getattr(func, "__name__", str(func))
    module = getattr(func, "__module__", None) or "torch"
    shown = f"{module}.{name}"
    method = any(func is vars(base).get(name) for base in getattr(_tensor_type(), "__mro__", ()))
    function = None if module.startswith("torch.distributed") else function_of(name, method)
    if function is None:
        function = _missing(shown)
    return call(shown, function, args, kwargs or {})


def _tensor_type() -> Any:
    torch = sys.modules.get("torch")
    return torch.Tensor if torch is not None else None


def _missing(shown: str) -> Callable[..., NoReturn]:
    def function(ops: Ops, *args: Any, **named: Any) -> NoReturn:
        message, rule = _why_not(shown.rpartition(".")[2])
        raise ArgumentTypeError(f"{shown}(): {message}", rule=rule)

    return function


# ---- operators and statements of Python


def _matmul(self: Tensor, other: Any) -> Any:
    if not isinstance(other, Tensor):
        return NotImplemented
    return Ops(self._builder).matmul(self, other)


def _rounded(self: Any, digits: int | None = None) -> Any:
    if digits not in (None, 0):
        raise UserError(
            f"round(): expected no digits, got {digits}\n"
            "  hint: fd.ops.round(x * 10**digits) / 10**digits",
            rule="habit-argument",
        )
    return Ops(self._builder).round(self)


def _unary(op: str) -> Callable[[Any], Any]:
    return lambda self: getattr(Ops(self._builder), op)(self)


def _number(self: Any, kind: type) -> Any:
    """float(x), int(x): the number of a constant of the definition."""
    value = self.value if isinstance(self, Scalar) else None
    if value is None:
        raise ArgumentTypeError(
            f"{kind.__name__}({self}): the value {_VALUES}\n"
            "  hint: fixed sizes are numbers; fd.ops.cast(x, dtype) converts",
            rule="habit-value",
        )
    return kind(value)


def _index(self: Scalar) -> int:
    """range(n), list[n]: the number of an integer constant of the definition."""
    if isinstance(self.value, int):
        return int(self.value)
    raise ArgumentTypeError(
        f"{self}: expected an integer, but its value {_VALUES}\n"
        "  hint: fix the size in define_tensor(shape=...)",
        rule="habit-value",
    )


def _length(self: Tensor) -> int:
    if self.ndim == 0:
        raise ArgumentTypeError(f"len({self}): expected at least one dim", rule="habit-iterate")
    size = self.size(0).value
    if size is None:
        raise ArgumentTypeError(
            f"len({self}): the size of dim 0 is known only at run time\n"
            "  hint: x.size(0) gives the size as a Scalar",
            rule="habit-iterate",
        )
    return int(size)


def _rows(self: Tensor) -> Iterator[Any]:
    if self.ndim == 0 or self.size(0).value is None:
        raise ArgumentTypeError(
            f"iteration over {self}: the size of dim 0 is known only at run time\n"
            "  hint: fd.ops.select(x, i, 0) is row i; results of x.max(dim) and the like are "
            "pairs of fd.ops.max and fd.ops.argmax",
            rule="habit-iterate",
        )
    return iter([self[i] for i in range(_length(self))])


def _contains(self: Tensor, value: Any) -> NoReturn:
    raise ArgumentTypeError(
        f"`in` of {self}: it {_VALUES}\n  hint: fd.ops.any(x == value) gives it as a tensor",
        rule="habit-value",
    )


def _store(self: Tensor, index: Any, value: Any) -> NoReturn:
    raise ArgumentTypeError(
        f"x[...] = value: {self} is immutable\n"
        "  hint: y = fd.ops.where(mask, value, x), fd.ops.scatter(x, index, value, dim) or "
        "fd.ops.cat([...], dim); fd.add_output(y, alias_input=x) writes into an input",
        rule="habit-inplace",
    )


def _array(self: Any, *args: Any, **named: Any) -> NoReturn:
    raise ArgumentTypeError(f"numpy of {self}: it {_VALUES}", rule="habit-value")


# ---- indexing


def _item(self: Tensor, index: Any) -> Any:
    """x[...] as in torch: numbers, slices with steps, None, ..., Scalars, tensors of integers."""
    parts = list(index) if isinstance(index, tuple) else [index]
    parts = [_listed(self, p) for p in parts]
    taken = sum(p is not None and p is not Ellipsis for p in parts)
    dots = [i for i, p in enumerate(parts) if p is Ellipsis]
    if taken > self.ndim or len(dots) > 1:
        _refuse_index(self, f"expected at most {self.ndim} indices and one ..., got {len(parts)}")
    at = dots[0] if dots else len(parts)
    whole = [slice(None)] * (self.ndim - taken)
    parts = parts[:at] + whole + parts[at + len(dots) :]
    if sum(isinstance(p, Tensor) for p in parts) > 1:
        _refuse_index(self, "expected at most one tensor among the indices")
    return _taken(self, parts)


def _listed(self: Tensor, part: Any) -> Any:
    """Checks one index and converts it to a number, slice, Scalar or Tensor."""
    if part is None or part is Ellipsis or isinstance(part, slice | Scalar):
        return part
    if isinstance(part, Tensor):
        if part.dtype.kind != "Int":
            _refuse_index(
                self,
                f"expected an index of integers, got {part.dtype.torch_name}",
                "fd.ops.where(mask, x, 0) applies a mask; a mask as index gives a size known "
                "only at run time",
            )
        return part
    if hasattr(part, "requires_grad"):
        _refuse_data("x[...]", part, self)
    if isinstance(part, bool) or not hasattr(type(part), "__index__"):
        _refuse_index(self, f"expected a number, a slice, None, ... or a Tensor, got {part!r:.40}")
    return operator.index(part)


def _taken(self: Tensor, parts: Sequence[Any]) -> Any:
    ops = Ops(self._builder)
    bounds = [_bounds(self, p) for p in parts if p is not None]
    if any(b != (0, None, 1) for b in bounds):
        starts, ends, steps = ([b[i] for b in bounds] for i in range(3))
        result: Any = ops.slice(self, starts, ends, steps)
    else:
        result = self
    place = 0
    for part in parts:
        if part is None:
            result = ops.unsqueeze(result, place)
        elif isinstance(part, Tensor):
            result = _looked_up(ops, result, part, place)
            place += part.ndim - 1
        elif not isinstance(part, slice):
            result = ops.select(result, part, place)
            continue
        place += 1
    return ops.set(result) if result is self else result


def _bounds(self: Tensor, part: Any) -> tuple[Any, Any, Any]:
    """Start, end and step of a slice; the complete dim for other indices."""
    if not isinstance(part, slice):
        return 0, None, 1
    step = 1 if part.step is None else part.step
    if isinstance(step, int) and step < 1:
        _refuse_index(self, f"expected a step of 1 or more, got {step}", "fd.ops.flip(x, [dim])")
    return (0 if part.start is None else part.start), part.stop, step


def _looked_up(ops: Ops, arg: Tensor, index: Tensor, place: int) -> Any:
    """Gathers elements of one dim by `index` and replaces the dim by the dims of `index`."""
    more = index.ndim
    wide = ops.broadcast(arg, [place <= d < place + more for d in range(arg.ndim + more)])
    beside = [not place <= d < place + more for d in range(arg.ndim + more)]
    along = ops.take_along_axis(wide, ops.broadcast(index, beside), place + more)
    return ops.squeeze(along, [place + more])


def _refuse_index(self: Tensor, why: str, hint: str = "") -> NoReturn:
    hint = hint or "fd.ops.slice, fd.ops.select, fd.ops.take_along_axis and fd.ops.index_select"
    raise ArgumentTypeError(f"x[...] of {self}: {why}\n  hint: {hint}", rule="habit-index")


def refuse_arguments(
    method: Callable[..., Any], count: int, named: Mapping[str, Any], call: str = "execute()"
) -> NoReturn:
    """Raises UserError for wrong arguments of execute(), which takes one list of inputs."""
    known = [n for n in inspect.signature(method).parameters if n not in ("self", "inputs")]
    wrong = f"expected one list of inputs, got {count} arguments"
    if named:
        name = next(iter(named))
        near = get_close_matches(name, known, n=1)
        wrong = f"no argument {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    public = ", ".join(n for n in known if not n.startswith("_"))
    raise ArgumentTypeError(
        f"{call}: {wrong}\n"
        "  hint: fd.execute([a, b]) takes the inputs as a list in the order of definition; "
        f"keyword arguments: {public}",
        rule="execute-arguments",
    )


# ---- attributes of Tensor and Scalar

_shape_of, _size_of = Tensor.shape, Tensor.size


def _size(self: Tensor, dim: int | None = None) -> Any:
    """The size of a dim (negative: from the end) as a Scalar, or all sizes."""
    return self.shape if dim is None else _size_of(self, dim)


def _shape(self: Tensor) -> Vector:
    """All sizes, as Scalars; x.shape() is equivalent."""
    return Vector(_shape_of(self))


_SHARED: dict[str, Any] = {
    "__torch_function__": _torch_function,
    "__getattr__": _attribute,
    "__round__": _rounded,
    "__floor__": _unary("floor"),
    "__ceil__": _unary("ceil"),
    "__trunc__": _unary("trunc"),
    "__float__": lambda self: _number(self, float),
    "__int__": lambda self: _number(self, int),
    "__complex__": lambda self: _number(self, complex),
    "__array__": _array,
}
_OF_TENSORS: dict[str, Any] = {
    "shape": property(_shape),
    "size": _size,
    "__matmul__": _matmul,
    "__getitem__": _item,
    "__setitem__": _store,
    "__iter__": _rows,
    "__len__": _length,
    "__contains__": _contains,
}


def install() -> None:
    """Adds these methods and attributes to Tensor and Scalar."""
    for kind, names in ((Tensor, {**_SHARED, **_OF_TENSORS}), (Scalar, _SHARED)):
        for name, value in names.items():
            setattr(kind, name, value)
    Scalar.__index__ = _index  # type: ignore[method-assign]
