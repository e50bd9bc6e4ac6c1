"""Runs one kernel text on CPU tensors, by the host executor or by a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fuser import _core
from fuser.runtime import host
from tests.device.programs import Program

# launch(which, inputs, output): runs op number `which`, one thread for each row of `output`.
Launch = Callable[[int, Sequence[Tensor], Tensor], None]

THREADS = 128


def on_host(programs: Sequence[Program], operands: int = 3) -> list[Launch]:
    """The programs, compiled in one build; each takes `operands` pointers and the output."""
    binary = host.build([host.HostSource(p.name, p.text, collectives=False) for p in programs])
    module = _core.load_host_bytes(binary)

    def launcher(kernel: object) -> Launch:
        def launch(which: int, inputs: Sequence[Tensor], output: Tensor) -> None:
            values = [ctypes.c_int32(which), ctypes.c_int32(len(output))]
            padded = [*inputs, *[inputs[0]] * (operands - len(inputs))]
            values += [ctypes.c_void_p(t.data_ptr()) for t in (*padded, output)]
            grid = [-(-len(output) // THREADS), 1, 1]
            _core.host_launch(kernel, grid, [THREADS, 1, 1], 0, [bytes(v) for v in values])

        return launch

    return [launcher(module.find(i)) for i in range(len(programs))]


def compile_cuda(text: str, architecture: str, nvrtc: object) -> bytes:
    """The cubin of a kernel text for sm_XX, by the cuda-python module `nvrtc`."""
    error, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], [])  # type: ignore[attr-defined]
    flags = [f"--gpu-architecture={architecture}".encode()]
    flags += [b"--std=c++17", b"--fmad=false", b"-default-device"]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)  # type: ignore[attr-defined]
    if int(error):
        log = b" " * nvrtc.nvrtcGetProgramLogSize(program)[1]  # type: ignore[attr-defined]
        nvrtc.nvrtcGetProgramLog(program, log)  # type: ignore[attr-defined]
        raise RuntimeError(f"{architecture}: {log.decode()}")
    cubin = b" " * nvrtc.nvrtcGetCUBINSize(program)[1]  # type: ignore[attr-defined]
    nvrtc.nvrtcGetCUBIN(program, cubin)  # type: ignore[attr-defined]
    return cubin


def on_gpu(programs: Sequence[Program], operands: int = 3) -> list[Launch]:
    """The programs on torch's current CUDA device; tensors are copied there and back."""
    from cuda.bindings import driver, nvrtc

    major, minor = torch.cuda.get_device_capability()
    torch.zeros(1, device="cuda")  # makes the context current

    def launcher(program: Program) -> Launch:
        error, module = driver.cuModuleLoadData(
            compile_cuda(program.text, f"sm_{major}{minor}", nvrtc)
        )
        assert int(error) == 0, error
        error, function = driver.cuModuleGetFunction(module, program.name.encode())
        assert int(error) == 0, error

        def launch(which: int, inputs: Sequence[Tensor], output: Tensor) -> None:
            moved = [t.cuda() for t in inputs]
            moved += [moved[0]] * (operands - len(moved))
            result = torch.empty_like(output, device="cuda")
            values = (which, len(output), *(t.data_ptr() for t in (*moved, result)))
            types = (ctypes.c_int32, ctypes.c_int32, *[ctypes.c_void_p] * (operands + 1))
            blocks = -(-len(output) // THREADS)
            (error,) = driver.cuLaunchKernel(
                function, blocks, 1, 1, THREADS, 1, 1, 0, 0, (values, types), 0
            )
            assert int(error) == 0, error
            output.copy_(result)

        return launch

    return [launcher(program) for program in programs]
