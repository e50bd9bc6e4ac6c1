"""Union-find: connected components."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def components(pairs: Iterable[tuple[T, T]]) -> dict[T, T]:
    """Maps each element of the pairs to a representative of its connected component."""
    leader: dict[T, T] = {}

    def find(one: T) -> T:
        while (above := leader.setdefault(one, one)) != one:
            leader[one] = one = leader[above]
        return one

    for a, b in pairs:
        leader[find(a)] = find(b)
    return {one: find(one) for one in list(leader)}
