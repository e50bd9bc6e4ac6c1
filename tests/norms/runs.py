"""Runs of a table of normalizations on the host executor. All kernels of a file are compiled in one
batch per GPU generation, with and without debug mode."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fuser import FusionDefinition, _core, testing
from tests.norms.cases import DTYPES, ROWS, WIDE, Norm, Shape, normal
from tests.norms.samples import Sample
from tests.support.sampling import rotated

# Every dtype with the features of sm_80; two dtypes with plans of sm_70, and with clusters of
# sm_90.
VARIANTS = [(80, dtype) for dtype in DTYPES]
VARIANTS += [(arch, dtype) for arch in (70, 90) for dtype in (torch.float32, torch.bfloat16)]


@dataclass
class Run:
    """A definition on one sample, run as on a GPU of one generation."""

    sample: Sample
    arch: int
    fd: FusionDefinition

    @property
    def debug(self) -> bool:
        return self.sample.shape not in WIDE

    def select(self) -> None:
        """Set the options of the run."""
        _core.set_option("FUSER_HOST_ARCH", str(self.arch))
        _core.set_option("FUSER_HOST_DEBUG", "1" if self.debug else "0")

    def results(self) -> list[Tensor]:
        """Returned results, followed by the in-place outputs, which are copies of inputs."""
        self.select()
        given = [t.clone(memory_format=torch.preserve_format) for t in self.sample.inputs]
        return [*self.fd.execute(given), *(given[place] for place in self.sample.norm.written)]


def bits(t: Tensor) -> Tensor:
    """The bytes of a tensor in logical order."""
    return t.contiguous().reshape(-1).view(torch.uint8)


def shapes_of(norm: Norm, dtype: torch.dtype) -> tuple[Shape, ...]:
    wide = norm.small is ROWS and dtype == torch.float32
    return (*norm.small, *WIDE) if wide else norm.small


def make_runs(table: Iterable[Norm], seed: int) -> dict[Any, list[Run]]:
    """(name, arch, dtype) -> its runs on all shapes, compiled."""
    found: dict[Any, list[Run]] = {}
    for norm in table:
        samples = {}
        for dtype in DTYPES:
            draw = normal(norm.name, dtype, seed)
            shapes = shapes_of(norm, dtype)
            samples[dtype] = [Sample(norm, shape, norm.make(shape, draw)) for shape in shapes]
        for place, (arch, dtype) in enumerate(VARIANTS):
            # A separate definition, because it caches plans, which are for one device.
            fd = norm.definition(samples[dtype][0].inputs)
            chosen = samples[dtype]
            if (arch, dtype) not in VARIANTS[:2]:  # other variants run a few shapes each
                chosen = rotated(chosen, place, 5)
            found[norm.name, arch, dtype] = [Run(sample, arch, fd) for sample in chosen]
    everything = [run for runs in found.values() for run in runs]
    for arch in sorted({run.arch for run in everything}):
        for debug in (True, False):
            chosen = [run for run in everything if (run.arch, run.debug) == (arch, debug)]
            if chosen:
                chosen[0].select()
                testing.compile_batch((run.fd, run.sample.inputs) for run in chosen)
    return found


def check_twice(runs: Iterable[Run]) -> None:
    """Assert that each run is correct, and deterministic bit for bit."""
    for run in runs:
        results = run.results()
        run.sample.check(results)
        for one, other in zip(results, run.results(), strict=True):
            assert torch.equal(bits(one), bits(other)), f"{run.sample.shape}: two runs differ"
