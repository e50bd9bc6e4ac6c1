"""fuser.explain: how a definition runs, what it moves, and what was not fused and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fuser.definition import FusionDefinition

__all__ = ["Explanation", "Step", "Use", "explain"]


@dataclass(frozen=True)
class Use:
    """A tensor, T<tensor> in repr(fd), that a step reads or writes, as a whole."""

    tensor: int
    bytes: int


@dataclass(frozen=True)
class Step:
    """One launch, library call or copy into an input. kind: "kernel", "library" or "copy"."""

    kind: str
    name: str
    plan: str  # "inner(threads=128, ...)"; empty for what is no kernel of ours
    reads: tuple[Use, ...]
    writes: tuple[Use, ...]

    @property
    def bytes(self) -> int:
        """Read and written, each tensor once."""
        return sum(use.bytes for use in (*self.reads, *self.writes))


@dataclass(frozen=True)
class Explanation:
    """What explain() finds; str() is a report for people."""

    steps: tuple[Step, ...]
    ideal_bytes: int  # each input that is read once, each result written once
    apart: tuple[tuple[int, str], ...]  # (tensor, why it is not in one kernel with another)

    @property
    def bytes(self) -> int:
        """Of all steps: what is handed from one to another counts on both sides."""
        return sum(step.bytes for step in self.steps)

    def __str__(self) -> str:
        return "\n".join(report(self))


def explain(fd: FusionDefinition, inputs: Sequence[Any], device: Any = None) -> Explanation:
    """The steps of fd.execute(inputs): scheduler, plan and bytes of each, the bytes of all against
    the ideal, and every reason why two parts of the definition are not one kernel. Plans, and
    compiles nothing. Bytes count whole tensors, also where a step reads a part of one.

        print(fuser.explain(fd, inputs))

    Raises what execute() does for inputs that do not fit.
    """
    steps, ideal, apart = fd.fec.executor.explain(inputs, device)
    return Explanation(
        steps=tuple(
            Step(kind, name, plan, _uses(reads), _uses(writes))
            for kind, name, plan, reads, writes in steps
        ),
        ideal_bytes=ideal,
        apart=tuple(apart),
    )


def report(found: Explanation) -> list[str]:
    """The lines of str(found)."""
    lines = []
    for i, step in enumerate(found.steps):
        lines.append(f"step {i}: {step.kind} {step.name}")
        if step.plan:
            lines.append(f"  plan   {step.plan}")
        lines.append(f"  reads  {_tensors(step.reads)}")
        lines.append(f"  writes {_tensors(step.writes)}")
    ratio = f", {found.bytes / found.ideal_bytes:.2f} times the ideal" if found.ideal_bytes else ""
    lines.append(f"moved: {_size(found.bytes)} of {_size(found.ideal_bytes)}{ratio}")
    lines.append("not fused:" if found.apart else "not fused: nothing")
    lines += [f"  T{tensor}: {why}" for tensor, why in found.apart]
    return lines


def _uses(pairs: Sequence[tuple[int, int]]) -> tuple[Use, ...]:
    return tuple(Use(tensor, count) for tensor, count in pairs)


def _tensors(uses: Sequence[Use]) -> str:
    return ", ".join(f"T{use.tensor} ({_size(use.bytes)})" for use in uses) or "nothing"


def _size(count: int) -> str:
    """Bytes in the largest unit of which there is one."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"
