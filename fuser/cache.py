"""Caches between runs: executors of definitions, numbered definitions, and their counters."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from weakref import WeakSet, WeakValueDictionary

from fuser import _core
from fuser._native import load_torch
from fuser.arguments import checked
from fuser.errors import UserError
from fuser.fusion import Fusion
from fuser.nvfuser.absent import refuse
from fuser.nvfuser.serialization import defined, is_definition

if TYPE_CHECKING:
    import torch

    from fuser.definition import FusionDefinition


class CacheInfo(NamedTuple):
    """Contents and counters of the caches of this process. Kernels of the host executor count like
    GPU kernels.
    """

    definitions: int  # live executors
    plans: int  # layout classes with chosen kernels
    kernels_compiled: int
    kernels_from_disk: int
    hits: int  # runs that found all kernels ready
    misses: int  # runs that had to look up or build a kernel
    compile_seconds: float
    kernels_specialized: int  # kernels with constant sizes, compiled in the background
    specializations_failed: int  # calls that permanently use their generic kernels


def cache_info() -> CacheInfo:
    """Counters of this process since its start, or since clear_caches()."""
    return CacheInfo(**load_torch().cache_info())


@checked
def clear_caches(disk: bool = False) -> None:
    """Drops all compiled kernels of this process; with `disk` also the kernels in the cache folder.
    Do not call it while a kernel runs.
    """
    load_torch().clear_caches(disk)


def specialize_after(runs: int) -> None:
    """Specializes kernels for a shape after `runs` runs with it: its sizes become constants. The
    specialized kernel is compiled in the background and replaces the generic one between two calls;
    results keep their bits. 0 (default) disables it.

    Sets the option FUSER_SPECIALIZE_AFTER. Useful only for kernels of a few microseconds: longer
    kernels are limited by memory bandwidth and do not gain. At most 16 shapes per definition are
    specialized; cache_info() counts the kernels.
    """
    _core.set_option("FUSER_SPECIALIZE_AFTER", str(runs))


class FusionExecutorCache:
    """Compiles a definition for the inputs of its runs and caches the kernels.

    `fd.fec` is an instance; equal definitions that are given one instance share its kernels.
    `fusion_id` and `auto_schedule` are accepted for compatibility: every definition is scheduled.
    """

    _uncounted_by: FusionCache | None = None

    @functools.partial(checked, name="FusionExecutorCache")
    def __init__(self, fusion: Fusion, fusion_id: int = 0, auto_schedule: bool = True) -> None:
        if not auto_schedule:
            raise UserError(
                "FusionExecutorCache(auto_schedule=False): it runs planned kernels alone\n"
                "  hint: fd.manual_execute(inputs) runs a schedule by hand",
                rule="fec-1",
            )
        self.fusion_id = fusion_id
        self._builder = fusion.builder
        self._builder.seal()
        self.executor = load_torch().Executor(self._builder)
        self._uncounted_by = FusionCache.get()
        self._uncounted_by.note(self)

    def __del__(self) -> None:
        if self._uncounted_by is not None and not sys.is_finalizing():
            self._uncounted_by.number(self)

    def fusion(self) -> Fusion:
        """The compiled definition."""
        return Fusion(self._builder, lambda: self)

    def execute(
        self,
        inputs: Sequence[Any],
        *,
        device: Any = None,
        _enable_options: Sequence[str] = (),
        _disable_options: Sequence[str] = (),
    ) -> list[torch.Tensor]:
        """Runs the definition on `inputs`; see FusionDefinition.execute."""
        with options_set(_enable_options, _disable_options):
            return self.executor.execute(inputs, device, None)

    def is_compiled(self, inputs: Sequence[Any], device: Any = None) -> bool:
        """True if execute(inputs) would compile nothing."""
        return bool(self.executor.is_compiled(inputs, device))

    def get_cuda_kernel(
        self,
        inputs: Sequence[Any] | None = None,
        intrinsic_code: bool = False,
        device: Any = None,
        *,
        plan: Any = None,
    ) -> str:
        """CUDA C of the kernels for `inputs` (default: of the last run), including their helper
        functions if `intrinsic_code`. `plan` is a plan in the executor's form.
        """
        kernels = self._kernels(inputs, device, plan)
        return "\n".join(kernel_text(kernel.text, intrinsic_code) for kernel in kernels) or _NONE

    def get_scheduled_ir(
        self,
        inputs: Sequence[Any],
        tensor_transforms: bool = False,
        device: Any = None,
        *,
        plan: Any = None,
    ) -> str:
        """The schedules of the kernels for `inputs`; with `tensor_transforms` also their plans.
        `plan` is a plan in the executor's form.
        """
        return self._schedules(inputs, tensor_transforms, device, plan)

    def get_most_recent_scheduled_ir(self, tensor_transforms: bool = False) -> str:
        """The schedules of the kernels of the last run. Raises UserError `last-run-1` before the
        first run.
        """
        return self._schedules(None, tensor_transforms, None)

    def get_output_shardings(self) -> NoReturn:
        """Raises Unsupported `devices-1`: results are DTensors, which have placements."""
        refuse(
            "fec.get_output_shardings()",
            "placements follow from the inputs of a call\n"
            "  hint: fuser.execute_with_dtensors(fd, inputs)[0].placements",
            "devices-1",
        )

    def _schedules(
        self, inputs: Sequence[Any] | None, with_plans: bool, device: Any, plan: Any = None
    ) -> str:
        parts = []
        for kernel in self._kernels(inputs, device, plan):
            parts.append(kernel.schedule)
            if with_plans:
                parts.append(str(kernel.plan))
        return "\n".join(parts) or _NONE

    def _kernels(self, inputs: Sequence[Any] | None, device: Any, plan: Any = None) -> list[Any]:
        kernels: list[Any] = self.executor.kernels(inputs, device, plan)
        if inputs is None and not self.executor.has_run():
            raise UserError(
                "expected an earlier call of execute(), got none\n"
                "  hint: call execute(inputs) first, or pass inputs",
                rule="last-run-1",
            )
        return kernels


def kernel_text(text: str, intrinsic_code: bool) -> str:
    """Returns the complete text if `intrinsic_code`, otherwise the text from the kernel's own first
    line on.
    """
    heads = ("\nKERNEL(", "\nKERNEL2(", "\nstatic void ")  # the last one is that of a CPU kernel
    start = max(text.rfind(head) for head in heads)
    return text if intrinsic_code or start < 0 else text[start + 1 :]


# Text returned for a run without kernels.
_NONE = "// no kernel runs: every result is a view, has no elements, or is computed by torch\n"


# Option names of nvFuser without a counterpart here. They are accepted and ignored.
_SWITCHES_OF_NVFUSER = (
    # to enable
    "cutlass_scheduler fast_math fuse_matmul fuse_multiple_matmuls host_ir_jit host_ir_lowering "
    "id_model id_model_extra_validation insert_resharding_after io_to_lower_precision kernel_db "
    "kernel_debug kernel_lineinfo kernel_profile memory_promotion multicast_protocol p2p_protocol "
    "p2p_transport reuse_zeroed_memory static_fusion_count tma_inner_persistent tma_pointwise "
    "tma_reduction wait_debugger warn_register_spill ws_normalization "
    # to disable
    "compile_to_sass contig_indexing expr_simplify fallback fma greedy_scheduler "
    "grouped_grid_welford_outer_opt index_hoist infer_contiguity kernel_reuse magic_zero "
    "matmul_expr_eval multidevice nvrtc_caching nvtx parallel_compile predicate_elimination "
    "python_inline_definitions resize_scheduler reuse_mismatched_type_registers "
    "var_name_remapping welford_vectorization"
)


@contextmanager
def options_set(enabled: Sequence[str], disabled: Sequence[str]) -> Iterator[None]:
    """Sets options in a `with` block: options_set(["host_debug"], ["cache"]) sets FUSER_HOST_DEBUG
    to 1 and FUSER_CACHE to 0. Option names of nvFuser are ignored.

    Raises UserError `option-flag` for an unknown name.
    """
    wanted = {variable: "1" for name in enabled if (variable := _variable(name))}
    wanted |= {variable: "0" for name in disabled if (variable := _variable(name))}
    with options_being(wanted):
        yield


@contextmanager
def options_being(wanted: dict[str, str]) -> Iterator[None]:
    """Sets options to the given values, e.g. {"FUSER_HOST_DEBUG": "1"}, in a `with` block."""
    before = {variable: _core.get_option(variable) for variable in wanted}
    try:
        for variable, value in wanted.items():
            _core.set_option(variable, value)
        yield
    finally:
        for variable, value in before.items():
            _core.set_option(variable, value)


def _variable(name: str) -> str | None:
    """Maps "host_debug" to FUSER_HOST_DEBUG, and options of nvFuser, which may have arguments as in
    "id_model(all)", to None.
    """
    flags = [variable for variable, kind, *_ in _core.option_rows() if kind == "Flag"]
    variable = f"FUSER_{name.upper()}"
    if variable not in flags:
        if name.partition("(")[0] in _SWITCHES_OF_NVFUSER.split():
            return None
        known = ", ".join(v.removeprefix("FUSER_").lower() for v in flags)
        raise UserError(
            f"no option {name!r} to enable or disable; expected one of {known}", rule="option-flag"
        )
    return variable


class FusionCache:
    """The closed definitions of this process, by structure, under the numbers of fd.id().

    FusionCache.get() returns the only instance. It stores digests and weak references: once a
    definition is garbage collected, only its number remains. Kernels are cached independently, in
    memory and on disk; see cache_info() and FUSER_CACHE_DIR.
    """

    _the_one: FusionCache | None = None

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._next = itertools.count()
        self._alive: WeakValueDictionary[int, FusionExecutorCache] = WeakValueDictionary()
        # Executors without a number yet. Numbering hashes all ops and few programs need numbers, so
        # it is delayed until a number is requested or the executor is deleted.
        self._unnumbered: WeakSet[FusionExecutorCache] = WeakSet()
        self._kept: list[FusionExecutorCache] = []  # executors created by deserialize()

    @classmethod
    def get(
        cls,
        max_fusions: int = 16384,
        selected_device: int | None = None,
        load_from_default_workspace: bool = True,
    ) -> FusionCache:
        """Returns the only instance. The arguments are nvFuser's and are ignored."""
        if cls._the_one is None:
            cls._the_one = FusionCache()
        return cls._the_one

    @classmethod
    def reset(cls) -> None:
        """Drops all numbers and all compiled kernels of this process. Live definitions can still
        run.
        """
        cache = cls._the_one
        if cache is not None:  # keep the instance that get() returned
            for executors in list(cache._unnumbered):
                executors._uncounted_by = None  # prevents numbering in __del__
            cache._forget()
        clear_caches()

    def note(self, executors: FusionExecutorCache) -> None:
        """Counts the definition of `executors` from now on."""
        self._unnumbered.add(executors)

    def number(self, executors: FusionExecutorCache) -> int:
        """Returns the number of the definition of `executors`."""
        return self._number(executors)

    def _number(self, executors: FusionExecutorCache, wanted: int | None = None) -> int:
        """Returns the number of the definition. If it has no number yet, assigns `wanted` or else
        the next free number.
        """
        self._unnumbered.discard(executors)
        executors._uncounted_by = None
        digest = hashlib.sha256(executors.fusion().structure()).digest()
        number = self._numbers.get(digest)
        if number is None:  # itertools.count is thread-safe
            new = next(self._next) if wanted is None else wanted
            number = self._numbers.setdefault(digest, new)
        self._alive.setdefault(number, executors)
        return number

    def find(self, number: int) -> FusionExecutorCache:
        """Returns the executor of the definition with this number. Raises UserError `fusion-id-1`
        if no live definition has it.
        """
        found = self._alive.get(number)
        if found is None:
            raise UserError(
                f"FusionDefinition(id={number}): no live definition has this id\n"
                "  hint: keep a reference to the definition as long as you use fd.id()",
                rule="fusion-id-1",
            )
        return found

    def num_fusions(self) -> int:
        """Number of different definitions that a run or an inspection has closed."""
        for executors in list(self._unnumbered):
            self.number(executors)
        return len(self._numbers)

    def stats(self) -> str:
        """One line: number of definitions and the counters of cache_info()."""
        counts = ", ".join(f"{name} {value:g}" for name, value in cache_info()._asdict().items())
        return f"{self.num_fusions()} fusions; {counts}"

    def print_stats(self) -> None:
        """Prints stats()."""
        print(self.stats())

    def serialize(self, filename: str = "") -> None:
        """Writes live definitions with their numbers as text to `filename` (default:
        definitions.json in the kernel cache folder). Kernels are stored on disk independently.
        """
        self.num_fusions()
        texts = {number: repr(of.fusion()) for number, of in sorted(self._alive.items())}
        path = _definitions_file(filename)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(texts, indent=1), encoding="utf-8")

    def deserialize(self, filename: str = "") -> None:
        """Recreates the definitions that serialize() wrote, under equal numbers if these are free,
        and keeps them alive; their kernels come from disk. Raises UserError `serialize-1` if the
        file cannot be read or holds anything but definitions; then it defines nothing.
        """
        path = _definitions_file(filename)
        try:
            texts = {int(n): text for n, text in json.loads(path.read_text("utf-8")).items()}
            for number, text in texts.items():
                if not is_definition(text):
                    raise ValueError(f"entry {number} is not a definition")
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UserError(
                f"FusionCache.deserialize(): {path} does not contain definitions: {error}\n"
                "  hint: FusionCache.get().serialize(filename) writes a valid file",
                rule="serialize-1",
            ) from error
        # Number new definitions after the numbers of the file.
        self._next = itertools.count(max(next(self._next), max(texts, default=-1) + 1))
        taken = set(self._numbers.values())
        for number, text in texts.items():
            fd = defined(text)
            self._kept.append(fd.fec)
            self._number(fd.fec, None if number in taken else number)


