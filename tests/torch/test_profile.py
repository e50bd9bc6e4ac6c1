"""csrc/torch/profile.cpp: the steps of a call in torch's profilers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import fuser
from fuser import FusionDefinition


def test_steps_are_ranges_with_the_names_of_their_kernels() -> None:
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1, -1]) for _ in range(2))
    fd.add_output(fd.ops.relu(fd.ops.matmul(x, y)))
    fd.add_output(x + fd.ops.permute(x, [1, 0]), x)
    inputs = [torch.randn(8, 8), torch.randn(8, 8)]
    fd.execute(inputs)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        fd.execute(inputs)
    names = [event.name for event in found.events() or [] if event.name.startswith("fuser: ")]
    kernels = [f"fuser: {kernel.name}" for kernel in fd.fec.executor.kernels()]
    assert sorted(names) == sorted([*kernels, "fuser: matmul", "fuser: copy"])
    (whole,) = [e.name for e in found.events() or [] if e.name.startswith("fuser definition")]
    assert whole.startswith("fuser definition at test_profile.py:")


def test_a_compiled_function_is_named_after_the_users_line() -> None:
    function = torch.compile(lambda x: (x * 0.75).relu() + 1, backend="fuser")
    x = torch.randn(8, 8)
    function(x)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        function(x)
    names = [event.name for event in found.events() or []]
    assert [n for n in names if n.startswith("fuser definition at test_profile.py:")]
    assert [n for n in names if n.startswith("fuser: mul_relu_add_")]


def test_names_are_the_same_in_another_process_and_say_the_ops() -> None:
    """A kernel name consists of the main ops and a digest of the text."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], contiguity=True)
    fd.add_output(fd.ops.gelu(x, approximate="tanh") * 2.0)
    again = FusionDefinition()
    x = again.define_tensor([-1, -1], contiguity=True)
    again.add_output(again.ops.gelu(x, approximate="tanh") * 2.0)
    names = []
    for definition in (fd, again):
        definition.execute([torch.randn(4, 32)])
        (kernel,) = definition.fec.executor.kernels()
        names.append(kernel.name)
    assert names[0] == names[1]
    assert names[0].startswith("gelu_mul_")


def test_explain_names_kernels_as_they_will_be() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    fd.add_output(fd.ops.softmax(fd.ops.softmax(x, 0), 1))
    data = torch.randn(8, 16)
    before = fuser.cache_info().kernels_compiled
    names = [step.name for step in fuser.explain(fd, data).steps]
    assert fuser.cache_info().kernels_compiled == before, "explain only plans"
    fd.execute([data])
    assert names == [kernel.name for kernel in fd.fec.executor.kernels()]
    assert all(name.startswith("softmax_fwd_") for name in names)


@pytest.mark.gpu
def test_kernels_and_ranges_on_the_gpu() -> None:
    """The kernel and the range around its launch have the name that explain() prints."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    fd.add_output(fd.ops.softmax(fd.ops.softmax(x, 0), 1))
    data = torch.randn(64, 128, device="cuda")
    fd.execute([data])
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        fd.execute([data])
        torch.cuda.synchronize()
    events = [(event.name, event.device_type) for event in found.events() or []]
    names = [step.name for step in fuser.explain(fd, data).steps]
    assert len(names) == 2
    for name in names:
        assert (name, DeviceType.CUDA) in events
        assert (f"fuser: {name}", DeviceType.CPU) in events


# Library that NVTX loads from NVTX_INJECTION64_PATH in place of a profiler: prints the start of
# each range. The numbers are from nvtx3/nvtxDetail/nvtxTypes.h: the table of callbacks, its core
# module, and nvtxRangePushA in it.
_NVTX_LISTENER = """
#include <stdint.h>
#include <stdio.h>
typedef void (*Function)(void);
struct Callbacks { size_t size; int (*table_of)(int module, Function*** table, unsigned* count); };
static int range_push(const char* name) { return fprintf(stderr, "range %s\\n", name), 0; }
int InitializeInjectionNvtx2(const void* (*table)(uint32_t)) {
  const struct Callbacks* callbacks = (const struct Callbacks*)table(1);
  Function** core;
  unsigned count;
  if (!callbacks->table_of(1, &core, &count) || count <= 9) return 0;
  *core[9] = (Function)range_push;
  return 1;
}
"""

_NVTX_PROGRAM = """
import torch
from fuser import FusionDefinition
fd = FusionDefinition()
x = fd.define_tensor([-1, -1])
fd.add_output(fd.ops.softmax(x, 1))
data = torch.randn(64, 128, device="cuda")
fd.execute([data])
with torch.autograd.profiler.emit_nvtx():
    fd.execute([data])
print(fd.fec.executor.kernels()[0].name)
"""


@pytest.mark.gpu
def test_steps_are_nvtx_ranges(tmp_path: Path) -> None:
    source, listener = tmp_path / "listener.c", tmp_path / "listener.so"
    source.write_text(_NVTX_LISTENER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", listener, source], check=True)
    done = subprocess.run(
        [sys.executable, "-c", _NVTX_PROGRAM],
        env=os.environ | {"NVTX_INJECTION64_PATH": str(listener), "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    )
    ranges = [line[len("range ") :] for line in done.stderr.splitlines() if "range " in line]
    name = done.stdout.strip()
    assert name.startswith("softmax_fwd_")
    assert any(r.startswith("fuser definition at ") for r in ranges), ranges
    assert any(r.split(",")[0] == f"fuser: {name}" for r in ranges), ranges
