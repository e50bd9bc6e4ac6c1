"""python -m benchmarks: run the families, print their tables and a summary, keep all times as JSON.

The JSON file is written after each case; a second run with the same file continues after the last
finished case. A contender that fails, is wrong or is not installed is named in the tables; the run
continues without it.

    python -m benchmarks --results benchmarks/results/h200      everything, tables and plots
    benchmarks/full_table.sh benchmarks/results/h200            everything, in parallel on all GPUs
    python -m benchmarks --compare benchmarks/results/h200/results.json   cases slower than then

On CPUs, for tensors in L2, in L3 and in memory, by the CPU target and by the emulation of a GPU:

    FUSER_HOST_ARCH=0 python -m benchmarks --device cpu --families tables --main --threads 2 \\
        --contenders eager,compile,fuser --tensor-bytes 262144
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import fuser
from benchmarks import compare, contenders, host, plots, precompile
from benchmarks import results as stored
from benchmarks.case import Case, Row
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
_QUICK_SAMPLES, _QUICK_BUDGET = 20, 0.25  # samples per case; seconds
_ASKED_FOR = ("autotune", "fuser_compile")  # run only on request: they compile for minutes
_ALWAYS_TIMED = 4  # approximate contenders per case, without its peers


def main(arguments: list[str] | None = None) -> int:
    """Return 1 if fuser failed or was wrong in a case, or is slower than in --compare."""
    options = _parser().parse_args(arguments)
    older = stored.read(options.compare, "--compare") if options.compare else None
    if options.results:
        options.results.mkdir(parents=True, exist_ok=True)
        options.json = options.json or options.results / "results.json"
        options.markdown = options.markdown or options.results / "results.md"
    started = time.perf_counter()
    if options.merge:
        results = stored.merge(options.merge)
        stored.Keeper(results, options.json)()
    else:
        versions, missing = contenders.available()
        setting = _setting(options, missing)
        if options.threads:
            torch.set_num_threads(options.threads)  # CPU kernels run on these threads too
        if options.warm:
            return _warm(options, setting)
        results = _run(options, setting, versions, started + options.limit)
    text = markdown(results, tuple(results["environment"]["contenders"].split("+")))
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


def _run(
    options: argparse.Namespace, setting: Setting, versions: Mapping[str, str], end: float
) -> stored.Results:
    """Measure the cases missing in the file; return old and new results. No case starts after
    `end`, in seconds of time.perf_counter()."""
    results, anew = stored.start(options.json, setting, versions)
    if anew:
        print(f"{options.json} is of another environment: starting anew", file=sys.stderr)
    for name, reason in setting.missing.items():
        if name in setting.contenders:
            results["missing"][name] = reason
            print(f"{name} could not be imported: {reason}", file=sys.stderr, flush=True)
    keep = stored.Keeper(results, options.json)
    if setting.device.type == "cuda" and "method" not in results:
        results["method"] = method_check(setting)
    families = _families(options)
    _run_tables(results, setting, _cases(options, families, results["families"]), keep, end)
    times = results.setdefault("host", {})
    if "host" in families:
        _once(times, "calls", keep, lambda: host.call_times(setting, **_fewer(options.quick)))
        _once(times, "new_shape", keep, lambda: host.new_shape_times(setting))
        _once(times, "first_call", keep, lambda: host.first_call_times(setting))
        _once(times, "tensors", keep, lambda: host.tensor_times(setting))
        _once(times, "threads", keep, lambda: host.thread_times(setting))
    if "compile" in families:
        _once(times, "compile", keep, lambda: host.compile_times(setting, options.main))
    return results


def _warm(options: argparse.Namespace, setting: Setting) -> int:
    """Fill the disk caches of the contenders that have one; print the compiled cases by
    contender."""
    cases = [
        (family, case) for family, some in _cases(options, _families(options), {}) for case in some
    ]
    importable = [name for name in setting.contenders if name not in setting.missing]
    todo = precompile.tasks(cases, importable, options.tiny)
    if options.compiled and options.compiled.exists():  # written by an earlier, shorter run
        earlier = precompile.compiled(options.compiled)
        todo = [task for task in todo if (task.contender, task.key) not in earlier]
    done = precompile.fill(todo, setting.device, options.warm, options.limit)
    if options.compiled:
        precompile.keep(done, options.compiled)
    print(precompile.summary(todo, done))
    return 0


def _fewer(quick: bool) -> dict[str, int]:
    return {"repeats": 5, "calls": 500} if quick else {}


def _once(times: dict[str, Any], name: str, keep: stored.Keeper, run: Callable[[], Any]) -> None:
    """Run the measurement `name` unless the file has its result."""
    if name not in times:
        print(f"{name} ...", file=sys.stderr, flush=True)
        times[name] = run()
        keep()


def _families(options: argparse.Namespace) -> list[str]:
    """Families selected on the command line. With --part: a fraction of them that takes about as
    long as every other fraction."""
    tables = options.families == "tables"
    families = list(TABLES) if tables else _chosen(options.families, FAMILIES)
    if not options.part:
        return families
    number, parts = options.part
    loads = [0] * parts
    mine = []

    def load(family: str) -> int:
        cases = [row.case() for row in TABLES.get(family, ())]
        return sum(_ALWAYS_TIMED + len(case.peers) for case in cases)

    for family in sorted(families, key=load, reverse=True):
        lightest = loads.index(min(loads))
        loads[lightest] += load(family)
        if lightest == number - 1:
            mine.append(family)
    return [family for family in families if family in mine]


def _cases(
    options: argparse.Namespace, families: list[str], done: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, list[Case]]]:
    """Selected cases without a record, by family. The main cases of all families come first, so
    that an interrupted run has measured some cases of each family."""
    taken = {key for records in done.values() for key in records}
    groups = []
    for main in (True, False):
        for family in families:
            cases = []
            for row in TABLES.get(family, ()):
                case = _sized(row, options)
                if row.main == main and options.case in case.key and case.key not in taken:
                    cases.append(case)
                    taken.add(case.key)
            if cases and (main or not options.main):
                groups.append((family, cases))
    return groups


def _sized(row: Row, options: argparse.Namespace) -> Case:
    if options.tiny:
        return row.small()
    return row.fitted(options.tensor_bytes) if options.tensor_bytes else row.case()


def _run_tables(
    results: stored.Results,
    setting: Setting,
    todo: list[tuple[str, list[Case]]],
    keep: stored.Keeper,
    end: float,
) -> None:
    count = sum(len(cases) for _, cases in todo)
    print(f"{count} cases to run", file=sys.stderr, flush=True)
    # Disable the disk cache: a kernel loaded from disk has no compile time.
    before = _core.get_option("FUSER_CACHE")
    _core.set_option("FUSER_CACHE", "0")
    try:
        with watch_compilation() as compile_ms:
            if "fuser" in setting.contenders:
                start = time.perf_counter()
                kernels = build([case for _, cases in todo for case in cases], setting)
                seconds = time.perf_counter() - start
                print(f"{kernels} kernels built in {seconds:.1f} s", file=sys.stderr, flush=True)
                if setting.device.type == "cuda":
                    major, minor = torch.cuda.get_device_capability(setting.device)
                    time_alone(compile_ms, 10 * major + minor)
            for family, cases in todo:
                start = time.perf_counter()
                ran = _run_family(results, family, cases, setting, compile_ms, keep, end)
                seconds = time.perf_counter() - start
                print(f"{family}: {ran} cases, {seconds:.1f} s", file=sys.stderr, flush=True)
    finally:
        _core.set_option("FUSER_CACHE", before)


def _run_family(
    results: dict[str, Any],
    family: str,
    cases: list[Case],
    setting: Setting,
    compile_ms: Mapping[str, float],
    keep: stored.Keeper,
    end: float,
) -> int:
    """Return the number of cases that ran before `end`."""
    done, failures = results["families"].setdefault(family, {}), results["failures"]
    print(f"{family}\n" + table(case_header(setting.contenders), []), file=sys.stderr, flush=True)
    for number, case in enumerate(cases):
        if time.perf_counter() > end:
            return number
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
    return len(cases)


def _setting(options: argparse.Namespace, missing: Mapping[str, str]) -> Setting:
    if options.contenders:
        contenders = _chosen(options.contenders, CONTENDERS)
    else:
        contenders = [n for n in CONTENDERS if options.all or n not in _ASKED_FOR]
    read = options.compiled and options.compiled.exists() and not options.warm
    compiled = precompile.compiled(options.compiled) if read else None
    samples, budget = (_QUICK_SAMPLES, _QUICK_BUDGET) if options.quick else (60, 2.0)
    return Setting(
        device=torch.device(options.device),
        samples=options.samples or samples,
        contenders=tuple(contenders),
        budget=options.budget or budget,
        missing=missing,
        compiled=compiled,
    )


def _chosen(text: str, known: tuple[str, ...]) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            raise SystemExit(f"unknown {name!r}; expected some of {','.join(known)}")
    return names


def _part(text: str) -> tuple[int, int]:
    number, parts = (int(n) for n in text.split("/"))
    if not 1 <= number <= parts:
        raise argparse.ArgumentTypeError(f"{text}: expected I/N with 1 <= I <= N")
    return number, parts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--families",
        default=",".join(FAMILIES),
        help="tables: those of cases, without times of the host; default: %(default)s",
    )
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
    parser.add_argument(
        "--tensor-bytes",
        type=int,
        metavar="N",
        help="shorten the leading dim of each case until its tensors have N bytes, to fit a cache",
    )
    parser.add_argument(
        "--threads", type=int, help="threads of torch on the CPU, which run fuser's CPU kernels too"
    )
    parser.add_argument("--samples", type=int, help="default: 60")
    parser.add_argument("--budget", type=float, help="seconds of sampling a case; default: 2")
    parser.add_argument(
        "--limit", type=float, default=math.inf, help="seconds after which nothing new is started"
    )
    parser.add_argument(
        "--part", type=_part, help="I/N: the I-th of N sets of families that take about as long"
    )
    parser.add_argument(
        "--merge", type=Path, nargs="+", help="JSON of parts: report them as one run, run nothing"
    )
    parser.add_argument(
        "--warm",
        type=int,
        metavar="N",
        help="time nothing; compile peers in N processes a GPU, for a run to find in the caches",
    )
    parser.add_argument(
        "--compiled",
        type=Path,
        help="what --warm compiled, written by it; a run leaves out what is too slow to compile "
        "and is not there",
    )
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
    assert fuser  # imported first, so that an unusable build fails before any measurement
    sys.exit(main())
