"""Layer norm and its backward pass written by hand, as one autograd function.

    python examples/normalizations.py

The forward pass reads x once and writes y; the backward pass reads dy and x once and writes dx and
the gradients of weight and bias. Results are checked against autograd in float64. Without a GPU
everything runs on the CPU.
"""

from typing import Any

import torch

from fuser import DataType, FusionDefinition

EPS = 1e-5
TYPES = {torch.float32: DataType.Float, torch.bfloat16: DataType.BFloat16}


def forward_definition(dtype: DataType) -> FusionDefinition:
    """y, mean and rstd of x[rows, width]. Half types are computed in float32."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
        weight = fd.define_tensor([-1], contiguity=True, dtype=dtype)
        bias = fd.define_tensor([-1], contiguity=True, dtype=dtype)
        mean = fd.ops.mean(x, 1, keepdim=True)
        centered = x - mean
        variance = fd.ops.mean(centered * centered, 1, keepdim=True)
        rstd = fd.ops.rsqrt(variance + EPS)
        y = centered * rstd * weight + bias
        for result in (fd.ops.cast(y, dtype), mean, rstd):
            fd.add_output(result)
    return fd


def backward_definition(dtype: DataType) -> FusionDefinition:
    """dx, dweight and dbias. With n = (x - mean) * rstd and g = dy * weight,
    dx = (g - mean(g) - n * mean(g * n)) * rstd."""
    with FusionDefinition() as fd:
        dy = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
        mean = fd.define_tensor([-1, 1], contiguity=True)
        rstd = fd.define_tensor([-1, 1], contiguity=True)
        weight = fd.define_tensor([-1], contiguity=True, dtype=dtype)
        normal = (x - mean) * rstd
        gradient = dy * weight
        shift = fd.ops.mean(gradient, 1, keepdim=True)
        slope = fd.ops.mean(gradient * normal, 1, keepdim=True)
        dx = (gradient - shift - normal * slope) * rstd
        for result in (dx, fd.ops.sum(dy * normal, 0), fd.ops.sum(dy, 0)):
            fd.add_output(fd.ops.cast(result, dtype))
    return fd


FORWARD = {torch_dtype: forward_definition(dtype) for torch_dtype, dtype in TYPES.items()}
BACKWARD = {torch_dtype: backward_definition(dtype) for torch_dtype, dtype in TYPES.items()}


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
        y, mean, rstd = FORWARD[x.dtype].execute([x, weight, bias])
        ctx.save_for_backward(x, mean, rstd, weight)
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        return tuple(BACKWARD[dy.dtype].execute([dy, *ctx.saved_tensors]))


def largest_errors(shape: tuple[int, int], dtype: torch.dtype, device: str) -> list[float]:
    """Errors of y, dx, dweight and dbias compared with float64, relative to the largest value of
    each."""
    torch.manual_seed(0)
    rows, width = shape
    x, dy = (torch.randn(rows, width, device=device, dtype=dtype) for _ in range(2))
    weight, bias = (torch.randn(width, device=device, dtype=dtype) for _ in range(2))
    inputs = [t.detach().requires_grad_() for t in (x, weight, bias)]
    y = LayerNorm.apply(*inputs)
    y.backward(dy)
    exact = [t.detach().double().requires_grad_() for t in (x, weight, bias)]
    exact_y = torch.nn.functional.layer_norm(exact[0], [width], exact[1], exact[2], EPS)
    exact_y.backward(dy.double())
    pairs = [(y, exact_y), *((a.grad, b.grad) for a, b in zip(inputs, exact, strict=True))]
    return [float(((a - b).abs().max() / b.abs().max()).detach()) for a, b in pairs]


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shapes = (
        [(4096, 4096), (1000, 12288), (65536, 33)] if device == "cuda" else [(64, 512), (7, 33)]
    )
    print(f"Layer norm on {device}, errors relative to the largest value\n")
    print("         shape        dtype         y        dx   dweight     dbias")
    for shape in shapes:
        for dtype in TYPES:
            errors = largest_errors(shape, dtype, device)
            name = str(dtype).removeprefix("torch.")
            columns = " ".join(f"{error:>9.1e}" for error in errors)
            print(f"{shape[0]:>7} x {shape[1]:<6} {name:>8} {columns}")
            # Half a rounding step of the type; in float32 some roundings more, in the sums.
            assert max(errors) < (2.0**-8 if dtype == torch.bfloat16 else 1e-5)


if __name__ == "__main__":
    main()
