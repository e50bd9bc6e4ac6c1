"""csrc/torch/library: every extern op agrees with its reference, on tensors allocated by a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fuser import DataType, FusionDefinition, UserError, _core
from fuser.ops.reference import LIBRARY

X = torch.arange(12.0).mul(5).remainder(13).reshape(3, 4)
INDEX = torch.tensor([[2, 0, 1, 1]])
HEADS = X.reshape(1, 1, 3, 4) / 13
ATTENDED = LIBRARY["sdpfa_fwd"].compute(HEADS, HEADS, HEADS, dropout_p=0.0, is_causal=0, scale=0.5)
OPERANDS: dict[str, list[torch.Tensor]] = {
    "matmul": [X, X.T.contiguous()],
    "linear": [X, X, torch.ones(3)],
    "baddbmm": [torch.ones(1, 3, 3), X[None], X.T[None].contiguous()],
    "grouped_mm": [X, torch.ones(2, 4, 8), torch.tensor([1, 3], dtype=torch.int32)],
    "scaled_grouped_mm": [
        X.div(8).to(torch.float8_e4m3fn),
        torch.ones(2, 4, 8).to(torch.float8_e4m3fn),
        torch.tensor([1, 3], dtype=torch.int32),
        torch.tensor([[0.5], [1.0], [2.0]]),
        torch.linspace(0.5, 2.0, 16).reshape(2, 1, 8),
    ],
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


GROUPED = [((3, 4), (2, 4, 8)), ((2, 3, 4), (4, 8)), ((3, 4), (4, 8)), ((2, 3, 4), (2, 4, 8))]


@pytest.mark.parametrize(("first", "second"), GROUPED, ids=str)
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_grouped_products_with_scales(
    first: tuple[int, ...], second: tuple[int, ...], dtype: torch.dtype, rng: np.random.Generator
) -> None:
    """Groups of rows, of columns, of terms, and batches."""
    drawn = torch.Generator().manual_seed(int(rng.integers(2**31)))
    a, b = (torch.randn(shape, generator=drawn).to(dtype) for shape in (first, second))
    rows, columns, last = first[-2], second[-1], first[-1]
    lead = [2] if len(first) == len(second) == 2 else []
    ends = {2: rows if len(second) == 3 else last, 3: columns}[len(first)]
    offsets = torch.tensor([1, ends], dtype=torch.int32)
    scale1 = torch.rand([*(lead or first[:-2]), rows, 1], generator=drawn) + 0.5
    scale2 = torch.rand([*(lead or second[:-2]), 1, columns], generator=drawn) + 0.5
    inputs = [a, b, offsets, scale1, scale2]
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.grouped_mm(*map(fd.from_pytorch, inputs), dtype=DataType.Float))
    again = FusionDefinition()
    exec(f"from fuser import DataType, FusionDefinition\n{fd!r}\nnvfuser_fusion(fd)", {"fd": again})
    assert again.fusion == fd.fusion
    (got,) = fd.validate(inputs)
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    want = LIBRARY["scaled_grouped_mm"].compute(*wide)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


def test_grouped_mm_4() -> None:
    inputs = [x.clone() for x in OPERANDS["scaled_grouped_mm"]]
    inputs[2] = torch.tensor([2, 1], dtype=torch.int32)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.grouped_mm(*map(fd.from_pytorch, inputs)))
    with pytest.raises(
        UserError, match="expected increasing ends of groups, got 1 after 2"
    ) as caught:
        fd.execute(inputs)
    assert caught.value.rule == "grouped-mm-4"
