"""FusionDefinition: what is to be computed, and the ways to run it and to look at it."""

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
from fuser.errors import CompileError, InternalError, LaunchError, ShapeError, UserError
from fuser.layout import compute_tensor_descriptor
from fuser.legacy import LegacyDefinition, captured_dumps, define_again
from fuser.measure import profiled
from fuser.ops import Number, Ops, Size, as_dtype
from fuser.plan import Plan, Plans, plan_fields
from fuser.refused import ONE_DEVICE, refuse
from fuser.repro import input_spec, keep_repro, repro_script
from fuser.torch_habits import refuse_arguments

if TYPE_CHECKING:
    import torch


_NOTHING: Any = None  # where execute() is given no inputs

# Held while a definition gets its executor: threads that meet it together share one.
_first_use = threading.Lock()


def _after_fork() -> None:
    global _first_use
    _first_use = threading.Lock()  # the other may be held by a thread that the child has not


os.register_at_fork(after_in_child=_after_fork)


# A run counts its scalars in 16 bits.
_MOST_SCALARS = 1 << 16


class _Empty(UserError, NotImplementedError):
    """A UserError where nvFuser raises NotImplementedError."""


class Fusion:
    """The graph behind a definition. Equality and hash are by structure: the same ops in the same
    order.
    """

    __slots__ = ("_executors", "builder")

    def __init__(
        self, builder: _core.Builder, executors: FusionExecutorCache | None = None
    ) -> None:
        self.builder = builder
        self._executors = executors

    def inputs(self) -> list[Tensor | Scalar]:
        """Tensors and symbolic scalars, in the order in which execute() takes them."""
        return self.builder.inputs()

    def outputs(self) -> list[Tensor]:
        """In the order of add_output(), those written into inputs among them."""
        return self.builder.outputs()

    def vals(self) -> list[Tensor | Scalar]:
        """Every value that has been defined: symbolic scalars, then tensors, in order."""
        scalars = [value for value in self.inputs() if isinstance(value, Scalar)]
        return [*scalars, *self.builder.tensors()]

    def print_math(self, from_outputs_only: bool = True) -> None:
        """Prints the definition. The argument is taken for compatibility: everything that was
        defined is printed.
        """
        print(self)

    def print_kernel(
        self, inputs: Sequence[Any] | None = None, *, compile_params: Any = None
    ) -> None:
        """Prints the CUDA C of the kernels for `inputs`, or without them of the last run.
        `compile_params` is nvFuser's, for schedules by hand, and changes nothing.
        """
        executors = self._executors or FusionExecutorCache(self)
        print(executors.get_cuda_kernel(inputs, intrinsic_code=True))

    def structure(self) -> bytes:
        """Canonical bytes: equal exactly for equal definitions. Source lines do not count."""
        return self.builder.structure()

    def records(self) -> dict[str, Any]:
        """The graph as plain data, operands before their users; what fuser.evaluate runs over."""
        return self.builder.records()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fusion):
            return NotImplemented
        return self.builder is other.builder or self.structure() == other.structure()

    def __hash__(self) -> int:
        return hash(self.structure())

    def __repr__(self) -> str:
        return self.builder.to_python()


