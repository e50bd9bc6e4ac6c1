"""csrc/codegen/cpp: CPU kernels as C++: scalars where all lanes are equal, vectors elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fuser import FusionDefinition

SetOption = Callable[[str, object], None]


@pytest.fixture(autouse=True)
def on_cpu(set_option: SetOption) -> None:
    set_option("FUSER_HOST_ARCH", 0)


def lanes_of(fd: FusionDefinition, inputs: list[torch.Tensor]) -> int:
    plan = fd.plan(inputs)
    assert not isinstance(plan, tuple)
    return int(plan["lanes"])


def statements(fd: FusionDefinition, inputs: list[torch.Tensor]) -> str:
    """The function of the only kernel."""
    text = fd.cuda_code_for(inputs)
    return text[text.rindex("static void ") :]


def test_form_of_an_access_follows_its_offset() -> None:
    fd = FusionDefinition()
    x, row, column = fd.define_tensor([-1, -1]), fd.define_tensor([-1]), fd.define_tensor([-1, -1])
    fd.add_output(x + row * column)
    inputs = [torch.ones(300, 1000)[:, ::2], torch.ones(500), torch.ones(300, 1)]
    n = lanes_of(fd, inputs)
    text = statements(fd, inputs)
    assert f"load<f32, {n}>(g_in1 + " in text, "neighbours"
    assert "r_in2[0] = g_in2[" in text, "equal in all lanes"
    assert "f32 r_in2[1];" in text
    assert f"gather_strided<f32, {n}>(g_in0 + " in text, "a step between lanes"
    assert "store(g_out0 + " in text


def test_rows_shorter_than_a_vector_are_gathered() -> None:
    fd = FusionDefinition()
    x, row = fd.define_tensor([-1, -1]), fd.define_tensor([-1])
    fd.add_output(x + row)
    inputs = [torch.ones(1000, 3), torch.ones(3)]
    text = statements(fd, inputs)
    assert f"load<f32, {lanes_of(fd, inputs)}>(g_in0 + " in text
    assert "gather<f32" in text
    assert torch.equal(fd.execute(inputs)[0], torch.full((1000, 3), 2.0))


def test_lanes_under_a_mask_are_loaded_as_neighbours() -> None:
    """A cat masks its operands: most vectors are of one operand."""
    for sizes in ((5, 100), (33, 64), (128, 7)):
        fd = FusionDefinition()
        inputs = [torch.randn(40, n) for n in sizes]
        parts = [fd.from_pytorch(x) for x in inputs]
        fd.add_output(fd.ops.pad(fd.ops.cat(parts, 1), [3, 2], 0.5))
        text = statements(fd, inputs)
        assert f"load_range<f32, {lanes_of(fd, inputs)}>(g_in0 + " in text
        assert "gather<" not in text
        exact = torch.nn.functional.pad(torch.cat(inputs, 1), [3, 2], value=0.5)
        assert torch.equal(fd.execute(inputs)[0], exact)


def test_one_lane_is_scalar_code() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([])
    fd.add_output(x + 1.0)
    text = statements(fd, [torch.ones(())])
    assert "Vec<" not in text
    assert fd.execute([torch.ones(())])[0].item() == 2.0


def test_lanes_of_a_sum_are_merged_once_per_row() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    fd.add_output(fd.ops.sum(x, 1))
    text = statements(fd, [torch.ones(100, 1000)])
    assert text.count("merge_lanes<Sum>") == 1
    assert text.count("accumulate_(Sum(), ") == 1, "complete vectors"
    assert text.count("accumulate_some(Sum(), ") == 1, "the tail"


def test_last_task_merges_what_several_tasks_reduced() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    fd.add_output(fd.ops.sum(x))
    assert "last_task(" in statements(fd, [torch.ones(2000, 2000)])
    assert "last_task(" not in statements(fd, [torch.ones(20, 20)])
