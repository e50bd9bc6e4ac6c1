"""benchmarks.texts: the kernels that a change of the compiler changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import texts
from benchmarks.families import pointwise

CHOSEN = ["--families", "pointwise", "--case", "swiglu bfloat16"]


def test_what_differs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "texts.json"
    assert texts.main([*CHOSEN, "--keep", str(kept)]) == 0
    assert texts.main([*CHOSEN, "--compare", str(kept)]) == 0
    assert capsys.readouterr().out.endswith("\n0 differ\n")
    hashes = json.loads(kept.read_text())
    changed = next(name for name in hashes if name.endswith("static sizes"))
    hashes[changed] = ["0"]
    kept.write_text(json.dumps(hashes))
    assert texts.main([*CHOSEN, "--compare", str(kept)]) == 1
    assert capsys.readouterr().out.endswith(f"\ndiffers: {changed}\n1 differ\n")


@pytest.mark.parametrize("arch", ["90", "avx2"])
def test_texts_depend_on_what_is_compiled_and_on_nothing_else(arch: str) -> None:
    """Static sizes and symbolic sizes yield different texts, each deterministic."""
    case = pointwise.swiglu((8, 2 * 1024), torch.bfloat16)
    device = texts.known_device(arch)
    run_time, static = (texts.texts(case, device, static_sizes) for static_sizes in (False, True))
    assert len(run_time) == len(static) == 1
    assert run_time != static
    assert run_time == texts.texts(case, device, False)


def test_planning_is_timed_by_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert texts.main([*CHOSEN, "--time", "2"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    family, ms, unit = line.split()
    assert (family, unit) == ("pointwise:", "ms")
    assert float(ms) > 0
