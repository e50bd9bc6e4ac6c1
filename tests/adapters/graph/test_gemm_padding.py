"""fuser/adapters/graph/gemm_padding.py: selection of matrix products that are faster with padded
matrices.
"""

from __future__ import annotations

import pytest
import torch

from fuser.adapters.graph.gemm_padding import (
    is_worth_padding,
    padded_sizes,
    with_zeros_behind,
    zeros_behind,
)
from tests.adapters.graphs import traced


def half(*sizes: int) -> torch.Tensor:
    return torch.empty(sizes, dtype=torch.bfloat16, device="meta")


@pytest.mark.parametrize(
    ("a", "b", "worth"),
    [
        ((8192, 768), (768, 30522), True),
        ((8192, 30522), (30522, 768), True),
        ((30522, 8192), (8192, 768), True),
        ((8192, 768), (768, 30528), False),  # already aligned
        ((32, 768), (768, 30522), False),  # padding takes as long as the product
        ((1022, 1022), (1022, 1022), False),  # too small: host time dominates
        ((192, 500, 500), (192, 500, 64), False),
    ],
    ids=str,
)
def test_what_is_worth_padding(
    a: tuple[int, ...], b: tuple[int, ...], worth: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_worth_padding(half(*a), half(*b))
    monkeypatch.setattr("fuser.adapters.graph.gemm_padding._DEVICES", {"meta"})
    assert is_worth_padding(half(*a), half(*b)) == worth
    assert not is_worth_padding(half(*a).float(), half(*b).float())


def test_a_symbolic_product_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuser.adapters.graph.gemm_padding._DEVICES", {"cpu"})
    module = traced(lambda x: x.mm(x), torch.ones(2047, 2047).bfloat16(), dynamic=True)
    x = next(iter(module.graph.nodes)).meta["val"]
    assert not is_worth_padding(x, x)


def test_zeros_behind() -> None:
    given = torch.randn(3, 5, 6)
    full = padded_sizes(given.shape)
    assert full == (3, 8, 8)
    for t in (with_zeros_behind(given, full), zeros_behind(given.shape, full, given.dtype, "cpu")):
        assert t.shape == given.shape
        whole = t.as_strided(full, t.stride())
        t.zero_()
        assert not whole.any()
    assert torch.equal(with_zeros_behind(given, full), given)
