"""Ops on block-scaled 4-bit numbers (nvfp4): methods of fd.ops that raise Unsupported.

DataType has no 4-bit type, so operands of these ops cannot be defined. The methods exist to give
programs written for them a clear error.
"""

from typing import Any, NoReturn

from fuser._core import DataType
from fuser.errors import Unsupported
from fuser.ops.methods import composed
from fuser.ops.primitives import Primitives


@composed
class BlockScaled(Primitives):
    """Ops on block-scaled numbers, which raise Unsupported."""

    def cutlass_nvfp4_grouped_mm(
        self,
        mat1: Any,
        mat2: Any,
        scale1: Any,
        scale2: Any,
        alpha: Any,
        problem_sizes: Any,
        expert_offsets: Any,
        sf_offsets: Any,
        dtype: Any = DataType.BFloat16,
    ) -> NoReturn:
        """Raises Unsupported `block-scaled-1`."""
        _refuse("cutlass_nvfp4_grouped_mm", "grouped_mm() takes float16, bfloat16 and float32")

    def preprocess_grouped_matmul_input_sf(
        self, input: Any, input_offsets: Any, output_offsets: Any
    ) -> NoReturn:
        """Raises Unsupported `block-scaled-1`."""
        _refuse("preprocess_grouped_matmul_input_sf", "grouped_mm() takes no scales")

    def nv_block_quantize(
        self,
        input: Any,
        global_scale: Any = None,
        swizzle_block_scales: bool = False,
        block_size: int = 16,
        dtype: Any = None,
    ) -> NoReturn:
        """Raises Unsupported `block-scaled-1`."""
        _refuse("nv_block_quantize", "cast() gives float8_e4m3fn and float8_e5m2")

    def nv_grouped_block_quantize(
        self,
        input: Any,
        input_offsets: Any,
        output_offsets: Any,
        global_scale: Any = None,
        block_size: int = 16,
        dtype: Any = None,
    ) -> NoReturn:
        """Raises Unsupported `block-scaled-1`."""
        _refuse("nv_grouped_block_quantize", "cast() gives float8_e4m3fn and float8_e5m2")


def _refuse(op: str, hint: str) -> NoReturn:
    raise Unsupported(
        f"{op}(): needs float4_e2m1fn, which DataType does not have\n  hint: {hint}",
        rule="block-scaled-1",
    )
