"""Ops that exist only in TorchScript, and ops with arguments that only scripts have: the number of
names that a list is unpacked into, and dtypes as numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fuser import DataType, FusionDefinition, Tensor, Unsupported
from fuser.adapters import aten
from fuser.adapters.aten.emitter import Emitter
from fuser.debug.interpreter import torch_dtype

# Dtypes by torch's numbers.
DTYPES: dict[int, torch.dtype] = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    9: torch.complex64,
    10: torch.complex128,
    11: torch.bool,
    15: torch.bfloat16,
    23: torch.float8_e5m2,
    24: torch.float8_e4m3fn,
}
DTYPE_NUMBERS: dict[torch.dtype, int] = {dtype: number for number, dtype in DTYPES.items()}


def _grad_sum_to_size(fd: FusionDefinition, x: Tensor, size: Any) -> Any:
    if size is None:
        return x
    return aten.emit(fd, "aten.sum_to_size.default", [x, size], {})


def _to_reduced_precision(
    fd: FusionDefinition, x: Tensor, cuda: bool, cpu: bool, cuda_dtype: int, cpu_dtype: int
) -> Any:
    """Autocast of float32 to the dtype of the device for which it is enabled."""
    if x.dtype() != DataType.Float or not (cuda or cpu):
        return x
    return cast(fd, x, DTYPES[cuda_dtype if cuda else cpu_dtype])


def _to_full_precision(fd: FusionDefinition, x: Tensor, cuda: bool, cpu: bool) -> Any:
    if x.dtype() not in (DataType.Half, DataType.BFloat16) or not (cuda or cpu):
        return x
    return cast(fd, x, torch.float32)


def cast(fd: FusionDefinition, x: Tensor, dtype: torch.dtype) -> Any:
    return aten.emit(fd, "aten.to.dtype", [x, dtype, False, False, None], {})


def _to_other(fd: FusionDefinition, x: Tensor, other: Tensor, *_: Any) -> Any:
    return cast(fd, x, torch_dtype(other.dtype()))


def _to_device(fd: FusionDefinition, x: Tensor, _: Any, dtype: int | None = None, *__: Any) -> Any:
    """Moves x to its own device; other devices are rejected earlier."""
    return x if dtype is None else cast(fd, x, DTYPES[dtype])


def _add_bias(fd: FusionDefinition, x: Tensor, bias: Tensor | None, behind: int) -> Any:
    """Adds the bias of a matrix product or convolution: in the product's dtype, which autocast may
    have chosen, along the channel dim, which has `behind` dims after it.
    """
    if bias is None:
        return x
    along = aten.emit(fd, "aten.view.default", [bias, [-1, *[1] * behind]], {}) if behind else bias
    return aten.emit(fd, "aten.add.Tensor", [x, cast(fd, along, torch_dtype(x.dtype()))], {})


def _view_as(fd: FusionDefinition, x: Tensor, other: Tensor) -> Any:
    return aten.emit(fd, "aten.view.default", [x, sizes_of(other)], {})


def _size(x: Tensor, dim: int) -> Any:
    size = x.size(dim)
    return size if size.value is None else int(size.value)


def sizes_of(x: Tensor) -> list[Any]:
    return [_size(x, d) for d in range(x.ndim)]


def _parts_of_size(fd: FusionDefinition, total: Any, size: Any) -> Any:
    return -(-total // size) if isinstance(total, int) else fd.ops.ceil_div(total, size)


# Ops that a script unpacks into a number of names: torch raises if the number of parts differs, so
# the definition checks it in each run.


def _chunked_size(fd: FusionDefinition, total: Any, chunks: int) -> Any:
    """Size that determines the number of chunks: an empty dim gives as many chunks as one of
    `chunks` elements.
    """
    if isinstance(total, int):
        return total
    return total + chunks * (1 - fd.ops.minimum(total, 1))


def _chunks(fd: FusionDefinition, x: Tensor, *, chunks: int, dim: int) -> Any:
    total = _chunked_size(fd, _size(x, dim), chunks)
    if isinstance(total, int) and total == 0:
        return [x] * chunks
    Emitter(fd).check_equal(_parts_of_size(fd, total, _parts_of_size(fd, total, chunks)), chunks)
    return aten.emit(fd, "aten.chunk.default", [x, chunks, dim], {})


def _unbind(fd: FusionDefinition, x: Tensor, dim: int, *, parts: int) -> Any:
    Emitter(fd).check_equal(_size(x, dim), parts)
    return [aten.emit(fd, "aten.select.int", [x, dim, n], {}) for n in range(parts)]


def _split(fd: FusionDefinition, x: Tensor, size: Any, dim: int, *, parts: int) -> Any:
    """Splits into parts of `size`; the last part is the rest."""
    if not isinstance(size, int) or size < 1:
        raise Unsupported("chunks of a size known only at run time", rule="script-split")
    Emitter(fd).check_equal(_parts_of_size(fd, _size(x, dim), size), parts)
    bounds = [(n * size, (n + 1) * size) for n in range(parts - 1)]
    return [
        aten.emit(fd, "aten.slice.Tensor", [x, dim, start, end, 1], {})
        for start, end in [*bounds, ((parts - 1) * size, None)]
    ]


def _split_with_sizes(fd: FusionDefinition, x: Tensor, sizes: Sequence[Any], dim: int) -> Any:
    Emitter(fd).check_equal(_size(x, dim), sum(sizes))
    return aten.emit(fd, "aten.split_with_sizes.default", [x, sizes, dim], {})


# One part of a list with an unknown number of parts: torch raises if the list is too short, so the
# definition checks it in each run.


def _check_more(fd: FusionDefinition, parts: Any, place: int) -> None:
    if isinstance(parts, int):
        Emitter(fd).check_equal(min(parts, place + 1), place + 1)
    else:
        Emitter(fd).check_equal(fd.ops.minimum(parts, place + 1), place + 1)


def _chunk_part(fd: FusionDefinition, x: Tensor, chunks: int, dim: int, place: int) -> Any:
    total = _chunked_size(fd, _size(x, dim), chunks)
    if isinstance(total, int) and total == 0:
        _check_more(fd, chunks, place)
        return x
    _check_more(fd, _parts_of_size(fd, total, _parts_of_size(fd, total, chunks)), place)
    return aten.emit(fd, "aten.chunk.default", [x, chunks, dim], {})[place]


def _split_part(fd: FusionDefinition, x: Tensor, size: Any, dim: int, place: int) -> Any:
    if not isinstance(size, int) or size < 1:
        raise Unsupported("chunks of a size known only at run time", rule="script-split")
    if place:  # an empty dim has one part
        _check_more(fd, _parts_of_size(fd, _size(x, dim), size), place)
    bounds = [place * size, (place + 1) * size]
    return aten.emit(fd, "aten.slice.Tensor", [x, dim, *bounds, 1], {})


def _sizes_part(fd: FusionDefinition, x: Tensor, sizes: Sequence[Any], dim: int, place: int) -> Any:
    if place >= len(sizes):
        raise Unsupported("a chunk index that is out of range", rule="script-split")
    return _split_with_sizes(fd, x, sizes, dim)[place]


ADD_BIAS = "fuser::add_bias"
_REDUCED, _FULL = "aten::_autocast_to_reduced_precision", "aten::_autocast_to_full_precision"
LIKE_FIRST = (ADD_BIAS, _REDUCED, _FULL)
# Ops that take `parts`, the number of names that their list is unpacked into.
PARTED: dict[str, Callable[..., Any]] = {
    "aten::unbind.int": _unbind,
    "aten::unbind_copy.int": _unbind,
    "aten::split.Tensor": _split,
    "aten::split_copy.Tensor": _split,
}
OPS: dict[str, Callable[..., Any]] = {
    ADD_BIAS: _add_bias,
    _REDUCED: _to_reduced_precision,
    _FULL: _to_full_precision,
    "aten::split_with_sizes": _split_with_sizes,
    "aten::split.sizes": _split_with_sizes,
    **PARTED,
    "aten::_grad_sum_to_size": _grad_sum_to_size,
    "aten::to.other": _to_other,
    "aten::to.device": _to_device,
    "aten::to.prim_Device": _to_device,
    "aten::to.prim_dtype": lambda fd, x, *given: _to_device(fd, x, None, *given),
    "aten::cpu": lambda fd, x: x,
    "aten::view_as": _view_as,
    "aten::reshape_as": _view_as,
    "prim::ConstantChunk": _chunks,
    "fuser::chunk_part": _chunk_part,
    "fuser::split_part": _split_part,
    "fuser::sizes_part": _sizes_part,
}
# Restrictions of ops that a definition supports only in part: arguments that must have this text or
# be None, and whether half types and complex types are supported.
FORMS: dict[str, tuple[dict[str, str | None], bool, bool]] = {
    "aten::pad": ({"mode": "constant"}, True, True),
    "aten::linalg_norm": ({"ord": None}, True, True),
    "aten::nextafter": ({}, False, True),
    "aten::complex": ({}, False, True),
    "aten::adjoint": ({}, True, False),
    "aten::mH": ({}, True, False),
    "aten::cosine_similarity": ({}, True, False),
    "aten::nan_to_num": ({}, True, False),
    "aten::logaddexp": ({}, True, False),
    "aten::sgn": ({}, True, False),
    "aten::logsumexp": ({}, True, False),
    "aten::rms_norm": ({}, True, False),
    "aten::_fused_rms_norm": ({}, True, False),
    "aten::binary_cross_entropy_with_logits": ({}, True, False),
    "aten::cross_entropy_loss": ({}, True, False),
    "aten::rand_like": ({}, True, False),
    "aten::randn_like": ({}, True, False),
    "aten::to.device": ({"memory_format": None}, True, True),
}

# By kind, ops that can stand in for their forms in place before a graph was profiled, as torch has
# gradients of them in graphs. First: do they give the dtype of their operand, whatever it is, or
# raise as the form in place does? Second: does only the form in place keep its result for its
# gradient?
OUT_OF_PLACE: dict[str, tuple[bool, bool]] = {
    "aten::dropout": (True, False),
    "aten::hardswish": (True, False),
    "aten::hardtanh": (True, False),
    "aten::leaky_relu": (True, True),
    "aten::relu": (True, False),
    "aten::relu6": (True, False),
    "aten::silu": (True, False),
    "aten::threshold": (True, False),
    "aten::add": (False, False),
    "aten::clamp": (False, False),
    "aten::clamp_max": (False, False),
    "aten::clamp_min": (False, False),
    "aten::div": (False, False),
    "aten::mul": (False, False),
    "aten::sigmoid": (False, False),
    "aten::sub": (False, False),
    "aten::tanh": (False, False),
}
# Ops whose result is new and not kept for their gradient: eager lets it be written in place. True:
# it is of real floats in any case.
MAKERS: dict[str, bool] = {
    **dict.fromkeys(
        ("aten::batch_norm", "aten::group_norm", "aten::instance_norm", "aten::layer_norm"), True
    ),
    **dict.fromkeys(
        (
            "aten::_convolution",
            "aten::adaptive_avg_pool2d",
            "aten::add",
            "aten::addmm",
            "aten::avg_pool2d",
            "aten::baddbmm",
            "aten::bmm",
            "aten::cat",
            "aten::conv1d",
            "aten::conv2d",
            "aten::conv3d",
            "aten::conv_transpose1d",
            "aten::conv_transpose2d",
            "aten::conv_transpose3d",
            "aten::div",
            "aten::linear",
            "aten::matmul",
            "aten::max_pool2d",
            "aten::mm",
            "aten::mul",
            "aten::stack",
            "aten::sub",
        ),
        False,
    ),
}
