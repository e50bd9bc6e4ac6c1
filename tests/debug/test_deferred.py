"""fuser/debug/deferred.py: slices of tensors that are too large to materialize, compared with
slices of materialized tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fuser import DataType, FusionDefinition, LaunchError, evaluate
from fuser.debug import interpreter
from fuser.debug.deferred import elementwise, iota, joined, padded, part
from fuser.ops import reference

LARGE = 2**45
WIDTHS = [(0, 0), (-1, 2), (2, -1), (3, 0), (-4, 4), (1, 1)]  # no pair removes all elements


def random_range(rng: np.random.Generator, size: int) -> range:
    first, last = sorted(rng.integers(0, size + 1, 2).tolist())
    return range(first, last)[:: int(rng.choice([-2, -1, 1, 2, 3]))]


def test_any_part_of_any_op(rng: np.random.Generator) -> None:
    """600 slices, each of ops nested up to four levels deep."""

    def made(depth: int) -> tuple[Any, torch.Tensor]:
        kind = rng.integers(0, 4) if depth else -1
        if kind < 0:
            n = int(rng.integers(0, 6))
            return iota(n), torch.arange(n)
        a, whole = made(depth - 1)
        if kind == 0:
            shift = torch.tensor(int(rng.integers(1, 4)))
            return elementwise(torch.add, [a, shift]), whole + shift
        if kind == 1:
            b, other = made(depth - 1)
            return joined([a, b], 0), torch.cat([whole, other])
        if kind == 2:
            one = torch.tensor([7])
            return elementwise(torch.mul, [one, a]), one * whole
        before, after = (int(n) for n in rng.integers(-3, 4, 2))
        size = max(0, len(whole) + before + after)
        fill = torch.tensor(-9)
        wanted = [
            int(whole[i - before]) if 0 <= i - before < len(whole) else -9 for i in range(size)
        ]
        return padded(a, [before], [size], fill), torch.tensor(wanted, dtype=torch.int64)

    for _ in range(200):
        deferred, whole = made(int(rng.integers(0, 4)))
        assert deferred.shape == whole.shape
        assert deferred.whole().equal(whole)
        for _ in range(3):
            window = random_range(rng, len(whole))
            assert part(deferred, (window,)).equal(part(whole, (window,))), window


def test_a_part_of_a_tensor() -> None:
    x = torch.arange(30).view(5, 6)
    assert part(x, (range(4, -1, -2), range(1, 6, 3))).equal(x.flip(0)[::2, 1::3])
    assert part(x, (range(0), range(6))).shape == (0, 6)


def chain(fd: FusionDefinition, rng: np.random.Generator) -> Any:
    """A chain of elementwise, movement and cat ops on an iota and a matrix."""
    ops, t = fd.ops, fd.ops.iota(24, 3, 2)
    for _ in range(int(rng.integers(1, 6))):
        match int(rng.integers(0, 7)):
            case 0:
                t = ops.add(t, 5)
            case 1:
                t = ops.cast(ops.cast(t, DataType.Double), DataType.Int)
            case 2:
                pairs = [WIDTHS[i] for i in rng.integers(0, len(WIDTHS), t.ndim)]
                t = ops.pad(t, [n for pair in pairs for n in pair], 1)
            case 3:
                t = ops.cat([t, ops.flip(t, [0])], t.ndim - 1)
            case 4:
                t = ops.flip(t, [t.ndim - 1])
            case 5 if t.ndim < 3:
                t = ops.broadcast(t, [False, True, *[False] * (t.ndim - 1)])
                t = ops.mul(t, ops.iota(3)) if t.ndim == 1 else ops.permute(t, [1, 0, 2][: t.ndim])
            case _:
                t = ops.slice(t, [1] * t.ndim, [999] * t.ndim, [2] + [1] * (t.ndim - 1))
    return t


def test_definitions_give_the_same_in_parts(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """150 definitions whose tensors of more than ten elements are deferred evaluate to equal
    values."""
    for _ in range(150):
        fd = FusionDefinition()
        t = chain(fd, rng)
        fd.add_output(fd.ops.slice(t, [0] * t.ndim, [2] * t.ndim))
        (expected,) = evaluate(fd, [])
        with monkeypatch.context() as patched:
            patched.setattr(interpreter, "_fits", lambda elements: elements <= 10)
            (got,) = evaluate(fd, [])
        assert got.equal(expected), fd


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda o, n: o.slice(o.iota(n), [n - 3], [n]), [LARGE - 3, LARGE - 2, LARGE - 1]),
        (lambda o, n: o.slice(o.iota(n, 5, 3), [7], [9]), [26, 29]),
        (lambda o, n: o.slice(o.flip(o.iota(n), [0]), [n - 2], [n]), [1, 0]),
        (
            lambda o, n: o.slice(o.pad(o.iota(n), [2, 2], 7), [n], [n + 4]),
            [LARGE - 2, LARGE - 1, 7, 7],
        ),
        (lambda o, n: o.slice(o.cat([o.iota(n), o.iota(n)]), [n - 1], [n + 2]), [LARGE - 1, 0, 1]),
        (lambda o, n: o.slice(o.full([n], 2, DataType.Int) * 3, [n - 2], [n]), [6, 6]),
        (lambda o, n: o.sum(o.slice(o.iota(n), [9], [12])), 30),
    ],
)
def test_what_execute_runs(build: Any, expected: Any) -> None:
    fd = FusionDefinition()
    fd.add_output(build(fd.ops, LARGE))
    assert evaluate(fd, [])[0].tolist() == expected
    assert fd.validate([], device="cpu")[0].tolist() == expected


@pytest.mark.parametrize("size", [LARGE, 2**62])
@pytest.mark.parametrize("build", [lambda o, t: t, lambda o, t: o.sum(t), lambda o, t: t + 1])
def test_evaluate_3(build: Any, size: int) -> None:
    fd = FusionDefinition()
    fd.add_output(build(fd.ops, fd.ops.iota(size)))
    with pytest.raises(LaunchError, match=f"needs {8 * size} bytes") as caught:
        evaluate(fd, [])
    assert caught.value.rule == "evaluate-3"


def test_a_broken_allocation_is_no_wrong_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed allocation of torch is a launch error, not a shape error."""

    def refuse(*_: Any, **__: Any) -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8")

    fd = FusionDefinition()
    x = fd.define_tensor([-1])
    fd.add_output(fd.ops.sum(x))
    monkeypatch.setitem(reference.REDUCTIONS, "sum", refuse)
    with pytest.raises(LaunchError) as caught:
        evaluate(fd, [torch.ones(3)])
    assert caught.value.rule == "evaluate-3"


def test_what_is_repeated_takes_no_memory() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1])
    wide = fd.ops.expand(fd.ops.broadcast(x, [False, True]), [x.size(0), LARGE])
    fd.add_output(fd.ops.slice(fd.ops.exp(wide) + wide, [0, 0], [3, 1]))
    given = torch.arange(3.0)
    (got,) = evaluate(fd, [given])
    torch.testing.assert_close(got[:, 0], given.double().exp() + given)
