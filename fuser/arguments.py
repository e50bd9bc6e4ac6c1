"""Argument handling for the methods of fd.ops and the functions of fuser: their types, conversion
to one form, and errors about wrong arguments.
"""

import functools
import inspect
import numbers
import operator
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from fuser import _core
from fuser._core import DataType, Scalar, Tensor
from fuser.errors import ArgumentTypeError, DTypeError, InternalError, Unsupported, UserError

Number = bool | int | float | complex
Operand = Tensor | Scalar | Number
Size = int | Scalar
Dims = int | Sequence[int] | None
Function = typing.TypeVar("Function", bound=Callable[..., Any])


class Vector(list[Scalar]):
    """Scalars in order, e.g. a shape. A list, returned by define_vector() and fd.ops.shape()."""

    def __call__(self) -> "Vector":
        """Returns itself: x.shape is a value, but a method in nvFuser's definitions."""
        return self

    @property
    def size(self) -> int:
        """Number of scalars."""
        return len(self)

    def at(self, index: int) -> Scalar:
        """vector[index]."""
        return self[index]


class AbsentType:
    """A type of nvFuser's DataType that fuser lacks. It can be named, but ops refuse it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"DataType.{self.name}"


for _name in ("Float8_e8m0fnu", "Float4_e2m1fn", "Float4_e2m1fn_x2"):
    setattr(DataType, _name, AbsentType(_name))


def as_dtype(dtype: Any) -> DataType:
    """Converts a DataType or a torch.dtype to a DataType. Raises Unsupported `dtype-absent` for an
    AbsentType, DTypeError `dtype-torch` for a torch type that fuser lacks.
    """
    if isinstance(dtype, DataType):
        return dtype
    if isinstance(dtype, AbsentType):
        raise Unsupported(
            f"dtype: {dtype} has no counterpart in fuser\n"
            f"  hint: use one of {', '.join(DataType.__members__)}",
            rule="dtype-absent",
        )
    if not _is_torch_dtype(dtype):
        raise DTypeError(
            f"dtype: expected a DataType or a torch.dtype, got {_seen(dtype)}", rule="dtype-torch"
        )
    return _core.dtype_from_torch(str(dtype).removeprefix("torch."))


def _is_torch_dtype(value: Any) -> bool:
    return (type(value).__module__, type(value).__name__) == ("torch", "dtype")


def reduced_dims(
    op: str, arg: Tensor, dims: Dims | DataType, dtype: Any = None, dim: int | None = None
) -> tuple[list[int], DataType | None]:
    """Returns the dims and the dtype of a reduction called as (arg, dtype), (arg, dim, ...) or
    (arg, dims, ...). As in torch, a 0-dim tensor may be reduced over dim 0 or -1, which does
    nothing.

    Raises UserError `reduce-dim-4` for both `dims` and `dim`.
    """
    if dims is not None and dim is not None:
        raise UserError(f"{op}(): got both dims={dims!r} and dim={dim!r}", rule="reduce-dim-4")
    which = dims if dim is None else dim
    if isinstance(which, DataType | AbsentType) or _is_torch_dtype(which):
        which, dtype = None, which if dtype is None else dtype
    if which is None:
        which = range(arg.ndim)
    listed = list(which) if isinstance(which, Iterable) else [operator.index(which)]
    if arg.ndim == 0:
        listed = [d for d in listed if d not in (0, -1)]
    return listed, None if dtype is None else as_dtype(dtype)


def along_a_dim(function: Function) -> Function:
    """Decorates a function of ops, a tensor and `dim` to accept 0-dim tensors. As in torch, they
    count as tensors of one element along dim 0 or -1. If all tensors are 0-dim, so are the results.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(ops: Any, *args: Any, **named: Any) -> Any:
        first = args[0] if args else next(iter(named.values()), None)
        if not isinstance(first, Tensor) or first.ndim:
            return function(ops, *args, **named)
        bound = signature.bind(ops, *args, **named)
        bound.apply_defaults()
        given = bound.arguments
        if given["dim"] not in (0, -1):
            return function(ops, *args, **named)  # raises the error
        tensors = {name: t for name, t in given.items() if isinstance(t, Tensor)}
        given.update({n: ops.broadcast(t, [True]) for n, t in tensors.items() if t.ndim == 0})
        results = function(*bound.args, **bound.kwargs)
        if any(t.ndim for t in tensors.values()):
            return results
        if isinstance(results, tuple):
            return tuple(ops.squeeze(t, [0]) for t in results)
        return ops._without_dim(results)

    return typing.cast(Function, call)


