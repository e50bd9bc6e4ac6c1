"""Deep graphs: seconds to define, print, hash and plan them, by their number of ops.

    python -m benchmarks.deep [--compile] [OPS ...]

Each column should grow as the number of ops does. With --compile the first run is timed too: all
kernels of a graph are compiled in one batch.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from fuser import DataType, FusionDefinition

Graph = tuple[FusionDefinition, list[torch.Tensor]]


def chain(ops: int) -> Graph:
    """Pointwise ops, each on the result of the one before."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1], contiguity=True)
    y = x
    for i in range(ops):
        y = fd.ops.sin(y) if i % 2 else y + x
    fd.add_output(y)
    return fd, [torch.ones(64)]


def mixed(ops: int) -> Graph:
    """Arithmetic, casts, flips, softmax and norms of one of the last eight results."""
    fd, pick = FusionDefinition(), random.Random(0)
    o = fd.ops
    results = [fd.define_tensor([-1, -1], contiguity=True)]
    steps: list[Callable[[Any, Any], Any]] = [
        lambda x, y: o.sin(x),
        lambda x, y: x + y,
        lambda x, y: o.where(o.gt(x, y), x, y),
        lambda x, y: o.cast(o.cast(x, DataType.BFloat16), DataType.Float),
        lambda x, y: o.flip(x, [1]) * 0.5 + y,
        lambda x, y: o.softmax(x, 1),
        lambda x, y: x - o.mean(x, [pick.choice((0, 1, 1))], True),
    ]
    for _ in range(ops):
        x, y = (pick.choice(results[-8:]) for _ in range(2))
        results.append(pick.choice(steps)(results[-1] if pick.random() < 0.8 else x, y))
    fd.add_output(results[-1])
    return fd, [torch.ones(8, 16)]


def layers(ops: int) -> Graph:
    """Per six ops a layer: layer norm, bias, gelu, dropout and the residual."""
    fd = FusionDefinition()
    o = fd.ops
    x, bias = fd.define_tensor([-1, -1], contiguity=True), fd.define_tensor([-1], contiguity=True)
    for _ in range(ops // 6):
        y = o.layer_norm(x, [x.size(1)])[0] + bias
        x = x + o.dropout(o.gelu(y), 0.1)[0]
    fd.add_output(x)
    return fd, [torch.ones(8, 16), torch.ones(16)]


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("ops", nargs="*", type=int, default=[240, 1000, 2000, 5000, 10_000])
    parser.add_argument("--compile", action="store_true", help="time the first run too")
    arguments = parser.parse_args()
    print(f"{'graph':<8}{'ops':>7}{'define':>9}{'repr':>9}{'hash':>9}{'plan':>9}  kernels")
    for make in (chain, mixed, layers):
        for ops in arguments.ops:
            define, (fd, inputs) = seconds(partial(make, ops))
            text, _ = seconds(partial(repr, fd))
            digest, _ = seconds(partial(hash, fd.fusion))
            plan, plans = seconds(partial(fd.plan, inputs))
            kernels = len(plans) if isinstance(plans, tuple) else 1
            line = f"{make.__name__:<8}{ops:>7}{define:>9.3f}{text:>9.3f}{digest:>9.3f}{plan:>9.3f}"
            if arguments.compile:
                first, _ = seconds(partial(fd.execute, inputs))
                line += f"  first run {first:.1f}"
            print(f"{line}  {kernels}", flush=True)


if __name__ == "__main__":
    main()
