"""The scheduler chosen for a problem."""

import pytest
import torch

from fuser import FusionDefinition, Plan, UserError


def test_pointwise_takes_what_has_no_reduction() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    fd.add_output(x * 2.0)
    plan = fd.plan([torch.ones(3, 3)])
    assert isinstance(plan, Plan)
    assert plan.scheduler == "pointwise"


def test_transpose_takes_what_lies_along_two_axes() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    fd.add_output(x - fd.ops.permute(x, [1, 0]))
    plan = fd.plan([torch.ones(64, 64)])
    assert isinstance(plan, Plan)
    assert plan.scheduler == "transpose"


def test_a_plan_of_another_scheduler_is_refused() -> None:
    fd = FusionDefinition()
    fd.add_output(fd.define_tensor([-1]) * 2.0)
    x = torch.ones(8)
    plan = fd.plan([x])
    assert isinstance(plan, Plan)
    with pytest.raises(
        UserError, match="scheduler=reduction is not allowed; expected pointwise"
    ) as caught:
        fd.fec.executor.execute([x], None, {**plan, "scheduler": "reduction"})
    assert caught.value.rule == "plan-1"
