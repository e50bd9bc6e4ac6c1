"""The benchmark harness on tiny CPU tensors: what it checks, counts and keeps. No times."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import harness, host, pointwise, report
from benchmarks.case import Case, Data, error, moved_bytes
from benchmarks.harness import Setting, measure, run_case

CPU = torch.device("cpu")
SETTING = Setting(device=CPU, samples=2, contenders=("eager", "fuser"))


def test_keys_are_distinct() -> None:
    keys = [row.case().key for row in pointwise.TABLE]
    assert len(set(keys)) == len(keys)


def test_quick_covers_every_kind_of_case() -> None:
    quick = {row.case().name for row in pointwise.TABLE if row.quick}
    light = {"axpy", "bias", "exp", "sigmoid"}  # near another case that is quick
    assert quick | light == {row.case().name for row in pointwise.TABLE}


@pytest.mark.parametrize("row", [r for r in pointwise.TABLE if r.quick], ids=lambda r: r.case().key)
def test_run_case(row: pointwise.Row) -> None:
    for case in (row.small(), row.small(odd=True)):
        record = run_case(case, SETTING)
        assert record["errors"]["fuser"]["of_tolerance"] <= 1.0
        assert set(record["us"]) == {"memcpy", "copy kernel", "eager", "fuser"}
        assert record["copy_us"] == min(record["us"]["memcpy"], record["us"]["copy kernel"])
        assert record["bytes"] > 0
        json.dumps(record)


def test_a_wrong_definition_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = pointwise.scale((4, 32), torch.float32)
    wrong = Case(**{**right.__dict__, "define": lambda ops, x: x * 1.6})
    monkeypatch.setattr(harness, "measure", lambda *_: pytest.fail("timed"))
    with pytest.raises(AssertionError, match="fuser is off by"):
        run_case(wrong, SETTING)


def test_a_contender_that_fails_is_left_out() -> None:
    def refuse(x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float32:
            raise NotImplementedError("not today")
        return x * 1.5

    right = pointwise.scale((4, 32), torch.float32)
    record = run_case(Case(**{**right.__dict__, "eager": refuse}), SETTING)
    assert "not today" in record["errors"]["eager"]
    assert "eager" not in record["us"]
    assert "fuser" in record["us"]


def test_in_place_cases_leave_the_inputs_of_the_check_alone() -> None:
    case = pointwise.adamw((64,), torch.float32)
    inputs = case.make(Data(CPU))
    before = [t.clone() for t in inputs]
    results = case.results(case.eager, inputs)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))
    assert not torch.equal(results[0], inputs[0])


def test_error() -> None:
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert error([torch.tensor([1.0, 2.0])], [exact]) == (0.0, 0.0)
    largest, share = error([torch.tensor([1.0, 2.5])], [exact])
    assert largest == 0.5
    assert share == pytest.approx(0.5 / 3e-5)  # rtol 1e-5 of 2, atol 1e-5
    assert error([torch.tensor([1.0, math.nan])], [exact]) == (math.inf, math.inf)
    assert error([torch.tensor([1, 3])], [torch.tensor([1, 2])]) == (1.0, math.inf)
    assert error([torch.ones(3)], [exact]) == (math.inf, math.inf)


def test_moved_bytes() -> None:
    x = torch.zeros(8, 16)
    assert moved_bytes([x], [x.bfloat16()]) == 8 * 16 * (4 + 2)
    assert moved_bytes([x[:1].expand(8, 16)], []) == 16 * 4
    assert moved_bytes([x[:, :4]], []) == 8 * 4 * 4


def test_contenders_take_turns() -> None:
    order: list[str] = []
    calls = {name: (lambda name=name: order.append(name)) for name in "abc"}
    times = measure(calls, Setting(device=CPU, samples=4))
    assert "".join(order[-12:]) == "abccbaabccba"
    assert {name: len(values) for name, values in times.items()} == dict.fromkeys("abc", 4)


def test_command_keeps_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.json"
    arguments = [
        *("--tiny", "--device", "cpu", "--samples", "2", "--contenders", "eager,fuser"),
        *("--families", "pointwise", "--case", "swiglu", "--json", str(path)),
        *("--markdown", str(tmp_path / "results.md")),
    ]
    assert command.main(arguments) == 0
    assert "swiglu" in capsys.readouterr().out
    first = json.loads(path.read_text())
    assert list(first["pointwise"]) == ["swiglu bfloat16 4x32"]
    monkeypatch.setattr(command, "run_case", lambda *_: pytest.fail("measured again"))
    assert command.main(arguments) == 0
    assert json.loads(path.read_text()) == first
    assert "| swiglu | bfloat16 | 4x32 |" in (tmp_path / "results.md").read_text()


def test_command_reports_failures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(case: Case, setting: Setting) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(command, "run_case", fail)
    arguments = ["--tiny", "--device", "cpu", "--families", "pointwise", "--case", "swiglu"]
    assert command.main(arguments) == 1
    assert "swiglu bfloat16 4x32: RuntimeError: broken" in capsys.readouterr().out


def test_host_times() -> None:
    records = host.call_times(SETTING, repeats=2, calls=5)
    assert [r["case"] for r in records] == ["1 input", "2 inputs", "8 inputs"]
    assert all(set(r["saturated_us"]) == {"eager", "fuser"} for r in records)
    new = host.new_shape_times(SETTING, shapes=5)
    assert new["kernels_compiled_on_the_way"] == 0
    text = report.host_tables({"calls": records, "new_shape": new})
    assert "| 8 inputs |" in text


def test_compile_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "TABLE", [r for r in pointwise.TABLE if r.build is pointwise.swiglu])
    for _ in range(2):  # no cache helps the second time
        times = host.compile_times(SETTING)
        assert [row["kernels"] for row in times["rows"]] == [1]
        assert times["median_kernel_ms"] > 0


def test_summary() -> None:
    record = {
        "case": "scale",
        "dtype": "float32",
        "shape": [4, 4],
        "bytes": 2e6,
        "copy_us": 90.0,
        "us": {"compile": 150.0, "fuser": 100.0},
    }
    assert "90.0% of a copy" in report.summary([record])
    assert "1.50x" in report.summary([record])
    row = report.case_row(record, ("eager", "compile", "fuser"))
    assert row[5:] == ["-", "150.0 (60%)", "100.0 (90%)", "1.50"]
