"""csrc/torch/library.cpp on the GPU: attention with a bias or a mask, and float8 matrix
products."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fuser import DataType, FusionDefinition, Unsupported

pytestmark = pytest.mark.gpu

# Query length, key length and head size; bias rows are padded if the key length is not a multiple
# of 8.
SHAPES = [(64, 64, 64), (33, 57, 64), (16, 128, 32), (7, 9, 40), (1, 5, 64)]
BIASES = ["whole", "of heads", "of rows", "of keys", "one", "permuted"]


def heads(length: int, keys: int, size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(length * keys + size)
    shapes = [(2, 3, length, size), (2, 3, keys, size), (2, 3, keys, size)]
    return [torch.randn(s, generator=generator, device="cuda").to(dtype) for s in shapes]


def bias_of(kind: str, length: int, keys: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(5)
    if kind == "permuted":
        return torch.randn(2, 3, keys, length, generator=generator, device="cuda").to(dtype).mT
    shape = {
        "whole": (2, 3, length, keys),
        "of heads": (1, 3, length, keys),
        "of rows": (2, 1, length, 1),
        "of keys": (1, 1, 1, keys),
        "one": (1, 1, 1, 1),
    }[kind]
    return torch.randn(shape, generator=generator, device="cuda").to(dtype)


def exact(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor, scale: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Float64 references: the result, and the log-sum-exp of the rows."""
    a, b, c = q.double(), k.double(), v.double()
    scores = a @ b.mT * (q.shape[-1] ** -0.5 if scale is None else scale) + bias.double()
    return scores.softmax(-1) @ c, scores.logsumexp(-1)


def attend(
    inputs: list[Any], mask: bool = False, with_scale: bool = False, **attributes: Any
) -> list[torch.Tensor]:
    with FusionDefinition() as fd:
        q, k, v, b = (fd.from_pytorch(x) for x in inputs[:4])
        named: dict[str, Any] = {"mask" if mask else "bias": b}
        if with_scale:
            named["scale"] = fd.define_scalar(DataType.Double)
        for result in fd.ops.sdpfa_fwd(q, k, v, **named, **attributes):
            fd.add_output(result)
    return fd.execute(inputs)


