"""The report page: a self-contained HTML file, from the results of explain() and compiled
kernels.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuser.cache import kernel_text
from fuser.definition import FusionDefinition
from fuser.inspect.explain import explain
from fuser.inspect.explain_definition import Explanation, Step, arguments_of, shortened_plan
from fuser.inspect.report.graph import graph
from fuser.inspect.report.kernels import MachineCode, machine_code
from fuser.inspect.report.plots import roofline, timeline
from fuser.inspect.report.source import SourceLine, source_lines
from fuser.inspect.text_table import duration, size

if TYPE_CHECKING:
    from fuser.adapters.report import Run

# Architecture of kernels that no CPU scheduler accepts (csrc/driver/target.cpp).
_EMULATED_ARCH = 80
_MOST_REGIONS = 24  # maximum regions of a model with a section; identical regions count once


def page(
    target: FusionDefinition | Callable[..., Any],
    inputs: Sequence[Any],
    device: Any,
    measured: bool,
    named: dict[str, Any],
) -> str:
    """The text of the file that fuser.report() writes."""
    if isinstance(target, FusionDefinition):
        title = _title_of(target)
        body = _section(_explained(target, arguments_of(inputs), {}, device, measured), "")
    else:
        named |= {} if device is None else {"device": device}
        model = explain(target, *inputs, **named)
        title = getattr(target, "__name__", type(target).__name__)
        runs = _different(model.runs)
        regions = [
            _explained(run.fd, run.inputs, run.places, device, measured)
            for run in runs[:_MOST_REGIONS]
        ]
        body = _model(model.counts(), len(runs), regions)
    body = f"<h1>{escape(title)}</h1>{body}"
    return _PAGE.format(title=escape(title), style=_style(), body=body)


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
    return (importlib.resources.files("fuser.inspect.report") / "style.css").read_text("utf-8")


def _title_of(fd: FusionDefinition) -> str:
    records = fd.fusion.records()
    places = [records["tensors"][tensor]["location"] for tensor, _ in records["outputs"]]
    return f"Definition at {Path(places[-1]).name}" if places[-1] else "Definition"


# ---- a model


def _different(runs: Sequence[Run]) -> list[Run]:
    """Drops runs with the definition and sizes of an earlier run."""
    seen: dict[Any, Run] = {}
    for run in runs:
        shapes = tuple(tuple(getattr(value, "shape", ())) for value in run.inputs)
        seen.setdefault((run.fd.fusion.structure(), shapes), run)
    return list(seen.values())


def _model(counts: str, different: int, regions: Sequence[_Region]) -> str:
    more = f" The first {len(regions)} are shown." if different > len(regions) else ""
    parts = [
        f"<p>{_counted(different, 'different region')} became definitions.{more}</p>",
        _regions_table(regions),
        "<details><summary>fused ops, and ops left to torch</summary>"
        f"<pre>{escape(counts)}</pre></details>",
    ]
    for number, region in enumerate(regions):
        # The link target is inside, so that following the link opens the region.
        opened = " open" if number == 0 else ""
        title = f"<h2>Region {number}</h2> {_breakable(_summary(region.found))}"
        text = _section(region, f"r{number}-")
        parts.append(
            f'<details{opened}><summary>{title}</summary><div id="r{number}">{text}</div></details>'
        )
    return "".join(parts)


def _regions_table(regions: Sequence[_Region]) -> str:
    rows = []
    for number, region in enumerate(regions):
        found = region.found
        measured = sum(found.measured.step_us) if found.measured else None
        rows.append(
            [
                f'<a href="#r{number}">region&nbsp;{number}</a>',
                f'<span class="mono">{_breakable(_summary(found))}</span>',
                duration(found.predicted_us),
                duration(measured),
                size(found.bytes),
                str(len(found.steps)),
            ]
        )
    return _table(["", "what", "predicted", "measured", "moved", "steps"], rows, texts=2)


def _summary(found: Explanation) -> str:
    names = ", ".join(step.name for step in found.steps[:3])
    return f"{names}{' …' if len(found.steps) > 3 else ''}"


# ---- one definition


@dataclass(frozen=True)
class _Region:
    """A definition with inputs, and the results of explain()."""

    fd: FusionDefinition
    inputs: list[Any]
    places: Mapping[int, str]  # user's line by tensor, if better known than by the tensor itself
    kernels: Sequence[Any]  # executor.kernels(): one per step that is a kernel
    found: Explanation


def _explained(
    fd: FusionDefinition,
    inputs: list[Any],
    places: Mapping[int, str],
    device: Any,
    measured: bool,
) -> _Region:
    found = explain(fd, inputs, device=device, measured=measured)
    return _Region(fd, inputs, places, fd.fec.executor.kernels(inputs, device), found)


def _section(region: _Region, prefix: str) -> str:
    """The section of one definition; `prefix` makes its anchors unique."""
    from fuser.debug.interpreter import tensor_sizes  # imports torch, which `import fuser` must not

    found = region.found
    records = region.fd.fusion.records()["tensors"]
    shapes = tensor_sizes(region.fd, region.inputs)
    parts = [_facts(found), _links(prefix, found)]
    picture = graph(records, found, shapes)
    picture = f'<p class="soft">{_LEGEND}</p><div class="wide">{picture}</div>'
    parts.append(_titled(prefix, "graph", "Graph and steps", picture))
    parts.append(_titled(prefix, "steps", "Steps", _steps_table(found, prefix)))
    parts.append(_titled(prefix, "cuts", "Fusion breaks", _cuts(found)))
    parts.append(_titled(prefix, "roofline", "Roofline", _roofline(found)))
    if found.measured:
        picture = timeline(found.measured.timeline)
        about = '<p class="soft">From the call to its results; the median of several calls.</p>'
        text = f'{about}<div class="wide plot">{picture}</div>'
        parts.append(_titled(prefix, "timeline", "Timeline of one call", text))
    details = _details(region, records, prefix)
    parts.append(_titled(prefix, "kernels", "Steps in detail", details))
    definition = escape(repr(region.fd))
    definition = f"<details><summary>as Python</summary><pre>{definition}</pre></details>"
    parts.append(_titled(prefix, "definition", "The definition", definition))
    return "".join(parts)


def _details(region: _Region, records: Sequence[dict[str, Any]], prefix: str) -> str:
    arch = region.found.machine.arch or _EMULATED_ARCH
    with ThreadPoolExecutor() as pool:  # NVRTC releases the interpreter lock
        code = list(pool.map(lambda kernel: machine_code(kernel, arch), region.kernels))
    own = iter(zip(region.kernels, code, strict=True))
    details = []
    for number, step in enumerate(region.found.steps):
        kernel = next(own, None) if step.kind == "kernel" else None
        lines = source_lines(records, step.computes, region.places)
        details.append(_step(step, f"{prefix}step{number}", number, kernel, lines))
    return "".join(details)


_LEGEND = (
    "A frame is a step. Round: in memory; dashed: free, being index arithmetic or equal to another "
    "op."
)


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
        (str(len(found.steps)), "step" if len(found.steps) == 1 else "steps"),
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
    header = ["", "step", "predicted", "measured", "of a copy", "moved", "reads", "writes"]
    rows = []
    for i, step in enumerate(found.steps):
        link = f'<a class="mono" href="#{prefix}step{i}">{_breakable(step.name)}</a>'
        figures = [duration(step.predicted_us), duration(step.measured_us), _of_copy(found, step)]
        uses = [", ".join(f"T{use.tensor}" for use in u) for u in (step.reads, step.writes)]
        rows.append([str(i), link, *figures, size(step.bytes), *uses])
    return _table(header, rows, texts=2, last_texts=2)


def _table(
    header: Sequence[str], rows: Sequence[Sequence[str]], texts: int, last_texts: int = 0
) -> str:
    """An HTML table; all columns are numbers, except the first `texts` and the last
    `last_texts`.
    """
    numbers = range(texts, len(header) - last_texts)

    def line(tag: str, cells: Sequence[str]) -> str:
        classes = [
            "number" if i in numbers else "name" if i == 1 else "" for i in range(len(cells))
        ]
        return "".join(
            f"<{tag} class={kind}>{cell}</{tag}>" if kind else f"<{tag}>{cell}</{tag}>"
            for kind, cell in zip(classes, cells, strict=True)
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{line("th", header)}</tr>{body}</table></div>'


def _breakable(name: str) -> str:
    """Escapes a kernel name and allows line breaks after underscores, because names are long."""
    return escape(name).replace("_", "_<wbr>")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _of_copy(found: Explanation, step: Step) -> str:
    """Bytes per second relative to a copy, in percent; only for the machine that was measured."""
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
    discs = "discs: measured" if found.machine.present else "no measured times on a GPU"
    about = (
        f"{found.machine.name}: a copy moves {found.machine.copy_bandwidth / 1e9:.0f} GB/s. "
        f"Rings: predicted from launch, bytes and issue slots; {discs}."
    )
    picture = roofline(found.machine, kernels)
    return f'<p class="soft">{escape(about)}</p><div class="wide plot">{picture}</div>'


# ---- one step


def _step(
    step: Step,
    anchor: str,
    number: int,
    kernel: tuple[Any, MachineCode] | None,
    lines: Sequence[SourceLine],
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
    return f'<div class="step" id="{anchor}">{"".join(parts)}</div>'


def _uses(step: Step) -> str:
    def names(uses: Sequence[Any]) -> str:
        return ", ".join(f"T{use.tensor} ({size(use.bytes)})" for use in uses) or "nothing"

    return f'<p class="soft">reads {names(step.reads)}; writes {names(step.writes)}</p>'


def _launch(kernel: Any, code: MachineCode) -> str:
    if code.isa:
        values = [(str(kernel.grid), "tasks"), (code.isa, "instruction set")]
    else:
        values = [
            (f"{kernel.grid} x {kernel.threads}", "blocks x threads"),
            (size(kernel.shared_bytes + code.shared_bytes), "shared memory per block"),
        ]
    if kernel.cluster > 1:
        values.append((str(kernel.cluster), "blocks per cluster"))
    missing = f'<p class="warn">No machine code: {escape(code.missing)}</p>'
    note = missing if code.missing else ""
    if not (code.missing or code.isa):
        values += [
            (str(code.registers or kernel.registers), f"registers per thread, {code.target}"),
            (size(code.local_bytes or kernel.local_bytes), "spilled bytes per thread"),
            (size(code.code_bytes), "machine code"),
        ]
    if kernel.build_seconds:
        values.append((duration(kernel.build_seconds * 1e6), "to build"))
    boxes = (f"<div><b>{escape(v)}</b><span>{escape(what)}</span></div>" for v, what in values)
    mix = ", ".join(f"{count} {name}" for name, count in code.instructions.items())
    kind = "assembly" if code.isa else "PTX"
    mixed = f'<p class="soft">Instructions ({kind}): {escape(mix)}</p>' if mix else ""
    return f'<div class="facts">{"".join(boxes)}</div>{note}{mixed}'


def _code_beside_source(kernel: Any, lines: Sequence[SourceLine]) -> str:
    text = escape(kernel_text(kernel.text, intrinsic_code=False))
    language = "C++" if kernel.isa else "CUDA C"
    return (
        f"<details open><summary>{language} next to the program</summary>"
        f'<div class="beside"><div><h4>your lines</h4>{_source(lines)}</div>'
        f"<div><h4>the kernel, helpers left out</h4><pre>{text}</pre></div></div></details>"
    )


def _source(lines: Sequence[SourceLine]) -> str:
    items = []
    for line in lines:
        ops = ", ".join(f"{tensor} {op}" for tensor, op in line.ops)
        code = escape(line.code.strip()) or "(the file is not available)"
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
    kind = "assembly" if code.isa else "machine code (SASS)"
    found.append((f"{kind} for {code.target}", code.sass))
    return "".join(
        f"<details><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>"
        for name, text in found
        if text
    )
