"""csrc/driver/specialize: kernels with constant sizes, compiled in the background, with equal
results bit for bit."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import fuser
from benchmarks.case import Case, Data
from benchmarks.families import TABLES
from fuser import CompileError, FusionDefinition, _core
from fuser.runtime.toolchain import Toolchain
from tests.support.definitions import gained, scaled
from tests.support.sampling import rotated

AFTER = 3  # runs
MOST_SHAPES = 16  # per definition, csrc/driver/executor.cpp
X = torch.arange(100.0)


@pytest.fixture(autouse=True)
def after(set_option: Callable[[str, object], None]) -> Iterator[None]:
    set_option("FUSER_SPECIALIZE_AFTER", AFTER)
    yield
    _core.wait_for_background()  # jobs read options


def texts(fd: FusionDefinition) -> list[str]:
    """The kernels of the last run."""
    return [kernel.text for kernel in fd.fec.executor.kernels()]


def takes_sizes(text: str) -> bool:
    """Return True if a kernel has parameters besides its buffers: with constant sizes it may have
    no parameters."""
    signature = text[text.rindex("\nKERNEL") :].partition("{")[0]
    return re.search(r"\bp\d+\b", signature) is not None


def run_often(fd: FusionDefinition, inputs: list[Any]) -> None:
    for _ in range(AFTER + 1):  # the first run is not a repetition
        fd.execute(inputs)
    _core.wait_for_background()


def bits(t: Tensor) -> Tensor:
    return t.contiguous().flatten().view(torch.uint8)


# A normal run uses one row per family, alternately with rows of even and of odd length.
CASES = [
    pytest.param(row.small(odd), id=f"{family}-{place}-{'odd' if odd else 'even'}")
    for number, (family, table) in enumerate(TABLES.items())
    for place, row in rotated(list(enumerate(table)), number, 1)
    for odd in rotated((False, True), number, 1)
]


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits(case: Case) -> None:
    inputs = case.make(Data(torch.device("cpu")))
    fd = case.definition(inputs)
    before = fuser.cache_info()
    expected = case.results(lambda *t: fd.execute(t), inputs)
    generic = texts(fd)
    run_often(fd, copy.deepcopy(inputs))  # with equal strides; some inputs are in-place outputs
    results = case.results(lambda *t: fd.execute(t), inputs)
    gain = gained(before)
    assert gain.specializations_failed == 0
    changed = [a != b for a, b in zip(generic, texts(fd), strict=True)]
    assert changed == [takes_sizes(text) for text in generic]
    assert sum(changed) == gain.kernels_specialized
    for result, wanted in zip(results, expected, strict=True):
        assert result.stride() == wanted.stride()
        assert bits(result).equal(bits(wanted))


def test_sizes_are_constants_of_the_text() -> None:
    fd = scaled(2.0)
    fd.execute([X])
    (generic,) = texts(fd)
    assert "i32 p0) {" in generic
    run_often(fd, [X])
    assert fd.execute([X])[0].equal(X * 2)
    (special,) = texts(fd)
    assert "const i32 p0 = 25;" in special, "vectors of 4"
    assert "i32 p0)" not in special


def test_only_shapes_that_run_often() -> None:
    fd = scaled(2.25)
    before = fuser.cache_info()
    for n in range(2, 20):
        fd.execute([X[:n]])
    run_often(fd, [X])
    assert gained(before).kernels_specialized == 1
    (special,) = texts(fd)
    fd.execute([X[:50]])
    assert texts(fd) != [special], "another shape runs the generic kernel"


def test_so_many_shapes_of_a_definition(set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_SPECIALIZE_AFTER", 1)
    fd, shapes = scaled(2.75), [X[:n] for n in range(2, 3 * MOST_SHAPES)]
    for x in shapes:
        fd.execute([x])
    before = fuser.cache_info()
    built = []

    class Instant(Toolchain):
        """Fails to compile every kernel at once."""

        def build(self, target: Any, texts: Any) -> Any:
            built.append(len(texts))
            return ((i, CompileError("no", rule="host-compile")) for i in range(len(texts)))

    _core.set_toolchain(Instant())
    try:
        for x in shapes:
            assert fd.execute([x])[0].equal(x * 2.75)
        _core.wait_for_background()
    finally:
        _core.set_toolchain(Toolchain())
    assert sum(built) == MOST_SHAPES
    assert gained(before).specializations_failed == MOST_SHAPES


def test_a_failure_keeps_the_generic_kernel(monkeypatch: Any) -> None:
    fd = scaled(3.25)
    fd.execute([X])
    before = fuser.cache_info()

    def fail(*_: object) -> Any:
        raise RuntimeError("no luck")

    with monkeypatch.context() as patch:
        patch.setattr(Toolchain, "build", fail)
        run_often(fd, [X])
        run_often(fd, [X])
    assert fd.execute([X])[0].equal(X * 3.25)
    gain = gained(before)
    assert (gain.kernels_specialized, gain.specializations_failed) == (0, 1)


def test_switched_off() -> None:
    fuser.specialize_after(0)
    fd = scaled(4.25)
    before = fuser.cache_info()
    run_often(fd, [X])
    assert gained(before).kernels_specialized == 0


def test_a_definition_that_goes_first() -> None:
    fd = scaled(5.25)
    before = fuser.cache_info()
    for _ in range(AFTER + 1):
        fd.execute([X])
    del fd
    _core.wait_for_background()
    assert gained(before).specializations_failed == 0


def test_caches_that_are_cleared_meanwhile() -> None:
    fd = scaled(9.75)
    for _ in range(AFTER + 1):
        fd.execute([X])
    fuser.clear_caches()
    assert fd.execute([X])[0].equal(X * 9.75)
