"""python -m benchmarks: runs the families, prints a table, keeps every figure as JSON.

The JSON is written after each case; a second run with the same file goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import fuser
from benchmarks import host, pointwise
from benchmarks.harness import CONTENDERS, Setting, method_check, run_case
from benchmarks.report import case_header, case_row, markdown, table

FAMILIES = ("pointwise", "host", "compile")


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 where a case failed or was wrong."""
    options = _parser().parse_args(arguments)
    setting = Setting(
        device=torch.device(options.device),
        samples=options.samples,
        contenders=tuple(_chosen(options.contenders, CONTENDERS)),
    )
    results = _start(options.json, setting)
    families = _chosen(options.families, FAMILIES)
    keep = Keeper(results, options.json)
    started = time.perf_counter()
    if setting.device.type == "cuda" and "method" not in results:
        results["method"] = method_check(setting)
    if "pointwise" in families:
        _run_pointwise(results, setting, options, keep)
    times = results.setdefault("host", {})
    if "host" in families:
        _once(times, "calls", keep, lambda: host.call_times(setting, **_fewer(options.quick)))
        _once(times, "new_shape", keep, lambda: host.new_shape_times(setting))
    if "compile" in families:
        _once(times, "compile", keep, lambda: host.compile_times(setting, options.quick))
    text = markdown(results, setting.contenders)
    if options.markdown:
        options.markdown.write_text(text)
    print(text)
    print(f"{time.perf_counter() - started:.0f} s")
    return 1 if results["failures"] else 0


def _fewer(quick: bool) -> dict[str, int]:
    return {"repeats": 5, "calls": 500} if quick else {}


def _once(times: dict[str, Any], name: str, keep: Keeper, run: Callable[[], Any]) -> None:
    """Runs what is not in the file yet."""
    if name not in times:
        print(f"{name} ...", file=sys.stderr, flush=True)
        times[name] = run()
        keep()


class Keeper:
    """keep(): the results so far, in the file."""

    def __init__(self, results: dict[str, Any], path: Path | None) -> None:
        self._results, self._path = results, path

    def __call__(self) -> None:
        if self._path:
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps(self._results, indent=1))
            os.replace(new, self._path)


def _run_pointwise(
    results: dict[str, Any], setting: Setting, options: argparse.Namespace, keep: Keeper
) -> None:
    done, failures = results["pointwise"], results["failures"]
    print(table(case_header(setting.contenders), []), file=sys.stderr, flush=True)
    for row in pointwise.TABLE:
        case = row.small() if options.tiny else row.case()
        skipped = (options.quick and not row.quick) or options.case not in case.key
        if skipped or case.key in done:
            continue
        try:
            done[case.key] = record = run_case(case, setting)
        except Exception as failure:
            failures[case.key] = f"{type(failure).__name__}: {failure}"
            print(f"| {case.key}: {failures[case.key]}", file=sys.stderr, flush=True)
        else:
            failures.pop(case.key, None)
            line = " | ".join(case_row(record, setting.contenders))
            print(f"| {line} |", file=sys.stderr, flush=True)
        if setting.device.type == "cuda":
            torch.cuda.empty_cache()
        keep()


def _start(path: Path | None, setting: Setting) -> dict[str, Any]:
    """The results of an earlier run of the same kind, or none yet."""
    environment = {
        "device": torch.cuda.get_device_name(setting.device)
        if setting.device.type == "cuda"
        else f"{platform.machine()} CPU, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "samples": setting.samples,
        "contenders": "+".join(setting.contenders),
    }
    if path and path.exists():
        earlier: dict[str, Any] = json.loads(path.read_text())
        if earlier["environment"] == environment:
            return earlier
        print(f"{path} is of another environment: starting anew", file=sys.stderr)
    return {"environment": environment, "pointwise": {}, "failures": {}}


def _chosen(text: str, known: tuple[str, ...]) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            raise SystemExit(f"unknown {name!r}; expected some of {','.join(known)}")
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--families", default=",".join(FAMILIES), help="default: %(default)s")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="default: %(default)s")
    parser.add_argument("--case", default="", help="only cases whose key contains this text")
    parser.add_argument("--quick", action="store_true", help="the main cases only")
    parser.add_argument("--tiny", action="store_true", help="a few hundred elements: does it work?")
    parser.add_argument("--samples", type=int, default=60, help="default: %(default)s")
    parser.add_argument("--json", type=Path, help="every figure; resumed if it exists")
    parser.add_argument("--markdown", type=Path, help="the printed report, as a file")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


if __name__ == "__main__":
    assert fuser  # imported first, so that a build that does not fit says so before any work
    sys.exit(main())
