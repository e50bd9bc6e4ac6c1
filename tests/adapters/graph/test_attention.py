"""fuser/adapters/graph/attention.py: masks that depend on no input, and masks with strided rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fuser.adapters import dynamo
from fuser.adapters.graph.attention import drop_constant_masks, make_mask_rows_contiguous


def positions(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    at = torch.arange(n) + 0
    return at[None, None, :, None], at[None, None, None, :]


def full(n: int) -> torch.Tensor:
    return (positions(n)[0] >= 0).expand(2, 1, n, n)


def causal(n: int) -> torch.Tensor:
    rows, columns = positions(n)
    return (columns <= rows).expand(2, -1, n, n)


def packed(n: int) -> torch.Tensor:
    """The mask of transformers: causal, and within a sequence; there is one sequence."""
    rows, columns = positions(n)
    places = (torch.arange(n) + 0)[None].expand(2, -1)
    sequence = (torch.diff(places, prepend=places[:, :1] - 1, dim=-1) != 1).cumsum(-1)
    same = sequence[:, None, :, None] == sequence[:, None, None, :]
    return (rows.new_ones((), dtype=torch.bool) & same & (columns <= rows)) | (columns < 0)


def by_methods(n: int) -> torch.Tensor:
    """A mask with comparisons recorded as in torch 2.12."""
    rows, columns = positions(n)
    return columns.__lt__(rows).__or__(columns.__eq__(rows))


def written_by_a_method(n: int) -> torch.Tensor:
    rows, columns = positions(n)
    mask = columns <= rows
    mask.__iand__(columns > rows - 2)
    return mask


def near(n: int) -> torch.Tensor:
    rows, columns = positions(n)
    return (columns <= rows) & (columns > rows - 2)


def written(n: int) -> torch.Tensor:
    mask = torch.ones(n, n, dtype=torch.bool)
    mask[0, 1] = False
    return mask


def drawn(n: int) -> torch.Tensor:
    return torch.rand(n, n) >= 0


def attention(
    mask: Callable[[int], torch.Tensor],
) -> tuple[list[tuple[bool, bool]], torch.Tensor, torch.Tensor]:
    """(has a mask, is causal) of each attention in the graph, the result, eager's result."""

    def f(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        m = mask(q.shape[2])
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=m)
        return F.scaled_dot_product_attention(y, k, v, m)

    found: list[tuple[bool, bool]] = []

    def backend(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
        drop_constant_masks(module)
        for n in module.graph.nodes:
            if n.target is F.scaled_dot_product_attention:
                has = len(n.args) > 3 or n.kwargs.get("attn_mask") is not None
                found.append((has, n.kwargs.get("is_causal", False)))
        return dynamo.backend(module, inputs)

    torch._dynamo.reset()
    torch.manual_seed(0)
    inputs = [torch.randn(2, 2, 5, 4) for _ in range(3)]
    torch.manual_seed(1)
    result = torch.compile(f, backend=backend)(*inputs)
    torch.manual_seed(1)
    return found, result, f(*inputs)


@pytest.mark.parametrize(
    ("mask", "left"),
    [
        (full, (False, False)),
        (causal, (False, True)),
        (packed, (False, True)),
        (by_methods, (False, True)),
        (written_by_a_method, (True, False)),
        (near, (True, False)),
        (written, (True, False)),
        (drawn, (True, False)),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_masks(mask: Callable[[int], torch.Tensor], left: tuple[bool, bool]) -> None:
    found, result, expected = attention(mask)
    assert found == [left, left]
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)


def test_masks_that_depend_on_an_input_stay() -> None:
    def f(q: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        mask = (torch.arange(5) < length).expand(5, 5)
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    torch._dynamo.reset()
    run = torch.compile(f, backend=dynamo.backend)
    q = torch.randn(1, 2, 5, 4)
    for n in (5, 3):
        torch.testing.assert_close(run(q, torch.tensor(n)), f(q, torch.tensor(n)))


def test_what_writes_in_place_stays_where_a_mask_goes() -> None:
    def f(q: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        state.mul_(2)
        scaled = q * 1
        scaled.add_(state)
        places = torch.zeros_like(q)
        places.scatter_(-1, torch.topk(q, 1)[1], 1.0)
        return F.scaled_dot_product_attention(scaled, q, places, attn_mask=full(5)) + places

    torch._dynamo.reset()
    q, state, wanted = torch.randn(2, 2, 5, 4), torch.ones(4), torch.ones(4)
    torch.testing.assert_close(torch.compile(f, backend=dynamo.backend)(q, state), f(q, wanted))
    torch.testing.assert_close(state, wanted)


def attended(f: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[tuple[int, ...]]:
    """Strides of the masks of attention in f's graph for AOTAutograd; checks f's result."""
    found: list[tuple[int, ...]] = []

    def backend(module: torch.fx.GraphModule, given: list[torch.Tensor]) -> Callable[..., object]:
        make_mask_rows_contiguous(module)

        class Masks(torch.fx.Interpreter):
            def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
                if target is F.scaled_dot_product_attention:
                    found.append((args[3:] or [kwargs["attn_mask"]])[0].stride())
                return super().call_function(target, args, kwargs)

        Masks(module).run(*given)
        return dynamo.backend(module, given)

    torch._dynamo.reset()
    result = torch.compile(f, backend=backend, dynamic=False)(*inputs)
    torch.testing.assert_close(result, f(*inputs), rtol=1e-5, atol=1e-6)
    return found


@pytest.mark.parametrize("by_name", [False, True])
def test_rows_of_a_position_bias_are_contiguous(by_name: bool) -> None:
    def f(q: torch.Tensor, table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        bias = F.embedding(places, table).permute(2, 0, 1)[None]
        for _ in range(2):
            if by_name:
                q = F.scaled_dot_product_attention(q, q, q, attn_mask=bias, scale=1.0)
            else:
                q = F.scaled_dot_product_attention(q, q, q, bias, 0.0)
        return q

    torch.manual_seed(0)
    q, places = torch.randn(2, 4, 6, 8), torch.randint(0, 9, (6, 6))
    assert attended(f, q, torch.randn(9, 4), places) == [(144, 36, 6, 1)] * 2


def test_rows_of_a_bias_of_symbolic_size_are_contiguous() -> None:
    def f(q: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q, (bias * 2).permute(2, 0, 1))

    torch._dynamo.reset()
    run = torch.compile(f, backend=dynamo.backend, dynamic=True)
    torch.manual_seed(0)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for n in (6, 9, 13):
            q, bias = torch.randn(2, 4, n, 8), torch.randn(n, n, 4)
            torch.testing.assert_close(run(q, bias), f(q, bias), rtol=1e-5, atol=1e-6)


def test_a_mask_is_copied_as_it_is_when_it_is_read() -> None:
    def f(q: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        bias = given * 1
        y = F.scaled_dot_product_attention(q, q, q, bias.mT)
        bias.mul_(3)
        return F.scaled_dot_product_attention(y, q, q, bias.mT)

    torch.manual_seed(0)
    assert attended(f, torch.randn(1, 2, 5, 4), torch.randn(5, 5)) == [(5, 1)] * 2


@pytest.mark.parametrize(
    "mask",
    [lambda b: b, lambda b: b[:, :1].expand(6, 6), lambda b: b[:, :1].mT.expand(2, 4, 6, 6)],
    ids=["contiguous", "one key", "one query"],
)
def test_other_masks_are_not_copied(mask: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def f(q: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q, mask(bias))

    torch.manual_seed(0)
    q, bias = torch.randn(2, 4, 6, 8), torch.randn(6, 6)
    assert attended(f, q, bias) == [mask(bias).stride()]
