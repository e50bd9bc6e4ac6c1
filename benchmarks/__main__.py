"""python -m benchmarks: runs the families, prints a table of each and a summary, keeps every figure
as JSON.

The JSON is written after each case; a second run with the same file goes on where it stopped. A
contender that fails, is wrong or is not installed is named in the tables and stops nothing.

    python -m benchmarks --results benchmarks/results/h200      everything, tables and plots
    python -m benchmarks --compare benchmarks/results/h200/results.json   what got slower since
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import fuser
from benchmarks import compare, host, peers, plots
from benchmarks.case import Case
from benchmarks.families import TABLES
from benchmarks.harness import (
    CONTENDERS,
    Setting,
    build,
    method_check,
    run_case,
    time_alone,
    watch_compilation,
)
from benchmarks.report import case_header, case_row, markdown, table
from fuser import _core

FAMILIES = (*TABLES, "host", "compile")
_QUICK_SAMPLES, _QUICK_BUDGET = 20, 0.25  # a case; seconds
_ASKED_FOR = ("autotune", "fuser_compile")  # they compile for long


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 where ours failed or was wrong in a case, or got slower than in --compare."""
    options = _parser().parse_args(arguments)
    older = _older(options.compare) if options.compare else None
    if options.results:
        options.results.mkdir(parents=True, exist_ok=True)
        options.json = options.json or options.results / "results.json"
        options.markdown = options.markdown or options.results / "results.md"
    versions, missing = peers.available()
    setting = _setting(options, missing)
    results = _start(options.json, setting, versions)
    for name, reason in missing.items():
        if name in setting.contenders:
            results["missing"][name] = reason
            print(f"{name} could not be imported: {reason}", file=sys.stderr, flush=True)
    families = _chosen(options.families, FAMILIES)
    keep = Keeper(results, options.json)
    started = time.perf_counter()
    if setting.device.type == "cuda" and "method" not in results:
        results["method"] = method_check(setting)
    _run_tables(results, setting, options, keep, families)
    times = results.setdefault("host", {})
    if "host" in families:
        _once(times, "calls", keep, lambda: host.call_times(setting, **_fewer(options.quick)))
        _once(times, "new_shape", keep, lambda: host.new_shape_times(setting))
        _once(times, "first_call", keep, lambda: host.first_call_times(setting))
        _once(times, "tensors", keep, lambda: host.tensor_times(setting))
        _once(times, "threads", keep, lambda: host.thread_times(setting))
    if "compile" in families:
        _once(times, "compile", keep, lambda: host.compile_times(setting, options.main))
    text = markdown(results, setting.contenders)
    worse = False
    if older:
        found = compare.changes(older, results)
        text += f"\n## Against {options.compare}\n\n{compare.comparison(found)}\n"
        worse = bool(compare.slower(found))
    if options.markdown:
        options.markdown.write_text(text)
    if options.results:
        for path in plots.write(results, options.results):
            print(path, file=sys.stderr)
    print(text)
    print(f"{time.perf_counter() - started:.0f} s")
    return 1 if results["failures"] or worse else 0


def _older(path: Path) -> dict[str, Any]:
    """The results in --compare; read before the hours that a run takes."""
    try:
        results: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"--compare {path}: {error}") from None
    if "families" not in results:
        raise SystemExit(f"--compare {path}: no results of python -m benchmarks --json")
    return results


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


def _cases(options: argparse.Namespace, family: str, done: Mapping[str, Any]) -> list[Case]:
    """The cases of a family that were asked for and have no record yet."""
    cases: dict[str, Case] = {}
    for row in TABLES[family]:
        case = row.small() if options.tiny else row.case()
        wanted = (row.main or not options.main) and options.case in case.key
        if wanted and case.key not in done:
            cases.setdefault(case.key, case)
    return list(cases.values())


def _run_tables(
    results: dict[str, Any],
    setting: Setting,
    options: argparse.Namespace,
    keep: Keeper,
    families: list[str],
) -> None:
    todo = {
        family: _cases(options, family, results["families"].setdefault(family, {}))
        for family in families
        if family in TABLES
    }
    # From disk, a kernel would not say how long it takes to compile.
    before = _core.get_option("FUSER_CACHE")
    _core.set_option("FUSER_CACHE", "0")
    try:
        with watch_compilation() as compile_ms:
            if "fuser" in setting.contenders:
                start = time.perf_counter()
                kernels = build([c for cases in todo.values() for c in cases], setting)
                seconds = time.perf_counter() - start
                print(f"{kernels} kernels built in {seconds:.1f} s", file=sys.stderr, flush=True)
                if setting.device.type == "cuda":
                    major, minor = torch.cuda.get_device_capability(setting.device)
                    time_alone(compile_ms, 10 * major + minor)
            for family, cases in todo.items():
                start = time.perf_counter()
                _run_family(results, family, cases, setting, compile_ms, keep)
                seconds = time.perf_counter() - start
                print(f"{family}: {len(cases)} cases, {seconds:.1f} s", file=sys.stderr, flush=True)
    finally:
        _core.set_option("FUSER_CACHE", before)


