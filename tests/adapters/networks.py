"""Training networks of benchmarks.models, small, by eager and by backend="fuser".
Each is compared with equal steps in float64.

    python -m tests.adapters.networks                        ten steps of SGD of all networks
    python -m tests.adapters.networks bert4 llama --dynamic
    python -m tests.adapters.networks gpt2 --autocast bfloat16
    python -m tests.adapters.networks bert4 --lengths 40     graphs compiled over 40 lengths
    python -m tests.adapters.networks bert4 --growth 2000    memory growth over 2000 steps

Prints for each the largest error of the losses and the error of the final parameters, relative to
their size and to their change. Dropout is off, since eager draws different numbers. The exit status
is 1 if the error of a network exceeds three times eager's plus the difference between two eager
runs. Not part of the test suite: compiling a network's kernels takes minutes on a CPU.
"""

from __future__ import annotations

import argparse
import copy
import gc
import resource
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from benchmarks.networks import TRAINING, Network
from fuser.adapters import report
from fuser.adapters.dynamo import backend

_RATE = 1e-2
_SLACK = 1e-6  # tolerance for losses that are exact in eager


def made(name: str, device: torch.device) -> Network:
    torch.manual_seed(1)
    network = TRAINING[name](device, True)
    for module in network.module.modules():
        module.training = isinstance(module, _BatchNorm)
    return network


def train(
    module: nn.Module,
    run: Callable[..., torch.Tensor],
    inputs: tuple[torch.Tensor, ...],
    steps: int,
    autocast: torch.dtype | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The losses, and all parameters in one vector, in float64."""
    optimizer = torch.optim.SGD(module.parameters(), _RATE)
    losses = []
    for _ in range(steps):
        with torch.autocast(inputs[0].device.type, autocast, autocast is not None):
            loss = run(*inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().double())
    return torch.stack(losses), _flat(module)


def _flat(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().double().flatten() for p in module.parameters()])


def compare(name: str, options: argparse.Namespace) -> bool:
    """Return True if the error from float64 is at most eager's, except for noise."""
    torch._dynamo.reset()
    network = made(name, torch.device(options.device))
    inputs, autocast = network.inputs, options.autocast and getattr(torch, options.autocast)
    start = _flat(network.module)
    wide = copy.deepcopy(network.module).double()
    high = tuple(t.double() if t.is_floating_point() else t for t in inputs)
    truth = train(wide, wide, high, options.steps, None)
    del wide
    eager = []
    for _ in range(2):
        module = copy.deepcopy(network.module)
        eager.append(train(module, module, inputs, options.steps, autocast))
    with report.recording() as seen:
        run = torch.compile(network.module, backend=backend, dynamic=options.dynamic or None)
        found = train(network.module, run, inputs, options.steps, autocast)
    scales = truth[0].abs(), (truth[1] - start).norm()
    far = [_distances(result, truth, scales) for result in (found, *eager)]
    noise = _distances(eager[1], eager[0], scales)
    right = all(a <= 3 * max(b, c) + n + _SLACK for a, b, c, n in zip(*far, noise, strict=True))
    fallbacks = [why for graph in seen.graphs for _, why in graph.fallbacks]
    regions = sum(len(graph.regions) for graph in seen.graphs)
    print(
        f"{name} of {network.source}: {'right' if right and not fallbacks else 'FAR'}; "
        f"losses of {options.steps} steps off by {far[0][0]:.1e} "
        f"(eager {far[1][0]:.1e}, {far[2][0]:.1e}, between its two runs {noise[0]:.1e}), "
        f"parameters {far[0][1]:.1e} (eager {far[1][1]:.1e}); last loss {truth[0][-1]:.4f}, "
        f"first {truth[0][0]:.4f}; {len(seen.graphs)} graphs, {regions} regions of "
        f"{sum(graph.fused for graph in seen.graphs)} ops",
        *fallbacks,
        flush=True,
    )
    return right and not fallbacks


def _distances(found: Any, true: Any, scales: Any) -> tuple[float, float]:
    """The largest relative error of a loss, and the relative error of the parameters."""
    losses = ((found[0] - true[0]).abs() / scales[0]).max()
    return float(losses), float((found[1] - true[1]).norm() / scales[1])


def lengths(name: str, options: argparse.Namespace) -> bool:
    """Return True if the lengths after the second compile no graphs. Each alignment may compile a
    graph."""
    torch._dynamo.reset()
    network = made(name, torch.device(options.device))
    run = torch.compile(network.module, backend=backend)
    counts = []
    for i in range(options.lengths):
        cut = tuple(t.repeat(1, 3)[:, : 11 + 2 * i].contiguous() for t in network.inputs)
        with report.recording() as seen:
            train(network.module, run, cut, 1, network.autocast)
        counts.append(len(seen.graphs))
    print(f"{name}: graphs compiled at each of {options.lengths} lengths: {counts}", flush=True)
    return not any(counts[2:])


def growth(name: str, options: argparse.Namespace) -> bool:
    """Return True if memory in use at the end equals memory in use after a tenth of the steps."""
    torch._dynamo.reset()
    device = torch.device(options.device)
    network = made(name, device)
    run = torch.compile(network.module, backend=backend)
    used = []
    for steps in (options.growth // 10, options.growth - options.growth // 10):
        train(network.module, run, network.inputs, steps, network.autocast)
        gc.collect()
        on_device = torch.cuda.memory_allocated() if device.type == "cuda" else 0
        used.append((on_device, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024))
    print(f"{name}: bytes on the device, largest MB of the host after a tenth and all: {used}")
    return used[0][0] == used[1][0] and used[1][1] <= used[0][1] + 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(TRAINING))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--autocast", choices=("bfloat16", "float16"))
    parser.add_argument("--lengths", type=int, default=0)
    parser.add_argument("--growth", type=int, default=0)
    options = parser.parse_args()
    check = lengths if options.lengths else growth if options.growth else compare
    sys.exit(0 if all([check(name, options) for name in options.names]) else 1)


if __name__ == "__main__":
    main()
