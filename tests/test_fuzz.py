"""Random definitions on random layouts against fuser.evaluate, every access checked.

A fixed number of them by default; `python -m pytest tests/test_fuzz.py --fuzz 20000` runs so many,
on all processors where pytest-xdist is installed. With `-m gpu` they run on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fuser
from fuser import FusionDefinition, testing
from tests.calls import random_calling_graph
from tests.graphs import Graph, Pick, random_graph, random_moving_graph, random_reducing_graph

BATCH = 24  # graphs that are compiled together
BATCHES = {"debug": 45, "plain": 10, "gpu": 3}
CHUNK = 4  # batches of a test, where so many are asked for that several processors share them
LARGE = {"calls": 15}  # graphs of these makers take so many times as long: fewer of them


MAKERS: dict[str, Callable[[Pick], Graph]] = {
    "elements": random_graph,
    "reductions": random_reducing_graph,
    "movement": random_moving_graph,
    "calls": random_calling_graph,
}


@st.composite
def graphs(draw: st.DrawFn, make: Callable[[Pick], Graph]) -> Graph:
    return make(lambda n: draw(st.integers(0, n - 1)))


def same(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Equal values; NaN equals NaN."""
    if expected.is_floating_point():
        return torch.equal(got.double().nan_to_num(1e300), expected.nan_to_num(1e300))
    if expected.is_complex():
        return torch.equal(got.to(torch.complex128), expected)
    return torch.equal(got, expected)


def on_gpu(inputs: list[Any]) -> list[Any]:
    """The same layouts in the GPU's memory; what shares memory shares it there."""
    moved: dict[int, torch.Tensor] = {}

    def move(t: torch.Tensor) -> torch.Tensor:
        memory = t.untyped_storage()
        if memory.data_ptr() not in moved:
            whole = torch.tensor([], dtype=torch.uint8).set_(memory)
            moved[memory.data_ptr()] = whole.cuda()
        there = moved[memory.data_ptr()].untyped_storage()
        empty = torch.tensor([], dtype=t.dtype, device="cuda")
        return empty.set_(there, t.storage_offset(), t.shape, t.stride())

    return [move(x) if isinstance(x, torch.Tensor) else x for x in inputs]


def check(graph: Graph, inputs: list[Any]) -> None:
    """Runs the graph and compares its results, those in place too. inputs: as it runs on them."""
    again = FusionDefinition()
    scope = {"DataType": fuser.DataType, "FusionDefinition": FusionDefinition}
    exec(repr(graph.fd), scope)
    scope["nvfuser_fusion"](again)
    assert again.fusion == graph.fd.fusion, f"text rebuilds another definition:\n{graph!r}"
    expected = fuser.evaluate(graph.fd, graph.inputs, aliased=True)
    records = graph.fd.fusion.records()
    ids = [place for is_tensor, place, *_ in records["arguments"]]
    results = iter(graph.fd.execute(inputs))
    for (tensor, alias), want in zip(records["outputs"], expected, strict=True):
        got = (next(results) if alias < 0 else inputs[ids.index(alias)]).cpu()
        assert got.shape == want.shape, f"t{tensor}: {list(got.shape)}, not {list(want.shape)}"
        assert same(got, want), f"t{tensor} of\n{graph!r}\ngot {got}\nexact {want}"


def batches(mode: str, maker: str, wanted: int | None) -> int:
    """How many, in a run that wants so many definitions in all (None: the default)."""
    if wanted is None:
        return max(1, BATCHES[mode] // LARGE.get(maker, 1))
    together = sum(n for other, n in BATCHES.items() if (other == "gpu") == (mode == "gpu"))
    return max(1, round(wanted * BATCHES[mode] / (together * len(MAKERS) * BATCH)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    wanted = metafunc.config.option.fuzz
    tests = []
    for mode in BATCHES:
        for maker in MAKERS:
            count = batches(mode, maker, wanted)
            size = CHUNK if wanted else count
            for first in range(0, count, size):
                marks = [pytest.mark.gpu] if mode == "gpu" else []
                name = f"{mode}-{maker}-{first}"
                tests.append(pytest.param(mode, maker, first, count - first, id=name, marks=marks))
    metafunc.parametrize(("mode", "maker", "first", "left"), tests)


def test_graphs(
    mode: str,
    maker: str,
    first: int,
    left: int,
    request: pytest.FixtureRequest,
    set_option: Callable[[str, object], None],
) -> None:
    seed = request.config.option.seed
    print(f"seed {seed}: repeat with --seed={seed}")
    count = min(left, CHUNK) if request.config.option.fuzz else left
    set_option("FUSER_CACHE", 0)
    set_option("FUSER_HOST_DEBUG", int(mode == "debug"))
    ran = 0

    @hypothesis.seed(seed + first)
    @settings(max_examples=count, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(graphs(MAKERS[maker]), min_size=BATCH, max_size=BATCH))
    def run(batch: list[Graph]) -> None:
        nonlocal ran
        inputs = [on_gpu(g.inputs) if mode == "gpu" else g.inputs for g in batch]
        testing.compile_batch((g.fd, x) for g, x in zip(batch, inputs, strict=True))
        for graph, given_inputs in zip(batch, inputs, strict=True):
            check(graph, given_inputs)
        ran += len(batch)

    run()
    print(f"{ran} definitions")
    assert ran >= count * BATCH
