"""Results as Markdown tables."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

Record = dict[str, Any]


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def case_row(record: Record, contenders: tuple[str, ...]) -> list[str]:
    """Microseconds of each contender, with its speed as a share of a copy of the same bytes."""
    us, copy = record["us"], record["copy_us"]
    cells = [f"{us[n]:.1f} ({100 * copy / us[n]:.0f}%)" if n in us else "-" for n in contenders]
    both = "compile" in us and "fuser" in us
    return [
        record["case"],
        record["dtype"],
        "x".join(map(str, record["shape"])),
        f"{record['bytes'] / 1e6:.0f}",
        f"{copy:.1f}",
        *cells,
        f"{us['compile'] / us['fuser']:.2f}" if both else "-",
    ]


def case_header(contenders: tuple[str, ...]) -> list[str]:
    return ["case", "dtype", "shape", "MB", "copy us", *(f"{n} us" for n in contenders), "speed-up"]


def summary(records: list[Record]) -> str:
    """The figures of the whole family."""
    done = [r for r in records if "fuser" in r["us"]]
    if not done:
        return ""
    shares = sorted((r["copy_us"] / r["us"]["fuser"], _name(r)) for r in done)
    lines = [
        f"- fuser: geometric mean {100 * _mean(s for s, _ in shares):.1f}% of a copy, "
        f"least {100 * shares[0][0]:.1f}% ({shares[0][1]}), "
        f"{sum(s >= 0.96 for s, _ in shares)} of {len(shares)} at 96% or more"
    ]
    for other in ("eager", "compile"):
        ratios = sorted(
            (r["us"][other] / r["us"]["fuser"], _name(r)) for r in done if other in r["us"]
        )
        if ratios:
            lines.append(
                f"- against {other}: geometric mean {_mean(s for s, _ in ratios):.2f}x, "
                f"least {ratios[0][0]:.2f}x ({ratios[0][1]})"
            )
    return "\n".join(lines)


def host_tables(host: Record) -> str:
    """Calls, new shapes and compilation."""
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
        parts.append(table(["float32 64x64", *names], rows))
    if "new_shape" in host:
        new = host["new_shape"]
        parts.append(
            f"\nA new shape, kernel known: median {new['median_us']:.1f} us, largest "
            f"{new['largest_us']:.1f} us, {new['kernels_compiled_on_the_way']:.0f} kernels compiled"
        )
    if "compile" in host:
        c = host["compile"]
        parts.append(
            f"\nCold compilation over {len(c['rows'])} cases: median {c['median_kernel_ms']:.0f} "
            f"ms a kernel, largest {c['largest_kernel_ms']:.0f} ms; first call, median "
            f"{c['median_first_call_ms']:.0f} ms"
        )
    return "\n".join(parts)


def markdown(results: Record, contenders: tuple[str, ...]) -> str:
    """The whole report."""
    parts = ["# Benchmarks\n", ", ".join(f"{k} {v}" for k, v in results["environment"].items())]
    if method := results.get("method"):
        parts.append(
            f"\nMethod: a copy runs at {method['copy_GBps']:.0f} GB/s, against itself "
            f"{100 * method['again_over_once']:.1f}%; events around nothing read "
            f"{method['empty_us']:.1f} us."
        )
    if records := list(results.get("pointwise", {}).values()):
        parts.append(
            "\n## Pointwise: median time, and speed as a share of a copy of the same bytes\n"
        )
        parts.append(table(case_header(contenders), (case_row(r, contenders) for r in records)))
        parts.append("\n" + summary(records))
    if failures := results.get("failures"):
        parts.append("\n## Failures\n")
        parts += [f"- {name}: {message}" for name, message in failures.items()]
    if host := results.get("host"):
        parts.append("\n## Host\n")
        parts.append(host_tables(host))
    return "\n".join(parts) + "\n"


def _name(record: Record) -> str:
    return f"{record['case']} {record['dtype']} {'x'.join(map(str, record['shape']))}"


def _mean(values: Iterable[float]) -> float:
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs))
