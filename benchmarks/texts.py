"""python -m benchmarks.texts: hashes of the kernels of all cases. No kernel runs; no GPU is needed.

    python -m benchmarks.texts --keep FILE        before a change of the compiler
    python -m benchmarks.texts --compare FILE     after it: list changed kernels; exit 1 if any
    python -m benchmarks.texts --arch avx512 ...  kernels of CPUs, by the name of their vectors
    python -m benchmarks.texts --time 9           time from definitions to texts, by family

Use it to show that a change leaves the kernels unchanged. Each case is planned twice: with sizes
known at run time only, and with static sizes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.case import Case, Data, Shape
from benchmarks.families import TABLES
from fuser import _core, _core_testing

META = torch.device("meta")
Hashes = dict[str, list[str]]  # by case and kind of sizes, one hash per kernel


@dataclass(frozen=True)
class Described(Data):
    """Tensors without memory, so that cases of any size can be planned."""

    device: torch.device = META

    def normal(self, shape: Shape, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=META)


def known_device(arch: str) -> Any:
    """A representative GPU of an architecture ("90"), or a CPU by the name of its vectors."""
    return _core.known_device(int(arch)) if arch.isdigit() else _core.native_device(arch)


def planner(case: Case, device: Any, static_sizes: bool) -> Callable[[], list[dict[str, Any]]]:
    """A call that plans a case on a device, from its definition to the texts of its kernels."""
    inputs = case.make(Described())
    layouts = [(list(t.shape), list(t.stride()), 0) for t in inputs]  # 0: aligned address
    definition = case.definition(inputs, static_sizes)._builder
    return lambda: list(_core_testing.plan.plans(definition, layouts, device, True))


def texts(case: Case, device: Any, static_sizes: bool) -> list[str]:
    """For each kernel of a case on a device: the Kernel IR, which includes the launch bounds and
    the grid, and its text in CUDA C or C++."""
    planned = planner(case, device, static_sizes)()
    text = "cpp" if device.cpu else "cuda"
    return [kernel["ir"] + kernel[text].text for kernel in planned]


def planning_ms(families: list[str], part: str, device: Any, repeats: int) -> dict[str, float]:
    """Milliseconds by family to plan its cases, the least of some repeats for each case."""
    found = {}
    for family in families:
        cases = [row.case() for row in TABLES[family]]
        plans = [planner(case, device, False) for case in cases if part in case.key]
        found[family] = 1e3 * sum(min(timeit.repeat(p, number=1, repeat=repeats)) for p in plans)
    return found


def hashes(families: list[str], part: str, device: Any) -> Hashes:
    """Hashes for the cases of some families whose key contains `part`."""
    found: Hashes = {}
    for family in families:
        for case in (row.case() for row in TABLES[family]):
            if part in case.key:
                for kind in ("run-time", "static"):
                    kernels = texts(case, device, kind == "static")
                    found[f"{case.key}, {kind} sizes"] = [
                        hashlib.sha256(text.encode()).hexdigest()[:16] for text in kernels
                    ]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Return 1 if a text differs from the stored hash."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.texts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--families", default=",".join(TABLES), help="default: %(default)s")
    parser.add_argument("--case", default="", help="only cases whose key contains this")
    parser.add_argument("--arch", default="90", help="default: %(default)s")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write the hashes there")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="with hashes kept there")
    parser.add_argument("--time", type=int, metavar="N", help="the least of N repeats")
    options = parser.parse_args(arguments)
    chosen = options.families.split(","), options.case, known_device(options.arch)
    if options.time:
        for family, ms in planning_ms(*chosen, options.time).items():
            print(f"{family}: {ms:.2f} ms")
        return 0
    found = hashes(*chosen)
    print(f"{len(found)} definitions, {sum(map(len, found.values()))} kernels")
    if options.keep:
        options.keep.write_text(json.dumps(found, indent=1))
    if not options.compare:
        return 0
    kept: Hashes = json.loads(options.compare.read_text())
    changed = [name for name in found if found[name] != kept.get(name)]
    print(*(f"differs: {name}" for name in changed), f"{len(changed)} differ", sep="\n")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
