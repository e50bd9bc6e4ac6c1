"""The examples run, and print the expected lines."""

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
QUICKSTART = ROOT / "examples" / "quickstart.py"
OTHERS = [p for p in sorted((ROOT / "examples").glob("*.py")) if p != QUICKSTART]
PROMISES = {
    "a_new_op": "agrees with torch.nn.functional.softsign",
    "huggingface": "ops in",
    "new_normalization": "fusion breaks: none",
    "normalizations": "Layer norm on",
    "reading_a_report": "materialized for",
    "schedule_by_hand": "threads_x=128 instead of",
    "schedule_to_win": "legal schedules of",
    "scripted_model": "kernels of ours ran",
    "trainers": "agree with eager mode",
}


def run_in_a_process(example: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(example)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Examples of plans and schedules that CPU kernels do not have.
OF_GPU_PLANS = {"schedule_by_hand"}


@pytest.mark.parametrize("example", OTHERS, ids=lambda path: path.stem)
def test_runs(
    example: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    set_option: Callable[[str, object], None],
) -> None:
    if example.stem in OF_GPU_PLANS:
        set_option("FUSER_HOST_ARCH", 80)
    monkeypatch.setattr(sys, "argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")
    text = capsys.readouterr().out
    if example.stem == "trainers" and "agree" not in text:  # no library is installed
        assert text.count(": skipped, ") == 5
        return
    assert PROMISES[example.stem] in text or text.startswith("skipped: ")


def test_quickstart_says_everything() -> None:
    text = run_in_a_process(QUICKSTART)
    assert "fd.define_tensor(shape=[-1, -1]" in text, "the definition"
    assert "KERNEL(" in text or "\nstatic void " in text, "the kernel, CUDA C or C++"
    assert re.search(r"Runs on .*(the CPU, by the host executor|NVIDIA|\w)", text)
    rows = re.findall(r"^ *(\d+) x (\d+) +(.*)$", text, re.MULTILINE)
    assert len(rows) >= 3
    built = [int(row[2].split()[0]) + int(row[2].split()[1]) for row in rows]
    assert built == [1] + [0] * (len(rows) - 1), (
        "the first shape builds, the others share its kernel"
    )
    errors = [float(row[2].split()[-1]) for row in rows]
    assert all(0 < error <= 2.0**-4 for error in errors), (
        "a step of bfloat16 between 4 and 8 is 2^-5"
    )


@pytest.mark.parametrize("place", [0, 1])
def test_the_blocks_of_the_readme_run(place: int) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, Any] = {}
    exec(compile(blocks[place], "README.md", "exec"), names)
    if place == 0:
        assert names["result"].shape == (4096, 1024)
    else:
        assert names["weight"].grad.shape == (512,)
        assert names["x"].grad.isfinite().all()
