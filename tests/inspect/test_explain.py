"""fuser.explain: steps, bytes, and the fusion breaks."""

from __future__ import annotations

import pytest
import torch

import fuser
from fuser import FusionDefinition, Tensor, UserError
from fuser.inspect.explain_definition import Explanation, Use

X = torch.randn(8, 16)


def define(*ranks: int) -> tuple[FusionDefinition, list[Tensor]]:
    fd = FusionDefinition()
    return fd, [fd.define_tensor([-1] * rank) for rank in ranks]


def why(found: Explanation) -> str:
    return "\n".join(text for _, text in found.apart)


def test_one_kernel_moves_what_it_must() -> None:
    fd, (x, bias) = define(2, 1)
    fd.add_output(fd.ops.relu(x + bias))
    found = fuser.explain(fd, [X, X[0]])
    (step,) = found.steps
    assert step.kind == "kernel"
    assert step.plan.startswith("pointwise")
    assert step.computes == (3, 4)
    assert step.reads == (Use(0, X.numel() * 4), Use(1, 16 * 4))
    assert found.bytes == found.ideal_bytes == 2 * X.numel() * 4 + 16 * 4
    assert found.apart == ()
    assert found.text().endswith("1.00 times the ideal\nfusion breaks: none")
    assert found.machine.us("kernel", found.bytes, step.slots) == step.predicted_us
    assert step.measured_us is found.measured is None


def test_inputs_come_one_by_one_or_as_a_list() -> None:
    fd, (x, y) = define(2, 2)
    fd.add_output(x + y)
    assert fuser.explain(fd, X, X) == fuser.explain(fd, [X, X])


def test_measured_times_are_of_each_step() -> None:
    fd, (x, y) = define(2, 2)
    fd.add_output(fd.ops.relu(fd.ops.matmul(x, y)))
    found = fuser.explain(fd, X, X.T.contiguous(), measured=True)
    assert found.measured is not None
    assert [step.measured_us for step in found.steps] == list(found.measured.step_us)
    assert "measured" in found.text()
    assert found.steps[0].predicted_us is None, "a matrix product is not bound by its bytes"


def test_a_function_is_explained_as_a_model() -> None:
    found = fuser.explain(lambda x: (x * 2).relu(), X)
    (graph,) = found.graphs
    assert graph.fused == 2
    assert "pointwise" in found.explanations[0].steps[0].plan
    assert "region 0\nstep" in found.text()


@pytest.mark.parametrize("target", [None, "a name", X], ids=["None", "str", "Tensor"])
def test_explain_target(target: object) -> None:
    with pytest.raises(UserError, match="expected a FusionDefinition, a module or a function") as e:
        fuser.explain(target, X)  # type: ignore[call-overload]
    assert e.value.rule == "explain-target"


def test_colours_only_where_asked_for() -> None:
    fd, (x,) = define(2)
    fd.add_output(fd.ops.relu(x))
    found = fuser.explain(fd, X)
    assert "\x1b" not in found.text()
    assert "\x1b" not in str(found), "pytest is no terminal"
    assert "\x1b[1m" in found.text(colours=True)


def test_an_expanded_input_is_one_row_in_memory() -> None:
    fd, (x,) = define(2)
    fd.add_output(fd.ops.relu(x))
    found = fuser.explain(fd, [X[0].expand(8, 16)])
    assert found.steps[0].reads == (Use(0, 16 * 4),)


def test_what_is_handed_over_has_a_reason() -> None:
    fd, (x,) = define(2)
    fd.add_output(fd.ops.softmax(fd.ops.softmax(x, 0), 1))
    found = fuser.explain(fd, [X])
    assert len(found.steps) >= 2
    assert found.bytes > found.ideal_bytes
    assert "materialized for" in why(found)
    assert "reduc" in why(found)


def test_a_library_call_is_a_step() -> None:
    fd, (x, y) = define(2, 2)
    fd.add_output(fd.ops.relu(fd.ops.matmul(x, y)))
    found = fuser.explain(fd, [X, X.T.contiguous()])
    assert [step.kind for step in found.steps] == ["library", "kernel"]
    assert "torch computes matmul" in why(found)


def test_kernels_that_share_nothing() -> None:
    fd, (x, y) = define(2, 1)
    fd.add_output(fd.ops.relu(x))
    fd.add_output(fd.ops.relu(y))
    assert "no tensor in common" in why(fuser.explain(fd, [X, X[0]]))


def test_outputs_of_other_axes() -> None:
    fd, (x,) = define(1)
    fd.add_output(fd.ops.broadcast(x, [False, True]) - fd.ops.broadcast(x, [True, False]))
    fd.add_output(x * 2.0)
    assert "no axes in common" in why(fuser.explain(fd, [X[0]]))


def test_a_chain_of_many_ops_says_what_a_kernel_holds() -> None:
    fd, (x,) = define(1)
    for _ in range(700):
        x = fd.ops.round(x)
    fd.add_output(x)
    found = fuser.explain(fd, [X[0]])
    assert len(found.steps) == 2
    assert "a kernel has at most 512 values" in why(found)


def test_a_copy_into_an_input_is_a_step() -> None:
    fd, (x,) = define(2)
    fd.add_output(x + fd.ops.permute(x, [1, 0]), x)
    found = fuser.explain(fd, [torch.randn(4, 4)])
    assert [step.kind for step in found.steps] == ["kernel", "copy"]


def test_inputs_must_fit() -> None:
    fd, (x,) = define(2)
    fd.add_output(fd.ops.relu(x))
    with pytest.raises(UserError):
        fuser.explain(fd, [])
