"""FusionDefinition: describes a computation, runs it, and shows its plans, kernels and graph."""

from __future__ import annotations

import inspect
import operator
import os
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NoReturn, Self, overload

from fuser import _core
from fuser._core import DataType, Scalar, Tensor
from fuser.arguments import TYPE_FAULTS, Vector, blame, checked
from fuser.cache import FusionCache, FusionExecutorCache, options_set
from fuser.debug.repro import input_spec, keep_repro, repro_script
from fuser.errors import CompileError, InternalError, LaunchError, ShapeError, UserError
from fuser.fusion import Fusion
from fuser.inspect.measure import profiled
from fuser.layout import compute_tensor_descriptor
from fuser.nvfuser.compat import LegacyDefinition, captured_dumps
from fuser.nvfuser.serialization import define_again
from fuser.ops import Number, Ops, Size, as_dtype
from fuser.plan import Plan, Plans, plan_fields
from fuser.torch_habits import refuse_arguments

if TYPE_CHECKING:
    import torch


_NOTHING: Any = None  # default of execute(): no inputs given

# Lock held while a definition creates its executor: concurrent first calls must share one executor.
_first_use = threading.Lock()


def _after_fork() -> None:
    global _first_use
    _first_use = threading.Lock()  # a thread that does not exist in the child may hold the old lock


os.register_at_fork(after_in_child=_after_fork)


# Limit on scalar inputs: a run counts them in 16 bits.
_MOST_SCALARS = 1 << 16


class _Empty(UserError, NotImplementedError):
    """UserError that is also a NotImplementedError, which nvFuser raises here."""


