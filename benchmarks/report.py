"""Results as Markdown: tables of cases, of families, of targets, of host times."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from benchmarks import targets
from benchmarks.case import COMPILE_MS, PEER
from benchmarks.harness import NOT_COMPILED, NOT_INSTALLED
from benchmarks.ranking import (
    Record,
    Records,
    asked,
    best_peer,
    copy_share,
    mean,
    misses,
    name_of,
    shares,
)

_NOT_TRIED = {NOT_INSTALLED: "missing", NOT_COMPILED: "not compiled"}


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def case_header(contenders: tuple[str, ...]) -> list[str]:
    return [
        *("case", "dtype", "shape", "MB", "copy us", "read us"),
        *(f"{n} us" for n in contenders),
        *("of copy", "of read", "of best peer", "compile ms"),
        *("registers", "local bytes", "kernels", "asked", "missed"),
    ]


def case_row(record: Record, contenders: tuple[str, ...], records: Records) -> list[str]:
    """Microseconds of each contender and its speed relative to a copy of equally many bytes; then
    fuser's relative speeds and kernels. `records`: all records of the family."""
    share = shares(record, records)
    kernels = record.get("kernels", [])
    compile_ms = [k["compile_ms"] for k in kernels if k["compile_ms"]]
    return [
        record["case"],
        record["dtype"],
        "x".join(map(str, record["shape"])),
        f"{record['bytes'] / 1e6:.0f}",
        f"{record['copy_us']:.1f}",
        f"{record['probe_us']:.1f}" if "probe_us" in record else "-",
        *(_cell(record, name) for name in contenders),
        *(_percent(share.get(name)) for name in ("copy", "probe", "peer")),
        "+".join(f"{ms:.0f}" for ms in compile_ms) or "-",
        "/".join(str(k["registers"]) for k in kernels) or "-",
        "/".join(str(k["local_bytes"]) for k in kernels) or "-",
        str(len(kernels)) if kernels else "-",
        asked(record["goal"]),
        "; ".join(misses(record, records)) or ("-" if share else "not timed"),
    ]


def _cell(record: Record, name: str) -> str:
    us = record["us"]
    if name in us:
        mark = " ~" if name in record["inexact"] else " wrong" if name in record["wrong"] else ""
        return f"{us[name]:.1f} ({100 * record['copy_us'] / us[name]:.0f}%){mark}"
    reason = record["failed"].get(name)
    if reason is None:
        return "-"
    return _NOT_TRIED.get(reason, "failed")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}%"


def family_row(name: str, records: Records) -> list[str]:
    """One line per family: its targets, and the distance from them."""
    timed = [r for r in records.values() if "fuser" in r["us"]]
    missed = [r for r in timed if misses(r, records)]
    compile_ms = _compile_ms(timed)
    slow = compile_ms is not None and compile_ms > COMPILE_MS
    return [
        name,
        f"{len(timed)} of {len(records)}",
        "; ".join(sorted({asked(r["goal"]) for r in records.values()} - {"-"})) or "-",
        f"{len(timed) - len(missed)}" + (f", MISSED {len(missed)}" if missed else ""),
        *(_extent([shares(r, records).get(kind) for r in timed]) for kind in _KINDS),
        "-" if compile_ms is None else f"{compile_ms:.0f}" + (" MISSED" if slow else ""),
    ]


_KINDS = ("copy", "probe", "peer", "aligned")


def family_header() -> list[str]:
    return [
        *("family", "timed", "asked", "met"),
        *("of copy, mean (least)", "of read", "of best peer", "odd of aligned", "compile ms"),
    ]


def _compile_ms(records: Iterable[Record]) -> float | None:
    """The median compile time over the compiled kernels."""
    times = [k["compile_ms"] for r in records for k in r.get("kernels", []) if k["compile_ms"]]
    return statistics.median(times) if times else None


def _extent(values: Iterable[float | None]) -> str:
    known = [v for v in values if v is not None]
    return f"{100 * mean(known):.1f}% ({100 * min(known):.0f}%)" if known else "-"


