"""Parameters of nvFuser's schedulers and launches, under its names.

The fields are nvFuser's. `translate` reads those that have a counterpart in a Plan; a run names the
other fields that a program changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from fuser.nvfuser.schedule.types import ParallelType, SchedulerType

_SERIAL = ParallelType.serial


@dataclass(slots=True)
class LaunchParams:
    """Numbers of blocks and of threads per block; -1: as planned."""

    gdimx: int = -1
    gdimy: int = -1
    gdimz: int = -1
    bdimx: int = -1
    bdimy: int = -1
    bdimz: int = -1

    def threads(self) -> dict[str, int]:
        """The numbers of threads that are set, by dim."""
        given = {"x": self.bdimx, "y": self.bdimy, "z": self.bdimz}
        return {dim: count for dim, count in given.items() if count > 0}


@dataclass(slots=True)
class CompileParams:
    """Compile options of a kernel. fuser chooses them; they are accepted and ignored."""

    index_type: Any = None
    maxrregcount: int = 255
    enable_magic_zero: bool = True
    enable_ptxas_verbose: bool = False
    device: Any = None
    include_paths: list[str] = field(default_factory=list)


@dataclass(slots=True)
class HeuristicParams:
    """Fields of the parameters of every scheduler."""

    tag: str = ""
    lparams: LaunchParams = field(default_factory=LaunchParams)
    cparams: CompileParams = field(default_factory=CompileParams)
    scheduler_type: Any = SchedulerType.none


@dataclass(slots=True)
class PointwiseParams(HeuristicParams):
    """Parameters of the pointwise scheduler."""

    scheduler_type: Any = SchedulerType.pointwise
    break_point: int = 0
    split_block: bool = False
    split_grid_y_dim: bool = False
    flip_grid_binding: bool = False
    vectorization_factor: int = 1
    unroll_factor_inner: int = 1
    unroll_factor_outer: int = 1


@dataclass(slots=True)
class ReductionParams(HeuristicParams):
    """Parameters of the reduction scheduler and of the persistent ones."""

    scheduler_type: Any = SchedulerType.reduction
    fastest_dim: bool = False
    persistent_kernel: bool = False
    project_persistent_buffers: bool = False
    schedule_3D: bool = False
    flip_grid: bool = False
    cross_block_inner_reduction: bool = False
    cross_grid_inner_reduction: bool = False
    unroll_factor_inner_reduction: int = 1
    unroll_factor_top_of_vectorization: int = 1
    vectorize_inner_reduction: bool = False
    split_grid_dim_inner_reduction: bool = False
    pad_inner_reduction_to_warp: bool = False
    batches_per_block_inner_reduction: int = 1
    block_dim_inner_reduction: Any = _SERIAL
    grid_dim_inner_reduction: Any = _SERIAL
    multiple_reds_per_blk: bool = False
    unroll_factor_iter_dom: int = 1
    vectorize_iter_dom: bool = False
    split_grid_dim_iter_dom_inner: bool = False
    split_grid_dim_iter_dom_outer: bool = False
    block_dim_iter_dom: Any = _SERIAL
    grid_dim_iter_dom: Any = _SERIAL
    cross_block_outer_reduction: bool = False
    cross_grid_outer_reduction: bool = False
    batches_per_block_outer_reduction: int = 1
    unroll_factor_outer_reduction: int = 1
    block_dim_outer_reduction: Any = _SERIAL
    grid_dim_outer_reduction: Any = _SERIAL
    compute_persistent_buffer_with_first_consumer: bool = False
    static_bdimx: bool = False
    static_bdimy: bool = False
    combined_inner_outer: bool = False
    tidx_for_outer_reduction: bool = False
    pad_outer_reduction_to_warp: bool = False
    combined_split_grid_inner_dim: bool = False
    vectorization_factor_outer: int = 1
    vectorization_factor_tmp_gmem_write: int = 1
    block_dim_inner_reduction_extra: Any = _SERIAL
    shared_mem_persistent_buffer: bool = False


class MatmulParams:
    """Parameters of the matmul scheduler: torch multiplies matrices, so fields are only stored."""

    scheduler_type = SchedulerType.matmul

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


@dataclass(slots=True)
class SchedulerHyperParameters:
    """Limits for the parameters that schedule() computes; 0: as planned."""

    vectorize_factor: int = 0
    unroll_factor: int = 0
    threads_per_block_min: int = 0
    threads_per_block_max: int = 0


def changed(params: HeuristicParams, base: HeuristicParams) -> dict[str, Any]:
    """Fields that differ from `base`, those of lparams by their own names; without cparams."""
    found = {}
    for one, other in ((params, base), (params.lparams, base.lparams)):
        for f in fields(one):
            value = getattr(one, f.name, None)
            skipped = f.name in ("lparams", "cparams", "tag", "scheduler_type")
            if not skipped and value != getattr(other, f.name, None):
                found[f.name] = value
    return found
