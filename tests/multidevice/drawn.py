"""Random definitions with random placements."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from fuser import DataType
from tests.multidevice.compared import P, R, S, define, errors, interpreted

SIZES = (1, 2, 3, 4, 5, 8)
MESHES = ((2,), (4,), (2, 2), (3,))


class Drawn:
    """A definition, drawn from a seed: float64 tensors through a few ops of each class."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.ranks: list[int] = []  # of the outputs
        self.mesh = self.rng.choice(MESHES)
        torch.manual_seed(seed)
        count = self.rng.randint(1, 3)
        shape = [self.rng.choice(SIZES) for _ in range(self.rng.randint(1, 3))]
        self.inputs = []
        for _ in range(count):
            own = [1 if self.rng.random() < 0.2 else n for n in shape]
            self.inputs.append(torch.randn(own, dtype=torch.float64))
        self.placements = [[self.placement(x.dim()) for _ in self.mesh] for x in self.inputs]

    def placement(self, rank: int) -> Any:
        drawn = self.rng.random()
        if drawn < 0.25 or not rank:
            return R
        return P if drawn < 0.35 else S(self.rng.randrange(rank))

    def wanted(self) -> list[Any] | None:
        """Placements of the outputs, for half of the definitions."""
        if self.seed % 2:
            return None
        return [[self.placement(rank) for _ in self.mesh] for rank in self.ranks]

    def build(self, fd: Any, *inputs: Any) -> Sequence[Any]:
        """The outputs of the definition."""
        rng = random.Random(self.seed + 1)
        pool = [(t, tuple(x.shape)) for t, x in zip(inputs, self.inputs, strict=True)]
        for _ in range(rng.randint(2, 10)):
            pool.append(self.step(fd, rng, pool))
        self.ranks = [len(shape) for _, shape in pool[-3:]]
        return [t for t, _ in pool[-3:]]

    def step(self, fd: Any, rng: random.Random, pool: Sequence[Any]) -> Any:
        x, shape = rng.choice(pool)
        axes = range(len(shape))
        kind = rng.randrange(17)
        if kind == 0:
            return rng.choice([fd.ops.sin, fd.ops.neg, fd.ops.relu])(x), shape
        if kind in (1, 2):
            same = [(y, s) for y, s in pool if len(s) == len(shape) and _fit(shape, s)]
            y, other = rng.choice(same)
            op = rng.choice([fd.ops.add, fd.ops.mul, fd.ops.sub, fd.ops.maximum])
            return op(x, y), tuple(max(a, b) for a, b in zip(shape, other, strict=True))
        if kind == 3:
            return fd.ops.mul(x, 0.5), shape
        if not shape:
            return fd.ops.broadcast(x, [True]), (1,)
        d = rng.choice(axes)
        if kind in (4, 5):
            dims = sorted(rng.sample(axes, rng.randint(1, min(2, len(shape)))))
            op = rng.choice([fd.ops.sum, fd.ops.max, fd.ops.min, fd.ops.prod, fd.ops.mean])
            keep = rng.random() < 0.6
            rest = tuple(
                1 if i in dims else n for i, n in enumerate(shape) if keep or i not in dims
            )
            return op(x, dims, keepdim=keep), rest
        if kind == 6:
            dims = rng.sample(axes, len(shape))
            return fd.ops.permute(x, dims), tuple(shape[i] for i in dims)
        if kind == 7:
            # An axis of unknown size does not broadcast, so it keeps two elements.
            end = rng.randint(min(2, shape[d]), shape[d])
            start = rng.randint(0, max(end - 2, 0))
            starts, ends = [0] * len(shape), list(shape)
            starts[d], ends[d] = start, end
            return fd.ops.slice(x, starts, ends), tuple(
                end - start if i == d else n for i, n in enumerate(shape)
            )
        if kind == 8:
            before, after = rng.randint(0, 2), rng.randint(0, 2)
            widths = [0, 0] * (len(shape) - 1 - d) + [before, after]
            return fd.ops.pad(x, widths), (*shape[:d], shape[d] + before + after, *shape[d + 1 :])
        if kind == 9:
            same = [(y, s) for y, s in pool if s[:d] + s[d + 1 :] == shape[:d] + shape[d + 1 :]]
            same = [(y, s) for y, s in same if len(s) == len(shape)]
            y, other = rng.choice(same)
            return fd.ops.cat([x, y], d), (*shape[:d], shape[d] + other[d], *shape[d + 1 :])
        if kind == 10:
            return self.reshaped(fd, rng, x, shape)
        if kind == 11:
            return rng.choice([fd.ops.softmax, fd.ops.cumsum, _flip])(*_args(fd, x, d)), shape
        if kind == 12 and len(shape) >= 2:
            turned = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
            y = fd.ops.permute(x, turned)
            return fd.ops.matmul(x, y), (*shape[:-1], shape[-2])
        if kind in (14, 15):  # of inputs: computed values may tie but for their rounding
            x, shape = rng.choice(pool[: len(self.inputs)])
            d = rng.randrange(max(len(shape), 1))
        if kind == 14:
            found = rng.choice([fd.ops.argmax, fd.ops.argmin])(x, d, keepdim=True)
            return fd.ops.cast(found, DataType.Double), (*shape[:d], 1, *shape[d + 1 :])
        if kind == 15:  # rows by position, also from the end
            index = fd.ops.cast(fd.ops.argmax(x, d, keepdim=True), DataType.Int) - shape[d]
            return fd.ops.take_along_axis(x, index, d), (*shape[:d], 1, *shape[d + 1 :])
        if kind == 16:
            return fd.ops.where(fd.ops.gt(x, 0.0), x, 0.0), shape
        mean, spread, _ = fd.ops.welford(x, [d])
        rest = shape[:d] + shape[d + 1 :]
        return (mean, rest) if rng.random() < 0.5 else (spread, rest)

    @staticmethod
    def reshaped(fd: Any, rng: random.Random, x: Any, shape: Any) -> Any:
        if len(shape) >= 2 and rng.random() < 0.5:
            d = rng.randrange(len(shape) - 1)
            new = (*shape[:d], shape[d] * shape[d + 1], *shape[d + 2 :])
        else:
            d = rng.randrange(len(shape))
            outer = rng.choice([n for n in range(1, shape[d] + 1) if shape[d] % n == 0])
            new = (*shape[:d], outer, shape[d] // outer, *shape[d + 1 :])
        return fd.ops.reshape(x, list(new)), new


def _fit(a: Sequence[int], b: Sequence[int]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(a, b, strict=True))


def _flip(x: Any, dims: Any) -> Any:
    return x.flip([dims])


def _args(fd: Any, x: Any, d: int) -> tuple[Any, int]:
    return x, d


def worst(seeds: Sequence[int]) -> list[tuple[int, Any]]:
    """The seeds whose sharded run differs from the whole definition, with the difference."""
    found: list[tuple[int, Any]] = []
    with interpreted():
        for seed in seeds:
            drawn = Drawn(seed)
            define(drawn.build, drawn.inputs)  # sets the ranks of the outputs
            report = errors(
                *(drawn.build, drawn.mesh, drawn.inputs, drawn.placements, drawn.wanted())
            )
            if report and not max(report["errors"]) < 1e-9:
                found.append((seed, report))
    return found
