"""Order of steps around collectives: a collective starts as soon as its operand exists, and the
wait for it runs right before the first reader.

torch traces a collective as a start and a wait side by side. In the backward pass of a linear under
tensor parallel, the gradient of the weight is computed before the collective of the other gradient
starts. Here it runs between the start and the wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set

from torch import fx

from fuser.adapters.graph.effects import is_start, is_wait


def overlapped(
    order: Sequence[int],
    nodes: Sequence[Collection[fx.Node]],
    before: Sequence[Set[int]],
    writing: Set[int],
) -> list[int]:
    """The steps in a new order, which keeps the order of the starts.

    order    the steps in the order so far
    nodes    nodes of each step
    before   for each step, those that must run before it
    writing  steps that overwrite memory; no step moves past them, because a collective reads its
             operand until the wait
    """

    def steps(kind: Callable[[fx.Node], bool]) -> set[int]:
        return {i for i, found in enumerate(nodes) if any(map(kind, found))}

    starts, waits = steps(is_start), steps(is_wait)
    if not starts:
        return list(order)
    early = _start_early(order, before, starts, starts | waits | writing)
    return _wait_late(early, before, waits, writing)


def _start_early(
    order: Sequence[int], before: Sequence[Set[int]], starts: Set[int], fixed: Set[int]
) -> list[int]:
    """Delays steps past the next start if it does not depend on them. Each step is delayed up to
    the next wait at most, so that few values live longer.
    """
    done: list[int] = []
    open_: list[int] = []  # steps since the last one of `fixed`, in order
    for step in order:
        if step not in fixed:
            open_.append(step)
            continue
        needed: list[int] = []
        if step in starts:
            wanted = set(before[step])
            for i in reversed(open_):
                if i in wanted:
                    needed.append(i)
                    wanted |= before[i]
            rest = [i for i in open_ if i not in wanted]
        else:
            needed, rest = open_[::-1], []
        done += [*reversed(needed), step]
        open_ = rest
    return [*done, *open_]


def _wait_late(
    order: Sequence[int], before: Sequence[Set[int]], waits: Set[int], writing: Set[int]
) -> list[int]:
    """Moves each wait to the first step that depends on it."""
    done: list[int] = []
    open_: dict[int, None] = {}  # waits that no step has needed, in order
    for step in order:
        if step in waits:
            open_[step] = None
            continue
        due = [w for w in open_ if step in writing or w in before[step]]
        for w in due:
            del open_[w]
        done += [*due, step]
    return [*done, *open_]
