"""csrc/torch/functions.h: regions as functions. tests/torch/test_module.py tests execute(),
tests/adapters/autograd/test_autograd_function.py traces, tests/adapters/autograd/test_aot_bypass.py
switches.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fuser import FusionDefinition, UserError
from fuser._native import load_torch


def executor() -> Any:
    fd = FusionDefinition()
    x = fd.from_pytorch(torch.ones(4))
    fd.add_output(x * 2.0)
    fd.add_output(x + 1.0, alias_input=x)
    fd.add_output(x - 1.0)
    return fd.fec.executor


def test_results_and_arguments_that_are_written() -> None:
    run = load_torch().region_function(executor(), [-1, 0, -1], None)
    x = torch.ones(4)
    twice, written, less = run(x)
    assert written is x
    assert (twice.tolist(), x.tolist(), less.tolist()) == ([2.0] * 4, [2.0] * 4, [0.0] * 4)


def test_what_fails_is_done_by_the_other_for_good() -> None:
    calls: list[Any] = []

    def other(arguments: list[Any], error: Exception | None) -> list[Any]:
        calls.append((arguments, error))
        return arguments

    run = load_torch().region_function(executor(), [-1, 0, -1], other)
    assert run(3) == [3]
    assert run(torch.ones(4))[0].tolist() == [1.0] * 4
    (first, error), (_, later) = calls
    assert (first, later) == ([3], None)
    assert isinstance(error, UserError)
    assert error.rule == "argument-type"


def test_what_the_other_raises_is_raised() -> None:
    def other(arguments: list[Any], error: Exception | None) -> list[Any]:
        assert error is not None
        raise error

    run = load_torch().region_function(executor(), [-1, 0, -1], other)
    for _ in range(2):
        with pytest.raises(UserError, match="expected 1 inputs"):
            run()
    assert len(run(torch.ones(4))) == 3


def test_python_runs_what_it_wants_to_see() -> None:
    native = load_torch()
    run = native.region_function(executor(), [-1, 0, -1], lambda arguments, error: [error])
    native.set_python_runs_graphs(True)
    try:
        assert run(torch.ones(4)) == [None]
    finally:
        native.set_python_runs_graphs(False)
    assert len(run(torch.ones(4))) == 3
