"""A scripted model with fuser: torch.jit.script, forward and backward.

    python examples/scripted_model.py

The fuser is enabled temporarily, for CPU tensors too. A scripted function is profiled in its first
two calls and fused by the third.
"""

import torch
from torch import nn

import fuser


class Block(nn.Module):
    """A gate, a residual and a layer norm, around a matrix product that torch computes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.gelu(self.linear(x)) * torch.sigmoid(x)
        return self.norm(x + y)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = Block(128).to(device)
    x = torch.randn(64, 128, device=device, requires_grad=True)
    dy = torch.randn_like(x)
    (expected,) = torch.autograd.grad(model(x), x, dy)

    before = fuser.cache_info()
    with fuser.torchscript_fuser(cpu=True):
        scripted = torch.jit.script(model)
        for call in range(4):
            (gradient,) = torch.autograd.grad(scripted(x), x, dy)
            error = float((gradient - expected).abs().max() / expected.abs().max())
            print(f"call {call}: gradient off by {error:.1e} of its largest value")
            assert error < 1e-4
    after = fuser.cache_info()
    kernels = after.kernels_compiled + after.kernels_from_disk
    kernels -= before.kernels_compiled + before.kernels_from_disk
    print(f"\n{kernels} kernels of ours ran in its place")
    assert kernels > 0


if __name__ == "__main__":
    main()
