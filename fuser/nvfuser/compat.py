"""API of nvFuser's FusionDefinition beyond defining and running, and its module functions.

Programs written for nvFuser find each name here. It is answered by the corresponding feature of
fuser, or refused as Unsupported with a hint.
"""

from __future__ import annotations

import operator
import re
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from fuser._core import Scalar, Tensor
from fuser.arguments import checked
from fuser.cache import FusionCache, FusionExecutorCache, options_being
from fuser.errors import UserError
from fuser.layout import compute_tensor_descriptor
from fuser.multidevice import ON_MESHES
from fuser.nvfuser import tensor_methods as tensor_methods
from fuser.nvfuser.absent import ONE_SCHEDULE, refuse
from fuser.nvfuser.serialization import define_again

if TYPE_CHECKING:
    import torch

    from fuser.definition import FusionDefinition
    from fuser.fusion import Fusion
    from fuser.inspect.measure import Measured
    from fuser.multidevice.run import ShardedExecutor
    from fuser.nvfuser.schedule.operators import SchedOperators
    from fuser.nvfuser.schedule.run import KernelExecutor

__all__ = [
    "LegacyDefinition",
    "clone",
    "compute_contiguity",
    "disable_automatic_serialization",
    "enable_automatic_serialization",
    "translate_fusion",
    "version",
]

# Release of nvFuser that version() reports.
_NVFUSER = "0.2.36"


