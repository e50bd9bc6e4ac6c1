"""The list of passes: its final result, and dumps and verification of every pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fuser import FusionDefinition, InternalError, UserError, _core, _core_testing
from tests.support.stages import stage_text

PASSES = ["build", "addresses", "parameters", "cse", "canonicalize"]


def outer_difference() -> tuple[FusionDefinition, list[torch.Tensor]]:
    fd = FusionDefinition()
    x = fd.define_tensor([-1])
    fd.add_output(fd.ops.broadcast(x, [False, True]) - fd.ops.broadcast(x, [True, False]))
    return fd, [torch.randn(7)]


def test_every_stage_parses_back_and_verifies() -> None:
    for stage in PASSES:
        text = stage_text(*outer_difference(), stage)
        if text == "(unchanged)\n":
            continue
        kernel = _core.parse_kernel(text)
        kernel.verify()
        assert kernel.text() == text


def test_every_stage_can_be_selected(set_option: Callable[[str, object], None], tmp_path) -> None:
    """FUSER_DUMP accepts exactly the names of the existing stages."""
    set_option("FUSER_DUMP", "all")
    set_option("FUSER_DUMP_DIR", tmp_path)
    fd, inputs = outer_difference()
    fd.plan(inputs)
    stages = {path.name.split(".")[-2] for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match="expected entries from") as caught:
        set_option("FUSER_DUMP", "nothing")
    allowed = str(caught.value).split("entries from ")[1].removesuffix(", got nothing")
    assert {*allowed.split(", ")} == stages | {"all"}
    for stage in stages:
        set_option("FUSER_DUMP", f"{stage}@pointwise")


def test_the_passes_by_hand_give_the_final_kernel() -> None:
    kernel = _core.parse_kernel(stage_text(*outer_difference(), "build"))
    for name in PASSES[1:]:
        getattr(_core_testing.passes, name)(kernel)
        kernel.verify()
    fd, inputs = outer_difference()
    fd.execute(inputs)
    assert kernel.text() == fd.fec.executor.kernels(None)[0].ir


def test_the_final_kernel_speaks_of_parameters_only() -> None:
    fd, inputs = outer_difference()
    fd.execute(inputs)
    text = fd.fec.executor.kernels(None)[0].ir
    statements = text[text.index("v0 =") :]
    for word in ("size(", "stride(", "a0", "axes"):
        assert word not in statements


def test_a_pass_that_changes_nothing_says_so() -> None:
    fd = FusionDefinition()
    fd.add_output(fd.ops.full([4], 1.0, _core.DataType.Float))
    assert stage_text(fd, [], "parameters") == "(unchanged)\n"


def test_equal_definitions_give_equal_text() -> None:
    """The text is the cache key, so it depends on the definition only."""
    assert stage_text(*outer_difference(), "canonicalize") == stage_text(
        *outer_difference(), "canonicalize"
    )


def test_verify_catches_a_pass_that_was_left_out() -> None:
    """Verification rejects a kernel without axes whose offsets still use them."""
    text = stage_text(*outer_difference(), "build")
    broken = "\n".join(line for line in text.splitlines() if not line.startswith("  axes"))
    with pytest.raises(InternalError, match="a0"):
        _core.parse_kernel(broken + "\n").verify()
