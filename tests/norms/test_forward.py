"""Normalizations, softmax and cross entropy on the host executor compared with float64: every
dtype, widths near changes of plans, several GPU generations."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from tests.norms.cases import FORWARD
from tests.norms.runs import VARIANTS, Run, check_twice, make_runs


@cache
def runs(seed: int) -> dict[Any, list[Run]]:
    return make_runs(FORWARD, seed)


@pytest.mark.parametrize(("arch", "dtype"), VARIANTS, ids=str)
@pytest.mark.parametrize("name", [norm.name for norm in FORWARD])
def test_forward(name: str, arch: int, dtype: torch.dtype, request: pytest.FixtureRequest) -> None:
    seed = request.config.option.seed
    print(f"seed {seed}: repeat with --seed={seed}")
    check_twice(runs(seed)[name, arch, dtype])
