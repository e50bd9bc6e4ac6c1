"""csrc/torch/random: the position that a run takes from torch's generators."""

from __future__ import annotations

import pytest
import torch

from fuser import FusionDefinition
from fuser._native import load_torch


def draws(count: int) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        for _ in range(count):
            fd.add_output(fd.ops.rand_like(x))
    return fd


@pytest.fixture(autouse=True)
def generator_put_back() -> object:
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


@pytest.mark.parametrize("ops", [1, 3])
def test_the_cpu_generator_gives_a_number_an_op(ops: int) -> None:
    torch.manual_seed(5)
    seed, offset = load_torch().take_random_position(-1, ops)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    drawn = torch.empty(ops, dtype=torch.int64).random_()
    assert seed & (2**63 - 1) == drawn[0].item()
    assert offset == 0
    assert after.equal(torch.get_rng_state())


def test_a_run_moves_the_generator_and_manual_seed_repeats_it() -> None:
    fd, x = draws(2), torch.zeros(100)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = fd.execute([x])
    assert not before.equal(torch.get_rng_state())
    second = fd.execute([x])
    assert not first[0].equal(first[1])
    assert not first[0].equal(second[0])
    torch.manual_seed(1)
    assert all(a.equal(b) for a, b in zip(fd.execute([x]), first, strict=True))


def test_only_a_run_moves_it() -> None:
    fd, x = draws(1), torch.zeros(100)
    before = torch.get_rng_state()
    fd.plan([x])
    fd.cuda_code_for([x])
    fd.signature([x])
    with pytest.raises(Exception, match="rank"):
        fd.execute([x.view(10, 10)])
    assert before.equal(torch.get_rng_state())


@pytest.mark.gpu
def test_the_offset_of_a_gpu_moves_by_4_an_op() -> None:
    fd, x = draws(3), torch.zeros(100, device="cuda")
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    torch.cuda.manual_seed(7)
    first = fd.execute([x])
    assert generator.get_offset() == 12
    torch.rand(100, device="cuda")
    assert generator.get_offset() == 16
    torch.cuda.manual_seed(7)
    assert all(a.equal(b) for a, b in zip(fd.execute([x]), first, strict=True))
    fd.validate([x])


@pytest.mark.gpu
def test_a_replay_draws_what_a_run_would() -> None:
    fd, x = draws(3), torch.zeros(100, device="cuda")
    torch.cuda.manual_seed(7)
    runs = [[*fd.execute([x]), torch.rand(100, device="cuda"), *fd.execute([x])] for _ in range(2)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = [*fd.execute([x]), torch.rand(100, device="cuda"), *fd.execute([x])]
    torch.cuda.manual_seed(7)
    for run in runs:
        graph.replay()
        assert all(a.equal(b) for a, b in zip(captured, run, strict=True))
    assert torch.cuda.default_generators[torch.cuda.current_device()].get_offset() == 56
