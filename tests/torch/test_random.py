"""csrc/torch/random: the offset that a run takes from torch's generators."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fuser
from fuser import FusionDefinition
from fuser._native import load_torch
from tests.support.scripts import fused, groups


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


def five_of_each(x: torch.Tensor) -> list[torch.Tensor]:
    """Draws that are distinct in eager mode."""
    drawn = [F.dropout(x, 0.5, training=True) for _ in range(5)]
    drawn += [torch.rand_like(x) for _ in range(5)]
    drawn += [torch.randn_like(x) for _ in range(5)]
    drawn += [torch.bernoulli(x.detach(), 0.5) for _ in range(5)]
    return drawn


def dropped(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    y = F.dropout(x + 1.0, 0.5, True) * F.dropout(x + 1.0, 0.5, True)
    return y, F.dropout(x + 1.0, 0.5, True) * 2.0, F.dropout(x + 1.0, 0.5, True) * 3.0


def masked(t: torch.Tensor) -> torch.Tensor:
    """The mask of dropped elements, or the tensor itself: a random number of few bits may be 0."""
    dropped = t == 0
    return dropped if dropped.double().mean() > 0.25 else t


def assert_all_differ(drawn: list[torch.Tensor]) -> None:
    """Assert that tensors differ, also when shifted by up to eight elements."""
    for a, b in itertools.combinations([masked(t) for t in drawn], 2):
        for shift in range(9):
            left, right = a.flatten()[shift:], b.flatten()[: a.numel() - shift]
            assert not left.equal(right)
            assert not left[: -shift or None].equal(b.flatten()[shift:][: len(left) - shift])


WAYS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "compile": lambda f: torch.compile(f, backend="fuser"),
    "functorch": fuser.memory_efficient_fusion,
}


@pytest.mark.parametrize(
    ("way", "dtype"), [("compile", torch.float32), ("functorch", torch.bfloat16)]
)
def test_five_equal_ops_have_five_masks(way: str, dtype: torch.dtype) -> None:
    """Five equal random ops draw five masks, in one run and in two, for a size that is not a
    multiple of four. A gradient has the mask of its own dropout."""
    torch._dynamo.reset()
    f = WAYS[way](five_of_each)
    x = torch.ones(7, 43, dtype=dtype, requires_grad=True)
    first, second = list(f(x)), list(f(x))
    assert_all_differ([t.detach() for t in first + second])
    for y in first[:5]:
        (gradient,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
        assert (gradient == 0).equal(y == 0)


def test_dropouts_of_a_script_have_masks_of_their_own() -> None:
    f: Any = torch.jit.script(dropped)
    x = torch.ones(7, 43)
    with fused():
        drawn = [t for _ in range(4) for t in f(x)]
        assert groups(f.graph_for(x)) >= 1
    assert_all_differ(drawn)


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