def summary(records: Records) -> str:
    """Statistics of a family, and its misses by name."""
    done = [r for r in records.values() if "fuser" in r["us"]]
    if not done:
        return "- fuser: no case was timed"
    speeds = sorted((r["copy_us"] / r["us"]["fuser"], name_of(r)) for r in done)
    lines = [
        f"- fuser: geometric mean {100 * mean(s for s, _ in speeds):.1f}% of a copy, "
        f"least {100 * speeds[0][0]:.1f}% ({speeds[0][1]}), "
        f"{sum(s >= 0.96 for s, _ in speeds)} of {len(speeds)} at 96% or more"
    ]
    for other in ("eager", "compile", "autotune", "quack", "liger", "fuser_compile"):
        ratios = sorted(
            (r["us"][other] / r["us"]["fuser"], name_of(r)) for r in done if other in r["us"]
        )
        if ratios:
            lines.append(
                f"- against {other}: geometric mean {mean(s for s, _ in ratios):.2f}x, "
                f"least {ratios[0][0]:.2f}x ({ratios[0][1]})"
            )
    for record in done:
        found = misses(record, records)
        if found:
            lines.append(f"- MISSED {name_of(record)}: {'; '.join(found)}; {_wanted(record)}")
    return "\n".join(lines)


def _wanted(record: Record) -> str:
    goal = asked(record["goal"])
    return "asked " + ("" if goal == "-" else goal + ", ") + f"{100 * PEER:.0f}% of the best peer"


def not_timed(records: Records) -> list[str]:
    """One line per failed or wrong contender of a case except fuser, and one for the inexact
    contenders."""
    lines = []
    for record in records.values():
        for name, reason in record["failed"].items():
            if reason not in _NOT_TRIED and name != "fuser":  # reported elsewhere
                lines.append(f"- {name_of(record)}: {name}: {reason}")
        for name, share in record["wrong"].items():
            lines.append(
                f"- {name_of(record)}: {name} is off by {share:.3g} times the tolerance; timed, "
                "but no peer to compare with"
            )
    inexact = sorted({name for record in records.values() for name in record["inexact"]})
    if inexact:
        lines.append(
            f"- ~: right as a whole, but elements are off by more than the tolerance that ours is "
            f"held to ({', '.join(inexact)}); compared with all the same"
        )
    return lines


def host_tables(host: Record) -> str:
    """Tables of calls, new shapes and compilation."""
    parts = []
    if "calls" in host:
        names = list(host["calls"][0]["saturated_us"])
        rows = [
            [
                r["case"],
                *(f"{r['saturated_us'][n]:.1f} / {r['batch_us'][n]:.1f}" for n in names),
            ]
            for r in host["calls"]
        ]
        parts.append("Microseconds a call, saturated / in batches of 100:\n")
        parts.append(table(["float32, rows of 64", *names], rows))
    if "new_shape" in host:
        new = host["new_shape"]
        parts.append(
            "\nMicroseconds of a single call after the queue was drained and inputs were made "
            f"({new['kernels_compiled_on_the_way']} kernels compiled on the way):\n"
        )
        names = list(new["median_us"])
        rows = [
            [kind.removesuffix("_us"), *(f"{new[kind][n]:.1f}" for n in names)]
            for kind in ("median_us", "largest_us")
        ]
        parts.append(table(["", *names], rows))
    if "first_call" in host:
        first = host["first_call"]
        parts.append(
            f"\nA new process: import of fuser behind torch {first['import_ms']:.0f} ms; first "
            f"call of one kernel {first['cold_ms']:.0f} ms cold, {first['warm_ms']:.0f} ms from "
            "disk"
        )
    if "tensors" in host:
        t = host["tensors"]
        parts.append(
            f"\nA step of Adam is enqueued in {t['one_us']:.1f} us over one parameter, in "
            f"{t['many_us']:.0f} us over {t['tensors'] // 7} ({t['many_us'] / t['tensors']:.2f} us "
            "a tensor)"
        )
    if "threads" in host:
        t = host["threads"]
        parts.append(
            "\nThousands of calls a second on mixed shapes; python: a call without tensors, which "
            "drops one: torch gives up CPython's lock there:\n"
        )
        rows = [
            [
                name,
                f"{alone / 1e3:.0f}",
                f"{t['together'][name] / 1e3:.0f}",
                f"{t['together'][name] / alone:.2f}",
            ]
            for name, alone in t["alone"].items()
        ]
        parts.append(table(["", "one thread", f"{t['threads']} threads", "ratio"], rows))
    if "compile" in host:
        c = host["compile"]
        parts.append(
            f"\nCold compilation over {len(c['rows'])} cases: median {c['median_kernel_ms']:.0f} "
            f"ms a kernel, largest {c['largest_kernel_ms']:.0f} ms; first call, median "
            f"{c['median_first_call_ms']:.0f} ms"
        )
    return "\n".join(parts)


