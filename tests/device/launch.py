"""Execution of kernel texts by the host executor or a GPU: elementwise kernels on CPU tensors
(Launch), and kernels with cooperating threads on numpy arrays (Kernels)."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fuser import _core
from fuser.runtime import host
from tests.device.programs import Program

# launch(which, inputs, output): run op number `which` with one thread per row of `output`.
Launch = Callable[[int, Sequence[Tensor], Tensor], None]

THREADS = 128


def on_host(programs: Sequence[Program], operands: int = 3) -> list[Launch]:
    """Launchers of the programs, compiled in one build; each kernel takes `operands` pointers and
    the output."""
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
    """Launchers of the programs on torch's current CUDA device; tensors are copied to it and
    back."""
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


# kernels(name, blocks, threads, *arguments, shared=bytes, cluster=blocks): run the kernel `name`.
# Arrays are passed as pointers and receive the stored values; integers are passed as i32.
Kernels = Callable[..., None]


def meeting_on_host(programs: Sequence[Program], debug: bool) -> Kernels:
    """The programs as fibers of the host executor, compiled in one build."""
    sources = [host.HostSource(p.name, p.text, collectives=True) for p in programs]
    module = _core.load_host_bytes(host.build(sources, debug))
    kernels = {p.name: module.find(i) for i, p in enumerate(programs)}

    def run(
        name: str, blocks: int, threads: int, *arguments: Any, shared: int = 0, cluster: int = 1
    ) -> None:
        arrays = [a for a in arguments if isinstance(a, np.ndarray)]
        ranges = [
            _core.HostRange(f"t{i}", a.ctypes.data, a.nbytes, writable=a.flags.writeable)
            for i, a in enumerate(arrays)
        ]
        values = [
            bytes(
                ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else ctypes.c_int32(a)
            )
            for a in arguments
        ]
        _core.host_launch(
            kernels[name],
            [blocks, 1, 1],
            [threads, 1, 1],
            shared,
            values,
            ranges,
            _core.HostOptions(cluster=[cluster, 1, 1], seed=len(name) + blocks + threads),
        )

    return run


def meeting_on_gpu(programs: Sequence[Program]) -> Kernels:
    """The programs on torch's current CUDA device; arrays are copied to it and back."""
    from cuda.bindings import driver, nvrtc

    major, minor = torch.cuda.get_device_capability()
    torch.zeros(1, device="cuda")  # makes the context current
    texts = {program.name: program.text for program in programs}

    @functools.cache
    def function(name: str) -> Any:
        error, module = driver.cuModuleLoadData(
            compile_cuda(texts[name], f"sm_{major}{minor}", nvrtc)
        )
        assert int(error) == 0, error
        error, found = driver.cuModuleGetFunction(module, name.encode())
        assert int(error) == 0, error
        return found

    def run(
        name: str, blocks: int, threads: int, *arguments: Any, shared: int = 0, cluster: int = 1
    ) -> None:
        if cluster > 1 and major < 9:
            pytest.skip("clusters need sm_90")
        moved = {
            i: torch.from_numpy(a.reshape(-1).view(np.uint8).copy()).cuda()
            for i, a in enumerate(arguments)
            if isinstance(a, np.ndarray)
        }
        values = tuple(moved[i].data_ptr() if i in moved else a for i, a in enumerate(arguments))
        types = tuple(
            ctypes.c_void_p if i in moved else ctypes.c_int32 for i in range(len(arguments))
        )
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = blocks, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = shared
        config.hStream = torch.cuda.current_stream().cuda_stream
        if cluster > 1:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            extent = attribute.value.clusterDim
            extent.x, extent.y, extent.z = cluster, 1, 1
            config.attrs, config.numAttrs = [attribute], 1
        (error,) = driver.cuLaunchKernelEx(config, function(name), (values, types), 0)
        assert int(error) == 0, error
        torch.cuda.synchronize()
        for i, tensor in moved.items():
            if arguments[i].flags.writeable:
                arguments[i].reshape(-1).view(np.uint8)[:] = tensor.cpu().numpy()

    return run


MEETING = [
    pytest.param(lambda programs: meeting_on_host(programs, debug=False), id="host"),
    pytest.param(lambda programs: meeting_on_host(programs, debug=True), id="debug"),
    pytest.param(meeting_on_gpu, id="gpu", marks=pytest.mark.gpu),
]
