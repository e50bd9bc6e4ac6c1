"""Plans: how a kernel was chosen to run, as values that can be printed, changed and passed back."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from fuser.arguments import describe, fits
from fuser.errors import UserError

# The fields that are sets of accesses, as many as a kernel has: ints of any size.
_SETS = frozenset({"wide", "shifted", "windows", "once", "stretch", "across"})


class Plan(Mapping[str, Any]):
    """The choices made for one kernel, as attributes: `plan.threads`. Immutable; `replace` makes a
    changed one.

    fd.plan(inputs) gives it, fd.execute(inputs, plan=plan) runs it. A plan that breaks a law of the
    machine (too many threads, a width that the layout does not allow) is refused there, never run
    wrongly. Where a field is printed, 0 is left out. A row is what is reduced together; of masks,
    which are ints of any size, bit i is the i-th access to a tensor (FUSER_DUMP=schedule prints
    them).

        threads             of a block
        threads_x, _y, _z   of a block, along a row, along the next dim, along the one after it
        vector              neighbouring elements that a thread moves at once; vector_x and
                            vector_y along the two sides of a transposing tile
        tile_x, tile_y      elements of such a tile; exact_x, exact_y: 1 where tiles end where their
                            axis ends
        unroll, rolled      steps of a thread side by side; those of rows in shared memory
        serial              1: a loop over what the threads of a block do not take in one step
        merged, whole       innermost dims walked as one; how many of them a vector stays within
        tail                1: the last vector of a row may run past its end
        line_x, line_y      elements of a line of memory at which such a tile's stores along a side
                            start in each row, going round it; 0: where the tile does
        skew, shifted       1: rows are walked from the first line of memory in them; mask of reads
                            of vectors that lie at any element
        windows             mask of the reads of which each lane takes its element (slices by steps)
        one_row, one_side   1: a vector lies in one row; on one side of every boundary of a cat or
                            a pad
        wide, once          masks of what moves whole vectors; of what takes no place in L1
        place, ring         where a row lies between the walks over it: 1 registers, 2 shared
                            memory, 3 nowhere, it is read again; rows copied there ahead
        stretch             mask of what crosses shared memory in whole vectors, as the rows of a
                            block lie one after the other, and is walked there
        across, run         mask of what lies across the rows and crosses shared memory as a tile of
                            the block's rows, by runs of so many neighbouring rows
        turns               rows of a block with either that a thread walks in turn
        keep                1: what several walks compute stays in registers
        single_pass         1: fewer walks over a row: a variance by Welford, a softmax online
        cluster             blocks that share a row
        blocks, min_blocks  of a grid that does not grow with the tensors, or 0; those that are
                            resident on a processor at least, fewer where the code would spill
        finish              columns that a block merges at once at the end
        backward            1: the first blocks take the last elements
    """

    __slots__ = ("_fields",)
    _fields: dict[str, Any]

    def __init__(self, **fields: Any) -> None:
        object.__setattr__(self, "_fields", fields)

    def replace(self, **changes: Any) -> "Plan":
        """This plan with some fields changed. Raises UserError `plan-1` for a field that it does
        not have, and for a value that is not of the field's type.
        """
        for name, value in changes.items():
            if name not in self._fields:
                raise UserError(
                    f"plan has no field {name!r}; its fields: {', '.join(self._fields)}",
                    rule="plan-1",
                )
            kind = type(self._fields[name])
            if not fits(value, kind) and not (name in _SETS and isinstance(value, int)):
                raise UserError(
                    f"plan: {name}={value!r} is not possible: expected {describe(kind)}, as the "
                    f"planned {self._fields[name]!r} is",
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


def plan_fields(plan: "Plans | None" = None) -> dict[str, Any] | list[dict[str, Any]] | None:
    """As csrc/torch takes plans."""
    if plan is None:
        return None
    return dict(plan) if isinstance(plan, Plan) else [dict(p) for p in plan]


# One Plan where a definition runs as one kernel, else one for each kernel.
Plans = Plan | tuple[Plan, ...]
