"""The page: one HTML file without a network, from what explain() finds and the kernels compiled."""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from html import escape
from pathlib import Path
from typing import Any

from fuser.cache import kernel_text
from fuser.definition import FusionDefinition
from fuser.explain import Explanation, Step, arguments_of, explain, shortened_plan
from fuser.report.graph import graph
from fuser.report.kernels import MachineCode, machine_code
from fuser.report.plots import roofline, timeline
from fuser.report.source import SourceLine, source_lines
from fuser.tables import duration, size

_MOST_REGIONS = 24  # of a model that get a section each; equal ones count once


def report(
    target: FusionDefinition | Callable[..., Any],
    *inputs: Any,
    path: str | Path = "report.html",
    device: Any = None,
    measured: bool = True,
    **named: Any,
) -> Path:
    """Writes what became of `target` on these inputs into one HTML file, and returns its path.

        fuser.report(fd, x, bias)
        fuser.report(model, batch, path="model.html")

    It shows the graph with the steps that it became, each kernel with its scheduler, plan, launch,
    bytes, predicted and measured times, a roofline, the reasons for each cut, CUDA C with the lines
    of the program beside it, what the machine code takes, and the timeline of one call. `target` is
    a definition, or a module or function of tensors, which is run by torch.compile(target,
    backend="fuser"). Builds the kernels; with `measured` it runs them a few times, on copies of
    inputs that are written in place. The file loads nothing from elsewhere.

    Raises what running does for inputs that do not fit.
    """
    runs: list[tuple[FusionDefinition, list[Any], dict[int, str]]]
    if isinstance(target, FusionDefinition):
        runs, notes = [(target, arguments_of(inputs), {})], ""
        title = _title_of(target)
    else:
        named |= {} if device is None else {"device": device}
        found = explain(target, *inputs, **named)
        runs, notes = _different(found.runs), found.text()
        title = getattr(target, "__name__", type(target).__name__)
    sections = [
        _section(fd, given, places, device, measured, number if notes else None)
        for number, (fd, given, places) in enumerate(runs[:_MOST_REGIONS])
    ]
    body = [f"<h1>{escape(title)}</h1>"]
    if notes:
        body.append(_model(notes, runs))
    text = _PAGE.format(title=escape(title), style=_style(), body="".join([*body, *sections]))
    place = Path(path)
    place.write_text(text, encoding="utf-8")
    return place


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fuser: {title}</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _style() -> str:
    return (importlib.resources.files("fuser.report") / "style.css").read_text("utf-8")


def _title_of(fd: FusionDefinition) -> str:
    records = fd.fusion.records()
    places = [records["tensors"][tensor]["location"] for tensor, _ in records["outputs"]]
    return f"Definition at {Path(places[-1]).name}" if places[-1] else "Definition"


def _different(runs: Sequence[Any]) -> list[tuple[FusionDefinition, list[Any], dict[int, str]]]:
    """The runs without those that have the same definition and sizes as an earlier one."""
    seen: dict[Any, Any] = {}
    for run in runs:
        shapes = tuple(tuple(getattr(value, "shape", ())) for value in run.inputs)
        key = (run.fd.fusion.structure(), shapes)
        seen.setdefault(key, (run.fd, run.inputs, run.places))
    return list(seen.values())


def _model(notes: str, runs: Sequence[Any]) -> str:
    counted = notes.split("\n\nregion 0")[0]
    more = f" The first {_MOST_REGIONS} are shown." if len(runs) > _MOST_REGIONS else ""
    links = "".join(f'<a href="#r{i}">region {i}</a>' for i in range(min(len(runs), _MOST_REGIONS)))
    return (
        f"<p>{len(runs)} different regions became definitions.{more}</p><nav>{links}</nav>"
        f"<details><summary>what was fused, and what was left to torch</summary>"
        f"<pre>{escape(counted)}</pre></details>"
    )


# ---- one definition


