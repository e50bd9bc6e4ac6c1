"""fuser/adapters/union_find.py: connected components."""

from __future__ import annotations

from fuser.adapters.union_find import components


def test_components() -> None:
    found = components([(1, 2), (3, 4), (5, 5), (4, 6), (6, 3), (7, 2)])
    assert set(found) == set(range(1, 8))
    groups = {frozenset(n for n in found if found[n] == leader) for leader in found.values()}
    assert groups == {frozenset({1, 2, 7}), frozenset({3, 4, 6}), frozenset({5})}
    assert components([]) == {}


def test_a_long_chain() -> None:
    """A long chain needs no recursion, and near-linear time."""
    count = 100_000
    assert len(set(components((n, n + 1) for n in range(count)).values())) == 1
    assert len(set(components((n, n + 1) for n in reversed(range(count))).values())) == 1
