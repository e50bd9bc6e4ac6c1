"""Plans: the scheduling decisions for a kernel, as values that can be printed, changed and run."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from fuser.arguments import describe, fits
from fuser.errors import UserError

# Fields that are sets of accesses, one bit per access of a kernel: ints of any size.
_SETS = frozenset({"wide", "shifted", "windows", "once", "stretch", "across"})


class Plan(Mapping[str, Any]):
    """The scheduling decisions for one kernel, as attributes: `plan.threads`. Immutable; `replace`
    returns a changed copy.

    fd.plan(inputs) returns it, fd.execute(inputs, plan=plan) runs it. A plan that violates a limit
    of the GPU (too many threads, a width that the layout does not allow) is refused by execute().
    fuser.explain omits fields that are 0. A row is the elements that are reduced together. Masks
    are ints of any size: bit i stands for access i (FUSER_DUMP=schedule prints the accesses).

        threads             threads per block
        threads_x, _y, _z   threads per block along a row, the next dim, and the dim after it
        vector              neighbouring elements that a thread moves at once; vector_x and
                            vector_y: along the two layout groups of a transposing tile
        tile_x, tile_y      elements of a transposing tile; exact_x, exact_y: 1 if tiles end where
                            their axis ends
        unroll, rolled      unrolled steps of a thread; unrolled steps over rows in shared memory
        serial              1: loop over the elements beyond one step of the block's threads
        merged, whole       number of innermost dims collapsed into one; how many of them a vector
                            never leaves
        tail                1: the last vector of a row may run past its end
        line_x, line_y      elements per memory line to which the stores of a transposing tile along
                            that group are aligned in each row, wrapping around; 0: not aligned
        skew, shifted       1: loops over a row start at its first line-aligned element; mask of
                            unaligned reads: vectors at any element address
        windows             mask of strided reads: each lane selects its element (stepped slices)
        one_row, one_side   1: a vector stays within one row; within one side of every boundary of
                            a cat or pad
        wide, once          mask of vectorized accesses; mask of streaming accesses (bypass L1)
        place, ring         storage of a row between its reduction loops: 1 registers, 2 shared
                            memory, 3 nowhere (it is read again); rows prefetched into
                            shared memory
        stretch             mask of packed accesses: the rows of a block, adjacent in memory, cross
                            shared memory in whole vectors and are reduced there
        across, run, ahead  mask of uncoalesced accesses that cross shared memory as a tile of the
                            block's rows; neighbouring rows per vector of the tile; 1: reads are
                            prefetched one tile ahead
        turns               rows that a thread processes in turn with stretch or across
        keep                1: values computed by several reduction loops stay in registers
        single_pass         1: fewer reduction loops: a variance by Welford, an online softmax
        cluster             blocks that share a row
        blocks, min_blocks  blocks of a grid of fixed size, or 0; minimum of resident blocks per SM,
                            fewer if registers would spill
        finish              columns that a block merges at once at the end of a grid reduction
        backward            1: the first blocks process the last elements
    """

    __slots__ = ("_fields",)
    _fields: dict[str, Any]

    def __init__(self, **fields: Any) -> None:
        object.__setattr__(self, "_fields", fields)

    def replace(self, **changes: Any) -> "Plan":
        """Returns a copy with some fields changed. Raises UserError `plan-1` for an unknown field
        or for a value of a wrong type.
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
    """Converts plans to the form that csrc/torch accepts."""
    if plan is None:
        return None
    return dict(plan) if isinstance(plan, Plan) else [dict(p) for p in plan]


# A Plan if the definition runs as one kernel, otherwise a tuple with one Plan per kernel.
Plans = Plan | tuple[Plan, ...]
