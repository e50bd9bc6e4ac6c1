"""Fusion: the graph behind a definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fuser import _core
from fuser._core import Scalar, Tensor

if TYPE_CHECKING:
    from fuser.cache import FusionExecutorCache


class Fusion:
    """The graph behind a definition. Equal graphs have equal ops in equal order."""

    __slots__ = ("_executors", "builder")

    def __init__(
        self, builder: _core.Builder, executors: Callable[[], FusionExecutorCache]
    ) -> None:
        self.builder = builder
        self._executors = executors

    def inputs(self) -> list[Tensor | Scalar]:
        """Returns tensors and symbolic scalars in the order in which execute() takes them."""
        return self.builder.inputs()

    def outputs(self) -> list[Tensor]:
        """Returns outputs in the order of add_output(), including in-place outputs."""
        return self.builder.outputs()

    def vals(self) -> list[Tensor | Scalar]:
        """Returns all values: symbolic scalars, then tensors, each in order of definition."""
        scalars = [value for value in self.inputs() if isinstance(value, Scalar)]
        return [*scalars, *self.builder.tensors()]

    def print_math(self, from_outputs_only: bool = True) -> None:
        """Prints the whole definition; under a schedule by hand, its tensors with their domains.
        `from_outputs_only` is accepted for compatibility and ignored.
        """
        from fuser.nvfuser.schedule.graph import text_by_hand

        print(text_by_hand(self.builder) or self)

    def print_kernel(
        self, inputs: Sequence[Any] | None = None, *, compile_params: Any = None
    ) -> None:
        """Prints the CUDA C of the kernels for `inputs`; without `inputs`, of the kernels of the
        last run. `compile_params` is accepted for compatibility with nvFuser and ignored.
        """
        print(self._executors().get_cuda_kernel(inputs, intrinsic_code=True))

    def structure(self) -> bytes:
        """Canonical bytes, equal if and only if two definitions are equal. Source lines are
        ignored.
        """
        return self.builder.structure()

    def records(self) -> dict[str, Any]:
        """The graph as plain data, operands before their users. fuser.evaluate interprets it."""
        return self.builder.records()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fusion):
            return NotImplemented
        return self.builder is other.builder or self.structure() == other.structure()

    def __hash__(self) -> int:
        return hash(self.structure())

    def __repr__(self) -> str:
        return self.builder.to_python()
