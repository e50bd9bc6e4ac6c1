"""What the adapters fused and what they left to torch, with the reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from fuser import _core


@dataclass
class GraphReport:
    """One compiled graph, forward or backward."""

    name: str
    regions: list[list[str]] = field(default_factory=list)  # op names of each region
    left: Counter[tuple[str, str]] = field(default_factory=Counter)  # (op, reason) -> calls
    fallbacks: list[tuple[list[str], str]] = field(default_factory=list)  # regions that did not run

    @property
    def fused(self) -> int:
        """Ops inside regions."""
        return sum(len(region) for region in self.regions)


@dataclass
class ModelReport:
    """All graphs that were compiled while it was recording."""

    graphs: list[GraphReport] = field(default_factory=list)

    def __str__(self) -> str:
        lines = []
        for graph in self.graphs:
            left = sum(graph.left.values())
            lines.append(
                f"{graph.name}: {graph.fused} ops in {len(graph.regions)} regions, "
                f"{left} left to torch"
            )
            lines += [
                f"  {count:4} {op}: {reason}" for (op, reason), count in graph.left.most_common()
            ]
            lines += [f"  fell back: {', '.join(ops)}: {why}" for ops, why in graph.fallbacks]
        return "\n".join(lines)


_recording: list[ModelReport] = []
_logged: set[str] = set()


def note_graph(
    name: str, regions: Sequence[Sequence[fx.Node]], left: dict[fx.Node, str]
) -> GraphReport:
    """A graph was compiled."""
    report = GraphReport(name, [[str(n.target) for n in nodes] for nodes in regions])
    report.left.update((str(node.target), reason) for node, reason in left.items())
    for model in _recording:
        model.graphs.append(report)
    return report


def note_fallback(nodes: Sequence[fx.Node], error: BaseException) -> None:
    """A region could not be compiled, or did not run; torch's ops run instead. Logged once."""
    ops = [str(n.target) for n in nodes]
    why = str(error).split("\n")[0]
    line = f"{len(ops)} ops ({', '.join(ops[:6])}) are left to torch: {why}"
    if line not in _logged:
        _logged.add(line)
        _core.log_line(line)
    for model in _recording:
        if model.graphs:
            model.graphs[-1].fallbacks.append((ops, why))


@contextmanager
def recording() -> Iterator[ModelReport]:
    """`with recording() as report:` collects the graphs compiled inside."""
    report = ModelReport()
    _recording.append(report)
    try:
        yield report
    finally:
        _recording.remove(report)


def explain_model(model: Callable[..., Any], *inputs: Any, **named: Any) -> ModelReport:
    """What torch.compile(model, backend="fuser") fuses in a run on these inputs, forward and,
    where a result wants gradients, backward: ops by region, and those left to torch with reasons.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    torch._dynamo.reset()
    with recording() as report:
        results = torch.compile(model, backend="fuser")(*inputs, **named)
        leaves = [
            t for t in tree_leaves(results) if isinstance(t, torch.Tensor) and t.requires_grad
        ]
        if leaves:
            torch.autograd.grad(
                leaves,
                [t for t in tree_leaves((inputs, named)) if _wants_gradient(t)]
                or [p for p in getattr(model, "parameters", list)() if p.requires_grad],
                [torch.ones_like(t) for t in leaves],
                allow_unused=True,
            )
    return report


def _wants_gradient(value: Any) -> bool:
    return bool(getattr(value, "requires_grad", False))
