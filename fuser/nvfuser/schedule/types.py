"""Enumerations of nvFuser's scheduling API, under its names."""

from __future__ import annotations

from enum import Enum

ParallelType = Enum(
    "ParallelType",
    "device_x device_y device_z mesh_x mesh_y mesh_z grid_x grid_y grid_z block_x block_y block_z "
    "mma tma vectorize unroll unswitch group serial stream cluster_x",
)
MemoryType = Enum("MemoryType", "local shared global tensor symmetric")
SchedulerType = Enum(
    "SchedulerType",
    "none no_op pointwise matmul reduction inner_persistent inner_outer_persistent "
    "outer_persistent transpose expr_eval resize communication cutlass greedy",
)
LoadStoreOpType = Enum(
    "LoadStoreOpType", "set segment_set ld_matrix cp_async tma load_matrix load_matrix_transpose"
)
CacheOp = Enum("CacheOp", "unspecified all_levels streaming global")

# Names of parallel types as nvFuser prints them in an axis: ithreadIdx.x5{128}.
PRINTED = {
    **{f"grid_{d}": f"blockIdx.{d}" for d in "xyz"},
    **{f"block_{d}": f"threadIdx.{d}" for d in "xyz"},
    **{f"device_{d}": f"deviceIdx.{d}" for d in "xyz"},
    **{f"mesh_{d}": f"deviceIdx.{d}" for d in "xyz"},
    "serial": "S",
    "vectorize": "V",
    "unroll": "UR",
    "unswitch": "US",
    "group": "G",
    "mma": "MMA",
    "tma": "B",
    "stream": "Stream",
    "cluster_x": "clusterIdx.x",
}
# Parallel types that one tensor binds to one axis at most.
BINDINGS = {f"{kind}_{d}" for kind in ("grid", "block") for d in "xyz"} | {"cluster_x"}
# Parallel types of several devices.
DEVICES = {f"{kind}_{d}" for kind in ("device", "mesh") for d in "xyz"}
# Letters of memory in the name of a tensor: T3_l_float is local, i.e. in registers.
MEMORY_LETTERS = {"local": "l", "shared": "s", "global": "g", "tensor": "t", "symmetric": "m"}
