"""A new normalization: RMS norm of signed square roots, through memory_efficient_fusion.

    python examples/new_normalization.py

y = weight * s / sqrt(mean(s^2) + eps) with s = sign(x) * sqrt(|x|), written as four lines of torch.
Eager torch runs about ten kernels forward and more backward. fuser runs one kernel per direction;
the backward pass rematerializes intermediate values instead of saving them.
"""

import torch

import fuser

EPS = 1e-6


def root_rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    s = x.sign() * (x.abs() + EPS).sqrt()
    return weight * s * torch.rsqrt(s.square().mean(-1, keepdim=True) + EPS)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    shape = (4096, 4096) if device == "cuda" else (64, 512)
    x = torch.randn(shape, device=device, requires_grad=True)
    weight = torch.randn(shape[-1], device=device, requires_grad=True)
    dy = torch.randn(shape, device=device)

    fused = fuser.memory_efficient_fusion(root_rms_norm)
    y = fused(x, weight)
    gradients = torch.autograd.grad(y, [x, weight], dy)

    exact = [t.detach().double().requires_grad_() for t in (x, weight)]
    exact_y = root_rms_norm(*exact)
    exact_gradients = torch.autograd.grad(exact_y, exact, dy.double())
    pairs = zip((y, *gradients), (exact_y, *exact_gradients), strict=True)
    for name, (got, expected) in zip(("y", "dx", "dweight"), pairs, strict=True):
        error = float(((got - expected).abs().max() / expected.abs().max()).detach())
        print(f"{name:>8}: off by {error:.1e} of its largest value")
        assert error < 1e-5

    print("\nWhat became of it:\n")
    print(fuser.explain(root_rms_norm, x, weight))


if __name__ == "__main__":
    main()
