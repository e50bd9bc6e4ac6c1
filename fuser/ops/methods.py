"""Decorators for the classes that Ops inherits: argument checks, names of composites, and types of
their methods."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from fuser._core import Scalar, Tensor
from fuser.arguments import Number, Operand, checked, flagged
from fuser.errors import UserError
from fuser.kernel_names import word

Class = TypeVar("Class", bound=type)
P = ParamSpec("P")


class Unary(Protocol[P]):
    """Type of an op of one operand: a tensor gives a tensor, another operand a Scalar."""

    @overload
    def __call__(self, x: Tensor, *args: P.args, **named: P.kwargs) -> Tensor: ...
    @overload
    def __call__(self, x: Scalar | Number, *args: P.args, **named: P.kwargs) -> Scalar: ...


class Nary(Protocol[P]):
    """Type of an op of several operands: a tensor as the first operand gives a tensor."""

    @overload
    def __call__(self, x: Tensor, /, *args: P.args, **named: P.kwargs) -> Tensor: ...
    @overload
    def __call__(self, x: Scalar | Number, /, *args: P.args, **named: P.kwargs) -> Any: ...


def unary(method: Callable[Concatenate[Any, Operand, P], Any]) -> Unary[P]:
    """Decorates a method for type checkers; it stays as it is."""
    return cast(Unary[P], method)


def nary(method: Callable[Concatenate[Any, Operand, P], Any]) -> Nary[P]:
    """Decorates a method for type checkers; it stays as it is."""
    return cast(Nary[P], method)


def checked_methods(kind: Class) -> Class:
    """Decorates a class: its public methods check their arguments."""
    for name in op_names(kind):
        setattr(kind, name, checked(flagged(getattr(kind, name))))
    return kind


def composed(kind: Class) -> Class:
    """Decorates a class of composed ops: its public methods check their arguments. Statements and
    errors inside a method carry its name.
    """
    for name in op_names(kind):
        setattr(kind, name, checked(flagged(_recorded(getattr(kind, name)))))
    return kind


def op_names(kind: type) -> list[str]:
    """Names of the public methods that the class itself defines."""
    own = vars(kind).items()
    return [n for n, f in own if inspect.isfunction(f) and not n.startswith("_")]


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a method: statements and errors inside carry its name."""
    name = word(function.__name__)

    @functools.wraps(function)
    def method(ops: Any, *args: Any, **named: Any) -> Any:
        builder = ops._builder
        if builder.composite:  # called by another composite, which is named instead
            return function(ops, *args, **named)
        builder.composite = name
        try:
            return function(ops, *args, **named)
        except UserError as error:  # raised by an inner op unless the text starts with this name
            if str(error).startswith(function.__name__):
                raise
            raise type(error)(f"{function.__name__}(): {error}", rule=error.rule) from None
        finally:
            builder.composite = ""

    return method
