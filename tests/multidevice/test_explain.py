"""fuser/multidevice/explain.py: each collective has a line with its reason."""

from __future__ import annotations

from typing import Any

import torch

import fuser
from tests.multidevice.compared import R, S, define, distributed, mesh_of
from tests.multidevice.ranks import Ranks

X = torch.linspace(-1, 1, 32).reshape(8, 4)


def build(fd: Any, x: Any, w: Any) -> Any:
    return [fd.ops.cumsum(x, 0), fd.ops.relu(fd.ops.matmul(x, w))]


def explained() -> tuple[str, int] | None:
    mesh = mesh_of(2)
    if mesh.get_coordinate() is None:
        return None
    fd = define(build, [X, X.T.contiguous()])
    given = [distributed(X, mesh, [S(0)]), distributed(X.T.contiguous(), mesh, [R])]
    found: Any = fuser.explain(fd, *given)
    return str(found), len(found.collectives)


def test_a_line_for_each_collective(four: Ranks) -> None:
    first, second, *_ = four.run(explained)
    assert first == second
    text, count = first
    assert "T0: Shard(0)" in text
    assert "all_to_all on mesh dim 0: Shard(0) -> Shard(1)" in text
    assert "cumsum has no rule for T0 Shard(0)" in text
    assert "step 1: reads T0 T1, writes T4" in text, text
    assert count == text.count("mesh dim") == 1
