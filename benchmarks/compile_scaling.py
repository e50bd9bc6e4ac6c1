"""Deep graphs: milliseconds per step from a definition to kernels, by number of ops.

    python -m benchmarks.compile_scaling [--arch 90] [--nvrtc] [--compile] [OPS ...]

define   calls of fd.ops             segment  fusion segmentation, with the coordinates of accesses
repr     its text as Python          plan     a plan for each kernel
hash     its digest                  lower    schedule, passes, CUDA C

for inputs of these layouts on a GPU of `arch`; no GPU is needed. Each column should grow linearly
with the number of ops; 240 ops of `layers` are a network of 40 layers. --nvrtc also compiles the
distinct kernels, one after the other. --compile runs the graph on the CPU for the first time, which
compiles all kernels in one batch.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch

from fuser import DataType, FusionDefinition, _core, _core_testing
from fuser.runtime import toolkit

Graph = tuple[FusionDefinition, list[torch.Tensor]]


def chain(ops: int) -> Graph:
    """A chain of pointwise ops."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1], contiguity=True)
    y = x
    for i in range(ops):
        y = fd.ops.sin(y) if i % 2 else y + x
    fd.add_output(y)
    return fd, [torch.ones(64)]


def mixed(ops: int) -> Graph:
    """Arithmetic, casts, flips, softmax and norms, each of one of the last eight results."""
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
    """One layer per six ops: layer norm, bias, gelu, dropout and the residual."""
    fd = FusionDefinition()
    o = fd.ops
    x, bias = fd.define_tensor([-1, -1], contiguity=True), fd.define_tensor([-1], contiguity=True)
    for _ in range(ops // 6):
        y = o.layer_norm(x, [x.size(1)])[0] + bias
        x = x + o.dropout(o.gelu(y), 0.1)[0]
    fd.add_output(x)
    return fd, [torch.ones(8, 16), torch.ones(16)]


def sums(ops: int) -> Graph:
    """Per three ops a row sum that depends on the previous one."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], contiguity=True)
    for _ in range(ops // 3):
        x = fd.ops.tanh(x) - fd.ops.sum(x, 1, keepdim=True)
    fd.add_output(x)
    return fd, [torch.ones(8, 16)]


def optimizer(ops: int) -> Graph:
    """Per 14 ops an Adam step of one parameter, which updates three tensors in place."""
    fd, inputs = FusionDefinition(), []
    for i in range(max(1, ops // 14)):
        p, g, m, v = (fd.define_tensor([-1], contiguity=True) for _ in range(4))
        mean, square = m * 0.9 + g * 0.1, v * 0.99 + g * g * 0.01
        fd.add_output(p - mean / (fd.ops.sqrt(square) + 1e-8) * 1e-3, alias_input=p)
        fd.add_output(mean, alias_input=m)
        fd.add_output(square, alias_input=v)
        inputs += [torch.ones(64 + i % 13) for _ in range(4)]
    return fd, inputs


def many(ops: int) -> Graph:
    """The sum of `ops` inputs."""
    fd = FusionDefinition()
    total, *others = (fd.define_tensor([-1], contiguity=True) for _ in range(ops))
    for x in others:
        total = total + x
    fd.add_output(total)
    return fd, [torch.ones(64) for _ in range(ops)]


def joined(ops: int) -> Graph:
    """A cat of `ops` inputs of constant sizes."""
    fd = FusionDefinition()
    shapes = [[4 + i % 7, 16] for i in range(ops)]
    parts = [fd.define_tensor(shape, contiguity=True) for shape in shapes]
    fd.add_output(fd.ops.relu(fd.ops.cat([fd.ops.sin(x) for x in parts], 0)))
    return fd, [torch.ones(shape) for shape in shapes]


def milliseconds(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = run()
    return (time.perf_counter() - start) * 1e3, result


def steps(make: Callable[[int], Graph], ops: int, arch: int) -> tuple[dict[str, float], list[str]]:
    """Milliseconds of each step, and the texts of the kernels."""
    took = {}
    took["define"], (fd, inputs) = milliseconds(partial(make, ops))
    took["repr"], _ = milliseconds(partial(repr, fd))
    took["hash"], _ = milliseconds(partial(hash, fd.fusion))
    layouts = [(list(t.shape), list(t.stride()), t.data_ptr() % 16) for t in inputs]
    cut = partial(_core_testing.plan.Segmented, fd._builder, layouts)
    took["segment"], segmented = milliseconds(cut)
    took["plan"], kernels = milliseconds(partial(segmented.planned, _core.known_device(arch)))
    took["lower"], texts = milliseconds(lambda: [kernel.texts()["cuda"].text for kernel in kernels])
    return took, texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("ops", nargs="*", type=int, default=[240, 1000, 2000, 5000, 10_000])
    parser.add_argument("--arch", type=int, default=90, help="of the GPU: 90 is sm_90")
    parser.add_argument("--nvrtc", action="store_true", help="compile the kernels for it")
    parser.add_argument("--compile", action="store_true", help="time the first run on the CPU")
    arguments = parser.parse_args()
    for make in (chain, mixed, layers, sums, optimizer, many, joined):
        for ops in arguments.ops:
            took, texts = steps(make, ops, arguments.arch)
            distinct = dict.fromkeys(texts)
            if arguments.nvrtc:
                build = partial(_build, distinct, arguments.arch)
                took["nvrtc"], _ = milliseconds(build)
            if arguments.compile:
                fd, inputs = make(ops)
                took["first run"], _ = milliseconds(partial(fd.execute, inputs))
            if make is chain and ops == arguments.ops[0]:
                columns = "".join(f"{name:>10}" for name in (*took, "kernels", "distinct"))
                print(f"{'graph':<10}{'ops':>7}{columns}")
            times = "".join(f"{ms:>10.1f}" for ms in took.values())
            print(
                f"{make.__name__:<10}{ops:>7}{times}{len(texts):>10}{len(distinct):>10}", flush=True
            )


def _build(texts: Iterable[str], arch: int) -> None:
    for text in texts:
        toolkit.compile("kernel", text, arch)


if __name__ == "__main__":
    main()
