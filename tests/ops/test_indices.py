"""Index tensors with arbitrary values read inside the tensor; debug mode reports invalid ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fuser import FusionDefinition, Tensor, UserError

SIZE = 7
X = torch.arange(5.0 * SIZE).view(5, SIZE)


def embedding(fd: FusionDefinition, x: Tensor, i: Tensor) -> Tensor:
    return fd.ops.embedding_fwd(i, fd.ops.permute(x, [1, 0]))


def cross_entropy(fd: FusionDefinition, x: Tensor, i: Tensor) -> Tensor:
    return fd.ops.cross_entropy(x, i, reduction="sum")


def normalized(fd: FusionDefinition, x: Tensor, i: Tensor) -> Tensor:
    """The gathered rows are read in both reduction loops."""
    rows = fd.ops.gather(x, fd.ops.broadcast_in_dim(i, [5, 5], [1]), 1)
    return fd.ops.softmax(rows, 1)


# By op: the definition, torch's function, and the indexed axis.
CASES: dict[str, tuple[Callable[..., Tensor], Callable[..., torch.Tensor], str]] = {
    "gather": (
        lambda fd, x, i: fd.ops.gather(x, fd.ops.broadcast_in_dim(i, [5, 5], [1]), 1),
        lambda x, i: x[:, i],
        "gather(t0, t3), axis 1",
    ),
    "take_along_axis": (
        lambda fd, x, i: fd.ops.take_along_axis(x, fd.ops.broadcast(i, [True, False]), 1) * 2.0,
        lambda x, i: x[:, i] * 2.0,
        "take_along_axis(t0, t2), axis 1",
    ),
    "index_select": (
        lambda fd, x, i: fd.ops.index_select(x, i, 1),
        lambda x, i: x[:, i],
        "index_select(t0, t",
    ),
    "embedding_fwd": (embedding, lambda x, i: x.T[i], "embedding_fwd(t"),
    "cross_entropy_fwd": (
        cross_entropy,
        lambda x, i: torch.nn.functional.cross_entropy(x, i, reduction="sum"),
        "cross_entropy_fwd(t",
    ),
    "softmax": (normalized, lambda x, i: x[:, i].softmax(1), "gather(t0, t"),
}
GOOD = [0, SIZE - 1, 3, 1, 2]
BAD = {SIZE: SIZE - 1, -SIZE - 1: 0, 2**40: SIZE - 1, -(2**62): 0}  # invalid index: clamped index


def define(make: Callable[..., Tensor], dtype: torch.dtype = torch.int64) -> FusionDefinition:
    fd = FusionDefinition()
    x, i = fd.from_pytorch(X), fd.from_pytorch(torch.zeros(5, dtype=dtype))
    fd.add_output(make(fd, x, i))
    return fd


@pytest.mark.parametrize("debug", [0, 1])
@pytest.mark.parametrize("op", CASES)
def test_indices_in_range(op: str, debug: int, set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_HOST_DEBUG", debug)
    make, reference, _ = CASES[op]
    (got,) = define(make).execute([X, torch.tensor(GOOD)])
    torch.testing.assert_close(got, reference(X, torch.tensor(GOOD)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("op", CASES)
def test_nothing_is_read_outside_of_a_tensor(
    op: str, bad: int, device: str, set_option: Callable[[str, object], None]
) -> None:
    """An invalid index reads the nearest element in kernels for GPUs."""
    set_option("FUSER_HOST_ARCH", 80)
    make, reference, _ = CASES[op]
    given, read = torch.tensor([*GOOD[:4], bad]), torch.tensor([*GOOD[:4], BAD[bad]])
    (got,) = define(make).execute([X.to(device), given.to(device)])
    torch.testing.assert_close(got.cpu(), reference(X, read), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("op", CASES)
def test_index_range_1(op: str, bad: int, set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    make, _, name = CASES[op]
    with pytest.raises(UserError) as caught:
        define(make).execute([X, torch.tensor([*GOOD[:4], bad])])
    assert caught.value.rule == "index-range-1"
    message = str(caught.value)
    assert message.startswith(f"execute(): {name}")
    assert f"index {bad} is out of range for size {SIZE}; expected -{SIZE} to {SIZE - 1}" in message
    assert "t0: float32[" in message or op == "embedding_fwd"
    assert "defined at" in message


def test_negative_indices_count_from_the_end(set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    fd = define(CASES["index_select"][0], torch.int32)
    (got,) = fd.execute([X, torch.tensor([-1, -SIZE, 0, 6, -3], dtype=torch.int32)])
    assert torch.equal(got, X[:, [6, 0, 0, 6, 4]])


@pytest.mark.parametrize("rows", [1, 3, 33])
def test_only_what_is_read_is_checked(rows: int, set_option: Callable[[str, object], None]) -> None:
    """Only indices that are used are checked. Threads and lanes beyond the end, and coordinates
    that a pad or cat takes from another operand, have computed indices that are out of range."""
    set_option("FUSER_HOST_DEBUG", 1)
    fd = FusionDefinition()
    x, zeros = fd.define_tensor([-1]), fd.define_tensor([-1])
    n = x.size(0)
    taken = fd.ops.index_select(x, fd.ops.iota(n), 0)
    joined = fd.ops.cat([zeros, taken, zeros], 0)
    padded = fd.ops.pad(fd.ops.index_select(x, fd.ops.iota(n) - n, 0), [2, 5])
    for t in (taken, joined, padded, fd.ops.sum(joined, [0])):
        fd.add_output(t)
    values, other = torch.randn(rows), torch.zeros(rows + 4)
    got = fd.execute([values, other])
    assert torch.equal(got[0], values)
    assert torch.equal(got[1], torch.cat([other, values, other]))
    assert torch.equal(got[2], torch.nn.functional.pad(values, (2, 5)))
    torch.testing.assert_close(got[3], values.sum(), rtol=1e-5, atol=1e-5)


def test_a_class_that_is_ignored_is_no_index(set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    fd = define(lambda fd, x, i: fd.ops.cross_entropy(x, i))
    target = torch.tensor([0, -100, 3, -100, 2])
    (got,) = fd.execute([X, target])
    torch.testing.assert_close(got, torch.nn.functional.cross_entropy(X, target))


@pytest.mark.parametrize("width", [65, 129, 257, 66])
@pytest.mark.parametrize("op", ["cat", "pad", "roll", "stack"])
def test_an_index_into_what_has_boundaries(op: str, width: int) -> None:
    """A gather from a tensor with boundaries: the Select condition differs within a vector, also
    for odd rows read by vectors."""
    joined: dict[str, tuple[Callable[..., Tensor], Callable[..., torch.Tensor]]] = {
        "cat": (lambda o, x, y: o.cat([x, y], 0), lambda x, y: torch.cat([x, y])),
        "pad": (lambda o, x, y: o.pad(x, [0, 0, 1, 2]), lambda x, y: padded(x)),
        "roll": (lambda o, x, y: o.roll(x, [1], [0]), lambda x, y: x.roll(1, 0)),
        "stack": (
            lambda o, x, y: o.reshape(o.stack([x, y], 0), [8, width]),
            lambda x, y: torch.stack([x, y]).view(8, width),
        ),
    }
    ours, theirs = joined[op]
    x, y = torch.randn(4, width), torch.randn(4, width)
    expected = theirs(x, y)
    i = torch.randint(0, expected.shape[0], (width, width))
    fd = FusionDefinition()
    given = [fd.define_tensor(shape=[-1, width]) for _ in range(2)]
    places = fd.define_tensor(shape=[-1, width], dtype=torch.int64)
    fd.add_output(fd.ops.take_along_axis(ours(fd.ops, *given), places, 0))
    (got,) = fd.execute([x, y, i])
    assert torch.equal(got, torch.take_along_dim(expected, i, 0))


def padded(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(x, [0, 0, 1, 2])
