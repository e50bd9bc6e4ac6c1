"""benchmarks/models.py: the phases of a first step; the networks."""

from __future__ import annotations

import importlib.util
import time

import pytest
import torch
from torch._dynamo.utils import compilation_time_metrics

from benchmarks.models import parts_of_first
from benchmarks.networks import NETWORKS
from fuser.adapters import report
from fuser.adapters.dynamo import backend


def test_the_parts_of_a_first_step_are_all_of_it() -> None:
    torch._dynamo.reset()
    compilation_time_metrics.clear()
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
    start = time.perf_counter()
    with report.recording() as seen:
        torch.compile(model, backend=backend)(torch.randn(4, 8)).sum().backward()
    total = time.perf_counter() - start
    parts = parts_of_first(total, seen)
    assert all(seconds > 0 for seconds in parts.values())
    assert parts["dynamo"] + parts["aotautograd"] + parts["own"] == pytest.approx(total)
    own = ("regions", "definitions", "kernels", "rest")
    assert sum(parts[part] for part in own) == pytest.approx(parts["own"])


@pytest.mark.parametrize("name", ["resnet50", "efficientnet", "mobilenetv3", "convnext", "mixer"])
def test_networks_written_out_where_timm_is_missing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    network = NETWORKS[name](torch.device("cpu"), True)
    assert network.source == "benchmarks.vision"
    assert network.module(*network.inputs).isfinite()
