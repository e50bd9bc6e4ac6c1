"""fuser/multidevice/propagate.py: placements of results and collectives of each class of op."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuser import DataType
from tests.multidevice import drawn
from tests.multidevice.compared import P, R, S, errors, interpreted, mesh_of
from tests.multidevice.planned import kinds, planned, results
from tests.multidevice.ranks import Ranks

X = torch.randn(8, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LONG = torch.randn(4, 32768, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
CUBE = X.reshape(2, 4, 12)
INDEX = torch.arange(5) * 2
HEADS = torch.randn(2, 4, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
G, A, RS, AA = "all_gather", "all_reduce", "reduce_scatter", "all_to_all"


def row(build: Callable[..., Any], inputs: Any, given: Any, result: Any, *collectives: str) -> Any:
    """One row of the table: `result` is the placement of the first result."""
    return build, inputs, [[p] for p in given], result, list(collectives)


# Ops, inputs, placements of the inputs, placement of the first result, collectives.
TABLE: dict[str, Any] = {
    "elementwise keeps": row(lambda fd, x: [fd.ops.sin(x)], [X], [S(0)], S(0)),
    "linear keeps a sum": row(lambda fd, x: [fd.ops.sin(x * 2.0)], [X], [P], R, A),
    "a sum of sums": row(lambda fd, x, y: [(x + y) * 0.5], [X, X + 1], [P, P], R, A),
    "a sum completes": row(lambda fd, x: [fd.ops.exp(x)], [X], [P], R, A),
    "a sum meets a shard": row(lambda fd, x, y: [x + y], [X, X + 1], [P, S(0)], S(0), RS),
    "a bias is sliced": row(lambda fd, x, b: [x + b], [X, X[0]], [S(1), R], S(1)),
    "a cast completes": row(lambda fd, x: [fd.ops.cast(x, DataType.Float)], [X], [P], R, A),
    "permute": row(lambda fd, x: [fd.ops.permute(x, [1, 0])], [X], [S(0)], S(1)),
    "broadcast": row(lambda fd, x: [fd.ops.broadcast(x, [True, False, False])], [X], [S(0)], S(1)),
    "squeeze": row(lambda fd, x: [fd.ops.squeeze(x, [0])], [X[None]], [S(2)], S(1)),
    "expand": row(lambda fd, x: [fd.ops.expand(x, [3, 8, 12])], [X[None]], [S(1)], S(1)),
    "split by heads": row(lambda fd, x: [fd.ops.reshape(x, [8, 4, 3])], [X], [S(1)], S(1)),
    "merge of heads": row(lambda fd, x: [fd.ops.reshape(x, [2, 48])], [CUBE], [S(1)], S(1)),
    "a whole slice": row(lambda fd, x: [x[:, 1:3]], [X], [S(0)], S(0)),
    "a cut slice": row(lambda fd, x: [x[1:3]], [X[:, :1]], [S(0)], R, G),
    "pad": row(lambda fd, x: [fd.ops.pad(x, [1, 1])], [X], [S(0)], S(0)),
    "cat": row(lambda fd, x, y: [fd.ops.cat([x, y], 1)], [X, X], [S(0), R], S(0)),
    "flip": row(lambda fd, x: [x.flip([1])], [X], [S(0)], S(0)),
    "sum": row(lambda fd, x: [fd.ops.sum(x, [1])], [X], [S(1)], R, A),
    "sum of the kept axis": row(lambda fd, x: [fd.ops.sum(x, [1])], [X], [S(0)], S(0)),
    "max": row(lambda fd, x: [fd.ops.max(x, [0])], [X], [S(0)], R, A),
    "argmax": row(lambda fd, x: [fd.ops.argmax(x, 1)], [LONG], [S(1)], R, G, G),
    "argmin": row(lambda fd, x: [fd.ops.argmin(x, 1)], [LONG], [S(1)], R, G, G),
    "welford": row(lambda fd, x: fd.ops.welford(x, [1]), [LONG + 1e6], [S(1)], R, A, A),
    "var_mean": row(lambda fd, x: fd.ops.var_mean(x, [1]), [LONG + 1e6], [S(1)], R, A, A),
    "softmax": row(lambda fd, x: [fd.ops.softmax(x, 1)], [X], [S(1)], S(1), A, A),
    "softmax of rows": row(lambda fd, x: [fd.ops.softmax(x, 1)], [X], [S(0)], S(0)),
    "matmul of rows": row(lambda fd, x: [fd.ops.matmul(x, x.T)], [X], [S(0)], S(0), G),
    "matmul column-wise": row(
        lambda fd, x, w: [fd.ops.matmul(x, w)], [X, X.T.contiguous()], [R, S(1)], S(1)
    ),
    "matmul row-wise": row(
        lambda fd, x, w: [fd.ops.matmul(x, w)], [X, X.T.contiguous()], [S(1), S(0)], R, A
    ),
    "linear of a replicated input": row(
        lambda fd, x, w, b: [fd.ops.linear(x, w, b)], [LONG, LONG, X[:4, 0]], [R, S(1), R], R, A
    ),
    "batched matmul": row(
        lambda fd, x: [fd.ops.matmul(x, fd.ops.permute(x, [0, 2, 1]))], [CUBE], [S(0)], S(0)
    ),
    "reshape over two axes": row(
        lambda fd, x: [fd.ops.reshape(x, [2, 4, 4, 3])], [X], [S(0)], S(0)
    ),
    "reshape of a gathered axis": row(
        lambda fd, x: [fd.ops.reshape(x, [36])], [X[:3]], [S(1)], R, G
    ),
    "attention by heads": row(
        lambda fd, q, k: [fd.ops.sdpfa_fwd(q, k, k, is_causal=True)[0]],
        *([HEADS, HEADS + 1], [S(1), S(1)], S(1)),
    ),
    "attention of rows of the query": row(
        lambda fd, q, k: [fd.ops.sdpfa_fwd(q, k, k)[0]], [HEADS, HEADS + 1], [S(2), R], S(2)
    ),
    "embedding by columns": row(
        lambda fd, i, w: [fd.ops.embedding_fwd(i, w)], [INDEX, X.T.contiguous()], [R, S(1)], S(1)
    ),
    "embedding by rows": row(
        lambda fd, i, w: [fd.ops.embedding_fwd(i, w)], [INDEX, X.T.contiguous()], [R, S(0)], R, A
    ),
    "scan along another axis": row(lambda fd, x: [fd.ops.cumsum(x, 1)], [X], [S(0)], S(0)),
    "sort": row(lambda fd, x: [fd.ops.sort(x, 1)[0]], [X], [S(0)], S(0)),
    "numbers by position": row(
        lambda fd, x: [x + fd.ops.cast(fd.ops.iota(12), DataType.Double)], [X], [S(1)], S(1)
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_placements_and_collectives(name: str) -> None:
    build, inputs, given, result, collectives = TABLE[name]
    plan = planned(build, inputs, given)
    assert results(plan)[0] == (result,)
    assert kinds(plan) == collectives


def of_table(name: str, mesh: tuple[int, ...]) -> Any:
    build, inputs, given, _, _ = TABLE[name]
    with interpreted():
        return errors(build, mesh, inputs, [[p[0], *[R] * (len(mesh) - 1)] for p in given])


@pytest.mark.parametrize("mesh", [(2,), (4,)], ids=str)
def test_values(four: Ranks, mesh: tuple[int, ...]) -> None:
    """Every row of the table gives the values of the whole definition, in float64."""
    for name in TABLE:
        for found in four.run(of_table, name, mesh)[: mesh[0]]:
            assert max(found["errors"]) < 1e-9, name


def test_equal_shards_are_gathered_once() -> None:
    plan = planned(lambda fd, x: [x[1:5] * 2.0, fd.ops.cumsum(x, 0)], [X[:, :1]], [[S(0)]])
    assert kinds(plan) == ["all_gather"]


def test_all_ranks_choose_alike() -> None:
    """Uneven shards differ in size, plans do not."""
    x = X[:5, :7]
    texts = set()
    for rank in range(4):
        plan = planned(
            lambda fd, x: [fd.ops.softmax(x, 1), x[1:4]], [x], [[S(1)]], (4,), None, (rank,)
        )
        texts.add(str([(p.roots, p.nodes, p.inputs, p.outputs, p.issued) for p in plan.pieces]))
    assert len(texts) == 1


def test_random_definitions(four: Ranks, request: pytest.FixtureRequest) -> None:
    """Random definitions with random placements, on meshes of one and two dims."""
    first = int(request.config.getoption("seed"))
    print(f"seeds from {first}")
    four.run(meshes)
    for found in four.run(drawn.worst, range(first, first + 60)):
        assert not found


def meshes() -> None:
    """Creates the meshes on all ranks."""
    for shape in drawn.MESHES:
        mesh_of(*shape)


def random_numbers(placements: Any) -> Any:
    torch.manual_seed(random.randrange(1 << 30))  # ranks differ

    def build(fd: Any, x: Any) -> Any:
        return [fd.ops.add(fd.ops.uniform(0.0, 1.0, [8, 12], dtype=DataType.Double), x)]

    mesh = mesh_of(2, 2)
    from tests.multidevice.compared import define, distributed

    with interpreted():
        fd = define(build, [X])
        found = fd.execute_with_dtensors([distributed(X, mesh, placements)])[0]
    return found.full_tensor() - X  # type: ignore[attr-defined]


def test_random_numbers_are_those_of_the_whole_tensor(four: Ranks) -> None:
    """Ranks with other seeds take those of the first rank; no two shards repeat numbers."""
    values = four.run(random_numbers, [S(0), S(1)])
    assert all(value.equal(values[0]) for value in values)
    assert values[0].unique().numel() == values[0].numel()
    assert 0 <= values[0].min() < 0.2
    assert 0.8 < values[0].max() <= 1