class LegacyDefinition:
    """Methods of FusionDefinition under older names, and methods for subclasses to override."""

    _debug_output: str | None = None
    _profile: Measured | None = None
    _ke: KernelExecutor | None = None
    _sharded: ShardedExecutor | None = None
    _placed = False  # True after multidevice_schedule()
    _prepared: OrderedDict[Any, Any] | None = None  # schedules by layout and size of the inputs
    fec: FusionExecutorCache
    fusion: Fusion

    # ---- for subclasses

    def definition(self) -> None:
        """Defines the fusion in a subclass, instead of a `with` block. Called once, before the
        first use.
        """
        refuse(
            "fd.definition()",
            "expected a subclass of FusionDefinition that overrides it\n"
            "  hint: with FusionDefinition() as fd: ...",
            "subclass-1",
        )

    def schedule(self) -> None:
        """Schedules the definition by hand in a subclass, with fd.sched and the methods of tensors;
        `fd.schedule = function` does so without a subclass. execute() calls it once for each layout
        and size of the inputs. A schedule never changes values: kernels follow it where their plans
        have a counterpart. fd.sched.report(inputs) says where.
        """
        refuse(
            "fd.schedule()",
            "expected a subclass of FusionDefinition that overrides it\n"
            "  hint: fd.manual_execute(inputs) runs a schedule made by methods of tensors",
            "subclass-1",
        )

    def multidevice_schedule(self) -> None:
        """Places the tensors of a subclass on a mesh, with Tensor.set_device_mesh() and
        parallelize(), or fd.sched. Called once, before the first run.
        """
        refuse(
            "fd.multidevice_schedule()",
            "expected a subclass of FusionDefinition that overrides it\n"
            "  hint: tensor.set_device_mesh(mesh), or fuser.multidevice.set_placements()",
            "subclass-1",
        )

    def _overrides(self, method: str) -> bool:
        """True if a subclass, or an attribute of the instance, replaces a method."""
        inherited = getattr(type(self), method) is getattr(LegacyDefinition, method)
        return not inherited or method in vars(self)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "schedule":
            super().__setattr__("_run", None)  # the next run asks for the schedule

    def execute_with_dtensors(
        self,
        in_dtensors: Sequence[Any],
        out_placements: Sequence[Sequence[Any] | None] | None = None,
    ) -> list[torch.Tensor]:
        """fuser.execute_with_dtensors(self, in_dtensors, out_placements)."""
        from fuser.multidevice.run import execute_with_dtensors

        return execute_with_dtensors(cast("FusionDefinition", self), in_dtensors, out_placements)

    def _has_mesh(self) -> bool:
        """True if a tensor of the definition has a mesh."""
        if self._overrides("multidevice_schedule") and not self._placed:
            self._placed = True
            self.multidevice_schedule()
        return self.fusion.builder in ON_MESHES

    def _run_sharded(self, inputs: Sequence[Any], error: Exception) -> Callable[..., Any] | None:
        """Executor.execute for calls with DTensors; None if `error` is about something else."""
        if getattr(error, "rule", "") != "argument-tensor" or not self._is_sharded(inputs):
            return None
        from fuser.multidevice.run import run_of

        return run_of(cast("FusionDefinition", self), self.fec.executor.execute)

    def _is_sharded(self, inputs: Sequence[Any]) -> bool:
        """True if a run on these inputs is one on a mesh."""
        if self._has_mesh():
            return True
        # Only a program that imported DTensor has one.
        tensor = sys.modules.get("torch.distributed.tensor")
        return tensor is not None and any(isinstance(x, tensor.DTensor) for x in inputs)

    def _schedule_on(self, inputs: Sequence[Any], device: Any, overridden: bool) -> Any:
        """The Prepared schedule() on these inputs; None without one."""
        if overridden or not self._overrides("schedule"):
            return None
        from fuser.nvfuser.schedule.run import prepared

        return prepared(self, inputs, device)

    def _run_by_hand(self) -> Callable[..., Any]:
        """Executor.execute under the schedule() of this definition."""
        from fuser.nvfuser.schedule.run import run_of

        return run_of(self)

    @property
    def sched(self) -> SchedOperators:
        """The primitives of schedules by hand, and nvFuser's schedulers."""
        from fuser.nvfuser.schedule.graph import schedule_of
        from fuser.nvfuser.schedule.operators import SchedOperators

        return SchedOperators(schedule_of(self.fusion.builder), lambda: self.fusion)

    @property
    def ke(self) -> KernelExecutor:
        """The executor of the last manual_execute(). Raises UserError `by-hand-executor` before the
        first one.
        """
        if self._ke is None:
            raise UserError(
                "fd.ke: expected an earlier manual_execute(), got none\n"
                "  hint: fd.manual_execute(inputs), or fd.fec for runs without a schedule",
                rule="by-hand-executor",
            )
        return self._ke

    # ---- looking

    def id(self) -> int:
        """The number of this definition in FusionCache; equal definitions share it.
        FusionDefinition(id) returns an equal definition. Closes this definition.
        """
        return FusionCache.get().number(self.fec)

    def inputs(self) -> list[Tensor | Scalar]:
        """fd.fusion.inputs()."""
        return self.fusion.inputs()

    def outputs(self) -> list[Tensor]:
        """fd.fusion.outputs()."""
        return self.fusion.outputs()

    def extents(self) -> list[Scalar]:
        """The sizes of all input tensors, as Scalars."""
        return [n for t in self.inputs() if isinstance(t, Tensor) for n in t.shape()]

    def fusion_ir(self) -> str:
        """The definition as text: repr(fd)."""
        return repr(self)

    def last_scheduled_fusion_ir(
        self, tensor_transforms: bool = False, override_user_schedule: bool = False
    ) -> str:
        """fd.fec.get_most_recent_scheduled_ir(tensor_transforms)."""
        return self.fec.get_most_recent_scheduled_ir(tensor_transforms)

    def scheduled_fusion_ir_for(
        self,
        inputs: Sequence[Any],
        tensor_transforms: bool = False,
        override_user_schedule: bool = False,
        device: torch.device | str | int | None = None,
    ) -> str:
        """fd.fec.get_scheduled_ir(inputs, tensor_transforms), under the schedule() of a subclass
        unless `override_user_schedule`.
        """
        made = self._schedule_on(inputs, device, override_user_schedule)
        plan = None if made is None else made.fields
        return self.fec.get_scheduled_ir(inputs, tensor_transforms, device, plan=plan)

    def debug_output(self) -> str:
        """Output of FUSER_DUMP during the last execute(..., capture_debug_output=True); cached
        kernels dump nothing. Raises UserError `debug-output-1` before the first of these runs.
        """
        if self._debug_output is None:
            raise UserError(
                "expected captured output, got none\n"
                "  hint: set FUSER_DUMP=fusion,schedule,cuda and call "
                "execute(inputs, capture_debug_output=True)",
                rule="debug-output-1",
            )
        return self._debug_output

    def profile(self) -> Measured:
        """Times of the last execute(..., profile=True). Raises UserError `profile-1` before the
        first of these runs.
        """
        if self._profile is None:
            raise UserError(
                "expected a profiled call, got none\n"
                "  hint: call execute(inputs, profile=True), or "
                "fuser.explain(fd, inputs) for predicted and measured times",
                rule="profile-1",
            )
        return self._profile

    # ---- schedules by hand

    def manual_execute(
        self, inputs: Sequence[Any], heuristic_params: Any = None
    ) -> list[torch.Tensor]:
        """Runs the definition by the schedule that the methods of its tensors made, or by the
        parameters of schedule.compute_heuristics(). Values are those of execute(). fd.ke.report
        says which primitives the kernels follow.

        Raises UserError `by-hand-threads` for a block of more than 1024 threads,
        `by-hand-vectorize` for a vectorized axis that is not the innermost one of a copy, and the
        errors of execute().
        """
        from fuser.nvfuser.schedule.run import execute, prepare_by_hand

        made = prepare_by_hand(self, inputs, heuristic_params)
        found: list[torch.Tensor] = execute(self, inputs, None, made)
        return found

    def manual_validate(
        self, inputs: Sequence[Any], reference_outputs: Sequence[torch.Tensor] | None = None
    ) -> list[torch.Tensor]:
        """validate() for manual_execute(). Raises the errors of both."""
        from fuser.debug.validation import validate
        from fuser.nvfuser.schedule.run import prepare_by_hand

        plan = prepare_by_hand(self, inputs, None).as_plans
        return validate(cast("FusionDefinition", self), inputs, reference_outputs, plan=plan)

    # ---- refused

    def segment(self, inputs: Sequence[Any]) -> NoReturn:
        """Raises Unsupported `by-hand-1`; fuser.explain(fd, inputs) shows the kernels."""
        refuse("fd.segment()", ONE_SCHEDULE, "by-hand-1")