def flagged(function: Function) -> Function:
    """Decorates `function` to accept for its bool parameters the values that the bindings accept:
    None is False, numbers convert to bool. Raises TypeError for other values, as the bindings do,
    because an arbitrary true object is probably a mistake.
    """
    written = inspect.unwrap(function)
    kinds = getattr(written, "__annotations__", {})
    flags = [n for n, kind in kinds.items() if kind in (bool, "bool") and n != "return"]
    if not flags:
        return function
    code = written.__code__
    positional = code.co_varnames[: code.co_argcount]
    places = [(n, positional.index(n) if n in positional else sys.maxsize) for n in flags]

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        for name, place in places:
            value = args[place] if place < len(args) else named.get(name)
            if value is None or isinstance(value, bool):
                continue
            if isinstance(value, Tensor | Scalar) or not hasattr(type(value), "__bool__"):
                raise TypeError(f"expected a bool, got {_seen(value)}")
        return function(*args, **named)

    return typing.cast(Function, call)


def known_number(op: str, name: str, value: Any) -> Any:
    """Returns the number of a constant Scalar; returns other values unchanged. Raises Unsupported
    `number-1` for a Scalar that is only known at run time.
    """
    if not isinstance(value, Scalar):
        return value
    if value.value is None:
        raise Unsupported(
            f"{op}(): {name}: expected a number, got a scalar that is known only at run time\n"
            "  hint: make one definition per value",
            rule="number-1",
        )
    return value.value


def count_over(arg: Any, dims: Sequence[int]) -> Any:
    """Number of elements over `dims`, a product of sizes of `arg`: an int64 Scalar, or 1."""
    sizes = [arg.size(d) for d in dims]
    return functools.reduce(operator.mul, sizes) if sizes else 1


# Exceptions of Python and of the bindings for arguments of wrong types.
TYPE_FAULTS = (
    AttributeError,
    IndexError,
    InternalError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
)


# Rules about integers that are too large; they are no type errors.
_OF_INTEGERS = ("operand-2", "scalar-fits-1")

# Argument names of older definitions.
_OLDER = {
    "axes": "dims",
    "contiguous": "contiguity",
    "keep_dim": "keepdim",
    "output_shape": "shape",
    "symbolic_sizes": "shape",
}


def checked(function: Function, name: str = "") -> Function:
    """Decorates a function or method: a failure on arguments of wrong types becomes UserError
    `argument-kind-1`, which names the argument and the function (or `name`). Errors of as_dtype()
    get the function's name. A call that succeeds is not inspected. A call that fails with argument
    names of _OLDER is repeated with the current names.
    """
    shown = name or function.__name__

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except TYPE_FAULTS as error:
            renamed = {_OLDER.get(key, key): value for key, value in named.items()}
            if len(renamed) == len(named) and renamed.keys() != named.keys():
                return call(*args, **renamed)

            def given(signature: inspect.Signature) -> Mapping[str, Any]:
                return signature.bind(*args, **named).arguments

            blame(function, shown, error, given)
            if getattr(error, "rule", "") == "dtype-torch" and "(): " not in str(error):
                raise DTypeError(f"{shown}(): {error}", rule="dtype-torch") from None
            raise

    return typing.cast(Function, call)


def defined(*tensors: Tensor) -> str:
    """Lines for an error message that say where the tensors were defined."""
    return "".join(f"\n  {t}  defined at {t.location}" for t in tensors)


