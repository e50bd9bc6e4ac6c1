"""csrc/driver/horizontal: horizontal fusion, i.e. several kernels with one text in one launch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fuser import FusionDefinition


@pytest.fixture(autouse=True)
def checked(set_option: Callable[[str, object], None]) -> None:
    """Enable debug mode: launches are joined on GPUs, and on the host executor only in debug
    mode."""
    set_option("FUSER_HOST_DEBUG", 1)


def drawn(rng: np.random.Generator, *sizes: int) -> torch.Tensor:
    return torch.from_numpy(rng.random(sizes, dtype=np.float32))


def adam(count: int) -> FusionDefinition:
    """An Adam step on `count` parameters: weight, gradient and two moments of each, updated in
    place."""
    fd = FusionDefinition()
    rate = fd.define_scalar()
    for _ in range(count):
        weight, gradient, first, second = (fd.define_tensor([-1], True) for _ in range(4))
        mean = first * 0.9 + gradient * 0.1
        square = second * 0.99 + gradient * gradient * 0.01
        fd.add_output(weight - mean * rate / (fd.ops.sqrt(square) + 1e-3), weight)
        fd.add_output(mean, first)
        fd.add_output(square, second)
    return fd


def step(rate: float, tensors: list[torch.Tensor]) -> None:
    for i in range(0, len(tensors), 4):
        weight, gradient, first, second = tensors[i : i + 4]
        first.mul_(0.9).add_(gradient * 0.1)
        second.mul_(0.99).add_(gradient * gradient * 0.01)
        weight.sub_(first * rate / (second.sqrt() + 1e-3))


@pytest.mark.parametrize(("count", "launches"), [(1, 1), (7, 1), (150, 2)])
def test_an_optimizer_over_many_tensors(
    count: int, launches: int, rng: np.random.Generator
) -> None:
    fd = adam(count)
    sizes = [4 * (1 + (37 * i) % 501) for i in range(count)]
    given = [drawn(rng, n) for n in sizes for _ in range(4)]
    exact = [t.double() for t in given]
    for rate in (0.1, 0.3):
        fd.execute([rate, *given])
        step(rate, exact)
    for got, want in zip(given, exact, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-6)
    assert len(fd.fec.executor.kernels()) == launches


def test_rows_of_several_tensors(rng: np.random.Generator) -> None:
    """Kernels with barriers, one of them without elements."""
    fd = FusionDefinition()
    for _ in range(4):
        fd.add_output(fd.ops.softmax(fd.define_tensor([-1, -1], True), 1))
    given = [drawn(rng, n, 96) for n in (65, 0, 66, 67)]
    for got, x in zip(fd.execute(given), given, strict=True):
        torch.testing.assert_close(got, x.softmax(1))
    assert len(fd.fec.executor.kernels()) == 1


def test_what_waits_is_launched_later(rng: np.random.Generator) -> None:
    """Each matrix product separates two kernels with equal text, so they cannot share a launch."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], True)
    for _ in range(3):
        x = fd.ops.matmul(fd.ops.tanh(x), fd.ops.tanh(x) * 0.1)
        x = fd.ops.set(x)
    fd.add_output(x)
    given = drawn(rng, 16, 16)
    exact = given.double()
    for _ in range(3):
        exact = exact.tanh() @ (exact.tanh() * 0.1)
    (got,) = fd.execute([given])
    torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-6)


def test_kernels_that_only_read_one_tensor_are_one_launch(rng: np.random.Generator) -> None:
    """A learning rate without dims, read by the kernels of all parameters."""
    fd = FusionDefinition()
    rate = fd.define_tensor([])
    for _ in range(3):
        fd.add_output(fd.define_tensor([-1], True) * rate)
    given = [drawn(rng, n) for n in (64, 128, 256)]
    for got, x in zip(fd.execute([torch.tensor(0.5), *given]), given, strict=True):
        assert torch.equal(got, x * 0.5)
    assert len(fd.fec.executor.kernels()) == 1
