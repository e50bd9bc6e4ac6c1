"""Reductions of csrc/device/reduce.cuh compared with numpy: every tag on every dtype, and every
kind of cooperation between threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.device.launch import MEETING, Kernels
from tests.device.reductions import (
    ALL,
    CLUSTERED,
    DTYPES,
    FLOAT,
    LANES,
    LAST,
    ROWS,
    SOME,
    Array,
    Reduction,
    all_programs,
    check_state,
    limit,
    same_bits,
    tile_threads,
)


@pytest.fixture(scope="module", params=MEETING)
def run(request: pytest.FixtureRequest) -> Kernels:
    kernels: Kernels = request.param(all_programs())
    return kernels


def by_name(value: Any) -> str | None:
    return value.name if isinstance(value, Reduction) else None


def elements(r: Reduction, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Elements with many ties; products stay near 1, integers wrap."""
    kind = r.dtype.kind
    if kind == "b":
        return rng.random(shape) < 0.5
    if kind in "iu":
        info = np.iinfo(r.dtype)
        wide = rng.integers(info.min, info.max, shape, dtype=r.dtype, endpoint=True)
        small = rng.integers(0, 4, shape).astype(r.dtype)
        x = np.where(rng.random(shape) < 0.5, wide, small)
        return x | r.dtype.type(1) if r.tag == "Prod" else x
    x = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if kind == "c" else 0)
    if r.tag == "Prod":
        x = x / np.abs(x) * np.exp(rng.standard_normal(shape) / 8)
    elif r.tag == "Welford":
        x = x + rng.choice([0.0, 1000.0])
    else:
        x = np.where(rng.random(shape) < 0.3, np.round(x), 5 * x)
    return x.astype(r.dtype)


def special_rows(r: Reduction, count: int, rng: np.random.Generator) -> Array:
    """Rows with edge cases of a reduction at random positions."""
    plain = elements(r, (12, count), rng)
    rows = [plain[0], np.zeros_like(plain[0]), np.ones_like(plain[0])]
    if r.tag != "Prod":  # its power would overflow
        rows.append(np.full_like(plain[0], plain[0][0]))
    for value in (0, 1):  # one different element among equal ones
        row = np.full_like(plain[0], 1 - value)
        row[rng.integers(count)] = value
        rows.append(row)
    if r.dtype.kind in "iu":
        info = np.iinfo(r.dtype)
        rows += [np.full_like(plain[0], v) for v in (info.min, info.max)]
    if r.dtype.kind == "f":
        huge = float(np.finfo(r.dtype).max)
        for k, odd in enumerate(
            ([np.nan], [np.inf], [-np.inf], [np.inf, -np.inf], [np.inf, np.inf], [np.nan, np.inf])
        ):
            row = plain[k + 1].copy()
            row[rng.integers(count, size=len(odd))] = odd
            rows.append(row)
        zeros = np.zeros_like(plain[0])
        zeros[rng.random(count) < 0.5] = -0.0
        rows.append(zeros)
        if r.tag not in {"Welford", "Sum", "Prod"}:
            rows += [np.full_like(plain[0], v) for v in (-np.inf, np.inf, np.nan, -huge, huge)]
        # Half of the elements are -infinity, as in a masked row.
        rows.append(np.where(rng.random(count) < 0.5, plain[8], -np.inf).astype(r.dtype))
    return np.stack(rows)


def empty(r: Reduction, *shape: int) -> Array:
    """Unwritten memory for states."""
    states = np.zeros(shape, r.state)
    states.reshape(-1).view(np.uint8)[:] = 0xFF
    return states


def check_copies(r: Reduction, copies: Array) -> Any:
    """Assert that all threads hold equal bits; return the state."""
    assert same_bits(copies, np.broadcast_to(copies[:1], copies.shape)), f"{r.name}: {copies}"
    return copies[0]


@pytest.mark.parametrize("r", ALL, ids=by_name)
def test_block(run: Kernels, r: Reduction, rng: np.random.Generator) -> None:
    which = DTYPES[r.tag].index(r.device)
    for count in (0, 1, 2, 31, 256, 777, 1000):
        x = special_rows(r, count, rng) if count else np.zeros((2, 0), r.dtype)
        if count == 1000:
            x = np.concatenate([x, elements(r, (4, count), rng)])
        out = empty(r, len(x), 256)
        run(f"block_{r.tag}", len(x), 256, which, count, x, out, shared=8 * r.state.itemsize)
        for row, copies in zip(x, out, strict=True):
            check_state(r, check_copies(r, copies), row)


@pytest.mark.parametrize(
    "which", range(len(LANES)), ids=lambda i: f"{LANES[i][0].name}-{LANES[i][1]}"
)
@pytest.mark.parametrize("warps", [0, 1], ids=["lanes", "warps"])
def test_lanes(run: Kernels, which: int, warps: int, rng: np.random.Generator) -> None:
    r, width = LANES[which]
    threads = 1024 if warps and width == 32 else 512 if warps else 96
    if warps and width == 1:
        threads = 160
    x = elements(r, (2, threads), rng)
    out = empty(r, 2, threads)
    run("lanes", 2, threads, which, warps, x, out, shared=32 * r.state.itemsize)
    group = width * (32 if warps else 1)
    index = np.arange(2 * threads).reshape(-1, group)
    for row, places, copies in zip(
        x.reshape(-1, group), index, out.reshape(-1, group), strict=True
    ):
        check_state(r, check_copies(r, copies), row, places)


