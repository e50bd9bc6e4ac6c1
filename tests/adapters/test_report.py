"""fuser/adapters/report.py: fused ops, ops left to torch, and the reasons."""

from __future__ import annotations

import pytest
import torch

from fuser import Unsupported
from fuser.adapters.report import explain_model, recording


def test_explain_model() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 2).mm(x).cos() * 3

    report = explain_model(model, torch.ones(150, 150, requires_grad=True))
    forward, backward = report.graphs
    assert (forward.name, backward.name) == ("forward", "backward")
    assert forward.regions == [
        ["aten.sin.default", "aten.mul.Tensor"],
        ["aten.cos.default", "aten.mul.Tensor"],
    ]
    assert forward.left == {("aten.mm.default", "a library call"): 1}
    assert str(report).startswith(
        "forward: 4 ops in 2 regions, 1 left to torch, 0.2 MB kept for backward\n"
    )
    # The common operand of both products, and the result of the first.
    assert forward.kept == 2 * 150 * 150 * 4
    assert not backward.kept
    assert not forward.fallbacks


def test_a_region_that_falls_back_is_in_the_report_of_its_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> None:
        raise Unsupported("not today")

    monkeypatch.setattr("fuser.adapters.wrapper_codegen.Definition", refused)
    report = explain_model(lambda x: x.sin() * 2, torch.ones(4, 4))
    (graph,) = report.graphs
    assert graph.fallbacks == [(["aten.sin.default", "aten.mul.Tensor"], "not today")]
    assert graph.seconds.keys() == {"regions", "definitions", "kernels"}


def test_recordings_in_each_other() -> None:
    """Nested recordings end independently, also if both have recorded equal graphs."""
    with recording() as outer:
        with recording() as inner:
            pass
        explain_model(lambda x: x.sin() * 2, torch.ones(4, 4))
    assert (len(outer.graphs), len(inner.graphs)) == (1, 0)