class FusionDefinition(LegacyDefinition):
    """A computation on tensors, defined once and run on any sizes, as few kernels as it fits into.

        with FusionDefinition() as fd:
            x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.BFloat16)
            bias = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.BFloat16)
            fd.add_output(fd.ops.cast(fd.ops.gelu(x + bias), DataType.BFloat16))
        (y,) = fd.execute([x_data, bias_data])

    The `with` is optional. repr(fd) is Python that rebuilds the definition. The first execute()
    closes it: later definitions raise UserError `definition-3`. A subclass may define in its method
    definition() instead. copy, deepcopy and pickle make equal definitions, which are open again.

    id                        fd.id() of another definition, which this one is then too
    max_length                taken for compatibility; definitions have any length
    use_multidevice_executor  refused as Unsupported `devices-1`, like a backend_type
    """

    def __init__(
        self,
        id: int | None = None,
        max_length: int = 9999,
        use_multidevice_executor: bool = False,
        backend_type: Any = None,
    ) -> None:
        if use_multidevice_executor or backend_type is not None:
            refuse("FusionDefinition(use_multidevice_executor=True)", ONE_DEVICE, "devices-1")
        self._fec: FusionExecutorCache | None = None if id is None else FusionCache.get().find(id)
        self._saved_inputs: list[Any] | None = None
        self._begin(self._fec.fusion().builder if self._fec else _core.Builder())

    def _begin(self, builder: _core.Builder) -> None:
        self._builder = builder
        self.ops = Ops(builder)
        self._run: Any = None  # Executor.execute, once there is one
        self._is_defined = not self._overrides("definition")

    def _define(self) -> None:
        """Calls definition() of a subclass, once. Where it raises nothing half-built is left."""
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
        """An error raised inside passes through."""

    def __repr__(self) -> str:
        self._define()
        return self._builder.to_python()

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles hold the definition as text, and what else a subclass or a user put
        into it; they find the kernels by themselves."""
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
        """An input tensor, in one of two forms:

            define_tensor(shape, contiguity=False, dtype=DataType.Float, is_cpu=False,
                          stride_order=[])
            define_tensor(sizes, strides, dtype=DataType.Float, static_sizes=False, is_cpu=False)

        shape         a size per dim: -1 symbolic (any size), otherwise fixed; 1 broadcasts
        contiguity    as compute_tensor_descriptor() gives it, or one bool for all dims
        stride_order  place of each dim counted from the innermost; [] is row-major
        sizes         sizes of an example tensor: 0 and 1 are fixed, others symbolic unless
                      static_sizes
        strides       of the example tensor, in elements
        is_cpu        a 0-dim tensor on the CPU that is read like a scalar by a GPU kernel

        Contiguity and strides are a description; runs take any strides and find the layout by
        themselves. Raises ShapeError `define-tensor-1` for a negative size, `define-tensor-2` for
        contiguity of another length, `define-tensor-3` for a stride_order that is not a
        permutation.
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
        shape = [operator.index(n) for n in shape]  # a TypeError for a Scalar
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
        """An input tensor with the sizes (symbolic unless `static_sizes`), strides and type of
        `tensor`. Raises UserError `from-pytorch-1` for one without strides: sparse, nested or of
        MKL-DNN.
        """
        if tensor.is_nested or "strided" not in str(tensor.layout):
            raise UserError(
                f"from_pytorch(): tensor: expected a strided tensor, got one of {tensor.layout}\n"
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
        """A scalar: an input of the runs where `value` is None or a type, otherwise the constant.

        define_scalar() and define_scalar(None) are float64 inputs, define_scalar(DataType.Int) an
        int64 one. Constants are bool, int64, float64 or complex128 unless `dtype` says otherwise:
        DTypeError `cast-1` for a complex value of a real type, `scalar-fits-1` for an integer that
        the type does not hold.
        """
        if isinstance(value, DataType):
            value, dtype = None, value
        if value is None:
            return _core.define_scalar(
                self._builder, as_dtype(DataType.Double if dtype is None else dtype)
            )
        return _core.constant(self._builder, value, None if dtype is None else as_dtype(dtype))

    def define_constant(self, value: Number, dtype: Any = None) -> Scalar:
        """define_scalar() of a value, under the name that older definitions use."""
        return self.define_scalar(value, dtype)

    def define_vector(self, size: int | Sequence[Size], dtype: Any = DataType.Int) -> Vector:
        """`size` inputs of the runs, as for a shape that only they know; or of a list its numbers
        as constants. Raises ShapeError `define-vector-1` for a size below 0 or above 65535.
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
        """Seed and offset of each run for the next `ops` random ops, at distances of 4: taken from
        torch's default generator of the device, which the run moves on. fd.ops.uniform() and its
        like call it where they are given none. The offset is torch's, as fd.ops.random32() takes
        it; an `rng_offset` is a quarter of it. Raises UserError `random-1` for no op.
        """
        return _core.random_state(self._builder, ops)

    def add_output(
        self,
        output: Tensor | Scalar,
        alias_input: Tensor | Sequence[int] | None = None,
        *,
        stride_order: Sequence[int] | None = None,
    ) -> None:
        """`output` becomes a result; with `alias_input` it is written into that input instead and
        not returned. A Scalar becomes a tensor of no dims.

        A tensor that is added with and without `alias_input`, in either order, is written and
        returned: the result is the memory of that input (of the last of several), as torch's
        `y = x.add_(1)` is x. If several tensors are written into one input, the last one counts,
        also for results that are that memory. `alias_input` may be a tensor that is written into
        an input by now: it names that input. A tensor computed from the written one has
        memory and values of its own: a slice or a permutation, too, and the results of
        fd.ops.set() and `stride_order`.

        A result of which no element is computed is a view of its input where torch's would be: an
        input itself, its slices, permutes, and reshapes of what lies together. fd.ops.set() gives
        it memory of its own. So has a result that is an input which the definition overwrites, or a
        view of one: it holds what was there before. `stride_order`, which may stand second, is
        that of fd.ops.stride_order().

        Raises ShapeError `alias-1` for another rank, `alias-4` for other sizes, DTypeError
        `alias-2` for another type, UserError `alias-4` for a tensor that is neither an input nor
        written into one.
        """
        if alias_input is not None and not isinstance(alias_input, Tensor):
            alias_input, stride_order = None, alias_input
        if isinstance(output, Scalar):
            output = self.ops.full([], output, output.dtype())
        if stride_order:
            output = self.ops.stride_order(output, stride_order)
        _core.add_output(self._builder, output, alias_input)

    def validate_definition(self) -> None:
        """Raises UserError `definition-1` for an empty definition, `definition-2` for one without
        an output.
        """
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
        """Raises UserError `execute-arguments`: it is execute() that runs, and takes a list."""
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
        _enable_options: Sequence[str] = (),
        _disable_options: Sequence[str] = (),
        **misspelled: Any,
    ) -> list[torch.Tensor]:
        """The results on `inputs`: tensors and numbers in the order of definition.

        CUDA tensors run on their GPU and its current stream, CPU tensors on the host executor.
        `device` (an index or torch.device) is needed where no tensor says it. Results come in the
        order of add_output(); those written into inputs are not among them. The first run of a kind
        of layout compiles; later ones only launch.

        override_user_schedule  run although a subclass has a schedule(), which is refused otherwise
        capture_debug_output    keep what FUSER_DUMP selects for debug_output()
        print_repro             print repro_script_for(inputs) before the run
        profile                 keep the times of this run for profile()
        save_repro_inputs       keep the layout (no data) of the inputs for last_repro_script()
        plan                    run this plan, of fd.plan(inputs), instead of the chosen one
        _enable_options         switches of this call by name: "host_debug" is FUSER_HOST_DEBUG=1;
        _disable_options        those of nvFuser are taken and change nothing

        Raises UserError `definition-1`, `definition-2`, and for inputs that do not fit UserError,
        ShapeError or DTypeError `argument-...`; UserError `plan-1` to `plan-3` for a plan that does
        not; Unsupported where no kernel can be made; CompileError, LaunchError (`cuda-...`,
        `host-...`) and InternalError from below, with the run as a script in a file that a note
        names.
        """
        if misplaced or misspelled or inputs is None:
            refuse_arguments(FusionDefinition.execute, 1 + len(misplaced), misspelled)
        run = self._run or self._open(override_user_schedule)
        try:
            if plan is None and not (
                save_repro_inputs
                or _enable_options
                or _disable_options
                or capture_debug_output
                or print_repro
                or profile
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
                    return run(inputs, device, plan_fields(plan))
                found: list[torch.Tensor]
                found, self._profile = profiled(run, inputs, device, plan_fields(plan))
                return found
        except (CompileError, LaunchError, InternalError) as error:
            keep_repro(repr(self), inputs, error)
            raise
        except TYPE_FAULTS as error:
            given = locals()
            blame(FusionDefinition.execute, "execute", error, lambda _: given)
            raise

    def _open(self, override_user_schedule: bool) -> Any:
        """Closes the definition and makes its executor, or raises for a schedule by hand."""
        self._define()
        self._check_schedules(override_user_schedule)
        run = self.fec.executor.execute
        if not self._overrides("schedule"):  # else every run is asked
            self._run = run
        return run

    def validate(
        self,
        inputs: Sequence[Any],
        reference_outputs: Sequence[torch.Tensor] | None = None,
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> list[torch.Tensor]:
        """execute(inputs, device=device, **kwargs), and its results once they agree with the
        reference.

        The reference is `reference_outputs`, or fuser.evaluate in float64, where outputs that are
        written into inputs are compared too. Types and shapes must be equal; |result - reference|
        <= atol + rtol * |reference| by type as in fuser.validation.TOLERANCES, integers exactly,
        NaN equals NaN. Where fuser.evaluate is the reference, results of long sums have more, and
        float64 of what was computed in float32 has that of float32. Raises InternalError
        `validate-1` where evaluate differs (a bug: report repro_script_for(inputs)), UserError
        `validate-2` where `reference_outputs` do.
        """
        from fuser.validation import validate

        return validate(self, inputs, reference_outputs, device=device, **kwargs)

    def plan(self, inputs: Sequence[Any]) -> Plans:
        """How execute(inputs) would run: a Plan, or a tuple of one for each kernel. Compiles
        nothing.
        """
        plans = tuple(Plan(**fields) for fields in self.fec.executor.plans(inputs))
        return plans[0] if len(plans) == 1 else plans

    def signature(self, inputs: Sequence[Any]) -> str:
        """What of `inputs` the choice of kernels depends on; inputs of one signature share their
        kernels.
        """
        return str(self.fec.executor.signature(inputs))

    @property
    def fec(self) -> FusionExecutorCache:
        """The executor with its compiled kernels. Setting it shares another's: UserError `fec-2`
        unless that one's definition is equal."""
        if self._fec is None:
            self.validate_definition()
            with _first_use:
                if self._fec is None:
                    self._fec = FusionExecutorCache(Fusion(self._builder))
        return self._fec

    @fec.setter
    def fec(self, executors: FusionExecutorCache) -> None:
        if executors.fusion() != self.fusion:
            raise UserError(
                "fd.fec: the executor is of another definition\n"
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
        return self._fec.fusion() if self._fec else Fusion(self._builder)

    def cuda_code_for(
        self,
        inputs: Sequence[Any],
        intrinsic_code: bool = False,
        override_user_schedule: bool = False,
        device: torch.device | str | int | None = None,
    ) -> str:
        """CUDA C of the kernels for `inputs`, with the helpers that they use if
        `intrinsic_code`; a comment where no kernel runs.
        """
        return self.fec.get_cuda_kernel(inputs, intrinsic_code, device)

    def last_cuda_code(
        self, intrinsic_code: bool = False, override_user_schedule: bool = False
    ) -> str:
        """CUDA C of the kernels of the last run. Raises UserError `last-run-1` before the first."""
        return self.fec.get_cuda_kernel(None, intrinsic_code)

    def last_repro_script(self) -> str:
        """repro_script_for the inputs of the last execute(..., save_repro_inputs=True).

        Raises UserError `repro-1` if there was none.
        """
        if self._saved_inputs is None:
            raise UserError(
                "no inputs were kept\n"
                "  hint: call execute(inputs, save_repro_inputs=True), or repro_script_for(inputs)",
                rule="repro-1",
            )
        return repro_script(repr(self), self._saved_inputs)

    def repro_script_for(self, inputs: Sequence[Any] | None = None) -> str:
        """Runnable Python: this definition, run on random inputs of the layout of `inputs`; without
        them it is only printed. Put it into a bug report."""
        specs = None if inputs is None else [input_spec(value) for value in inputs]
        return repro_script(repr(self), specs)


def _are_strides(value: Any) -> bool:
    """Is it strides rather than contiguity? An empty list is either, for the same tensor."""
    return isinstance(value, list | tuple) and any(type(v) is int for v in value)


# Arguments that it does not have are taken to be named in the error.
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
        # A call of execute() is too short for another one around it: it looks by itself.
        _shown = "define_tensor" if _name.startswith("_define_by_") else _name
        if inspect.isfunction(_written) and not _shown.startswith("_") and _name != "execute":
            setattr(_type, _name, checked(_written, _shown))
