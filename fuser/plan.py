"""Plans: the scheduling decisions for a kernel, as values that can be printed, changed and run."""

import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fuser import _core
from fuser.arguments import describe, fits
from fuser.errors import UserError

# Fields that are sets of accesses, one bit per access of a kernel: ints of any size.
_SETS = frozenset(name for name, kind, _, _ in _core.plan_fields() if kind == "Accesses")

# Fields by the name that programs from before the first release use. The next release drops the
# old names, so that a plan has one spelling.
RENAMED = {
    "once": "streaming",
    "wide": "vectorized",
    "shifted": "unaligned",
    "windows": "strided",
    "skew": "peel",
    "rolled": "smem_unroll",
    "serial": "looped",
    "turns": "rows_per_thread",
    "run": "rows_per_vector",
    "whole": "lane_axes",
    "merged": "collapsed",
    "keep": "cache_computed",
    "ring": "num_stages",
    "ahead": "prefetch_tiles",
    "backward": "reverse_grid",
    "finish": "columns_per_merge",
    "place": "persistent_in",
    "stretch": "packed",
    "across": "staged",
    "line_x": "store_line_x",
    "line_y": "store_line_y",
    "exact_x": "divides_x",
    "exact_y": "divides_y",
    "one_row": "split_at_rows",
    "one_side": "uniform_select",
    "cluster": "cluster_size",
    "blocks": "grid_blocks",
    "min_blocks": "min_blocks_per_sm",
}


def _current(name: str) -> str:
    """The name of a field today; DeprecationWarning for an old one."""
    new = RENAMED.get(name)
    if new is None:
        return name
    warnings.warn(f"plan: field {name!r} was renamed to {new!r}", DeprecationWarning, stacklevel=3)
    return new


def _renamed(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields under the names of today. Raises UserError `plan-1` for a field under both names."""
    if not RENAMED.keys() & fields.keys():
        return fields
    found: dict[str, Any] = {}
    for name, value in fields.items():
        new = RENAMED.get(name, name)
        if new != name:
            warnings.warn(
                f"plan: field {name!r} was renamed to {new!r}", DeprecationWarning, stacklevel=3
            )
        if new in found:
            raise UserError(
                f"plan: field {new!r} is given twice, once under its old name", rule="plan-1"
            )
        found[new] = value
    return found


class Plan(Mapping[str, Any]):
    """The scheduling decisions for one kernel, as attributes: `plan.threads`. Immutable; `replace`
    returns a changed copy.

    fd.plan(inputs) returns it, fd.execute(inputs, plan=plan) runs it. A plan that violates a limit
    of the GPU (too many threads, a width that the layout does not allow) is refused by execute().
    fuser.explain omits fields that are 0. A row is the elements that are reduced together. Masks
    are ints of any size: bit i stands for access i (FUSER_DUMP=schedule prints the accesses).
    """

    __slots__ = ("_fields",)
    _fields: dict[str, Any]

    def __init__(self, **fields: Any) -> None:
        object.__setattr__(self, "_fields", _renamed(fields))

    def replace(self, **changes: Any) -> "Plan":
        """Returns a copy with some fields changed. Raises UserError `plan-1` for an unknown field
        or for a value of a wrong type.
        """
        changes = _renamed(changes)
        for name, value in changes.items():
            if name not in self._fields:
                raise UserError(
                    f"plan: no field {name!r}; expected one of {', '.join(self._fields)}",
                    rule="plan-1",
                )
            kind = type(self._fields[name])
            if not fits(value, kind) and not (name in _SETS and isinstance(value, int)):
                raise UserError(
                    f"plan: {name}={value!r} has a wrong type: expected {describe(kind)}, like "
                    f"the planned {self._fields[name]!r}",
                    rule="plan-1",
                )
        return Plan(**(self._fields | changes))

    def __getattr__(self, name: str) -> Any:
        try:
            return self._fields[_current(name)]
        except KeyError:
            raise AttributeError(
                f"plan: no field {name!r}; expected one of {', '.join(self._fields)}"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"plan: plans are immutable; use plan.replace({name}={value!r})")

    def __getitem__(self, name: str) -> Any:
        return self._fields[_current(name)]

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


def _allowed(values: str, least: int, most: int) -> str:
    """The values of a field that may be changed: "32 to 1024, multiples of 32"."""
    if values == "Subset":
        return "subsets"
    kinds = {
        "Any": "",
        "Multiple": f", multiples of {least}",
        "Divisor": f", divisors of {most}",
        "Power": ", powers of two",
    }
    return f"{least} to {most}{kinds[values]}"


def _documentation() -> str:
    """The fields of plans and their ranges, from csrc/schedule/plan_fields.def."""
    starts = {"Count": "", "Flag": "1: ", "Accesses": "mask of "}
    lines = ["The fields:", ""]
    for name, kind, _, meaning in _core.plan_fields():
        lines += textwrap.wrap(
            f"{name:18}  {starts[kind]}{meaning}",
            width=92,
            subsequent_indent=" " * 20,
            break_on_hyphens=False,
        )
    lines += ["", "Fields that may be changed, with their widest ranges:", ""]
    for scheduler, rows in _core.plan_ranges().items():
        free = [f"{name} ({_allowed(*range_)})" for name, *range_ in rows if range_[0] != "Derived"]
        lines += textwrap.wrap(
            f"{scheduler}: {'; '.join(free)}", width=92, subsequent_indent="    "
        )
    return textwrap.indent("\n".join(lines), "    ", lambda line: bool(line.strip()))


Plan.__doc__ = f"{(Plan.__doc__ or '').rstrip()}\n\n{_documentation()}\n"


def plan_fields(
    plan: "Plans | None" = None, schedules: Sequence[str] | None = None
) -> dict[str, Any] | list[dict[str, Any]] | None:
    """Converts plans, and schedules written by hand, to the form that csrc/torch accepts. Raises
    UserError `schedule-5` unless there are as many schedules as plans.
    """
    if schedules is None:
        if plan is None:
            return None
        return dict(plan) if isinstance(plan, Plan) else [dict(p) for p in plan]
    if isinstance(schedules, str) or not all(isinstance(s, str) for s in schedules):
        raise UserError(
            f"execute(): schedules={schedules!r} has a wrong type; expected a list of str, one per "
            "kernel, like that of fd.schedules(inputs)",
            rule="schedule-5",
        )
    plans = (
        [Plan()] * len(schedules) if plan is None else [plan] if isinstance(plan, Plan) else plan
    )
    if len(plans) != len(schedules):
        raise UserError(
            f"execute(): {len(schedules)} schedules for {len(plans)} plans; expected one per plan",
            rule="schedule-5",
        )
    return [{**p, "schedule": s} for p, s in zip(plans, schedules, strict=True)]


# A Plan if the definition runs as one kernel, otherwise a tuple with one Plan per kernel.
Plans = Plan | tuple[Plan, ...]
