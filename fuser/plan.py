"""Plans: how a kernel was chosen to run, as values that can be printed, changed and passed back."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from fuser.errors import UserError


class Plan(Mapping[str, Any]):
    """The choices made for one kernel, as attributes: `plan.threads`. Immutable; `replace` makes a
    changed one.

    fd.plan(inputs) gives it, fd.execute(inputs, plan=plan) runs it. A plan that breaks a law of the
    machine (too many threads, a width that the layout does not allow) is refused there, never run
    wrongly.
    """

    __slots__ = ("_fields",)
    _fields: dict[str, Any]

    def __init__(self, **fields: Any) -> None:
        object.__setattr__(self, "_fields", fields)

    def replace(self, **changes: Any) -> "Plan":
        """This plan with some fields changed. Raises UserError `plan-1` for a field that it does
        not have.
        """
        for name in changes:
            if name not in self._fields:
                raise UserError(
                    f"plan has no field {name!r}; its fields: {', '.join(self._fields)}",
                    rule="plan-1",
                )
        return Plan(**(self._fields | changes))

    def __getattr__(self, name: str) -> Any:
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError(
                f"plan has no field {name!r}; its fields: {', '.join(self._fields)}"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a plan cannot be changed; use plan.replace({name}={value!r})")

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __reduce__(self) -> tuple[Callable[[], "Plan"], tuple[()]]:
        return partial(Plan, **self._fields), ()

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"Plan({', '.join(f'{name}={value!r}' for name, value in self._fields.items())})"


# One Plan where a definition runs as one kernel, else one for each kernel.
Plans = Plan | tuple[Plan, ...]
