"""Random primitives on random definitions: rules hold, plans are allowed, values stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import FusionDefinition, MemoryType, ParallelType, Unsupported, UserError, schedule
from fuser.nvfuser.schedule import run
from fuser.nvfuser.schedule.graph import schedule_of
from tests.support.calls import random_calling_graph
from tests.support.graph_inputs import Pick
from tests.support.graphs import Graph, random_graph, random_reducing_graph
from tests.support.moving_graphs import random_moving_graph
from tests.test_fuzz import same

MAKERS: dict[str, Callable[[Pick], Graph]] = {
    "elements": random_graph,
    "reductions": random_reducing_graph,
    "movement": random_moving_graph,
    "calls": random_calling_graph,
}
BOUND = [
    *(ParallelType.grid_x, ParallelType.block_x, ParallelType.block_y, ParallelType.unroll),
    *(ParallelType.vectorize, ParallelType.serial, ParallelType.cluster_x, ParallelType.stream),
]


def drawn(make: Callable[[Pick], Graph], rng: np.random.Generator) -> Graph | None:
    """A random definition; None if its sizes fit no op."""
    try:
        return make(lambda count: int(rng.integers(count)))
    except UserError:
        return None


def primitive(fd: FusionDefinition, rng: np.random.Generator) -> None:
    """Calls one random primitive, which may be refused."""
    tensors = fd.sched.tensors()
    view = tensors[int(rng.integers(len(tensors)))]
    rank = max(view.ndim, 1)
    axis = int(rng.integers(-rank, rank))
    calls: list[Callable[[], Any]] = [
        *[lambda: view.split(axis, int(rng.integers(1, 70)), bool(rng.integers(2)))] * 3,
        *[lambda: view.merge(axis)] * 2,
        lambda: view.reorder([int(place) for place in rng.permutation(view.ndim)]),
        *[lambda: view.parallelize(axis, BOUND[int(rng.integers(len(BOUND)))])] * 3,
        view.cache_after,
        view.cache_before,
        view.cache_fork,
        lambda: view.rfactor([axis]),
        lambda: schedule.transform_like(view),
        lambda: schedule.parallelize_like(view),
        lambda: schedule.bounded_transform_backward(view, -1, tensors[:1], True),
        lambda: view.set_memory_type(MemoryType.shared),
        lambda: schedule.inline_most([view]),
    ]
    calls[int(rng.integers(len(calls)))]()


def check_domains(fd: FusionDefinition) -> None:
    """The loop domain of each tensor is where its transforms end; each axis is there once."""
    for view in fd.sched.tensors():
        made = {axis for transform in view.transforms for axis in transform.results}
        taken = {axis for transform in view.transforms for axis in transform.sources}
        assert {*view.logical, *made} - taken == {*view.loop}, view.transforms_text()
        assert len(set(view.loop)) == len(view.loop)


@pytest.mark.parametrize("name", MAKERS)
def test_primitives_and_plans(name: str, rng: np.random.Generator) -> None:
    refused, planned = 0, 0
    for _ in range(60):
        graph = drawn(MAKERS[name], rng)
        if graph is None:
            continue
        for _ in range(int(rng.integers(1, 30))):
            try:
                primitive(graph.fd, rng)
            except UserError as error:
                refused += 1
                if not error.rule.startswith("by-hand-"):
                    raise
        check_domains(graph.fd)
        try:
            made = run.prepare(graph.fd, schedule_of(graph.fd.fusion.builder), graph.inputs)
        except (UserError, Unsupported):
            continue
        graph.fd.fec.executor.plans(graph.inputs, None, made.fields)  # raises if refused
        assert len(made.plans) == len(made.taken) == len(made.plan_texts)
        assert made.one_line().startswith("schedule by hand: ")
        planned += 1
    assert refused
    assert planned > 20


def test_values(rng: np.random.Generator) -> None:
    ran = 0
    while ran < 12:
        graph = drawn(list(MAKERS.values())[ran % 4], rng)
        if graph is None or graph.written:
            continue
        for _ in range(20):
            try:
                primitive(graph.fd, rng)
            except UserError as error:
                assert error.rule.startswith("by-hand-")  # noqa: PT017
        try:
            expected = fuser.evaluate(graph.fd, graph.inputs)
            got = graph.fd.manual_execute(graph.inputs)
        except (UserError, Unsupported):
            continue
        ran += 1
        for result, wanted in zip(got, expected, strict=True):
            assert same(result, wanted), f"{graph!r}\n{graph.fd.sched.user_schedule_ir()}"
