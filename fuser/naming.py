"""What records statements of a definition, as names of kernels say it: "softmax_fwd", "gelu_bwd".

The name of a kernel is made of the composites that recorded its statements
(csrc/driver/kernel_name.h): the method of fd.ops that the program called, or torch's op where an
adapter writes one. The outermost one counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from fuser import _core

# Ops with a backward that people call by that name; their forward is told apart from it.
_FORWARD = (
    *("softmax", "layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm"),
    *("cross_entropy", "nll_loss"),
)
# What torch puts around the name of an op.
_PREFIXES = ("native_", "fused_", "cudnn_")
_SUFFIXES = {"_backward_data": "_bwd", "_backward": "_bwd", "_forward": "_fwd"}


@contextmanager
def recorded_as(builder: _core.Builder, op: str) -> Iterator[None]:
    """Statements inside are recorded by this op, unless they are part of another one already."""
    before = builder.composite
    builder.composite = before or word(op)
    try:
        yield
    finally:
        builder.composite = before


@cache
def word(op: str) -> str:
    """ "aten.native_layer_norm_backward.default" as "layer_norm_bwd"."""
    name = op.split(".")[1] if "." in op else op
    name = name.strip("_")
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    for suffix, short in _SUFFIXES.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix) + short
    return f"{name}_fwd" if name.endswith(_FORWARD) else name
