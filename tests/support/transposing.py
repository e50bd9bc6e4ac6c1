"""Samples of data-movement definitions, and their comparison with torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fuser import FusionDefinition, testing
from fuser.ops import as_dtype
from fuser.plan import Plans


def define(build: Callable[..., Any], ranks: list[int], *dtypes: torch.dtype) -> FusionDefinition:
    fd = FusionDefinition()
    tensors = [
        fd.define_tensor([-1] * rank, dtype=as_dtype(dtype))
        for rank, dtype in zip(ranks, dtypes, strict=True)
    ]
    results = build(fd, *tensors)
    for result in results if isinstance(results, list) else [results]:
        fd.add_output(result)
    return fd


@dataclass(frozen=True)
class Sample:
    build: Callable[..., Any]
    reference: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]

    def inputs(self, rng: np.random.Generator) -> list[Tensor]:
        made = []
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            x = torch.from_numpy(rng.integers(-64, 64, size=(*shape, 2)).astype(np.float64))
            x = torch.view_as_complex(x) if dtype.is_complex else x[..., 0].contiguous()
            made.append((x > 0) if dtype == torch.bool else x.to(dtype))
        return made


def check_values(samples: Mapping[str, Sample], rng: np.random.Generator) -> dict[str, Plans]:
    """Assert that every sample equals its reference bit for bit; return the plans."""
    made = [
        (name, s, define(s.build, [len(x) for x in s.shapes], *s.dtypes), s.inputs(rng))
        for name, s in samples.items()
    ]
    testing.compile_batch((fd, inputs) for _, _, fd, inputs in made)
    plans = {}
    for name, sample, fd, inputs in made:
        plans[name] = fd.plan(inputs)
        wanted = sample.reference(*inputs)
        for got, want in zip(
            fd.execute(inputs), wanted if isinstance(wanted, list) else [wanted], strict=True
        ):
            assert torch.equal(got, want), name
    return plans