def _definitions_file(filename: str) -> Path:
    if filename:
        return Path(filename)
    return Path(_core.store_directory(_core.get_option("FUSER_CACHE_DIR"))) / "definitions.json"


class LRUCache:
    """Executors of the most recently used definitions, by structure: equal definitions share one
    executor.

    A lookup prints the definition once; equality compares the complete structure, not a hash.
    """

    @functools.partial(checked, name="LRUCache")
    def __init__(self, max_fusions: int = 16384) -> None:
        if max_fusions < 1:
            raise UserError(
                f"LRUCache(): max_fusions: expected at least 1, got {max_fusions}", rule="lru-1"
            )
        self.max_fusions = max_fusions
        self._entries: OrderedDict[bytes, FusionExecutorCache] = OrderedDict()
        self._hits = self._misses = self._evicted = 0

    @checked
    def cache_compile(self, fusion: Fusion) -> FusionExecutorCache:
        """Returns the executor of an equal definition if there is one, otherwise a new executor."""
        key = fusion.structure()
        found = self._entries.get(key)
        if found is not None:
            self._hits += 1
            self._entries.move_to_end(key)
            return found
        self._misses += 1
        made = self._entries[key] = FusionExecutorCache(fusion, fusion_id=self._misses - 1)
        if len(self._entries) > self.max_fusions:
            self._entries.popitem(last=False)
            self._evicted += 1
        return made

    def num_fusions(self) -> int:
        """Number of cached definitions."""
        return len(self._entries)

    def stats(self) -> str:
        """One line: number of cached definitions, hits, misses and evictions."""
        return (
            f"{self.num_fusions()} of at most {self.max_fusions} fusions, {self._hits} hits, "
            f"{self._misses} misses, {self._evicted} evicted"
        )


@checked
def LruFusionCache(
    max_fusions: int = 16384,
) -> Callable[[Callable[..., FusionDefinition]], Callable[..., FusionDefinition]]:
    """Decorator for a function that returns a FusionDefinition: equal results share their compiled
    kernels.

    The decorated function has the attributes `cache`, `num_fusions` and `stats`.
    """

    LRUCache(max_fusions)  # raises here for a wrong number, not at the decorated function

    def decorate(function: Callable[..., FusionDefinition]) -> Callable[..., FusionDefinition]:
        cache = LRUCache(max_fusions)

        @functools.wraps(function)
        def cached(*args: Any, **kwargs: Any) -> FusionDefinition:
            fd = function(*args, **kwargs)
            fd.validate_definition()
            fd.fec = cache.cache_compile(fd.fusion)
            return fd

        for name, value in [
            ("cache", cache),
            ("num_fusions", cache.num_fusions),
            ("stats", cache.stats),
        ]:
            setattr(cached, name, value)
        return cached

    return decorate