def _goals(families: Mapping[str, Records]) -> str:
    """Every target with its measured value, the error of the cost model, every miss with its
    limiting factor."""
    marks = {True: "met", False: "MISSED", None: "-"}
    rows = ([aim.asked, aim.found, marks[aim.met]] for aim in targets.aims(families))
    parts = [table(["asked", "found", ""], rows)]
    if error := targets.prediction_error(families):
        parts.append(
            f"\nThe cost model is off by {100 * error.median:.0f}% in the median of {error.cases} "
            f"cases, by less than {100 * error.most:.0f}% in nine of ten."
        )
    missed = [
        [
            *(name_of(record), f"{record['us']['fuser']:.1f}", f"{100 * copy_share(record):.0f}%"),
            *(_peer(record), "; ".join(found), targets.limit(record)),
        ]
        for records in families.values()
        for record in records.values()
        if (found := misses(record, records))
    ]
    if missed:
        parts.append(f"\n{len(missed)} cases miss a goal:\n")
        header = ["case", "us", "of copy", "of best peer", "missed", "limited by"]
        parts.append(table(header, missed))
    return "\n".join(parts)


def _peer(record: Record) -> str:
    peer = best_peer(record)
    return f"{_percent(record['us'][peer] / record['us']['fuser'])} of {peer}" if peer else "-"


def markdown(results: Record, contenders: tuple[str, ...]) -> str:
    """The complete report."""
    environment = results["environment"]
    parts = ["# Benchmarks\n", ", ".join(f"{k} {v}" for k, v in environment.items())]
    for name, reason in results.get("missing", {}).items():
        parts.append(f"\n{name} could not be imported: {reason}")
    if method := results.get("method"):
        parts.append(
            f"\nMethod: a copy runs at {method['copy_GBps']:.0f} GB/s, against itself "
            f"{100 * method['again_over_once']:.1f}%; events around nothing read "
            f"{method['empty_us']:.1f} us."
        )
    families = {name: records for name, records in results["families"].items() if records}
    for name, records in families.items():
        parts.append(
            f"\n## {name}: median time, and speed as a share of a copy of the same bytes\n"
        )
        rows = (case_row(r, contenders, records) for r in records.values())
        parts.append(table(case_header(contenders), rows))
        parts.append("\n" + summary(records))
        parts += not_timed(records)
    if families:
        parts.append(
            f"\n## Summary (of the best peer {100 * PEER:.0f}% is asked everywhere, of the "
            f"compiler {COMPILE_MS:.0f} ms a kernel in the median)\n"
        )
        rows = (family_row(name, records) for name, records in families.items())
        parts.append(table(family_header(), rows))
        parts.append("\n## What is asked of the table\n")
        parts.append(_goals(families))
    if failures := results.get("failures"):
        parts.append("\n## Failures\n")
        parts += [f"- {name}: {message}" for name, message in failures.items()]
    if host := results.get("host"):
        parts.append("\n## Host\n")
        parts.append(host_tables(host))
    return "\n".join(parts) + "\n"