def _run_family(
    results: dict[str, Any],
    family: str,
    cases: list[Case],
    setting: Setting,
    compile_ms: Mapping[str, float],
    keep: Keeper,
) -> None:
    done, failures = results["families"][family], results["failures"]
    print(f"{family}\n" + table(case_header(setting.contenders), []), file=sys.stderr, flush=True)
    for case in cases:
        failures.pop(case.key, None)
        try:
            done[case.key] = record = run_case(case, setting, compile_ms)
        except Exception as failure:
            failures[case.key] = f"{type(failure).__name__}: {failure}"
            print(f"| {case.key}: {failures[case.key]}", file=sys.stderr, flush=True)
        else:
            if "fuser" in record["failed"]:
                failures[case.key] = f"fuser: {record['failed']['fuser']}"
            line = " | ".join(case_row(record, setting.contenders, done))
            print(f"| {line} |", file=sys.stderr, flush=True)
            for name, reason in record["failed"].items():
                print(f"|   {name}: {reason}", file=sys.stderr, flush=True)
        if setting.device.type == "cuda":
            torch.cuda.empty_cache()
        keep()


def _setting(options: argparse.Namespace, missing: Mapping[str, str]) -> Setting:
    if options.contenders:
        contenders = _chosen(options.contenders, CONTENDERS)
    else:
        contenders = [n for n in CONTENDERS if options.all or n not in _ASKED_FOR]
    samples, budget = (_QUICK_SAMPLES, _QUICK_BUDGET) if options.quick else (60, 2.0)
    return Setting(
        device=torch.device(options.device),
        samples=options.samples or samples,
        contenders=tuple(contenders),
        budget=options.budget or budget,
        missing=missing,
    )


def _start(path: Path | None, setting: Setting, versions: Mapping[str, str]) -> dict[str, Any]:
    """The results of an earlier run of the same kind, or none yet."""
    environment = {
        "device": torch.cuda.get_device_name(setting.device)
        if setting.device.type == "cuda"
        else f"{platform.machine()} CPU, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "python": platform.python_version(),
        **versions,
        "samples": setting.samples,
        "contenders": "+".join(setting.contenders),
    }
    if path and path.exists():
        earlier: dict[str, Any] = json.loads(path.read_text())
        if earlier["environment"] == environment and "families" in earlier:
            return earlier
        print(f"{path} is of another environment: starting anew", file=sys.stderr)
    return {"environment": environment, "missing": {}, "families": {}, "failures": {}}


def _chosen(text: str, known: tuple[str, ...]) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            raise SystemExit(f"unknown {name!r}; expected some of {','.join(known)}")
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--families", default=",".join(FAMILIES), help="default: %(default)s")
    parser.add_argument(
        "--contenders",
        help=f"some of {','.join(CONTENDERS)}; default: all but {','.join(_ASKED_FOR)}",
    )
    parser.add_argument("--all", action="store_true", help="all contenders")
    parser.add_argument("--case", default="", help="only cases whose key contains this text")
    parser.add_argument("--main", action="store_true", help="one or a few cases of each kind")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{_QUICK_SAMPLES} samples and {_QUICK_BUDGET} s of sampling a case",
    )
    parser.add_argument("--tiny", action="store_true", help="a few hundred elements: does it work?")
    parser.add_argument("--samples", type=int, help="default: 60")
    parser.add_argument("--budget", type=float, help="seconds of sampling a case; default: 2")
    parser.add_argument("--json", type=Path, help="every figure; resumed if it exists")
    parser.add_argument("--markdown", type=Path, help="the printed report, as a file")
    parser.add_argument(
        "--results", type=Path, help="a folder for JSON, Markdown and plots (benchmarks/results/x)"
    )
    parser.add_argument(
        "--compare", type=Path, help="JSON of an earlier run: name what got slower beyond noise"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


if __name__ == "__main__":
    assert fuser  # imported first, so that a build that does not fit says so before any work
    sys.exit(main())
