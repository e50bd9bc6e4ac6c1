"""fuser/ops/block_scaled.py: errors of unsupported definitions name the missing feature."""

import inspect

import pytest

from fuser import FusionDefinition, Unsupported
from fuser.ops.block_scaled import BlockScaled
from fuser.ops.methods import op_names


@pytest.mark.parametrize("op", op_names(BlockScaled))
def test_block_scaled_1(op: str) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    parameters = inspect.signature(getattr(fd.ops, op)).parameters.values()
    required = sum(p.default is p.empty for p in parameters)
    with pytest.raises(Unsupported, match="float4_e2m1fn") as caught:
        getattr(fd.ops, op)(*[x] * required)
    assert caught.value.rule == "block-scaled-1"
    assert op in str(caught.value)