def check(got: list[torch.Tensor], want: tuple[torch.Tensor, torch.Tensor], dtype: Any) -> None:
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2
    assert got[0].dtype == dtype
    assert got[1].dtype == torch.float32
    assert got[2].shape == (2,)
    assert got[3].shape == ()
    for x, y in zip(got[:2], want, strict=True):
        torch.testing.assert_close(x.double(), y, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", BIASES)
def test_attention_with_a_bias(kind: str, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    """90 cases: every form of bias, with aligned and unaligned rows."""
    inputs = heads(*shape, dtype)
    bias = bias_of(kind, *shape[:2], dtype)
    check(attend([*inputs, bias]), exact(*inputs, bias, None), dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention_with_a_mask(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    """The mask is True for keys that take part; each query has at least one key."""
    inputs = heads(*shape, dtype)
    mask = torch.rand(2, 1, *shape[:2], device="cuda") > 0.4
    mask[..., 0] = True
    bias = torch.where(mask, 0.0, float("-inf"))
    check(attend([*inputs, mask], mask=True), exact(*inputs, bias, None), dtype)


@pytest.mark.parametrize("scale", [0.125, 0.7])
def test_attention_with_a_bias_and_a_scale_of_the_run(scale: float) -> None:
    inputs = heads(33, 57, 64, torch.bfloat16)
    bias = bias_of("whole", 33, 57, torch.bfloat16)
    got = attend([*inputs, bias, scale], with_scale=True)
    check(got, exact(*inputs, bias, scale), torch.bfloat16)


def test_attention_with_a_bias_that_is_causal() -> None:
    inputs = heads(48, 48, 64, torch.bfloat16)
    bias = bias_of("of heads", 48, 48, torch.bfloat16)
    causal = torch.full((48, 48), float("-inf"), device="cuda").triu(1)
    got = attend([*inputs, bias], is_causal=True)
    check(got, exact(*inputs, bias.double() + causal, None), torch.bfloat16)


def test_attention_with_a_bias_and_dropout() -> None:
    """Dropout preserves the mean over keys of a constant, and advances the generator's state."""
    q, k, _ = heads(64, 256, 64, torch.bfloat16)
    inputs = [q, k, torch.ones_like(k), bias_of("whole", 64, 256, torch.bfloat16)]
    first, second = (attend(inputs, dropout_p=0.25) for _ in range(2))
    assert not torch.equal(first[0], second[0])
    assert not torch.equal(first[2], second[2])
    assert abs(first[0].float().mean().item() - 1.0) < 0.05


# One case of flash attention, then cases of memory-efficient attention: float32, heads above 256,
# two head sizes.
ATTENTIONS = [
    (torch.bfloat16, 64, 64, 64),
    (torch.float32, 64, 64, 64),
    (torch.float32, 33, 40, 24),
    (torch.float32, 64, 20, 20),
    (torch.bfloat16, 48, 264, 264),
    (torch.float16, 33, 64, 32),
]


@pytest.mark.parametrize(("dtype", "length", "size", "value_size"), ATTENTIONS, ids=str)
@pytest.mark.parametrize(("causal", "scale"), [(False, 0.5), (True, 0.125)])
def test_attention_with_numbers_of_the_run(
    causal: bool, scale: float, dtype: torch.dtype, length: int, size: int, value_size: int
) -> None:
    """Scale and causality as run-time scalars, forward and backward. Scores do not grow with the
    head size."""
    scale *= min(1.0, 64 / size)
    q, k, _ = heads(length, length, size, dtype)
    v = heads(length, length, value_size, dtype)[2]
    grad = torch.randn_like(v)
    with FusionDefinition() as fd:
        a, b, c, g = (fd.from_pytorch(x) for x in (q, k, v, grad))
        p, s = fd.define_scalar(DataType.Double), fd.define_scalar(DataType.Double)
        flag = fd.define_scalar(DataType.Bool)
        out, total, *state = fd.ops.sdpfa_fwd(a, b, c, None, None, p, flag, s)
        fd.add_output(out)
        for t in fd.ops.sdpfa_bwd(g, a, b, c, out, total, p, flag, *state, s):
            fd.add_output(t)
    got = fd.execute([q, k, v, grad, 0.0, scale, causal])
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    want = F.scaled_dot_product_attention(*leaves, is_causal=causal, scale=scale)
    want.backward(grad.double())
    tolerance = 1e-4 if dtype == torch.float32 else 5e-2
    for x, y in zip(got, (want, *(leaf.grad for leaf in leaves)), strict=True):
        assert x.dtype == dtype
        assert y is not None
        torch.testing.assert_close(x.double(), y.detach(), rtol=tolerance, atol=tolerance)


def test_sdpfa_dtype() -> None:
    inputs = [x.double() for x in heads(16, 16, 32, torch.float32)]
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sdpfa_fwd(*map(fd.from_pytorch, inputs))[0])
    with pytest.raises(Unsupported, match="got Double") as caught:
        fd.execute(inputs)
    assert caught.value.rule == "sdpfa-dtype"


GROUPED = [((64, 32), (2, 32, 48)), ((2, 64, 32), (32, 48)), ((64, 32), (32, 48))]


@pytest.mark.parametrize(("first", "second"), GROUPED, ids=str)
def test_grouped_products_with_scales(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    """Groups of rows, of columns and of terms, at multiples of 16, on sm_90."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("torch._scaled_grouped_mm has kernels for sm_90")
    generator = torch.Generator("cuda").manual_seed(2)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator, device="cuda") + 0.5

    a, b = (numbers(*s).to(torch.float8_e4m3fn) for s in (first, second))
    lead = [2] if len(first) == len(second) == 2 else []
    ends = {2: first[-2] if len(second) == 3 else first[-1], 3: second[-1]}[len(first)]
    offsets = torch.tensor([16, ends], dtype=torch.int32, device="cuda")
    scale1 = numbers(*(lead or first[:-2]), first[-2], 1)
    scale2 = numbers(*(lead or second[:-2]), 1, second[-1])
    inputs = [a, b, offsets, scale1, scale2]
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.grouped_mm(*map(fd.from_pytorch, inputs)))
    (got,) = fd.validate(inputs)
    assert got.dtype == torch.bfloat16


def test_grouped_mm_3() -> None:
    a = torch.ones(16, 16, device="cuda").to(torch.float8_e4m3fn)
    offsets = torch.tensor([16], dtype=torch.int32, device="cuda")
    inputs = [a, a[None], offsets, torch.ones(16, 1, device="cuda")]
    inputs.append(torch.ones(1, 1, 16, device="cuda"))
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.grouped_mm(*map(fd.from_pytorch, inputs), dtype=DataType.Float))
    with pytest.raises(Unsupported) as caught:
        fd.execute(inputs)
    assert caught.value.rule == "grouped-mm-3"
