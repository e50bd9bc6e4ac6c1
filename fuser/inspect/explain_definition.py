"""How a definition runs: its steps, what they move, and what was not fused and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fuser.definition import FusionDefinition
from fuser.inspect.cost import Machine, machine_of
from fuser.inspect.measure import Measured, measure
from fuser.inspect.text_table import colours_wanted, duration, size, styled, table


@dataclass(frozen=True)
class Use:
    """A tensor, T<tensor> in repr(fd), that a step reads or writes, counted completely."""

    tensor: int
    bytes: int


@dataclass(frozen=True)
class Step:
    """One launch, library call or copy into an input. kind: "kernel", "library" or "copy"."""

    kind: str
    name: str
    plan: str  # "inner(threads=128, ...)"; empty unless the step is a generated kernel
    reads: tuple[Use, ...]
    writes: tuple[Use, ...]
    computes: tuple[int, ...]  # tensors computed in the step; two steps may compute one tensor
    # issue slots of its ops over all elements; 0 unless the step is a generated kernel
    slots: float
    predicted_us: float | None  # prediction of fuser.inspect.cost, except for library calls
    measured_us: float | None  # set if measurement was requested

    @property
    def bytes(self) -> int:
        """Bytes read and written, each tensor once."""
        return sum(use.bytes for use in (*self.reads, *self.writes))


@dataclass(frozen=True)
class Explanation:
    """Result of explain() for a definition; str() gives a readable report."""

    steps: tuple[Step, ...]
    ideal_bytes: int  # bytes if each input that is read moved once and each result once
    apart: tuple[tuple[int, str], ...]  # fusion breaks: (tensor, reason)
    machine: Machine  # machine of the predicted times
    measured: Measured | None
    # report of the schedule() of a subclass: fields of plans that follow it, and what does not
    by_hand: str = ""

    @property
    def bytes(self) -> int:
        """Bytes moved by all steps; a tensor passed from one step to another counts in both."""
        return sum(step.bytes for step in self.steps)

    @property
    def predicted_us(self) -> float:
        """Sum of the predictions, over the steps that have one."""
        return sum(step.predicted_us or 0.0 for step in self.steps)

    def __str__(self) -> str:
        return self.text(colours_wanted())

    def text(self, colours: bool = False) -> str:
        """The report as text, optionally with terminal colours."""
        lines = [*_steps_table(self, colours), *_sums(self), *_reasons(self, colours)]
        by_hand = ["schedule by hand:", *self.by_hand.splitlines()] if self.by_hand else []
        return "\n".join([*lines, *by_hand])


def arguments_of(inputs: Sequence[Any]) -> list[Any]:
    """Returns the inputs of a definition, passed one by one or as one list."""
    one = len(inputs) == 1 and isinstance(inputs[0], list | tuple)
    return list(inputs[0] if one else inputs)


def explain_definition(
    fd: FusionDefinition, inputs: list[Any], device: Any = None, measured: bool = False
) -> Explanation:
    """The Explanation of fd.execute(inputs); see explain()."""
    steps, ideal, apart, ordinal = fd.fec.executor.explain(inputs, device)
    made = fd._schedule_on(inputs, device, False)
    plans = iter(() if made is None else made.plan_texts)
    machine = machine_of(ordinal)
    times = measure(fd, inputs, device) if measured else None
    us: Sequence[float | None] = [None] * len(steps)
    if times and len(times.step_us) == len(steps):
        us = times.step_us
    found = []
    for (kind, name, plan, reads, writes, computes, slots), step_us in zip(steps, us, strict=True):
        moved = sum(count for _, count in (*reads, *writes))
        plan = next(plans, plan) if plan else plan
        found.append(
            Step(
                *(kind, name, plan, _uses(reads), _uses(writes), tuple(computes)),
                slots=slots,
                predicted_us=machine.us(kind, moved, slots),
                measured_us=step_us,
            )
        )
    return Explanation(tuple(found), ideal, tuple(apart), machine, times, str(made or ""))


def _uses(pairs: Sequence[tuple[int, int]]) -> tuple[Use, ...]:
    return tuple(Use(tensor, count) for tensor, count in pairs)


# ---- as text


def _steps_table(found: Explanation, colours: bool) -> list[str]:
    """A line per step, followed by its plan without fields that are 0."""
    header = ["step", "", "reads", "writes", "moved", "predicted"]
    if found.measured:
        header.append("measured")
    rows = []
    for i, step in enumerate(found.steps):
        what = step.name if step.kind != "library" else f"torch's {step.name}"
        row = [str(i), what, _names(step.reads), _names(step.writes)]
        row += [size(step.bytes), duration(step.predicted_us)]
        rows.append(row + ([duration(step.measured_us)] if found.measured else []))
    lines = table(header, rows, right="r   rrr", colours=colours)
    for i in reversed(range(len(found.steps))):
        if found.steps[i].plan:
            plan = shortened_plan(found.steps[i].plan)
            lines.insert(i + 2, styled(f"      {plan}", "dim", colours))
    return lines


def _sums(found: Explanation) -> list[str]:
    here = "" if found.machine.present else f" on {found.machine.name}"
    predicted = f"predicted{here}: {duration(found.predicted_us)}"
    if found.measured:
        predicted += f"; a call measured: {duration(found.measured.call_us)}"
    ratio = f", {found.bytes / found.ideal_bytes:.2f} times the ideal" if found.ideal_bytes else ""
    return [predicted, f"moved: {size(found.bytes)} of {size(found.ideal_bytes)}{ratio}"]


def _reasons(found: Explanation, colours: bool) -> list[str]:
    if not found.apart:
        return [styled("fusion breaks: none", "green", colours)]
    reasons = [f"  T{tensor}: {why}" for tensor, why in found.apart]
    return [styled("fusion breaks:", "yellow", colours), *reasons]


def shortened_plan(plan: str) -> str:
    """ "inner(threads=128, skew=0)" without the fields that are 0."""
    name, _, fields = plan.rstrip(")").partition("(")
    kept = [field for field in fields.split(", ") if not field.endswith("=0")]
    return f"{name}({', '.join(kept)})"


def _names(uses: Sequence[Use]) -> str:
    names = [f"T{use.tensor}" for use in uses]
    if len(names) > 5:
        names = [*names[:4], f"+{len(names) - 4}"]
    return " ".join(names) or "nothing"
