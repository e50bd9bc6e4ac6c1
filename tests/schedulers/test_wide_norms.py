"""Normalizations of wide rows with weights: placement of rows and weights, no spills, and values on
the host executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fuser import DataType, FusionDefinition, _core
from fuser.ops import as_dtype
from fuser.runtime.toolchain import machine_code
from tests.support.reducing import REGISTERS, RELOAD, SHARED, kernels_for, plan_for
from tests.support.sampling import rotated

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


class Norm:
    """(f(x...) - mean) * rstd * weight + bias for [rows, length], optionally followed by other
    ops."""

    def __init__(self, kind: str, length: int, dtype: torch.dtype, weights: torch.dtype) -> None:
        self.kind, self.length, self.dtype, self.weights = kind, length, dtype, weights
        self.fd = FusionDefinition()
        self.shapes: list[tuple[int, ...]] = []
        self.dtypes: list[torch.dtype] = []
        ops = self.fd.ops
        self.wide = DataType.Double if dtype == F64 else DataType.Float
        x = self._rows()
        if kind == "sum":
            x = x + self._rows()
        elif kind == "bias":
            x = x + self._per_column()
        elif kind == "gelu":
            x = ops.gelu(x)
        var, mean = ops.var_mean(x, [1], 0, True)
        y = (x - mean) * ops.rsqrt(var + 1e-5)
        y = y * self._per_column() + self._per_column()
        if kind == "scaled":
            y = y * self._per_column()
        elif kind == "softmax":
            y = ops.softmax(y, 1)
        self.fd.add_output(ops.cast(y, as_dtype(dtype)))

    def _input(self, rank: int, dtype: torch.dtype) -> Any:
        self.shapes.append((4096, self.length)[-rank:])
        self.dtypes.append(dtype)
        x = self.fd.define_tensor([-1] * rank, dtype=as_dtype(dtype))
        return self.fd.ops.cast(x, self.wide)

    def _rows(self) -> Any:
        return self._input(2, self.dtype)

    def _per_column(self) -> Any:
        return self.fd.ops.broadcast(self._input(1, self.weights), [True, False])

    def kernels(self, arch: int) -> list[dict[str, Any]]:
        return kernels_for(self.fd, self.shapes, arch, text=True)

    def plan(self, arch: int = 90) -> dict[str, Any]:
        (kernel,) = self.kernels(arch)
        return kernel["plan"]

    def inputs(self, rows: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(0)
        return [
            torch.randn((rows, *shape[1:]) if len(shape) == 2 else shape, generator=generator).to(d)
            for shape, d in zip(self.shapes, self.dtypes, strict=True)
        ]

    def exact(self, inputs: list[Tensor]) -> Tensor:
        x, *rest = (t.double() for t in inputs)
        if self.kind in ("sum", "bias"):
            x = x + rest.pop(0)
        elif self.kind == "gelu":
            x = torch.nn.functional.gelu(x)
        y = torch.nn.functional.layer_norm(x, x.shape[-1:], rest[0], rest[1], 1e-5)
        if self.kind == "softmax":
            return y.softmax(1)
        return y * rest[2] if self.kind == "scaled" else y


def test_blocks_of_a_processor_share_what_outweighs_the_rows() -> None:
    """Weight and bias of a wide layer norm stay in L1, with two blocks per SM and rows in
    registers. The single weight of an RMS norm does not require that."""
    for length, dtype, cluster in (
        *((42_000, BF16, 2), (50_256, BF16, 2), (65_536, BF16, 2), (131_072, BF16, 4)),
        *((24_576, F32, 2), (50_256, F32, 4), (65_536, F32, 4)),
    ):
        plan = plan_for("layer_norm", (4096, length), dtype)
        assert (plan["persistent_in"], plan["threads_x"], plan["unroll"]) == (REGISTERS, 512, 8)
        assert (plan["cluster_size"], plan["min_blocks_per_sm"], plan["num_stages"]) == (
            cluster,
            2,
            0,
        )
        assert (plan["streaming"], plan["single_pass"]) == (8, 0)
        assert plan_for("layer_norm", (4096, length), dtype, 80)["cluster_size"] == 1, "no clusters"
        assert plan_for("rms_norm", (4096, length), dtype)["threads_x"] == 128
    plan = Norm("sum", 65_536, BF16, BF16).plan()
    assert (plan["persistent_in"], plan["threads_x"], plan["unroll"]) == (REGISTERS, 512, 4)
    assert (plan["cluster_size"], plan["min_blocks_per_sm"], plan["single_pass"]) == (4, 2, 0)


def test_persistent_blocks_keep_what_l1_does_not_hold() -> None:
    device = _core.known_device(90)
    resident = dict(zip((2, 4, 8, 16), device.resident_clusters, strict=True))
    for length, dtype, cluster, threads, steps in (
        *((196_608, BF16, 8, 704, 6), (262_144, BF16, 8, 704, 6)),
        *((131_072, F32, 8, 512, 8), (262_144, F32, 16, 512, 8)),
    ):
        plan = plan_for("layer_norm", (4096, length), dtype)
        assert (plan["num_stages"], plan["cluster_size"], plan["persistent_in"]) == (
            2,
            cluster,
            SHARED,
        )
        assert (plan["threads_x"], plan["unroll"], plan["min_blocks_per_sm"]) == (threads, steps, 1)
        assert plan["grid_blocks"] == resident[cluster] * cluster
        assert plan["single_pass"] == 0
        assert plan_for("rms_norm", (4096, length), dtype)["num_stages"] == 0
    assert plan_for("layer_norm", (4096, 262_144), BF16, 80)["num_stages"] == 0, "no clusters"


@pytest.mark.parametrize(
    ("kind", "length", "weights", "cluster"),
    [
        ("plain", 50_256, F32, 2),
        ("plain", 131_072, F32, 4),
        ("scaled", 65_536, BF16, 2),
        ("gelu", 50_256, BF16, 2),
        ("gelu", 262_144, BF16, 8),
    ],
)
def test_rows_beside_what_registers_do_not_hold_lie_in_shared_memory(
    kind: str, length: int, weights: torch.dtype, cluster: int
) -> None:
    """If weights are large, or phases expensive, rows are in shared memory in single-pass form."""
    plan = Norm(kind, length, BF16, weights).plan()
    assert (plan["persistent_in"], plan["cluster_size"], plan["num_stages"]) == (SHARED, cluster, 0)
    assert plan["single_pass"] == 1


def test_a_row_in_shared_memory_has_a_processor_for_itself() -> None:
    """Without clusters a row in shared memory has an SM of its own, if registers cannot hold it or
    its weights."""
    plan = Norm("plain", 50_256, BF16, F32).plan(80)
    assert (plan["persistent_in"], plan["cluster_size"], plan["threads_x"]) == (SHARED, 1, 1024)
    assert plan["single_pass"] == 1
    for name in ("softmax", "rms_norm"):
        assert plan_for(name, (4096, 65_536), BF16, 80)["persistent_in"] == REGISTERS
        assert plan_for(name, (4096, 72_000), BF16, 80)["persistent_in"] == SHARED
        assert plan_for(name, (4096, 90_000), BF16, 80)["persistent_in"] == RELOAD


KINDS = ("plain", "sum", "bias", "gelu", "scaled", "softmax")


WIDE = [(50_256, BF16, BF16), (50_256, BF16, F32), (65_536, F32, F32), (12_288, F64, F64)]


@pytest.mark.parametrize(
    ("arch", "wide", "kinds"),
    [
        (arch, wide, rotated(KINDS, 2 * place + shift, 2))
        for shift, arch in enumerate([80, 90, 120])
        for place, wide in enumerate(WIDE)
    ],
    ids=str,
)
def test_wide_norms_spill_nothing(
    arch: int, wide: tuple[int, torch.dtype, torch.dtype], kinds: list[str]
) -> None:
    for kind in kinds:
        for kernel in Norm(kind, *wide).kernels(arch):
            text = kernel["cuda"]
            _, registers, local_bytes, _ = machine_code(text.name, text.text, arch)
            assert local_bytes == 0, f"{kind}: {local_bytes} bytes, {registers} registers"
            assert registers * text.threads <= 65536


ON_THE_HOST = [
    (90, 42_000, BF16, BF16, 2**-8),
    (90, 50_256, BF16, F32, 2**-8),
    (90, 42_008, F16, F16, 2**-10),
    (90, 24_580, F32, F32, 2e-6),
    (90, 12_290, F64, F64, 1e-14),
    (80, 50_256, BF16, F32, 2**-8),
]


@pytest.mark.parametrize(
    ("arch", "length", "dtype", "weights", "tolerance", "kind"),
    [(*row, kind) for place, row in enumerate(ON_THE_HOST) for kind in rotated(KINDS, place, 3)],
    ids=str,
)
def test_wide_norms_on_the_host_executor(
    arch: int,
    length: int,
    dtype: torch.dtype,
    weights: torch.dtype,
    tolerance: float,
    kind: str,
    set_option: Callable[[str, object], None],
) -> None:
    """Each element is within `tolerance` of float64, relative to the largest of its row."""
    set_option("FUSER_HOST_ARCH", arch)
    set_option("FUSER_HOST_DEBUG", int(kind in ("sum", "scaled")))  # slow
    norm = Norm(kind, length, dtype, weights)
    inputs = norm.inputs(66)  # enough blocks for all SMs, otherwise rows are split
    (result,) = norm.fd.execute(inputs)
    exact = norm.exact(inputs)
    error = (result.double() - exact).abs() / exact.abs().amax(1, keepdim=True)
    assert error.max() <= tolerance
