"""Random definitions on random layouts, compared with fuser.evaluate, with every access checked.
The definition rebuilt from each definition's text must agree bit for bit.

By default a fixed number of them, twice as many with `--thorough`; `python -m pytest
tests/test_fuzz.py --fuzz 20000` runs that many, on all processors if pytest-xdist is installed.
With `-m gpu` they run on the GPU.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fuser
from fuser import FusionDefinition, UserError, testing
from tests.support.calls import random_calling_graph
from tests.support.graph_inputs import Pick, described
from tests.support.graphs import Graph, random_graph, random_reducing_graph
from tests.support.moving_graphs import random_moving_graph
from tests.support.sampling import thorough

ROOT = Path(__file__).resolve().parent.parent

BATCH = 24  # graphs compiled together
BATCHES = {"debug": 40, "plain": 9, "gpu": 6}
CHUNK = 4  # batches per test with --fuzz, small enough to distribute over processors
LARGE = {"calls": 15}  # slowdown of graphs by maker: run fewer of them


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
    if expected.is_floating_point() or expected.is_complex():
        got = got.to(expected.dtype)
    missing = expected.isnan()
    if not torch.equal(got.isnan(), missing):
        return False
    return torch.equal(got.masked_fill(missing, 0), expected.masked_fill(missing, 0))


def copied(inputs: list[Any], device: str) -> list[Any]:
    """Copies with equal layouts in new memory; tensors that share memory still do."""
    copies: dict[int, torch.Tensor] = {}

    def copy(t: torch.Tensor) -> torch.Tensor:
        memory = t.untyped_storage()
        if memory.data_ptr() not in copies:
            whole = torch.tensor([], dtype=torch.uint8, device=t.device).set_(memory)
            copies[memory.data_ptr()] = whole.to(device, copy=True)
        there = copies[memory.data_ptr()].untyped_storage()
        empty = torch.tensor([], dtype=t.dtype, device=device)
        return empty.set_(there, t.storage_offset(), t.shape, t.stride())

    return [copy(x) if isinstance(x, torch.Tensor) else x for x in inputs]


def bits(t: torch.Tensor) -> list[int]:
    """Sizes, strides, and every byte of the elements."""
    elements = torch.empty(t.numel(), dtype=t.dtype).copy_(t.flatten())
    return [*t.shape, *t.stride(), *elements.view(torch.uint8).tolist()]


def rebuilt(fd: FusionDefinition) -> FusionDefinition:
    """The definition rebuilt from its text."""
    again = FusionDefinition()
    scope = {"DataType": fuser.DataType, "FusionDefinition": FusionDefinition}
    exec(repr(fd), scope)
    scope["nvfuser_fusion"](again)
    return again


class Run:
    """Run of a graph on inputs by two definitions: the drawn one, and the one rebuilt from its
    text."""

    def __init__(
        self, graph: Graph, again: FusionDefinition, inputs: list[Any], device: str
    ) -> None:
        self.graph, self.again, self.given = graph, again, inputs
        self.inputs, self.copies = (copied(inputs, device) for _ in range(2))

    def calls(self) -> list[tuple[FusionDefinition, list[Any]]]:
        return [(self.graph.fd, self.inputs), (self.again, self.copies)]

    def results(self, fd: FusionDefinition, inputs: list[Any]) -> list[torch.Tensor]:
        """All outputs of the definition in order, including in-place ones."""
        records = self.graph.fd.fusion.records()
        ids = [place for is_tensor, place, *_ in records["arguments"]]
        given = iter(fd.execute(inputs))
        aliases = [alias for _, alias in records["outputs"]]
        return [next(given) if alias < 0 else inputs[ids.index(alias)] for alias in aliases]

    def reference(self) -> list[torch.Tensor]:
        return fuser.evaluate(self.graph.fd, self.given, aliased=True)

    def check(self) -> None:
        """Run both definitions; compare with the reference, and with each other bit for bit."""
        graph, fusion, again = self.graph, self.graph.fd.fusion, self.again.fusion
        wrong = f"text rebuilds another definition:\n{graph!r}"
        assert again == fusion, wrong
        assert hash(again) == hash(fusion), wrong
        expected = self.reference()
        results, others = (self.results(fd, inputs) for fd, inputs in self.calls())
        tensors = [tensor for tensor, _ in fusion.records()["outputs"]]
        for t, got, other, want in zip(tensors, results, others, expected, strict=True):
            where = f"t{t} of\n{graph!r}\non\n" + "\n".join(map(described, self.given))
            assert got.shape == want.shape, f"{where}\n{list(got.shape)}, not {list(want.shape)}"
            assert same(got.cpu(), want), f"{where}\ngot {got}\nexact {want}"
            assert bits(got) == bits(other), f"{where}\ngot {got}\nby its text {other}"

    def is_possible(self) -> bool:
        """Return True if the sizes are consistent. execute() checks sizes too, even of tensors that
        are not live."""
        records = self.graph.fd.fusion.records()
        ids = [place for is_tensor, place, *_ in records["arguments"]]
        targets = [self.given[ids.index(alias)] for _, alias in records["outputs"] if alias >= 0]
        try:
            expected = self.reference()
        except UserError:
            pass
        else:
            aliases = [alias for _, alias in records["outputs"]]
            written = [want for want, alias in zip(expected, aliases, strict=True) if alias >= 0]
            if all(a.shape == b.shape for a, b in zip(targets, written, strict=True)):
                return True
        with contextlib.suppress(UserError):
            self.graph.fd.execute(self.inputs)
        return False


def batches(mode: str, maker: str, wanted: int | None) -> int:
    """Number of batches in a run of `wanted` definitions in total; None is the default."""
    if wanted is None:  # the first batch has the simplest graphs
        return max(2, BATCHES[mode] // (LARGE.get(maker, 1) * (1 if thorough() else 2)))
    together = sum(n for other, n in BATCHES.items() if (other == "gpu") == (mode == "gpu"))
    return max(1, round(wanted * BATCHES[mode] / (together * len(MAKERS) * BATCH)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "maker" not in metafunc.fixturenames:
        return
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
        device = "cuda" if mode == "gpu" else "cpu"
        again = [rebuilt(graph.fd) for graph in batch]
        # Other sizes need other kernels: the default run has time for one batch, and the first
        # example is the simplest one.
        others = max(len(graph.others) for graph in batch)
        for turn in range(1 + (others if request.config.option.fuzz or ran == BATCH else 0)):
            runs = [
                Run(graph, fd, [graph.inputs, *graph.others][turn], device)
                for graph, fd in zip(batch, again, strict=True)
                if turn <= len(graph.others)
            ]
            runs = [run for run in runs if not turn or run.is_possible()]
            testing.compile_batch(call for each in runs for call in each.calls())
            for each in runs:
                each.check()
        ran += len(batch)

    run()
    print(f"{ran} definitions")
    assert ran >= count * BATCH


def test_a_long_run_has_one_worker_a_processor() -> None:
    """--fuzz starts workers, and the workers do not start further ones."""
    pytest.importorskip("xdist")
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "tests/base/test_sha256.py", "-v", "--fuzz", "24"]
    done = subprocess.run(
        command, env=clean, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[gw0]" in done.stdout
