"""Filling disk caches before a run: the tasks, the worker processes, and their use by a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import precompile, report
from benchmarks.families import pointwise, softmax
from benchmarks.harness import Setting, run_case
from benchmarks.precompile import Done, Task

CPU = torch.device("cpu")


def test_tasks_are_of_contenders_that_compile_the_cheap_ones_first() -> None:
    plain = pointwise.scale((4, 32), torch.float32)
    rows = softmax.softmax((4, 32), torch.float32)
    todo = precompile.tasks(
        [("pointwise", plain), ("softmax", rows)],
        ("eager", "autotune", "quack", "compile", "fuser"),
        tiny=True,
    )
    assert [(t.contender, t.key) for t in todo] == [
        ("compile", plain.key),
        ("compile", rows.key),
        ("quack", rows.key),  # QuACK has no other kernels
        ("autotune", plain.key),
        ("autotune", rows.key),
    ]


def test_tasks_run_in_other_processes_and_failures_are_named() -> None:
    key = pointwise.scale((4, 32), torch.float32).key
    todo = [Task("eager", "pointwise", key, True), Task("eager", "pointwise", "none", True)]
    done = {d.task: d for d in precompile.fill(todo, CPU, processes=1, limit=300.0)}
    assert done[todo[0]].failed is None
    assert done[todo[1]].failed == "KeyError: 'none'"
    assert precompile.summary(todo, list(done.values())).startswith(
        "eager: 2 of 2 cases compiled, 1 f"
    )


def test_what_is_not_done_in_time_is_left() -> None:
    todo = [Task("eager", "pointwise", "none", True)]
    assert precompile.fill(todo, CPU, processes=1, limit=0.0) == []
    assert precompile.summary(todo, []) == "eager: 0 of 1 cases compiled, 0 failed"
    assert precompile.fill([], CPU, processes=1, limit=1.0) == []


def test_what_was_compiled_is_kept_and_added_to(tmp_path: Path) -> None:
    path = tmp_path / "compiled.json"
    precompile.keep([Done(Task("compile", "sums", "a", False), 1.0, 0.0, None)], path)
    precompile.keep(
        [Done(Task("autotune", "sums", "a", False), 1.0, 0.0, "fails in the run too")], path
    )
    assert precompile.compiled(path) == {("compile", "a"), ("autotune", "a")}


def test_a_run_leaves_out_what_takes_too_long_to_compile() -> None:
    setting = Setting(CPU, samples=1, contenders=("eager", "autotune"), compiled=set())
    record = run_case(pointwise.scale((4, 32), torch.float32), setting)
    assert record["failed"] == {"autotune": "not compiled before the limit"}
    assert "eager" in record["us"]
    cells = report.case_row(record, setting.contenders, {})
    assert "not compiled" in cells
    assert not report.not_timed({"": record}), "it did not fail"


def test_command_warms_and_reads_what_was_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fill(todo: list[Task], device: torch.device, processes: int, limit: float) -> list[Done]:
        assert (device, processes, limit) == (CPU, 3, 7.0)
        return [Done(task, 2.0, 1.0, None) for task in todo if task.contender == "compile"]

    monkeypatch.setattr(precompile, "fill", fill)
    path = tmp_path / "compiled.json"
    arguments = ["--tiny", "--device", "cpu", "--families", "chains", "--case", "chain_of_8 b"]
    arguments += ["--compiled", str(path)]
    assert command.main([*arguments, "--all", "--warm", "3", "--limit", "7"]) == 0
    printed = capsys.readouterr().out
    assert "compile: 1 of 1 cases compiled, 0 failed; 2 s, median 2.0, longest 2.0, 1 s" in printed
    assert "autotune: 0 of 1 cases compiled" in printed
    options = command._parser().parse_args(arguments)
    assert command._setting(options, {}).compiled == {("compile", "chain_of_8 bfloat16 4x32")}
    assert command.main([*arguments, "--all", "--warm", "3", "--limit", "7"]) == 0
    assert capsys.readouterr().out.startswith("autotune: 0 of 1"), "it goes on where it stopped"


def test_the_script_for_all_of_it(tmp_path: Path) -> None:
    """benchmarks/full_table.sh compiles, times and merges all fractions of the table; a second run
    times no case."""
    script = Path(__file__).parents[2] / "benchmarks" / "full_table.sh"
    options = ["--tiny", "--device", "cpu", "--samples", "2", "--contenders", "eager,fuser"]
    options += ["--families", "chains", "--case", "chain_of_8 b"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    for cases in (1, 0):
        run = subprocess.run(
            [script, tmp_path, sys.executable, *options],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert "| chain_of_8 | bfloat16 | 4x32 |" in run.stdout
        assert f"{cases} cases to run" in (tmp_path / "part1.log").read_text()
        assert (tmp_path / "results.json").exists()
