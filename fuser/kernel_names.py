"""Op names as they appear in kernel names: "softmax_fwd", "gelu_bwd".

The name of a kernel consists of the composites that recorded its statements
(csrc/driver/cuda/kernel_name.h): the called method of fd.ops, or torch's op for statements of an
adapter. Nested composites use the name of the outermost one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from fuser import _core

# Ops with a common backward op: their forward gets a suffix too.
_FORWARD = (
    *("softmax", "layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm"),
    *("cross_entropy", "nll_loss"),
)
# Prefixes and suffixes in torch's op names.
_PREFIXES = ("native_", "fused_", "cudnn_")
_SUFFIXES = {"_backward_data": "_bwd", "_backward": "_bwd", "_forward": "_fwd"}


@contextmanager
def recorded_as(builder: _core.Builder, op: str) -> Iterator[None]:
    """Records the statements of a `with` block under this op, unless they are inside another
    one.
    """
    before = builder.composite
    builder.composite = before or word(op)
    try:
        yield
    finally:
        builder.composite = before


@cache
def word(op: str) -> str:
    """Shortens "aten.native_layer_norm_backward.default" to "layer_norm_bwd"."""
    name = op.split(".")[1] if "." in op else op
    name = name.strip("_")
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    for suffix, short in _SUFFIXES.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix) + short
    return f"{name}_fwd" if name.endswith(_FORWARD) else name
