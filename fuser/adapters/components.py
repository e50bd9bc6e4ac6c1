"""Which of many things hang together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def components(pairs: Iterable[tuple[T, T]]) -> dict[T, T]:
    """For everything in these pairs one thing that stands for all that they connect it with."""
    leader: dict[T, T] = {}

    def find(one: T) -> T:
        while (above := leader.setdefault(one, one)) != one:
            leader[one] = one = leader[above]
        return one

    for a, b in pairs:
        leader[find(a)] = find(b)
    return {one: find(one) for one in list(leader)}
