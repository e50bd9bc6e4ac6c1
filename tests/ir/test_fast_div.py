"""Division by an invariant: magic numbers give the exact quotient for every index below 2^31."""

import numpy as np

from fuser import _core

LIMIT = 2**31


def check(divisor: int, x: np.ndarray) -> None:
    d, magic, shift = _core.make_fast_div(divisor)
    assert d == divisor
    assert magic < 2**32
    x = x.astype(np.uint64)
    total = (x * np.uint64(magic) >> np.uint64(32)) + x
    assert total.max() < 2**32, divisor
    wrong = x[total >> np.uint64(shift) != x // np.uint64(divisor)]
    assert wrong.size == 0, (divisor, wrong[:3])


def near_multiples(divisor: int, rng: np.random.Generator) -> np.ndarray:
    largest = (LIMIT - 1) // divisor
    factors = np.concatenate([[0, 1, 2, largest], rng.integers(0, largest + 1, 256)])
    x = (factors[:, None] * divisor + np.arange(-1, 2)).ravel()
    return np.concatenate([x[(x >= 0) & (x < LIMIT)], [0, 1, LIMIT - 1, LIMIT - 2]])


def test_small_divisors_and_powers(rng: np.random.Generator) -> None:
    powers = [2**k + e for k in range(1, 31) for e in (-1, 0, 1)]
    for divisor in [*range(1, 2000), *powers, LIMIT - 1, LIMIT]:
        check(divisor, near_multiples(divisor, rng))


def test_random_divisors(rng: np.random.Generator) -> None:
    for divisor in (2 ** rng.uniform(0, 31, 3000)).astype(np.int64):
        check(int(divisor), near_multiples(int(divisor), rng))
