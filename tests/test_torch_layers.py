"""fuser/torch_layers.py: functions of torch.nn that tests/test_torch_functions.py does not run."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fuser import FusionDefinition, UserError


def test_modules_without_parameters_run_on_tensors_of_a_definition() -> None:
    modules = [
        *(nn.ReLU(), nn.GELU(), nn.SiLU(), nn.Softmax(-1), nn.Softplus(), nn.Tanh(), nn.Flatten()),
        *(nn.LayerNorm(6, elementwise_affine=False), nn.Identity(), nn.Hardtanh(0.2, 0.4)),
    ]
    fd = FusionDefinition()
    x = fd.define_tensor([-1, 6])
    for module in modules:
        fd.add_output(fd.ops.set(module(x)))
    data = torch.randn(4, 6)
    for module, found in zip(modules, fd.execute([data]), strict=True):
        torch.testing.assert_close(found, module(data))


def test_attention_with_and_without_a_mask() -> None:
    q, k, v = (torch.randn(2, 2, 8, 16) for _ in range(3))
    allowed = torch.ones(8, 8, dtype=torch.bool).tril()[None, None].expand(2, 2, 8, 8)
    fd = FusionDefinition()
    a, b, c, m = (fd.from_pytorch(t) for t in (q, k, v, allowed.contiguous()))
    fd.add_output(F.scaled_dot_product_attention(a, b, c))
    fd.add_output(F.scaled_dot_product_attention(a, b, c, is_causal=True))
    fd.add_output(F.scaled_dot_product_attention(a, b, c, attn_mask=m))
    plain, causal, masked = fd.execute([q, k, v, allowed.contiguous()])
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(plain, F.scaled_dot_product_attention(q, k, v))
    torch.testing.assert_close(causal, expected)
    torch.testing.assert_close(masked, expected)


def test_refused() -> None:
    x = FusionDefinition().define_tensor([-1, -1])
    for call in (
        lambda: F.mse_loss(x, x, reduction="most"),
        lambda: F.pad(x, (1, 1), mode="reflect"),
    ):
        with pytest.raises(UserError) as caught:
            call()
        assert caught.value.rule == "habit-argument"
    with pytest.raises(UserError, match="define_tensor") as caught:
        nn.Linear(4, 4)(x)
    assert caught.value.rule == "habit-tensor"
    with pytest.raises(UserError, match="alias_input") as caught:
        F.relu(x, inplace=True)
    assert caught.value.rule == "habit-inplace"
