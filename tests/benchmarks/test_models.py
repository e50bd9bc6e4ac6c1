"""benchmarks/models.py: the phases of a first step, records, tables; the networks."""

from __future__ import annotations

import importlib.util
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import compilation_time_metrics

from benchmarks import models
from benchmarks.models import parts_of_first
from benchmarks.networks import INFERENCE, NETWORKS, TRAINING, written
from benchmarks.networks.network import member
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


@pytest.mark.parametrize(
    "name", ["resnet50", "efficientnet", "mobilenetv3", "convnext", "convnextv2", "mixer"]
)
def test_networks_written_out_where_timm_is_missing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    network = NETWORKS[name](torch.device("cpu"), True)
    assert network.source == "benchmarks.vision"
    assert network.module(*network.inputs).isfinite()


def test_every_network_is_one_of_training_or_inference() -> None:
    assert len(TRAINING) >= 40
    assert len(INFERENCE) >= 20
    assert len(NETWORKS) == len(TRAINING) + len(INFERENCE)


@pytest.mark.parametrize(
    "name",
    [*written.TRAINING, *written.INFERENCE],
)
def test_networks_in_plain_torch(name: str) -> None:
    torch.manual_seed(0)
    network = NETWORKS[name](torch.device("cpu"), True)
    assert network.trains == (name in TRAINING)
    step = models.step_of(network, network.module)
    assert torch.as_tensor(step()).isfinite().all()
    if network.trains:
        before = [p.detach().clone() for p in network.module.parameters()]
        step()
        after = network.module.parameters()
        assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_decoder_of_one_word_agrees_with_the_whole_text() -> None:
    from benchmarks.networks.written import _Decoder

    torch.manual_seed(0)
    whole, one = (_Decoder(2, 64, 4, 8, batch).double() for batch in (0, 2))
    one.load_state_dict(whole.state_dict(), strict=False)
    words = torch.randint(0, 32000, (2, 6))
    expected = whole.predict(words)
    for i in range(words.shape[1]):
        found = one.predict(words[:, i : i + 1], torch.tensor([i]))
        torch.testing.assert_close(found[:, 0], expected[:, i], rtol=1e-9, atol=1e-9)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(device: torch.device, small: bool) -> None:
        member("a_package_that_nobody_wrote", "Model")

    monkeypatch.setitem(NETWORKS, "dlrm", absent)
    options = models.options_of(["dlrm", "--small", "--device", "cpu"])
    record = models.measure("dlrm", "eager", options)
    assert record["missing"] == "a_package_that_nobody_wrote"
    assert "failed" not in record
    assert "not run without a_package_that_nobody_wrote: dlrm" in models.tables([record], ["eager"])


def test_a_release_without_a_class_is_a_missing_package() -> None:
    with pytest.raises(ImportError, match="this release of torch has no NoSuchClass") as raised:
        member("torch", "NoSuchClass")
    assert raised.value.name == "torch"


def test_records_are_measured_kept_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "records.json"
    arguments = ["dlrm", "decoder_decode", "--small", "--device", "cpu", "--rounds", "1"]
    arguments += ["--json", str(path), "--contenders", "eager"]
    models.main(arguments)
    records = json.loads(path.read_text())
    assert sorted(record["network"] for record in records) == ["decoder_decode", "dlrm"]
    assert all(record["ms"] > 0 for record in records)
    times = {record["network"]: record["ms"] for record in records}
    models.main(arguments)  # measures nothing
    again = json.loads(path.read_text())
    assert {record["network"]: record["ms"] for record in again} == times


def test_an_unfinished_network_of_another_device_starts_again() -> None:
    records = [
        {"network": "a", "contender": "eager", "device": "H100"},
        {"network": "b", "contender": "eager", "device": "H200"},
        {"network": "c", "missing": "timm", "contender": "eager", "device": "H100"},
    ]
    todo = models.todo_of(["a", "b", "c", "d"], ["eager", "fuser"], records, "H200")
    assert todo == {"a": ["eager", "fuser"], "b": ["fuser"], "d": ["eager", "fuser"]}


def test_parts_of_the_networks_are_all_of_them() -> None:
    found = [models.options_of(["--part", f"{i}/3"]).networks for i in (1, 2, 3)]
    assert sorted([name for names in found for name in names]) == sorted(NETWORKS)


def test_the_ratio_compares_best_modes() -> None:
    times = {"eager": 9.0, "inductor": 4.0, "reduce-overhead": 3.0, "fuser": 2.0}
    records = {contender: {"gpu_ms": ms} for contender, ms in times.items()}
    assert models.ratio(records, "gpu_ms") == 1.5
    assert models.ratio({"fuser": {"gpu_ms": 2.0}}, "gpu_ms") is None


def test_warnings_are_kept_with_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason why a graph is not captured is a line of the report."""

    log = logging.getLogger("fuser.adapters.autograd.cudagraphs")

    def compiled(module: torch.nn.Module, contender: str) -> Callable[..., torch.Tensor]:
        def run(*inputs: torch.Tensor) -> torch.Tensor:
            log.warning("no graph: %s", "a reason")
            result: torch.Tensor = module(*inputs)
            return result

        return run

    monkeypatch.setattr(models, "compiled", compiled)
    options = models.options_of(["lstm", "--small", "--device", "cpu", "--rounds", "1"])
    record = models.measure("lstm", "eager", options)
    assert record["warnings"] == ["no graph: a reason"]
    assert "lstm, eager: no graph: a reason" in models.tables([record], ["eager"])
