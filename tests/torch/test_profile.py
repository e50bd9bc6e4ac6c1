"""csrc/torch/profile.cpp: the steps of a call as torch's profilers see them."""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity, profile

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
    """A name is the main ops and a digest of the text."""
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
