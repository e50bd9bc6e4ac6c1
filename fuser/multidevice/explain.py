"""How a sharded definition runs: its pieces, the collectives between them, and their reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fuser.debug.interpreter import one_by_one
from fuser.inspect.text_table import size
from fuser.multidevice.plan import Plan
from fuser.multidevice.run import executor_of
from fuser.multidevice.shards import describe

if TYPE_CHECKING:
    from fuser.definition import FusionDefinition


@dataclass(frozen=True)
class Collective:
    """A collective that moves tensor T<tensor>, with its reason. `bytes` are those of a shard of
    its result.
    """

    tensor: int
    kind: str
    mesh_dim: int
    source: str
    target: str
    bytes: int
    why: str

    def __str__(self) -> str:
        return (
            f"T{self.tensor} {self.kind} on mesh dim {self.mesh_dim}: {self.source} -> "
            f"{self.target}, {size(self.bytes)}: {self.why}"
        )


@dataclass(frozen=True)
class Step:
    """A local definition, and the collectives that begin after it. `definition` is Python that
    builds it; empty for collectives of inputs, and of collectives.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    definition: str
    begins: tuple[Collective, ...]


@dataclass(frozen=True)
class ShardedExplanation:
    """Result of fuser.explain() for DTensors; str() gives a readable report.

    placements  placements of the inputs and of the results, T<tensor> in repr(fd)
    """

    steps: tuple[Step, ...]
    placements: tuple[tuple[int, tuple[str, ...]], ...]

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """All collectives in the order in which they begin."""
        return tuple(c for step in self.steps for c in step.begins)

    def __str__(self) -> str:
        lines = [f"T{tensor}: {', '.join(placed)}" for tensor, placed in self.placements]
        for i, step in enumerate(self.steps):
            if step.definition:
                lines.append(f"step {i}: reads {_names(step.reads)}, writes {_names(step.writes)}")
            lines += [f"  {collective}" for collective in step.begins]
        return "\n".join(lines)


def _names(tensors: Sequence[int]) -> str:
    return " ".join(f"T{tensor}" for tensor in tensors) or "nothing"


def explain_sharded(fd: FusionDefinition, inputs: Sequence[Any]) -> ShardedExplanation:
    """The explanation of fd.execute(inputs) on DTensors, or on shards of a definition with
    placements. All ranks call it, and get equal ones. Runs no kernel.
    """
    executor = executor_of(fd)
    return _explained(executor.prepared(one_by_one(executor.records, inputs)).plan)


def _explained(plan: Plan) -> ShardedExplanation:
    nodes = plan.graph.nodes
    steps = []
    for piece, local in zip(plan.pieces, plan.local, strict=True):
        begins = []
        for n in piece.issued:
            step = nodes[n].step
            assert step
            begins.append(
                Collective(
                    *(nodes[n].tensor, step.kind, step.dim),
                    *(describe(step.source), describe(step.target)),
                    *(plan.graph.bytes(n), plan.graph.why[n]),
                )
            )
        reads = tuple(nodes[n].tensor for n in piece.inputs)
        writes = tuple(nodes[n].tensor for n in piece.outputs)
        steps.append(Step(reads, writes, repr(local.fusion) if local else "", tuple(begins)))
    ends = [*plan.graph.inputs.values(), *plan.graph.outputs]
    placed = [(nodes[n].tensor, tuple(map(describe, nodes[n].placements))) for n in ends]
    return ShardedExplanation(tuple(steps), tuple(dict.fromkeys(placed)))
