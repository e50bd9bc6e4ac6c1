"""Define once, run on any shape: y = gelu(x + bias) * scale + residual in bfloat16.

    python examples/quickstart.py

Eager torch runs four kernels, which store every intermediate tensor to memory. fuser compiles one
kernel and uses it for every shape below. Without a GPU the kernel runs on the CPU.
"""

import time

import torch
from torch.nn.functional import gelu

import fuser
from fuser import DataType, FusionDefinition

SCALE = 0.5


def define() -> FusionDefinition:
    """The definition; -1 is a symbolic size. Half types are computed in float32 and rounded by the
    last cast."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
        bias = fd.define_tensor([-1], contiguity=True, dtype=DataType.BFloat16)
        residual = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
        y = fd.ops.gelu(x + bias, approximate="tanh") * SCALE + residual
        fd.add_output(fd.ops.cast(y, DataType.BFloat16))
    return fd


def run_time(fd: FusionDefinition, inputs: list[torch.Tensor], repeats: int) -> float:
    """Seconds of one run, the minimum of `repeats`."""
    times = []
    for _ in range(repeats):
        if inputs[0].is_cuda:
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            fd.execute(inputs)
            stop.record()
            stop.synchronize()
            times.append(start.elapsed_time(stop) * 1e-3)
        else:
            begin = time.perf_counter()
            fd.execute(inputs)
            times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    name = torch.cuda.get_device_name() if on_gpu else "the CPU (no GPU here)"
    shapes = [(8192, 12288), (16384, 4096), (3000, 1024)]
    if not on_gpu:
        shapes = [(512, 1024), (300, 2048), (1000, 768)]

    fd = define()
    print(f"The definition, as Python that rebuilds it:\n\n{fd}")

    rows = []
    for shape in shapes:
        x = torch.randn(shape, device=device).bfloat16()
        bias = torch.randn(shape[1], device=device).bfloat16()
        residual = torch.randn(shape, device=device).bfloat16()
        inputs = [x, bias, residual]

        before = fuser.cache_info()
        (y,) = fd.execute(inputs)  # compiles if this layout class is new
        after = fuser.cache_info()

        exact = gelu(x.double() + bias.double(), approximate="tanh") * SCALE + residual.double()
        seconds = run_time(fd, inputs, repeats=20 if on_gpu else 5)
        moved = sum(t.numel() * t.element_size() for t in (*inputs, y))
        compiled = after.kernels_compiled - before.kernels_compiled
        loaded = after.kernels_from_disk - before.kernels_from_disk
        rows.append(
            f"{shape[0]:>6} x {shape[1]:<6} {compiled:>8} {loaded:>9} "
            f"{(after.compile_seconds - before.compile_seconds) * 1e3:>10.0f} "
            f"{seconds * 1e6:>9.1f} {moved / seconds / 1e9:>8.1f} {(y - exact).abs().max():>13.2g}"
        )

    print(f"\nThe kernel, as the compiler gets it (helpers left out):\n\n{fd.last_cuda_code()}")
    print(f"Runs on {name}:\n")
    print("        shape   compiled from disk compile ms    run us     GB/s largest error")
    print("\n".join(rows))
    print("\nErrors are against float64; values reach 8, where bfloat16 has steps of 0.03 to 0.06.")


if __name__ == "__main__":
    main()
