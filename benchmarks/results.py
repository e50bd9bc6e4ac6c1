"""Storage of the results of a run: JSON written case by case, resumed, read, merged."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import Setting
from fuser import _core

Results = dict[str, Any]


def _cpu(setting: Setting) -> dict[str, Any]:
    """What times on a CPU depend on."""
    if setting.device.type == "cuda":
        return {}
    target = _core.get_option("FUSER_HOST_ARCH")
    return {"threads": torch.get_num_threads(), "FUSER_HOST_ARCH": target}


def start(path: Path | None, setting: Setting, versions: Mapping[str, str]) -> tuple[Results, bool]:
    """Results of an earlier run in the same environment, or empty ones; True if the file has
    another environment and will be overwritten."""
    environment = {
        "device": torch.cuda.get_device_name(setting.device)
        if setting.device.type == "cuda"
        else f"{platform.machine()} CPU, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "python": platform.python_version(),
        **versions,
        **_cpu(setting),
        "samples": setting.samples,
        "contenders": "+".join(setting.contenders),
    }
    anew = False
    if path and path.exists():
        earlier: Results = json.loads(path.read_text())
        if earlier["environment"] == environment and "families" in earlier:
            return earlier, False
        anew = True
    return {"environment": environment, "missing": {}, "families": {}, "failures": {}}, anew


def read(path: Path, option: str) -> Results:
    """Read the results of a run for a command-line option. On failure raise a SystemExit that names
    the option and the file."""
    try:
        results: Results = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"{option} {path}: {error}") from None
    if "families" not in results:
        raise SystemExit(f"{option} {path}: no results of python -m benchmarks --json")
    return results


def merge(paths: Sequence[Path]) -> Results:
    """Merge the results of several partial runs. If two have a case in common, the later one
    counts.

    SystemExit if their environments differ: their times are not comparable.
    """
    merged: Results = {}
    for path in paths:
        part = read(path, "--merge")
        if not merged:
            merged = part
            continue
        other = {
            name
            for name in (*merged["environment"], *part["environment"])
            if merged["environment"].get(name) != part["environment"].get(name)
        }
        if other:
            raise SystemExit(f"--merge {path}: of another {', '.join(sorted(other))}")
        for family, records in part["families"].items():
            merged["families"].setdefault(family, {}).update(records)
            for key in records:
                merged["failures"].pop(key, None)
        for name in ("missing", "failures", "host"):
            merged.setdefault(name, {}).update(part.get(name, {}))
    return merged


def text(results: Results) -> str:
    """JSON with one line per case, so that a file is short and its diff names the changed cases."""

    def entry(name: str, value: Any) -> str:
        return f"{json.dumps(name)}:{json.dumps(value, separators=(',', ':'))}"

    def table(name: str, lines: list[str]) -> str:
        return f"{json.dumps(name)}:{{\n" + ",\n".join(lines) + "\n}"

    parts = []
    for name, value in results.items():
        if name == "families":
            families = [table(f, [entry(*case) for case in r.items()]) for f, r in value.items()]
            parts.append(table(name, families))
        else:
            parts.append(entry(name, value))
    return "{\n" + ",\n".join(parts) + "\n}\n"


class Keeper:
    """keep(): write the results so far to the file."""

    def __init__(self, results: Results, path: Path | None) -> None:
        self._results, self._path = results, path

    def __call__(self) -> None:
        if self._path:
            new = self._path.with_suffix(".new")
            new.write_text(text(self._results))
            os.replace(new, self._path)
