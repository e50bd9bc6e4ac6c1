"""CPU kernels raise an IndexError for an index that a lane uses and that is out of range."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fuser import FusionDefinition, IndexRangeError, Tensor, UserError
from tests.ops.test_indices import BAD, CASES, GOOD, SIZE, X, define

SetOption = Callable[[str, object], None]


@pytest.fixture(autouse=True, params=[1, 2])
def threads(request: pytest.FixtureRequest, set_option: SetOption) -> int:
    set_option("FUSER_HOST_ARCH", 0)
    set_option("FUSER_HOST_THREADS", request.param)
    return int(request.param)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("op", CASES)
def test_index_range_1(op: str, bad: int) -> None:
    """The message names the op, the index and the size; the next run is right."""
    make, reference, name = CASES[op]
    fd = define(make)
    with pytest.raises(IndexRangeError) as caught:
        fd.execute([X, torch.tensor([*GOOD[:4], bad])])
    assert isinstance(caught.value, IndexError)
    assert isinstance(caught.value, UserError)
    assert caught.value.rule == "index-range-1"
    message = str(caught.value)
    assert message.startswith(f"execute(): {name}")
    assert f"index {bad} is out of range for size {SIZE}; expected -{SIZE} to {SIZE - 1}" in message
    (got,) = fd.execute([X, torch.tensor(GOOD)])
    torch.testing.assert_close(got, reference(X, torch.tensor(GOOD)), rtol=1e-5, atol=1e-5)


def selecting(dtype: torch.dtype = torch.int64) -> FusionDefinition:
    """x[i] of one dim, with sizes known at run time."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        i = fd.from_pytorch(torch.zeros(2, dtype=dtype), static_sizes=False)
        fd.add_output(fd.ops.index_select(x, i, 0))
    return fd


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8])
def test_every_place_is_checked(dtype: torch.dtype) -> None:
    """One index of any lane is out of range, whole vectors and tails; negative ones are valid."""
    fd = selecting(dtype)
    for count in (1, 2, 7, 16, 33, 3000):
        index = torch.randint(-5, 5, [count]).to(dtype)
        x = torch.randn(5)
        assert fd.execute([x, index])[0].equal(x[index.long()])
        for place in {0, count // 2, count - 1}:
            for bad in (5, -6, 127, -128):
                wrong = index.clone()
                wrong[place] = bad
                with pytest.raises(
                    IndexRangeError, match=f"index {bad} is out of range for size 5"
                ):
                    fd.execute([x, wrong])
        assert fd.execute([x, index])[0].equal(x[index.long()])


def test_empty_tensors() -> None:
    fd = selecting()
    none = torch.zeros(0, dtype=torch.int64)
    assert fd.execute([torch.randn(5), none])[0].shape == (0,)
    assert fd.execute([torch.randn(0), none])[0].shape == (0,)
    with pytest.raises(UserError):
        fd.execute([torch.randn(0), torch.tensor([0])])


@pytest.mark.parametrize("rows", [1, 3, 33, 5000])
def test_only_what_is_read_is_checked(rows: int) -> None:
    """Lanes beyond the end, and elements that a pad or cat takes from elsewhere, read nothing."""
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
    torch.testing.assert_close(got[3].double(), values.double().sum(), rtol=1e-5, atol=1e-4)


def test_an_index_replaced_by_where_is_not_checked() -> None:
    def guarded(fd: FusionDefinition, x: Tensor, i: Tensor) -> Tensor:
        inside = fd.ops.lt(i, SIZE)
        return fd.ops.index_select(x, fd.ops.where(inside, i, 0), 1)

    given = torch.tensor([0, 99, 3, 2**40, 2])
    (got,) = define(guarded).execute([X, given])
    assert got.equal(X[:, torch.tensor([0, 0, 3, 0, 2])])


def test_a_class_that_is_ignored_is_no_index() -> None:
    fd = define(lambda fd, x, i: fd.ops.cross_entropy(x, i))
    target = torch.tensor([0, -100, 3, -100, 2])
    (got,) = fd.execute([X, target])
    torch.testing.assert_close(got, torch.nn.functional.cross_entropy(X, target))


COMPILED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "index": lambda x, i: x[i].relu() + 1,
    "index_select": lambda x, i: x.index_select(0, i).relu() + 1,
    "gather": lambda x, i: x.gather(0, i[:, None].expand(-1, x.shape[1])).relu() + 1,
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x).relu() + 1,
    "take": lambda x, i: x.take(i * x.shape[1]).relu() + 1,
    "cross_entropy": lambda x, i: torch.nn.functional.cross_entropy(x.mT.relu(), i),
}


@pytest.mark.parametrize("op", COMPILED)
def test_a_compiled_function_raises_as_torch_does(op: str) -> None:
    function = COMPILED[op]
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="fuser", dynamic=True)
    for columns in (6, 9):
        x = torch.randn(6, columns)
        good = torch.arange(columns) % 6
        bad = good.clone()
        bad[3] = 77
        for _ in range(2):
            torch.testing.assert_close(compiled(x, good), function(x, good))
            with pytest.raises((IndexError, RuntimeError)) as expected:
                function(x, bad)
            with pytest.raises(expected.type, match=r"out of (bounds|range)"):
                compiled(x, bad)
    torch.testing.assert_close(compiled(x, good), function(x, good))