def _section(
    fd: FusionDefinition,
    inputs: list[Any],
    places: Mapping[int, str],
    device: Any,
    measured: bool,
    number: int | None,
) -> str:
    found = explain(fd, inputs, device=device, measured=measured)
    kernels = fd.fec.executor.kernels(inputs, device)
    records = fd.fusion.records()["tensors"]
    from fuser.interpreter import tensor_sizes  # imports torch, which `import fuser` does not

    shapes = tensor_sizes(fd, inputs)
    with ThreadPoolExecutor() as pool:  # NVRTC releases the interpreter lock
        code = list(pool.map(lambda kernel: machine_code(kernel, found.machine.arch), kernels))
    prefix = "" if number is None else f"r{number}-"
    parts = [_facts(found), _links(prefix, found)]
    picture = graph(records, found, shapes)
    picture = f'<p class="soft">{_LEGEND}</p><div class="wide">{picture}</div>'
    parts.append(_titled(prefix, "graph", "Graph and steps", picture))
    parts.append(_titled(prefix, "steps", "Steps", _steps_table(found, prefix)))
    parts.append(_titled(prefix, "cuts", "What is not one kernel, and why", _cuts(found)))
    parts.append(_titled(prefix, "roofline", "Roofline", _roofline(found)))
    if found.measured:
        picture = timeline(found.measured.timeline)
        about = "<p class=soft>From the call to its results; the median one of a few calls.</p>"
        text = f'{about}<div class="wide">{picture}</div>'
        parts.append(_titled(prefix, "timeline", "One call in time", text))
    own = iter(zip(kernels, code, strict=True))
    details = []
    for i, step in enumerate(found.steps):
        kernel = next(own, None) if step.kind == "kernel" else None
        lines = source_lines(records, step.computes, places)
        details.append(_step(step, i, kernel, lines, found, prefix))
    parts.append(_titled(prefix, "kernels", "Each step in detail", "".join(details)))
    definition = f"<details><summary>as Python</summary><pre>{escape(repr(fd))}</pre></details>"
    parts.append(_titled(prefix, "definition", "The definition", definition))
    text = "".join(parts)
    if number is None:
        return text
    # The target of the link is inside, so that following it opens the region.
    opened = " open" if number == 0 else ""
    title = f"<h2>Region {number}</h2> {escape(_summary(found))}"
    return f'<details{opened}><summary>{title}</summary><div id="r{number}">{text}</div></details>'


_LEGEND = (
    "A frame is a step. Round: in memory; dashed: no work of its own, being coordinates or the "
    "same as another op."
)


def _summary(found: Explanation) -> str:
    names = ", ".join(step.name for step in found.steps[:3])
    return f"{names}{' …' if len(found.steps) > 3 else ''}"


_SECTIONS = ("graph", "steps", "cuts", "roofline", "timeline", "kernels", "definition")


def _titled(prefix: str, name: str, title: str, text: str) -> str:
    return f'<section id="{prefix}{name}"><h2>{title}</h2>{text}</section>'


def _links(prefix: str, found: Explanation) -> str:
    names = [name for name in _SECTIONS if name != "timeline" or found.measured]
    links = "".join(f'<a href="#{prefix}{name}">{name}</a>' for name in names)
    return f"<nav>{links}</nav>"


def _facts(found: Explanation) -> str:
    ratio = f"{found.bytes / found.ideal_bytes:.2f}x" if found.ideal_bytes else "-"
    values = [
        (str(len(found.steps)), "steps"),
        (size(found.bytes), "moved"),
        (ratio, f"the ideal, {size(found.ideal_bytes)}"),
        (duration(found.predicted_us), f"predicted, {found.machine.name}"),
    ]
    if found.measured:
        where = "its GPU" if found.machine.present else "the CPU"
        values.append((duration(found.measured.call_us), f"a call, on {where}"))
    boxes = (f"<div><b>{escape(v)}</b><span>{escape(what)}</span></div>" for v, what in values)
    return f'<div class="facts">{"".join(boxes)}</div>'


def _steps_table(found: Explanation, prefix: str) -> str:
    header = ["", "step", "reads", "writes", "moved", "predicted", "measured", "of a copy"]
    numbers = {"moved", "predicted", "measured", "of a copy"}
    cells = "".join(f"<th{' class=number' if h in numbers else ''}>{h}</th>" for h in header)
    rows = []
    for i, step in enumerate(found.steps):
        link = f'<a class="mono" href="#{prefix}step{i}">{escape(step.name)}</a>'
        uses = [", ".join(f"T{use.tensor}" for use in u) for u in (step.reads, step.writes)]
        figures = [size(step.bytes), duration(step.predicted_us), duration(step.measured_us)]
        row = [str(i), link, *uses]
        rows.append(
            "<tr>"
            + "".join(f"<td>{cell}</td>" for cell in row)
            + "".join(f"<td class=number>{f}</td>" for f in [*figures, _of_copy(found, step)])
            + "</tr>"
        )
    return f'<div class="wide"><table><tr>{cells}</tr>{"".join(rows)}</table></div>'


def _of_copy(found: Explanation, step: Step) -> str:
    """Bytes a second as a share of a copy's; only of the machine that was measured."""
    if not (step.measured_us and found.machine.present):
        return "-"
    rate = step.bytes / (step.measured_us * 1e-6)
    return f"{100 * rate / found.machine.copy_bandwidth:.0f}%"


