"""The tutorial workload: bias, dropout, add and normalization of a transformer layer, forward and
backward. Contenders: scripts, memory_efficient_fusion, fuser.compile, eager, torch.compile and the
unfused scripts. Prints iterations per second; contenders alternate.

    python -m benchmarks.tutorial [--device cpu] [--iterations 100] [--rounds 5] [--tiny]

On 20 shapes: the script, warmed up on the fixed shape only, runs on shapes whose first two sizes
differ from it by up to 2; they are new in the first round. On 20 sets: the script runs on 20 sets
of tensors of the fixed shape at different addresses.

Two rows are upper bounds for any fuser under torch's autograd. The first is one addition of two
one-element tensors with its gradients: torch's host time alone. The second, on a GPU, is fuser's
script replayed as a CUDA graph: kernel time alone. --tiny uses tensors so small that only host time
matters.
"""

from __future__ import annotations

import argparse
import time
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import fuser
from fuser.adapters import torchscript

SIZES = (64, 128, 1024)
DROPPED = 0.1


def composite(
    given: Tensor, skip: Tensor, weight: Tensor, bias1: Tensor, bias2: Tensor, axis: int, p: float
) -> Tensor:
    x = F.dropout(given + bias1, p, training=True) + skip
    return F.layer_norm(x, (given.size(axis),), weight, bias2)


def primitive(
    given: Tensor,
    skip: Tensor,
    weight: Tensor,
    bias1: Tensor,
    bias2: Tensor,
    axis: int,
    p: float,
    keepdim: bool,
) -> Tensor:
    x = F.dropout(given + bias1, p, training=True) + skip
    mean = x.mean(axis, keepdim)
    difference = x - mean
    var = (difference * difference).mean(axis, keepdim)
    y = (x - mean) / torch.sqrt(var + 1e-12)
    return weight * y + bias2


def rms(
    given: Tensor,
    skip: Tensor,
    weight: Tensor,
    bias1: Tensor,
    axis: int,
    p: float,
    keepdim: bool,
) -> Tensor:
    x = F.dropout(given + bias1, p, training=True) + skip
    var = x.mul(x).mean(axis, keepdim)
    y = x / torch.sqrt(var + 1e-12)
    return weight * y


@dataclass(frozen=True)
class Variant:
    name: str
    function: Callable[..., Tensor]
    vectors: int  # number of one-dimensional arguments
    rest: tuple[Any, ...]

    def literal(self, *tensors: Tensor) -> Tensor:
        """The function with its constants bound, because memory_efficient_fusion traces tensors
        only."""
        return self.function(*tensors, *self.rest)


VARIANTS = [
    Variant("composite", composite, 3, (2, DROPPED)),
    Variant("primitive", primitive, 3, (2, DROPPED, True)),
    Variant("rms", rms, 2, (2, DROPPED, True)),
]

Step = Callable[[int], None]  # runs the iteration of this number


def data(
    variant: Variant, sizes: tuple[int, int, int], device: torch.device
) -> tuple[list[Tensor], Tensor]:
    """Arguments that require gradients, and the gradient of the result."""
    shapes = [sizes, sizes, *[sizes[-1:]] * variant.vectors]
    tensors = [torch.rand(s, device=device, requires_grad=True) for s in shapes]
    return tensors, torch.rand(sizes, device=device)


def step(
    function: Callable[..., Tensor], sets: Sequence[tuple[list[Tensor], Tensor]], rest: Any
) -> Step:
    def one(number: int) -> None:
        tensors, gradient = sets[number % len(sets)]
        function(*tensors, *rest).backward(gradient)
        for t in tensors:
            t.grad = None

    return one


def copied(function: Any) -> Any:
    """Copy a function and its code object, because torch.jit.script and Dynamo compile each only
    once."""
    code = function.__code__.replace()
    made = types.FunctionType(code, function.__globals__, function.__name__)
    made.__annotations__ = function.__annotations__
    return made


def replayed(one: Step) -> Step:
    """One iteration as a CUDA graph: its kernels without the host time of launching them."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            one(0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        one(0)
    return lambda number: graph.replay()


def steps(
    variant: Variant, sizes: tuple[int, int, int], device: torch.device, compiled: bool
) -> dict[str, Step]:
    """Iterations by contender, warmed up."""
    fixed = [data(variant, sizes, device)]
    shifts = torch.randint(-2, 3, (20, 2), generator=torch.Generator().manual_seed(0)).tolist()
    several = [data(variant, (sizes[0] + a, sizes[1] + b, sizes[2]), device) for a, b in shifts]
    alike = [data(variant, sizes, device) for _ in shifts]
    on_several = step(variant.function, several, variant.rest)
    for number in range(len(several)):
        on_several(number)  # fills torch's allocator with blocks of these sizes for every contender
    out = {"eager": step(variant.function, fixed, variant.rest)}
    out["script"] = step(torch.jit.script(variant.function), fixed, variant.rest)
    for _ in range(4):
        out["script"](0)
    if compiled:
        torch._dynamo.reset()
        theirs = torch.compile(copied(variant.function), dynamic=False)
        out["torch.compile"] = step(theirs, fixed, variant.rest)
    with fuser.torchscript_fuser(cpu=device.type == "cpu"):
        fused = torch.jit.script(copied(variant.function))
        out["fuser script"] = step(fused, fixed, variant.rest)
        for _ in range(4):
            out["fuser script"](0)
        if device.type == "cuda":
            out["bound: its kernels"] = replayed(out["fuser script"])
        out["fuser script, 20 sets"] = step(fused, alike, variant.rest)
        out["fuser script, 20 shapes"] = step(fused, several, variant.rest)
        from functorch.compile import memory_efficient_fusion

        out["functorch, fuser script"] = step(memory_efficient_fusion(variant.literal), fixed, ())
        for _ in range(4):
            out["functorch, fuser script"](0)
    out["fuser functorch"] = step(fuser.memory_efficient_fusion(variant.literal), fixed, ())
    ours = fuser.compile(copied(variant.function), dynamic=False)
    out["fuser compile"] = step(ours, fixed, variant.rest)
    pair = [torch.ones(1, device=device, requires_grad=True) for _ in range(2)]
    out["bound: torch's host"] = step(torch.add, [(pair, torch.ones(1, device=device))], ())
    for name, way in out.items():
        for _ in range(0 if "shapes" in name else 3):
            way(0)
    return out


def rate(one: Step, iterations: int, device: torch.device) -> float:
    """Iterations per second."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    for number in range(iterations):
        one(number)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return iterations / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tutorial")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5, help="the median of so many is printed")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    device = torch.device(arguments.device)
    sizes = (4, 4, 64) if arguments.tiny else SIZES
    for variant in VARIANTS:
        ways = steps(variant, sizes, device, not arguments.no_compile)
        before = torchscript.counters()
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(arguments.rounds):
            for name, way in ways.items():
                rates[name].append(rate(way, arguments.iterations, device))
        after = torchscript.counters()
        print(f"{variant.name} {list(sizes)} {device}, iterations a second")
        for name, found in rates.items():
            first = f"   {found[0]:9.0f} in the first round" if "shapes" in name else ""
            print(f"  {name:24} {sorted(found)[len(found) // 2]:9.0f}{first}")
        written = after["definitions"] - before["definitions"]
        unfused = after["fallbacks"] - before["fallbacks"]
        print(f"  {written} definitions and {unfused} fallbacks while the clock ran", flush=True)


if __name__ == "__main__":
    main()
