"""fuser/inspect/measure.py: times of steps, which leave the inputs unchanged."""

from __future__ import annotations

import torch

from fuser import FusionDefinition
from fuser.inspect.measure import measure


def test_steps_in_their_order() -> None:
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1, -1]) for _ in range(2))
    fd.add_output(fd.ops.relu(fd.ops.matmul(x, y)) + 1.0)
    found = measure(fd, [torch.randn(64, 64), torch.randn(64, 64)], calls=3)
    assert len(found.step_us) == 2
    assert all(us > 0 for us in found.step_us)
    assert found.call_us >= sum(found.step_us) * 0.5
    assert found.timeline[0].name == "matmul"
    assert all(0 <= span.start <= span.stop <= found.call_us * 10 for span in found.timeline)


def test_inputs_and_the_generator_stay_as_they_are() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1])
    fd.add_output(x + fd.ops.rand_like(x), x)
    data, state = torch.zeros(100), torch.get_rng_state()
    measure(fd, [data], calls=2)
    assert torch.equal(data, torch.zeros(100))
    assert torch.equal(torch.get_rng_state(), state)