def _cuts(found: Explanation) -> str:
    if not found.apart:
        return '<p class="good">Nothing: all that can be one kernel is one.</p>'
    rows = "".join(f"<li><code>T{t}</code> {escape(why)}</li>" for t, why in found.apart)
    return f"<ul>{rows}</ul>"


def _roofline(found: Explanation) -> str:
    kernels = [step for step in found.steps if step.kind == "kernel"]
    discs = "discs: measured" if found.machine.present else "no times of a GPU here"
    about = (
        f"{found.machine.name}: a copy moves {found.machine.copy_bandwidth / 1e9:.0f} GB/s. "
        f"Rings: predicted from launch, bytes and issue slots; {discs}."
    )
    picture = roofline(found.machine, kernels)
    return f'<p class="soft">{escape(about)}</p><div class="wide">{picture}</div>'


# ---- one step


def _step(
    step: Step,
    number: int,
    kernel: tuple[Any, MachineCode] | None,
    lines: Sequence[SourceLine],
    found: Explanation,
    prefix: str,
) -> str:
    parts = [f"<h3>{number}. {escape(step.kind)} <code>{escape(step.name)}</code></h3>"]
    if step.plan:
        plan = escape(shortened_plan(step.plan))
        parts.append(f'<p class="plan mono" title="{escape(step.plan)}">{plan}</p>')
    parts.append(_uses(step))
    if kernel:
        info, code = kernel
        parts += [_launch(info, code), _code_beside_source(info, lines), _texts(info, code)]
    elif lines:
        parts.append(_source(lines))
    return f'<div class="step" id="{prefix}step{number}">{"".join(parts)}</div>'


def _uses(step: Step) -> str:
    def names(uses: Sequence[Any]) -> str:
        return ", ".join(f"T{use.tensor} ({size(use.bytes)})" for use in uses) or "nothing"

    return f'<p class="soft">reads {names(step.reads)}; writes {names(step.writes)}</p>'


def _launch(kernel: Any, code: MachineCode) -> str:
    values = [
        (f"{kernel.grid} x {kernel.threads}", "blocks x threads"),
        (size(kernel.shared_bytes + code.shared_bytes), "shared memory a block"),
    ]
    if kernel.cluster > 1:
        values.append((str(kernel.cluster), "blocks of a cluster"))
    if code.missing:
        note = f'<p class="warn">No machine code: {escape(code.missing)}</p>'
    else:
        note = ""
        values += [
            (str(code.registers or kernel.registers), f"registers a thread, sm_{code.arch}"),
            (size(code.local_bytes or kernel.local_bytes), "spilled a thread"),
            (size(code.code_bytes), "machine code"),
        ]
    if kernel.build_seconds:
        values.append((duration(kernel.build_seconds * 1e6), "to build"))
    boxes = (f"<div><b>{escape(v)}</b><span>{escape(what)}</span></div>" for v, what in values)
    mix = ", ".join(f"{count} {name}" for name, count in code.instructions.items())
    mixed = f'<p class="soft">Instructions (PTX): {escape(mix)}</p>' if mix else ""
    return f'<div class="facts">{"".join(boxes)}</div>{note}{mixed}'


def _code_beside_source(kernel: Any, lines: Sequence[SourceLine]) -> str:
    text = escape(kernel_text(kernel.text, intrinsic_code=False))
    return (
        "<details open><summary>CUDA C beside the program</summary>"
        f'<div class="beside"><div><h4>your lines</h4>{_source(lines)}</div>'
        f"<div><h4>the kernel, helpers left out</h4><pre>{text}</pre></div></div></details>"
    )


def _source(lines: Sequence[SourceLine]) -> str:
    items = []
    for line in lines:
        ops = ", ".join(f"{tensor} {op}" for tensor, op in line.ops)
        code = escape(line.code.strip()) or "(the file is not at hand)"
        place = escape(f"{line.file}:{line.number}")
        items.append(
            f'<li><span class="soft mono">{place}</span><br><code>{code}</code><br>'
            f'<span class="soft">{escape(ops)}</span></li>'
        )
    if not items:
        return '<p class="soft">The ops of this step have no line.</p>'
    return f'<ul class="source">{"".join(items)}</ul>'


def _texts(kernel: Any, code: MachineCode) -> str:
    found = [("schedule", kernel.schedule), ("Kernel IR", kernel.ir), ("PTX", code.ptx)]
    found.append((f"machine code (SASS) for sm_{code.arch}", code.sass))
    return "".join(
        f"<details><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>"
        for name, text in found
        if text
    )
