"""Plans: the scheduling decisions for a kernel, as values that can be printed, changed and run."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from fuser.arguments import describe, fits
from fuser.errors import UserError

# Fields that are sets of accesses, one bit per access of a kernel: ints of any size.
_SETS = frozenset({"vectorized", "unaligned", "strided", "streaming", "packed", "staged"})

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

        threads             of a block
        threads_x, _y, _z   of a block, along a row, along the next dim, along the one after it
        vector              neighbouring elements that a thread moves at once; vector_x and
                            vector_y along the two layout groups of a transpose
        tile_x, tile_y      elements of a transposing tile
        divides_x, _y       1: tiles divide their axis, so that no element of a tile needs a mask
        unroll              unrolled steps of a thread
        smem_unroll         factor by which the compiler unrolls the loop over a row; 1 keeps the
                            code short, because `unroll` already gives the loads in flight; 0: no
                            loop
        looped              1: a loop over the steps that the threads of a block leave
        collapsed           innermost dims that are one dim
        lane_axes           innermost axes that a vector stays within; 0: any number
        tail                1: the last vector of a row may run past its end
        store_line_x, _y    elements of a memory line at which each row of a tile starts its
                            stores, because a warp then writes complete lines; 0: at the tile
        peel                1: loops over a row start at its first line of memory
        vectorized          mask of accesses that move whole vectors
        unaligned           mask of vector reads at any element address
        strided             mask of reads whose lanes select elements of a wider window
        streaming           mask of accesses that bypass L1
        split_at_rows       1: vectors within one row have a loop of their own
        uniform_select      1: every condition holds for all elements of a vector or for none
        persistent_in       memory of a row between reduction loops: 1 registers, 2 shared
                            memory, 3 none (the row is read again)
        num_stages          rows of the pipeline of copies to shared memory
        packed              mask of short rows that cross shared memory as whole vectors
        staged              mask of uncoalesced accesses that cross shared memory as a tile
        rows_per_vector     neighbouring rows of one vector of a staged access
        rows_per_thread     packed or staged rows that a thread reduces in turn
        prefetch_tiles      1: staged reads are copied one tile ahead
        cache_computed      1: values that several reduction loops use stay in registers, because
                            a second computation costs more than a register per element
        single_pass         1: fewer reduction loops: Welford, online softmax
        cluster_size        blocks that reduce a row together
        grid_blocks         blocks of a grid of constant size; 0: the grid grows with the tensors
        min_blocks_per_sm   resident blocks for which the compiler limits registers: more blocks
                            hide latency, more registers avoid spills; 0: the compiler decides
        columns_per_merge   columns that a block merges at once at the end
        reverse_grid        1: the first blocks take the last elements
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


def plan_fields(plan: "Plans | None" = None) -> dict[str, Any] | list[dict[str, Any]] | None:
    """Converts plans to the form that csrc/torch accepts."""
    if plan is None:
        return None
    return dict(plan) if isinstance(plan, Plan) else [dict(p) for p in plan]


# A Plan if the definition runs as one kernel, otherwise a tuple with one Plan per kernel.
Plans = Plan | tuple[Plan, ...]