def blame(
    method: Callable[..., Any],
    name: str,
    error: Exception,
    arguments: Callable[[inspect.Signature], Mapping[str, Any]],
) -> None:
    """Raises ArgumentTypeError `argument-kind-1` in place of `error`, raised by a call of `method`,
    if the arguments do not fit the annotations. Keeps the rule and text of `error` if they are
    about the wrong argument. `arguments` returns the arguments by name.
    """
    rule = getattr(error, "rule", "")
    told = isinstance(error, TypeError) and rule not in ("", "argument-kind-1", "habit-value")
    if told or rule in _OF_INTEGERS:
        return
    signature = inspect.signature(method)
    shown = list(signature.parameters.values())
    if shown and shown[0].name == "self":
        del shown[0]
    plain = [p.replace(annotation=p.empty) for p in shown]
    usage = str(signature.replace(parameters=plain, return_annotation=signature.empty))
    usage = name + re.sub(r"<(DataType\.\w+): \d+>", r"\1", usage)
    if rule == "op-arity-1":
        raise UserError(f"{error}\n  hint: {usage}", rule=rule) from None
    expected = _annotations(method)
    try:
        given = arguments(signature)
    except TypeError as unbound:
        wrong = str(unbound)
    else:
        misfits = [
            p.name
            for p in shown
            if p.name in given
            and given[p.name] is not p.default
            and not fits(given[p.name], expected.get(p.name, Any))
        ]
        if not misfits:
            return
        first = misfits[0]
        ruled = rule not in ("", "internal", "argument-kind-1")
        if ruled and f"{first}: expected" in str(error):
            raise ArgumentTypeError(str(error), rule=rule) from None
        wrong = f"{first}: expected {describe(expected[first])}, got {_seen(given[first])}"
        if hasattr(given[first], "requires_grad"):
            usage += f"; {_for_tensors(expected[first])}"
    raise ArgumentTypeError(f"{name}(): {wrong}\n  hint: {usage}", rule="argument-kind-1") from None


def _for_tensors(kind: Any) -> str:
    """Hint for a torch tensor passed where `kind` is expected."""
    if typing.get_origin(kind) is Sequence and typing.get_args(kind) == (Any,):
        return "one tensor is a list too: [x]"
    return "a tensor of torch is given to execute()"


def _seen(value: Any) -> str:
    if isinstance(value, list | tuple):
        kinds = ", ".join(sorted({_name_of(item) for item in value}))
        return f"a {type(value).__name__} of {kinds or 'nothing'}: {value!r:.60}"
    shown = f" {value!r:.60}" if isinstance(value, str | numbers.Number) else ""
    return _name_of(value) + shown


def _name_of(value: Any) -> str:
    kind = type(value)
    module = kind.__module__.removesuffix("._core")  # users find the type as fuser.Tensor
    return kind.__name__ if module == "builtins" else f"{module}.{kind.__name__}"


def _annotations(method: Callable[..., Any]) -> dict[str, Any]:
    written = inspect.unwrap(method)
    parameters = inspect.signature(written).parameters.values()
    # methods of Ops, whose annotations are types
    if not any(isinstance(p.annotation, str) for p in parameters):
        return {p.name: p.annotation for p in parameters if p.annotation is not p.empty}
    known = {**globals(), "torch": sys.modules.get("torch")}
    definition = sys.modules.get("fuser.definition")
    known |= {name: getattr(definition, name, Any) for name in ("Fusion", "FusionDefinition")}
    kinds = dict(written.__annotations__)
    for parameter, kind in kinds.items():
        if isinstance(kind, str):
            try:
                kinds[parameter] = eval(kind, written.__globals__, known)
            except (AttributeError, NameError):  # imported for type checkers only
                kinds[parameter] = Any
    return kinds


def fits(value: Any, kind: Any) -> bool:
    """True if the methods of this package accept `value` as `kind`. An int has 64 bits; any number
    is a float.
    """
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return type(None) in typing.get_args(kind)
        return any(fits(value, one) for one in typing.get_args(kind))
    if origin in (Sequence, tuple):
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Collection):
            return False
        # do not treat a tensor as a list of its rows
        if isinstance(value, Tensor) or hasattr(value, "requires_grad"):
            return False
        return all(fits(item, typing.get_args(kind)[0]) for item in value)
    if kind is int:
        if isinstance(value, DataType):  # an enum, which has __index__
            return False
        try:
            return -(2**63) <= operator.index(value) < 2**63
        except TypeError:
            return False
    if kind in (bool, float, complex):  # accept numpy numbers, and no value as False
        number = numbers.Real if kind is float else numbers.Number
        is_number = isinstance(value, number) or type(value).__module__ == "numpy"
        return is_number or (kind is bool and value is None)
    return kind is Any or not isinstance(kind, type) or isinstance(value, kind)


_NAMES = {int: "an int", float: "a float", complex: "a number", bool: "a bool", str: "a str"}


def describe(kind: Any) -> str:
    """Describes a type in words: "a Tensor or None", "a list (each an int)"."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        narrower = (bool, int, float) if complex in inner else ()
        *most, last = [describe(k) for k in inner if k not in narrower]
        return f"{', '.join(most)} or {last}" if most else last
    if origin in (Sequence, tuple):
        return "a list" if inner[0] is Any else f"a list (each {describe(inner[0])})"
    if kind is type(None):
        return "None"
    return _NAMES.get(kind, f"a {getattr(kind, '__name__', kind)}")