@pytest.mark.parametrize(
    "which", range(len(ROWS)), ids=lambda i: f"{ROWS[i][0].name}-{'x'.join(map(str, ROWS[i][1]))}"
)
def test_rows(run: Kernels, which: int, rng: np.random.Generator) -> None:
    r, (rows, columns, n) = ROWS[which]
    x = elements(r, (3, rows, n, columns), rng)
    out = empty(r, 2, *x.shape)
    shared = n * rows * columns * r.state.itemsize
    run("rows", 3, tile_threads(rows, columns), which, 2, x, out, shared=shared)
    for turn in range(2):
        for block in range(3):
            for place in np.ndindex(n, columns):
                copies = out[(turn, block, slice(None), *place)]
                check_state(r, check_copies(r, copies), x[(block, slice(None), *place)])


@pytest.mark.parametrize(
    "which", range(len(CLUSTERED)), ids=lambda i: f"{CLUSTERED[i][0].name}-{CLUSTERED[i][1]}"
)
def test_cluster(run: Kernels, which: int, rng: np.random.Generator) -> None:
    r, size = CLUSTERED[which]
    count = 1234
    x = special_rows(r, count, rng)
    turns = 5  # waits at each of two barriers in both phases, and once more
    out = empty(r, turns, len(x), size * 64)
    shared = 16 + 2 * 2 * size * max(4, r.state.itemsize)
    run("clusters", size * len(x), 64, which, turns, count, x, out, shared=shared, cluster=size)
    for turn in range(turns):
        for row, copies in zip(x, out[turn], strict=True):
            check_state(r, check_copies(r, copies), row[: count // 2] if turn % 2 else row)


@pytest.mark.parametrize("r", SOME, ids=by_name)
def test_grid(run: Kernels, r: Reduction, rng: np.random.Generator) -> None:
    counter, lasts = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    launches = 0
    for blocks in (1, 2, 37):
        for x in special_rows(r, 9999, rng):
            out = empty(r, 64)
            partials = empty(r, 2 * blocks)
            which = SOME.index(r)
            arguments = (which, x.size, x, partials, out, counter, lasts)
            run("grids", blocks, 64, *arguments, shared=4)
            launches += 1
            assert counter[0] == 0
            assert lasts[0] == launches
            check_state(r, check_copies(r, out), x)


@pytest.mark.parametrize("device", FLOAT)
@pytest.mark.parametrize("at_once", [0, 1], ids=["single", "chunks"])
def test_online_softmax_of_a_thread(
    run: Kernels, device: str, at_once: int, rng: np.random.Generator
) -> None:
    r = Reduction("OnlineSoftmax", device)
    x = np.concatenate([special_rows(r, 45, rng), elements(r, (64, 45), rng)])[:64]
    out = empty(r, 64)
    run("online", 2, 32, 2 * FLOAT.index(device) + at_once, 45, x, out)
    for row, state in zip(x, out, strict=True):
        check_state(r, state, row)


# ---- merges


def states(r: Reduction, rng: np.random.Generator) -> Array:
    """States as they occur in reductions, including the empty state."""
    if r.tag == "Welford":
        made = np.zeros(60, r.state)
        made["f2"][5:] = rng.integers(1, 5000, 55)
        made["f0"][5:] = rng.standard_normal(55) * 10.0 ** rng.integers(-30, 30, 55)
        made["f1"][5:] = rng.random(55) * made["f2"][5:]
        made["f0"][50:54] = np.finfo(r.dtype).max * np.array([1, -1, 1, -1])
        made["f1"][54], made["f0"][55] = np.nan, np.inf
        made["f1"][55] = np.nan
        return made
    if r.tag == "OnlineSoftmax":
        made = np.zeros(60, r.state)
        made["f0"], made["f1"] = 20 * rng.standard_normal(60), 1 + 100 * rng.random(60)
        made["f0"][:4], made["f1"][:4] = -np.inf, 0
        made["f0"][4:6], made["f1"][4:6] = np.inf, np.nan
        made["f0"][6:8] = made["f1"][6:8] = np.nan
        made["f0"][8:10] = np.finfo(r.dtype).max * np.array([-1, 1])
        return made
    x = np.concatenate([special_rows(r, 3, rng).reshape(-1), elements(r, (40,), rng)])
    if not r.indexed:
        return x.astype(r.state)
    made = np.zeros(x.size + 3, r.state)
    made["f0"][:-3], made["f1"][:-3] = x, rng.permutation(x.size)
    made["f0"][-3:], made["f1"][-3:] = limit(r), LAST
    return made


@pytest.mark.parametrize("r", ALL, ids=by_name)
def test_merge(run: Kernels, r: Reduction, rng: np.random.Generator) -> None:
    made = states(r, rng)
    first, second = (
        grid.reshape(-1) for grid in np.meshgrid(np.arange(made.size), np.arange(made.size))
    )
    a, b = made[first].copy(), made[second].copy()
    out = empty(r, 3, a.size)
    run("merge", -(-a.size // 64), 64, ALL.index(r), a.size, a, b, out)
    assert same_bits(out[0], out[1]), "merge(a, b) is not merge(b, a)"
    unchanged = out[2] == a if not r.state.names else same_fields(out[2], a)
    nan = a != a if not r.state.names else np.zeros(a.shape, np.bool_)
    assert (unchanged | nan).all(), "merge(a, no elements) is not a"


def same_fields(a: Array, b: Array) -> Array:
    names = a.dtype.names or ()
    return np.logical_and.reduce(
        [(a[f] == b[f]) | ((a[f] != a[f]) & (b[f] != b[f])) for f in names]
    )