@contextmanager
def captured_dumps(into: LegacyDefinition) -> Iterator[None]:
    """Captures the output of FUSER_DUMP in a `with` block as into.debug_output()."""
    with tempfile.TemporaryDirectory(prefix="fuser-dump-") as folder:
        with options_being({"FUSER_DUMP_DIR": folder}):
            yield
        files = sorted(Path(folder).iterdir())  # file names begin with a number
        into._debug_output = "\n".join(
            f"---- {f.name}\n{f.read_text(encoding='utf-8')}" for f in files
        )


@checked
def clone(source: FusionDefinition, target: FusionDefinition) -> None:
    """Repeats the definition of `source` in the empty `target`. Raises UserError `clone-1` if
    `target` is not empty.
    """
    if target.fusion.inputs() or target.fusion.outputs():
        raise UserError(
            "clone(): expected an empty target definition, got one with statements\n"
            "  hint: clone(fd, copy := FusionDefinition())",
            rule="clone-1",
        )
    define_again(repr(source), target)


@checked
def compute_contiguity(sizes: Sequence[int], strides: Sequence[int]) -> list[bool | None]:
    """The contiguity of compute_tensor_descriptor(sizes, strides)."""
    return compute_tensor_descriptor(sizes, strides)[0]


@checked
def translate_fusion(fusion: Fusion) -> str:
    """Python that rebuilds the definition: repr(fd)."""
    return fusion.builder.to_python()


class Version(str):
    """A version string that compares by its numbers: version() >= "0.2.8"; also with
    packaging.version.Version on either side.
    """

    def __lt__(self, other: Any) -> bool:
        return _compared(self, other, operator.lt)

    def __le__(self, other: Any) -> bool:
        return _compared(self, other, operator.le)

    def __gt__(self, other: Any) -> bool:
        return _compared(self, other, operator.gt)

    def __ge__(self, other: Any) -> bool:
        return _compared(self, other, operator.ge)

    def __eq__(self, other: object) -> bool:
        return _compared(self, other, operator.eq)

    def __ne__(self, other: object) -> bool:
        return _compared(self, other, operator.ne)

    def __hash__(self) -> int:
        return hash(_numbers(self))


def _compared(mine: Version, other: object, compare: Callable[[Any, Any], bool]) -> bool:
    # attribute of packaging's versions
    if not isinstance(other, str) and not hasattr(other, "release"):
        return NotImplemented
    return compare(_numbers(mine), _numbers(str(other)))


def _numbers(version: str) -> tuple[int, ...]:
    """Numbers of the release without trailing zeros: 1.2 equals 1.2.0."""
    release = re.match(r"v?([\d.]*)", version)
    numbers = [int(n) for n in release[1].split(".") if n] if release else []
    while numbers and not numbers[-1]:
        del numbers[-1]
    return tuple(numbers)


def version() -> Version:
    """The release of nvFuser with an equal FusionDefinition, followed by fuser's own version.
    Programs written for nvFuser compare it with the release that they need. fuser.__version__ is
    the version of this package.
    """
    from fuser import __version__

    return Version(f"{_NVFUSER}+fuser{__version__}")


def enable_automatic_serialization(*args: Any) -> None:
    """Accepted for compatibility, like disable_automatic_serialization(): kernels are stored on
    disk unless FUSER_CACHE=0.
    """


disable_automatic_serialization = enable_automatic_serialization
