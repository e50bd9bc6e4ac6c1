"""csrc/torch/library: every row is called as its reference means it, on what a run allocated."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fuser import DataType, FusionDefinition, UserError, _core
from fuser.reference import LIBRARY

X = torch.arange(12.0).mul(5).remainder(13).reshape(3, 4)
INDEX = torch.tensor([[2, 0, 1, 1]])
HEADS = X.reshape(1, 1, 3, 4) / 13
ATTENDED = LIBRARY["sdpfa_fwd"].compute(HEADS, HEADS, HEADS, dropout_p=0.0, is_causal=0, scale=0.5)
OPERANDS: dict[str, list[torch.Tensor]] = {
    "matmul": [X, X.T.contiguous()],
    "linear": [X, X, torch.ones(3)],
    "baddbmm": [torch.ones(1, 3, 3), X[None], X.T[None].contiguous()],
    "grouped_mm": [X, torch.ones(2, 4, 8), torch.tensor([1, 3], dtype=torch.int32)],
    "scaled_mm": [
        torch.ones(16, 16).to(torch.float8_e4m3fn),
        torch.ones(16, 16).to(torch.float8_e4m3fn),
        torch.tensor(0.5),
        torch.tensor(2.0),
    ],
    "sdpfa_fwd": [HEADS, HEADS, HEADS],
    "sdpfa_bwd": [HEADS, HEADS, HEADS, HEADS, *ATTENDED],
    "scatter": [X, INDEX, -X[:1].clone()],
    "index_put_accumulate": [X, INDEX[0], torch.ones(4, 4)],
}
VALUES: dict[str, Any] = {
    "k": 2,
    "dim": 0,
    "largest": 0,
    "sorted": 1,
    "descending": 1,
    "stable": 1,
    "dtype": DataType.BFloat16,
    "dropout_p": 0.0,
    "is_causal": 0,
    "scale": 0.5,
}


@pytest.mark.parametrize("op", _core.library_ops())
def test_every_row(op: str) -> None:
    inputs = OPERANDS.get(op, [X])
    attributes = {name: VALUES[name] for name in _core.library_attributes(op)}
    wide = [x.float() if x.dtype == torch.float8_e4m3fn else x for x in inputs]
    wanted = LIBRARY[op].compute(*wide, **attributes)
    results = wanted if isinstance(wanted, tuple) else (wanted,)
    with FusionDefinition() as fd:
        first = fd.ops.library(op, [fd.from_pytorch(x) for x in inputs], **attributes)
        fd.add_output(first)
        for i in range(1, len(results)):
            fd.add_output(fd.ops.result(first, i))
    got = fd.execute(inputs)
    for x, y in zip(got, results, strict=True):
        assert x.dtype == (torch.bfloat16 if "dtype" in attributes else y.dtype)
        assert x.is_contiguous()
        torch.testing.assert_close(x, y.to(x.dtype))


def test_an_index_out_of_range_is_told_by_torch() -> None:
    with FusionDefinition() as fd:
        x, i = fd.define_tensor([3, 4]), fd.from_pytorch(INDEX)
        fd.add_output(fd.ops.scatter(x, i, x, 0))
    with pytest.raises(UserError, match=r"scatter\(\): .*out of bounds") as caught:
        fd.execute([X, INDEX + 2])
    assert caught.value.rule == "library-index"