class FusionDefinition(LegacyDefinition):
    """A computation on tensors: defined once, run on any sizes, in as few kernels as possible.

        with FusionDefinition() as fd:
            x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.BFloat16)
            bias = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.BFloat16)
            fd.add_output(fd.ops.cast(fd.ops.gelu(x + bias), DataType.BFloat16))
        (y,) = fd.execute([x_data, bias_data])

    The `with` is optional. repr(fd) is Python that rebuilds the definition. The first execute()
    closes the definition: later define calls raise UserError `definition-3`. A subclass may
    override definition() instead. copy, deepcopy and pickle create equal definitions, which are
    open again.

    id                        fd.id() of an existing definition, whose graph and kernels are reused
    max_length                accepted for compatibility; definitions have any length
    use_multidevice_executor  accepted for compatibility, like backend_type: a definition runs on
                              the devices of its mesh, with torch's collectives
    """

    def __init__(
        self,
        id: int | None = None,
        max_length: int = 9999,
        use_multidevice_executor: bool = False,
        backend_type: Any = None,
    ) -> None:
        self._fec: FusionExecutorCache | None = None if id is None else FusionCache.get().find(id)
        self._saved_inputs: list[Any] | None = None
        self._ke = self._prepared = self._sharded = None
        self._placed = False
        self._begin(self._fec.fusion().builder if self._fec else _core.Builder())

    def _begin(self, builder: _core.Builder) -> None:
        self._builder = builder
        self.ops = Ops(builder)
        self._run: Any = None  # Executor.execute, set by the first run
        self._is_defined = not self._overrides("definition")

    def _define(self) -> None:
        """Calls definition() of a subclass once. If it raises, discards the partial definition."""
        if self._is_defined:
            return
        self._is_defined = True
        try:
            self.definition()
        except BaseException:
            self._begin(_core.Builder())
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Does not suppress exceptions."""

    def __repr__(self) -> str:
        self._define()
        return self._builder.to_python()

    def __getstate__(self) -> dict[str, Any]:
        """State for copy and pickle: the definition as text, plus attributes that a subclass or
        user added. Copies look up their kernels themselves.
        """
        without = vars(FusionDefinition()).keys()
        return {"": repr(self)} | {k: v for k, v in vars(self).items() if k not in without}

    def __setstate__(self, state: dict[str, Any]) -> None:
        FusionDefinition.__init__(self)
        self._is_defined = True
        define_again(state[""], self)
        vars(self).update({k: v for k, v in state.items() if k})

    # ---- defining

    @overload
    def define_tensor(
        self,
        shape: Sequence[int],
        contiguity: Sequence[bool | None] | bool = False,
        dtype: Any = DataType.Float,
        is_cpu: bool = False,
        stride_order: Sequence[int] = (),
    ) -> Tensor: ...
    @overload
    def define_tensor(
        self,
        sizes: Sequence[int],
        strides: Sequence[int],
        dtype: Any = DataType.Float,
        static_sizes: bool = False,
        is_cpu: bool = False,
    ) -> Tensor: ...
    def define_tensor(self, *args: Any, **kwargs: Any) -> Tensor:
        """Defines an input tensor, in one of two forms:

            define_tensor(shape, contiguity=False, dtype=DataType.Float, is_cpu=False,
                          stride_order=[])
            define_tensor(sizes, strides, dtype=DataType.Float, static_sizes=False, is_cpu=False)

        shape         size of each dim: -1 symbolic (any size), otherwise fixed; 1 broadcasts
        contiguity    list as returned by compute_tensor_descriptor(), or one bool for all dims
        stride_order  position of each dim counted from the innermost; [] is row-major
        sizes         sizes of an example tensor: 0 and 1 are fixed, other sizes are symbolic
                      unless static_sizes
        strides       strides of the example tensor, in elements
        is_cpu        a 0-dim CPU tensor that GPU kernels read like a scalar

        Contiguity and strides only describe the expected layout; a run accepts any strides and
        detects the layout itself. Raises ShapeError `define-tensor-1` for a negative size,
        `define-tensor-2` for a contiguity list of wrong length, `define-tensor-3` if stride_order
        is not a permutation.
        """
        if "strides" in kwargs or "sizes" in kwargs or (len(args) > 1 and _are_strides(args[1])):
            return self._define_by_strides(*args, **kwargs)
        return self._define_by_shape(*args, **kwargs)

    def _define_by_shape(
        self,
        shape: Sequence[int],
        contiguity: Sequence[bool | None] | bool = False,
        dtype: Any = DataType.Float,
        is_cpu: bool = False,
        stride_order: Sequence[int] = (),
    ) -> Tensor:
        rank = len(shape)
        shape = [operator.index(n) for n in shape]  # raises TypeError for a Scalar
        row_major = list(range(rank - 1, -1, -1))
        order = [d + rank if d < 0 else d for d in stride_order] or row_major
        if sorted(order) != sorted(row_major):
            raise ShapeError(
                f"define_tensor(shape={shape}): stride_order: expected each of "
                f"0..{rank - 1} once, got {list(stride_order)}",
                rule="define-tensor-3",
            )
        if isinstance(contiguity, bool):
            outermost_first = sorted(range(rank), key=lambda d: -order[d])
            contiguity = [None if shape[d] == 1 else contiguity for d in outermost_first]
        elif len(contiguity) != rank:
            raise ShapeError(
                f"define_tensor(shape={shape}): contiguity: expected {rank} values "
                f"(one a dim), got {len(contiguity)}",
                rule="define-tensor-2",
            )
        return _core.define_tensor(
            self._builder,
            shape,
            list(contiguity),
            as_dtype(dtype),
            is_cpu,
            [] if order == row_major else order,
        )

    def _define_by_strides(
        self,
        sizes: Sequence[int],
        strides: Sequence[int],
        dtype: Any = DataType.Float,
        static_sizes: bool = False,
        is_cpu: bool = False,
    ) -> Tensor:
        contiguity, stride_order = compute_tensor_descriptor(sizes, strides)
        shape = [n if static_sizes or n in (0, 1) else -1 for n in sizes]
        return self._define_by_shape(shape, contiguity, dtype, is_cpu, stride_order)

    def from_pytorch(self, tensor: torch.Tensor, static_sizes: bool = False) -> Tensor:
        """Defines an input tensor with sizes (symbolic unless `static_sizes`), strides and dtype of
        `tensor`. Raises UserError `from-pytorch-1` unless it has strides: sparse, nested, MKL-DNN.
        """
        if tensor.is_nested or "strided" not in str(tensor.layout):
            raise UserError(
                f"from_pytorch(): tensor: expected a strided tensor, got layout {tensor.layout}\n"
                "  hint: pass tensor.to_dense()",
                rule="from-pytorch-1",
            )
        return self._define_by_strides(
            list(tensor.shape),
            tensor.stride(),
            tensor.dtype,
            static_sizes,
            is_cpu=tensor.is_cpu and tensor.dim() == 0,
        )

    def define_scalar(self, value: Number | DataType | None = None, dtype: Any = None) -> Scalar:
        """Defines a scalar: an input if `value` is missing or a DataType, otherwise a constant.

        define_scalar() and define_scalar(None) are float64 inputs, define_scalar(DataType.Int) an
        int64 one. Without `dtype`, constants are bool, int64, float64 or complex128. Raises
        DTypeError `cast-1` for a complex value of a real dtype, `scalar-fits-1` for an integer that
        does not fit into the dtype.
        """
        if isinstance(value, DataType):
            value, dtype = None, value
        if value is None:
            return _core.define_scalar(
                self._builder, as_dtype(DataType.Double if dtype is None else dtype)
            )
        return _core.constant(self._builder, value, None if dtype is None else as_dtype(dtype))

    def define_constant(self, value: Number, dtype: Any = None) -> Scalar:
        """Alias of define_scalar() for a constant, used by older definitions."""
        return self.define_scalar(value, dtype)

    def define_vector(self, size: int | Sequence[Size], dtype: Any = DataType.Int) -> Vector:
        """Defines a vector of `size` scalar inputs, e.g. a shape known at run time; a list defines
        constants. Raises ShapeError `define-vector-1` for a size below 0 or above 65535.
        """
        if isinstance(size, int):
            if not 0 <= size < _MOST_SCALARS:
                raise ShapeError(
                    f"define_vector({size}): expected a size from 0 to {_MOST_SCALARS - 1}",
                    rule="define-vector-1",
                )
            return Vector(self.define_scalar(as_dtype(dtype)) for _ in range(size))
        return Vector(n if isinstance(n, Scalar) else self.define_scalar(n, dtype) for n in size)

    def random_state(self, ops: int = 1) -> tuple[Scalar, Scalar]:
        """Returns (seed, offset), drawn in each run from torch's default generator of the device.
        Reserves 4 offsets for each of the next `ops` random ops; the run advances the generator by
        them. Random ops without explicit state, e.g. fd.ops.uniform(), call this. The offset is
        torch's, as fd.ops.random32() takes it; an `rng_offset` is a quarter of it. Raises UserError
        `random-1` if `ops` < 1.
        """
        return _core.random_state(self._builder, ops)

    def add_output(
        self,
        output: Tensor | Scalar,
        alias_input: Tensor | Sequence[int] | None = None,
        *,
        stride_order: Sequence[int] | None = None,
    ) -> None:
        """Adds `output` to the results. With `alias_input` it becomes an in-place output instead:
        it is stored into that input and not returned. A Scalar becomes a 0-dim tensor.

        A tensor may be added both with and without `alias_input`, in either order. Then it is
        stored and returned: the result is the memory of its last `alias_input`, as for torch's
        `y = x.add_(1)`. If several tensors are stored into one input, the last one counts, also for
        results that share the memory. `alias_input` may be an in-place output; it then names the
        input of that output. Tensors computed from `output`, including slices, permutes,
        fd.ops.set() and `stride_order`, have their own memory and values.

        A result without computed elements is a view of its input if torch would return a view: an
        input, its slices, its permutes, and reshapes of contiguous dims. fd.ops.set() gives it its
        own memory. A result that is an input, or a view of an input, gets its own memory if the
        definition overwrites that input; it holds the values from before. `stride_order`, also
        accepted as second argument, is the argument of fd.ops.stride_order().

        Raises ShapeError `alias-1` for another rank, `alias-4` for other sizes, DTypeError
        `alias-2` for another dtype, UserError `alias-4` if alias_input is neither an input nor an
        in-place output.
        """
        if alias_input is not None and not isinstance(alias_input, Tensor):
            alias_input, stride_order = None, alias_input
        if isinstance(output, Scalar):
            output = self.ops.full([], output, output.dtype())
        if stride_order:
            output = self.ops.stride_order(output, stride_order)
        _core.add_output(self._builder, output, alias_input)

    def validate_definition(self) -> None:
        """Raises UserError `definition-1` for an empty definition, `definition-2` for no output."""
        self._define()
        if not self._builder.inputs() and not self._builder.outputs():
            raise _Empty(
                "the definition is empty\n  hint: define inputs with fd.define_tensor(...) "
                "and a result with fd.add_output(...)",
                rule="definition-1",
            )
        if not self._builder.outputs():
            raise _Empty(
                "the definition has no output\n  hint: name a result with fd.add_output(...)",
                rule="definition-2",
            )

    # ---- running

    def __call__(self, *inputs: Any, **named: Any) -> NoReturn:
        """Raises UserError `execute-arguments`: call execute() with a list of inputs instead."""
        refuse_arguments(FusionDefinition.execute, len(inputs), named, "fd(...)")

    def execute(
        self,
        inputs: Sequence[Any] = _NOTHING,
        *misplaced: Any,
        device: torch.device | str | int | None = None,
        override_user_schedule: bool = False,
        capture_debug_output: bool = False,
        print_repro: bool = False,
        profile: bool = False,
        save_repro_inputs: bool = False,
        plan: Plans | None = None,
        schedules: Sequence[str] | None = None,
        _enable_options: Sequence[str] = (),
        _disable_options: Sequence[str] = (),
        **misspelled: Any,
    ) -> list[torch.Tensor]:
        """Runs the definition on `inputs` (tensors and numbers in order of definition).

        CUDA tensors run on their GPU and its current stream, CPU tensors on the host executor,
        DTensors on their mesh, as fuser.execute_with_dtensors() says.
        `device` (an index or torch.device) is required if no input tensor has a device. Returns
        results in the order of add_output(), without in-place outputs. The first run of each layout
        class compiles; later runs only launch.

        override_user_schedule  run without the schedule() of a subclass
        capture_debug_output    capture the output of FUSER_DUMP for debug_output()
        print_repro             print repro_script_for(inputs) before the run
        profile                 store the times of this run for profile()
        save_repro_inputs       store the layout (no data) of the inputs for last_repro_script()
        plan                    run this plan, from fd.plan(inputs), instead of the chosen one
        schedules               run these schedules, changed texts of fd.schedules(inputs, plan)
        _enable_options         options to set for this call: "host_debug" is FUSER_HOST_DEBUG=1;
        _disable_options        options to clear; names of nvFuser's options are ignored

        Raises UserError `definition-1`, `definition-2`; UserError, ShapeError or DTypeError
        `argument-...` for unsuitable inputs; UserError `plan-1` to `plan-3` for an unsuitable plan;
        UserError `schedule-1` to `schedule-5` for an illegal schedule (docs/design/schedules.md);
        Unsupported if no kernel can be generated; CompileError, LaunchError (`cuda-...`,
        `host-...`) and InternalError from lower layers, with a note that names a repro script.
        """
        if misplaced or misspelled or inputs is None:
            refuse_arguments(FusionDefinition.execute, 1 + len(misplaced), misspelled)
        run = self._run or self._open(override_user_schedule)
        try:
            if (
                plan is None
                and schedules is None
                and not (
                    save_repro_inputs
                    or _enable_options
                    or _disable_options
                    or capture_debug_output
                    or print_repro
                    or profile
                )
            ):
                return run(inputs, device)
            if save_repro_inputs:
                self._saved_inputs = [input_spec(value) for value in inputs]
            if print_repro:
                print(self.repro_script_for(inputs))
            with (
                options_set(_enable_options, _disable_options),
                captured_dumps(self) if capture_debug_output else nullcontext(),
            ):
                if not profile:
                    return run(inputs, device, plan_fields(plan, schedules))
                found: list[torch.Tensor]
                found, self._profile = profiled(run, inputs, device, plan_fields(plan, schedules))
                return found
        except (CompileError, LaunchError, InternalError) as error:
            keep_repro(repr(self), inputs, error)
            raise
        except TYPE_FAULTS as error:
            sharded = self._run_sharded(inputs, error)
            if sharded is not None:
                self._run = sharded
                return sharded(inputs, device, plan_fields(plan, schedules))
            given = locals()
            blame(FusionDefinition.execute, "execute", error, lambda _: given)
            raise

    def _open(self, override_user_schedule: bool) -> Any:
        """Closes the definition and creates its executor; under a schedule by hand, the function
        that runs it.
        """
        self._define()
        if self._has_mesh():
            from fuser.multidevice.run import run_of

            self._run = run_of(self, None)
            return self._run
        if self._overrides("schedule"):  # every run asks, so that an override counts for one run
            return self.fec.executor.execute if override_user_schedule else self._run_by_hand()
        self._run = self.fec.executor.execute
        return self._run

    def validate(
        self,
        inputs: Sequence[Any],
        reference_outputs: Sequence[torch.Tensor] | None = None,
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> list[torch.Tensor]:
        """Runs execute(inputs, device=device, **kwargs) and compares its results with a reference.

        The reference is `reference_outputs`, or fuser.evaluate in float64, which also checks
        in-place outputs. Dtypes and shapes must be equal; |result - reference| <= atol + rtol *
        |reference| with the tolerances of fuser.debug.validation.TOLERANCES by dtype, integers
        exactly, NaN equals NaN. If fuser.evaluate is the reference, the tolerance grows for long
        sums, and a float64 result of float32 arithmetic gets the tolerance of float32. Returns the
        results. Raises InternalError `validate-1` if they differ from evaluate (a bug: report
        repro_script_for(inputs)), UserError `validate-2` if they differ from `reference_outputs`.
        """
        from fuser.debug.validation import validate

        return validate(self, inputs, reference_outputs, device=device, **kwargs)

    def plan(self, inputs: Sequence[Any]) -> Plans:
        """The Plan of execute(inputs), or a tuple with a Plan per kernel, without the schedule() of
        a subclass. Compiles nothing.
        """
        plans = tuple(Plan(**fields) for fields in self.fec.executor.plans(inputs))
        return plans[0] if len(plans) == 1 else plans

    def schedules(self, inputs: Sequence[Any], plan: Plans | None = None) -> list[str]:
        """The schedules of execute(inputs, plan=plan) as text, one per kernel. Compiles nothing.

        A schedule is loops over dims of axes, the vectors of each access, what is staged where, and
        the launch. execute(inputs, schedules=...) runs changed texts. docs/design/schedules.md
        explains every line.
        """
        texts: list[str] = self.fec.executor.schedules(inputs, plan=plan_fields(plan))
        return texts

    def signature(self, inputs: Sequence[Any]) -> str:
        """The properties of `inputs` that the choice of kernels depends on; inputs of equal
        signature share kernels.
        """
        return str(self.fec.executor.signature(inputs))

    @property
    def fec(self) -> FusionExecutorCache:
        """The executor with its compiled kernels. Set it to another definition's executor to share
        kernels. Raises UserError `fec-2` unless that definition is equal.
        """
        if self._fec is None:
            self.validate_definition()
            with _first_use:
                if self._fec is None:
                    self._fec = FusionExecutorCache(self.fusion)
        return self._fec

    @fec.setter
    def fec(self, executors: FusionExecutorCache) -> None:
        if executors.fusion() != self.fusion:
            raise UserError(
                "fd.fec: the executor belongs to another definition\n"
                "  hint: compare fd.fusion with its fusion()",
                rule="fec-2",
            )
        self._builder.seal()
        self._fec, self._run = executors, None

    # ---- looking

    @property
    def fusion(self) -> Fusion:  # type: ignore[override]
        """The graph, for printing and comparison."""
        self._define()
        return self._fec.fusion() if self._fec else Fusion(self._builder, lambda: self.fec)

    def cuda_code_for(
        self,
        inputs: Sequence[Any],
        intrinsic_code: bool = False,
        override_user_schedule: bool = False,
        device: torch.device | str | int | None = None,
    ) -> str:
        """CUDA C of the kernels for `inputs`, including their helper functions if `intrinsic_code`;
        a comment if no kernel runs. The kernels follow the schedule() of a subclass unless
        `override_user_schedule`.
        """
        made = self._schedule_on(inputs, device, override_user_schedule)
        plan = None if made is None else made.fields
        return self.fec.get_cuda_kernel(inputs, intrinsic_code, device, plan=plan)

    def last_cuda_code(
        self, intrinsic_code: bool = False, override_user_schedule: bool = False
    ) -> str:
        """CUDA C of the kernels of the last run. Raises UserError `last-run-1` before the first
        run.
        """
        return self.fec.get_cuda_kernel(None, intrinsic_code)

    def last_repro_script(self) -> str:
        """Returns repro_script_for() the inputs of the last execute(..., save_repro_inputs=True).

        Raises UserError `repro-1` before the first of these runs.
        """
        if self._saved_inputs is None:
            raise UserError(
                "expected saved inputs, got none\n"
                "  hint: call execute(inputs, save_repro_inputs=True), or repro_script_for(inputs)",
                rule="repro-1",
            )
        return repro_script(repr(self), self._saved_inputs)

    def repro_script_for(self, inputs: Sequence[Any] | None = None) -> str:
        """Runnable Python that runs this definition on random inputs of the layout of `inputs`;
        without `inputs` it only prints the definition. Attach it to bug reports.
        """
        specs = None if inputs is None else [input_spec(value) for value in inputs]
        return repro_script(repr(self), specs)


def _are_strides(value: Any) -> bool:
    """True if `value` holds strides rather than contiguity flags. An empty list may be either."""
    return isinstance(value, list | tuple) and any(type(v) is int for v in value)


# Hide `misplaced` and `misspelled`, which execute() accepts only to name them in an error.
_signature = inspect.signature(FusionDefinition.execute)
FusionDefinition.execute.__signature__ = _signature.replace(  # type: ignore[attr-defined]
    parameters=[
        p.replace(default=p.empty) if name == "inputs" else p
        for name, p in _signature.parameters.items()
        if name not in ("misplaced", "misspelled")
    ]
)
for _type in (LegacyDefinition, FusionDefinition):
    for _name, _written in list(vars(_type).items()):
        # Leave execute() unwrapped to save the call; it reports wrong arguments itself.
        _shown = "define_tensor" if _name.startswith("_define_by_") else _name
        if inspect.isfunction(_written) and not _shown.startswith("_") and _name != "execute":
            setattr(_type, _name, checked(_written, _shown))
