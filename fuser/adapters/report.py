"""Reports which ops the adapters fused and which they left to torch, with reasons."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import fx

from fuser import _core
from fuser._native import load_torch
from fuser.definition import FusionDefinition
from fuser.inspect.explain_definition import Explanation, explain_definition
from fuser.inspect.text_table import colours_wanted


@dataclass
class GraphReport:
    """One compiled graph, forward or backward."""

    name: str
    regions: list[list[str]] = field(default_factory=list)  # op names of each region
    left: Counter[tuple[str, str]] = field(default_factory=Counter)  # (op, reason) -> calls
    fallbacks: list[tuple[list[str], str]] = field(default_factory=list)  # regions that did not run
    seconds: dict[str, float] = field(default_factory=dict)  # compile time by phase, in seconds
    kept: int = 0  # bytes of saved activations of a forward graph; 0 if symbolic

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Adds the time of a `with` block to the seconds of a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[phase] = self.seconds.get(phase, 0.0) + spent

    def note_parts(self, regions: Sequence[Sequence[fx.Node]], left: dict[fx.Node, str]) -> None:
        """Records fused ops, and ops left to torch with reasons."""
        self.regions = [[str(n.target) for n in nodes] for nodes in regions]
        self.left.update((str(node.target), reason) for node, reason in left.items())

    @property
    def fused(self) -> int:
        """Number of ops inside regions."""
        return sum(len(region) for region in self.regions)


@dataclass
class Run:
    """A region that ran. places: the user's source line of each tensor of the definition."""

    fd: FusionDefinition
    inputs: list[Any]
    places: dict[int, str]  # "train.py:41"


@dataclass(eq=False)
class ModelReport:
    """All graphs compiled while recording and, if requested, regions that ran."""

    keeps_runs: bool = False
    graphs: list[GraphReport] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    explanations: list[Explanation] = field(default_factory=list)  # one per run, by explain_model

    def __str__(self) -> str:
        return self.text(colours_wanted())

    def text(self, colours: bool = False) -> str:
        """The report as text, optionally with terminal colours."""
        lines = [self.counts()]
        for number, explanation in enumerate(self.explanations):
            lines += ["", f"region {number}", explanation.text(colours)]
        return "\n".join(lines)

    def counts(self) -> str:
        """By graph: the number of fused ops, and ops left to torch with reasons."""
        lines = []
        for graph in self.graphs:
            left = sum(graph.left.values())
            kept = f", {graph.kept / 1e6:.1f} MB kept for backward" if graph.kept else ""
            lines.append(
                f"{graph.name}: {graph.fused} ops in {len(graph.regions)} regions, "
                f"{left} left to torch{kept}"
            )
            lines += [
                f"  {count:4} {op}: {reason}" for (op, reason), count in graph.left.most_common()
            ]
            lines += [f"  fell back: {', '.join(ops)}: {why}" for ops, why in graph.fallbacks]
        return "\n".join(lines)


_recording: list[ModelReport] = []
_logged: set[str] = set()


def note_graph(name: str) -> GraphReport:
    """Starts the report of a graph; later fallbacks are added to it."""
    report = GraphReport(name)
    for model in _recording:
        model.graphs.append(report)
    return report


def note_fallback(nodes: Sequence[fx.Node], error: BaseException) -> None:
    """Records a region that failed to compile or run, so that torch's ops run instead. Logged
    once.
    """
    ops = [str(n.target) for n in nodes]
    why = str(error).split("\n")[0]
    line = f"{len(ops)} ops ({', '.join(ops[:6])}) are left to torch: {why}"
    if line not in _logged:
        _logged.add(line)
        for text in (line, *getattr(error, "__notes__", ())):
            _core.log_line(text)
    for model in _recording:
        if model.graphs:
            model.graphs[-1].fallbacks.append((ops, why))


def is_keeping_runs() -> bool:
    """True if a recording collects runs."""
    return bool(_recording) and any(model.keeps_runs for model in _recording)


def note_run(
    fd: FusionDefinition, inputs: Sequence[Any], traces: Sequence[tuple[int, str]]
) -> None:
    """Records a run of a region on these inputs. traces: for each of its nodes in order, the last
    tensor that it defined and its stack trace from torch.
    """
    places: dict[int, str] = {}
    first = 0
    for last, trace in traces:
        if place := _place(trace):
            places.update(dict.fromkeys(range(first, last + 1), place))
        first = max(first, last + 1)
    for model in _recording:
        if model.keeps_runs:
            model.runs.append(Run(fd, list(inputs), places))


_FRAME = re.compile(r'File "(.+)", line (\d+)')
_TORCH = str(Path(fx.__file__).parents[1])


def _place(trace: str) -> str:
    """Location of the innermost frame outside torch."""
    frames = _FRAME.findall(trace)
    users = [frame for frame in frames if not frame[0].startswith(_TORCH)]
    return ":".join((users or frames or [("", "")])[-1]).strip(":")


@contextmanager
def recording(keeps_runs: bool = False) -> Iterator[ModelReport]:
    """`with recording() as report:` collects the graphs compiled inside; with `keeps_runs` also the
    regions that run, with their inputs, whose memory it keeps alive.
    """
    report = ModelReport(keeps_runs)
    _recording.append(report)
    load_torch().set_python_runs_graphs(is_keeping_runs())
    try:
        yield report
    finally:
        _recording.remove(report)
        load_torch().set_python_runs_graphs(is_keeping_runs())


def explain_model(
    model: Callable[..., Any], *inputs: Any, measured: bool = False, **named: Any
) -> ModelReport:
    """Reports fusion by torch.compile(model, backend="fuser") in a run on these inputs; see
    explain().
    """
    import torch

    from fuser.adapters.torch_compat import pytree, reset_dynamo

    reset_dynamo()
    with recording(keeps_runs=True) as report:
        results = torch.compile(model, backend="fuser")(*inputs, **named)
        leaves = [
            t
            for t in pytree.tree_leaves(results)
            if isinstance(t, torch.Tensor) and t.requires_grad
        ]
        if leaves:
            torch.autograd.grad(
                leaves,
                [t for t in pytree.tree_leaves((inputs, named)) if _wants_gradient(t)]
                or [p for p in getattr(model, "parameters", list)() if p.requires_grad],
                [torch.ones_like(t) for t in leaves],
                allow_unused=True,
            )
    report.explanations = [
        explain_definition(r.fd, r.inputs, measured=measured) for r in report.runs
    ]
    return report


def _wants_gradient(value: Any) -> bool:
    return bool(getattr(value, "requires_grad", False))
