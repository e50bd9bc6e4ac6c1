"""csrc/driver/signature: properties of a call in its key, and errors of invalid calls."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import fuser
from fuser import (
    ArgumentTypeError,
    DataType,
    DTypeError,
    FusionDefinition,
    ShapeError,
    UserError,
)
from tests.support.definitions import counted, scaled, sum_of_two

BYTES = torch.arange(4096.0)


def rows_and_columns() -> FusionDefinition:
    return scaled(1.0625, rank=2)


def view(sizes: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> torch.Tensor:
    """Floats, 16-byte aligned if `offset` is a multiple of 4."""
    assert BYTES.data_ptr() % 16 == 0
    return BYTES.as_strided(sizes, strides, offset)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (view((4, 8), (8, 1)), view((4, 8), (8, 1)), True),
        (view((4, 8), (8, 1)), view((4, 8), (8, 1), offset=4), True),
        (view((4, 8), (8, 1)), view((4, 8), (8, 1), offset=1), False),  # alignment
        (view((4, 8), (8, 1), offset=1), view((4, 8), (8, 1), offset=2), True),
        (view((4, 8), (8, 1)), view((8, 4), (4, 1)), False),
        (view((4, 8), (8, 1)), view((4, 8), (16, 1)), False),
        (view((4, 8), (8, 1)), view((4, 8), (1, 4)), False),
        (view((1, 8), (8, 1)), view((1, 8), (777, 1)), True),  # the stride of a dim of size 1
        (view((8, 1), (1, 1)), view((8, 1), (1, 99)), True),
    ],
    ids=[
        *("equal", "moved", "misaligned", "both misaligned", "sizes", "strides", "transposed"),
        *("stride of a row", "stride of a column"),
    ],
)
def test_key_of_tensors(first: torch.Tensor, second: torch.Tensor, same: bool) -> None:
    fd = rows_and_columns()
    fd.execute([first])
    before = fuser.cache_info()
    (result,) = fd.execute([second])
    assert counted(before) == ((1, 0) if same else (0, 1))
    assert result.equal(second * 1.0625)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (DataType.Double, [1.5, -2.0, 1e30]),
        (DataType.Int, [1, -7, 2**40]),
        (DataType.Bool, [True, False]),
        (DataType.ComplexDouble, [1j, 2.0 - 1j]),
    ],
    ids=["float", "int", "bool", "complex"],
)
def test_values_of_scalars_are_not_in_the_key(dtype: DataType, values: list[complex]) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=DataType.Float)
        fd.add_output(fd.ops.mul(x, fd.define_scalar(dtype)))
    x = torch.arange(5.0)
    fd.execute([x, values[0]])
    before = fuser.cache_info()
    for value in values:
        (result,) = fd.execute([x, value])
        assert result.equal(x * value)
    assert counted(before) == (len(values), 0)


def test_scalars_of_a_shape_are_in_the_key() -> None:
    with FusionDefinition() as fd:
        length, value = fd.define_scalar(DataType.Int), fd.define_scalar(DataType.Double)
        fd.add_output(fd.ops.full([length, 3], value, DataType.Float))
    before = fuser.cache_info()
    for n, value, expected in [(4, 1.5, (0, 1)), (4, 2.5, (1, 1)), (5, 2.5, (1, 2))]:
        (result,) = fd.execute([n, value], device="cpu")
        assert result.equal(torch.full((n, 3), value))
        assert counted(before) == expected


def test_the_values_of_0_dim_tensors_are_not_in_the_key() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1]) * fd.define_tensor([], dtype=DataType.Double))
    x = torch.arange(5.0)
    before = fuser.cache_info()
    for factor in (2.0, 3.0):
        (result,) = fd.execute([x, torch.tensor(factor, dtype=torch.float64)])
        assert result.equal(x * factor)
    assert counted(before) == (1, 1)


def test_overlap_with_what_is_written_is_in_the_key() -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
        fd.add_output(x + y, x)
    base = torch.arange(40.0)
    before = fuser.cache_info()
    for begin, expected in [(16, (0, 1)), (20, (1, 1)), (4, (1, 2)), (8, (2, 2)), (12, (2, 2))]:
        work = base.clone()
        fd.execute([work[:16], work[begin : begin + 16]])
        wanted = base.clone()
        wanted[:16] += base[begin : begin + 16]
        assert work.equal(wanted), begin
        if begin != 12:
            assert counted(before) == expected, begin
    assert counted(before) == (3, 2)


def test_debug_mode_is_in_the_key(set_option: Callable[[str, object], None]) -> None:
    fd, x = scaled(1.25), torch.arange(8.0)
    fd.execute([x])
    before = fuser.cache_info()
    set_option("FUSER_HOST_DEBUG", 1)
    for _ in range(2):
        assert fd.execute([x])[0].equal(x * 1.25)
    assert counted(before) == (1, 1)
    set_option("FUSER_HOST_DEBUG", 0)
    fd.execute([x])
    assert counted(before) == (2, 1)


def test_signature_says_what_chooses_a_kernel() -> None:
    fd = scaled(2.0, rank=2, dtype=torch.bfloat16)
    x = torch.zeros(64, 128, dtype=torch.bfloat16)
    assert fd.signature([x]).startswith("cpu; t0 bfloat16[0c 1c] 16B; pointwise(threads=")
    assert fd.signature([x]).endswith(") index32")
    assert fd.signature([x[:, 1:]]).startswith("cpu; t0 bfloat16[0s 1c] element; pointwise(")
    assert fd.signature([x]) == fd.signature([torch.zeros(32, 64, dtype=torch.bfloat16)])
    # Strides of 0 expand one element to 2^51.
    far = torch.zeros(1, dtype=torch.bfloat16).expand(1 << 31, 1 << 20)
    assert fd.signature([far]).endswith("index64")


Define = Callable[[FusionDefinition, fuser.Tensor], fuser.Tensor]


def of_a_range(change: Define) -> Define:
    return lambda fd, x: change(fd, fd.ops.iota(fd.ops.size(x, 0)))


def part(fd: FusionDefinition, t: fuser.Tensor, start: int, step: int = 1) -> fuser.Tensor:
    return fd.ops.slice(t, [start], [None], [step])


LONG = 2**31 + 3
PARTS: dict[str, tuple[Define, list[int]]] = {
    "the end of a range": (
        of_a_range(lambda fd, r: part(fd, r, LONG - 2)),
        [LONG - 2, LONG - 1],
    ),
    "a range in long steps": (
        of_a_range(lambda fd, r: part(fd, r, 0, 2**30)),
        [0, 2**30, 2**31],
    ),
    "a range from behind": (
        of_a_range(lambda fd, r: part(fd, fd.ops.flip(r, [0]), LONG - 2)),
        [1, 0],
    ),
    "the end of a pad": (
        lambda fd, x: part(fd, fd.ops.pad(x, [1, 1], 7), LONG),
        [5, 7],
    ),
    "rows of what is merged and split": (
        lambda fd, x: part(
            fd,
            fd.ops.reshape(fd.ops.expand(fd.ops.broadcast(x, [True, False]), [2, -1]), [-1]),
            2 * LONG - 2,
        ),
        [5, 5],
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_few_elements_of_what_is_longer_than_32_bits_count(name: str) -> None:
    """An index may exceed 32 bits although the memory is small: an expanded tensor has one element,
    an iota has no memory."""
    define, expected = PARTS[name]
    fd = FusionDefinition()
    x = fd.define_tensor([-1], dtype=DataType.Int)
    fd.add_output(define(fd, x) + 0)
    given = torch.full((1,), 5).expand(LONG)
    assert fd.execute([given])[0].tolist() == expected
    assert fd.signature([given]).endswith("index64")


# ---- errors


def place_of(function: Callable[..., object], what: str) -> str:
    """'file.py:line' of the first line of `function` that contains `what`."""
    lines, start = inspect.getsourcelines(function)
    number = next(start + i for i, line in enumerate(lines) if what in line)
    return f"{Path(__file__).name}:{number}"


def refused(fd: FusionDefinition, inputs: list[object], rule: str, kind: type[UserError]) -> str:
    """The message of the error of execute(). Also asserts its class and rule."""
    with pytest.raises(UserError) as caught:
        fd.execute(inputs)
    assert type(caught.value) is kind
    assert caught.value.rule == rule
    return re.sub(r"\S*/(?=\w+\.py:)", "", str(caught.value))


def test_argument_count() -> None:
    message = refused(sum_of_two(), [BYTES], "argument-count", UserError)
    assert message == (
        "execute(): expected 2 inputs (2 tensors, 0 scalars, in the order of their define_ calls), "
        "got 1"
    )


def test_argument_type() -> None:
    message = refused(sum_of_two(), [BYTES, 2.0], "argument-type", ArgumentTypeError)
    assert message.startswith("execute(): argument 1 is a float, expected a torch.Tensor for t1: ")


@pytest.mark.parametrize(
    "make",
    [lambda: torch.zeros(2, 2).to_sparse(), lambda: torch.zeros(2, 2, device="meta")],
    ids=["sparse", "meta"],
)
def test_argument_tensor(make: Callable[[], torch.Tensor]) -> None:
    message = refused(rows_and_columns(), [make()], "argument-tensor", UserError)
    assert "expected a strided CPU or CUDA tensor with memory" in message


def test_argument_rank() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1, -1]) * 2.0)
    message = refused(fd, [torch.zeros(6)], "argument-rank", ShapeError)
    assert message == (
        "execute(): tensor input 0 has rank 1, expected 2\n"
        "  t0: float32[size(t0, 0), size(t0, 1)]  defined at "
        f"{place_of(test_argument_rank, 'fd.define_tensor')}\n"
        "  given: float32[6] strides [1] cpu"
    )


def test_argument_dtype() -> None:
    message = refused(scaled(2.0), [torch.zeros(6).double()], "argument-dtype", DTypeError)
    assert message.startswith("execute(): tensor input 0 is float64, expected float32\n  t0: ")
    assert message.endswith(
        "\n  given: float64[6] strides [1] cpu\n  hint: convert it with .to(torch.float32)"
    )


def test_dtype_that_is_not_known() -> None:
    message = refused(
        scaled(2.0), [torch.zeros(6, dtype=torch.complex32)], "argument-dtype", DTypeError
    )
    assert message == "execute(): argument 0 is of dtype ComplexHalf, expected a dtype of DataType"


def test_argument_size() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1, 4]) * 2.0)
    message = refused(fd, [torch.zeros(3, 5)], "argument-size", ShapeError)
    first = "execute(): tensor input 0, axis 1: the definition fixes size 4, got 5\n"
    assert message.startswith(first)
    assert place_of(test_argument_size, "fd.define_tensor") in message
    assert message.endswith("\n  hint: define the axis with -1 for sizes that vary")


def test_argument_device() -> None:
    fd = scaled(2.0)
    with pytest.raises(UserError) as caught:
        fd.execute([torch.zeros(3)], device=0)
    assert caught.value.rule == "argument-device"
    assert str(caught.value).startswith("execute(): device=cuda:0, but the inputs are on cpu\n")
    with pytest.raises(UserError) as caught:
        fd.execute([torch.zeros(3)], device="meta")
    assert caught.value.rule == "argument-device"
    assert str(caught.value) == "execute(): device=meta: expected a CPU or CUDA device"


def written() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(x * 2.0, x)
    return fd


@pytest.mark.parametrize(
    ("sizes", "strides"), [((4, 3), (0, 1)), ((4, 3), (1, 1)), ((3, 4), (2, 1))]
)
def test_argument_in_place(sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
    before = BYTES.clone()
    given = view(sizes, strides)
    message = refused(written(), [given], "argument-in-place", UserError)
    assert message == (
        "execute(): tensor input 0 is written in place, but several of its elements share one "
        f"address\n  given: float32[{sizes[0]}, {sizes[1]}] strides [{strides[0]}, {strides[1]}] "
        "cpu\n  hint: pass a contiguous copy"
    )
    assert BYTES.equal(before)


@pytest.mark.parametrize("strides", [(0, 5), (9, 0), (3, 1), (1, 4)])
def test_in_place_where_sizes_of_1_and_0_forbid_nothing(strides: tuple[int, int]) -> None:
    sizes = (1 if strides[0] in (0, 1) else 3, 1 if strides[1] == 0 else 3)
    data = torch.arange(40.0)
    written().execute([data.as_strided(sizes, strides)])
    expected = torch.arange(40.0)
    expected.as_strided(sizes, strides).mul_(2)
    assert data.equal(expected)
    assert written().execute([torch.zeros(0, 3).expand(0, 3)]) == []


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        (DataType.Int, 1.5, "is a float; the definition has a int64 scalar, expected an int"),
        (
            DataType.Int,
            1 << 63,
            "is a int; the definition has a int64 scalar, expected an int",
        ),
        (DataType.Int, -(1 << 63) - 1, "expected an int of 64 bits"),
        (DataType.Int32, 1 << 31, "expected an int of 32 bits"),
        (DataType.Short, -(1 << 15) - 1, "expected an int of 16 bits"),
        (DataType.Byte, -1, "expected an int of 8 bits"),
        (DataType.Bool, 1, "is a int; the definition has a bool scalar, expected a bool"),
        (DataType.Double, "2", "is a str; the definition has a float64 scalar, expected a float"),
        (DataType.Double, 1j, "expected a float"),
        (DataType.Double, 10**400, "expected a float"),
        (DataType.Double, torch.tensor(2.0), "is a Tensor; the definition has a float64 scalar"),
        (DataType.Int, torch.tensor(2), "hint: pass x.item(), or define it as a tensor of rank 0"),
        (DataType.ComplexDouble, None, "is a NoneType; the definition has a complex128 scalar"),
    ],
)
def test_argument_scalar(dtype: DataType, value: object, text: str) -> None:
    with FusionDefinition() as fd:
        x, s = fd.define_tensor([-1]), fd.define_scalar(dtype)
        fd.add_output(fd.ops.where(s, x, x) if dtype == DataType.Bool else fd.ops.add(x, s))
    message = refused(fd, [torch.zeros(2), value], "argument-scalar", DTypeError)
    assert message.startswith("execute(): argument 1 ")
    assert text in message


def test_broadcast_1() -> None:
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1])
        b = fd.define_tensor([-1, -1])
        fd.add_output(a + b)
    message = refused(fd, [torch.zeros(3, 4), torch.zeros(5, 4)], "broadcast-1", ShapeError)
    assert message == (
        "add(t0, t1): operands do not broadcast\n"
        "  t0: float32[size(t0, 0), size(t0, 1)]  defined at "
        f"{place_of(test_broadcast_1, 'a = fd.')}\n"
        "  t1: float32[size(t0, 0), size(t0, 1)]  defined at "
        f"{place_of(test_broadcast_1, 'b = fd.')}\n"
        "  axis 0: 3 against 5; expected equal sizes, or a size of 1"
    )


def test_an_error_leaves_the_caches_whole() -> None:
    fd = sum_of_two()
    good = [torch.ones(3, 4), torch.ones(3, 4)]
    bad = [
        [torch.ones(3, 4)],
        [torch.ones(3, 4), 1.0],
        [torch.ones(3, 4), torch.ones(4)],
        [torch.ones(3, 4), torch.ones(3, 4).int()],
        [torch.ones(3, 4), torch.ones(2, 4)],
    ]
    before = fuser.cache_info()
    for inputs in bad:
        with pytest.raises(UserError):
            fd.execute(inputs)
        assert not fd.fec.is_compiled(good)
    assert counted(before) == (0, 3)  # misses of calls that pass the argument checks
    for _ in range(2):
        assert fd.execute(good)[0].equal(torch.full((3, 4), 2.0))
    assert counted(before) == (1, 4)
    for inputs in bad[2:]:
        with pytest.raises(UserError):
            fd.execute(inputs)
    assert fd.execute(good)[0].equal(torch.full((3, 4), 2.0))
    assert counted(before) == (2, 7)


def test_reduce_empty_1() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.max(x, [1]))
    with pytest.raises(fuser.ShapeError) as caught:
        fd.execute([torch.empty(3, 0)])
    assert caught.value.rule == "reduce-empty-1"
    assert "max(t0, dims=[1]): axis 1 has size 0" in str(caught.value)
    assert "test_signature.py" in str(caught.value), "the line that defined the operand"


def norm_of_reshaped(sizes: int) -> FusionDefinition:
    """A softmax of rows, a reshape to sizes known at run time only, and another softmax."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1, -1], contiguity=True)
    wanted = [fd.define_scalar(DataType.Int) for _ in range(sizes)]
    y = fd.ops.softmax(x, 2)
    fd.add_output(fd.ops.softmax(fd.ops.reshape(y, wanted), sizes - 1))
    return fd


@pytest.mark.parametrize(
    ("wanted", "kernels"),
    [
        ((6, 4), 1),  # keeps the rows
        ((3, 2, 4), 1),  # unchanged
        ((6, 2, 2), 2),  # splits the rows
        ((4, 6), 2),  # changes the rows
        ((24, 1), 2),
    ],
)
def test_reshapes_that_regroup_dims_in_this_call_end_no_kernel(
    wanted: tuple[int, ...], kernels: int
) -> None:
    fd, x = norm_of_reshaped(len(wanted)), torch.randn(3, 2, 4)
    fd.validate([x, *wanted])
    assert len(fd.fec.executor.kernels()) == kernels


def test_a_kernel_of_regrouped_dims_runs_for_no_other_sizes() -> None:
    fd = norm_of_reshaped(2)
    kernels = []
    for sizes, wanted in (
        *(((3, 2, 4), (6, 4)), ((3, 2, 4), (2, 12)), ((5, 7, 2), (35, 2)), ((3, 2, 4), (6, 4))),
        *(((1, 2, 4), (2, 4)), ((2, 3, 8), (12, 4)), ((3, 2, 4), (1, 24))),
    ):
        fd.validate([torch.randn(sizes), *wanted])
        kernels.append(len(fd.fec.executor.kernels()))
    assert kernels[:4] == [1, 2, 1, 1]  # for each call


def test_a_reshape_back_to_the_dims_that_were_merged() -> None:
    """A merge of dims undone by a reshape whose size is known at run time only."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1, -1], contiguity=True)
    batch = fd.define_scalar(DataType.Int)
    rows = fd.ops.softmax(fd.ops.reshape(x, [-1, x.size(2)]), 1)
    fd.add_output(fd.ops.reshape(rows, [batch, -1, x.size(2)]))
    for sizes in ((3, 2, 4), (5, 1, 6), (2, 7, 3)):
        fd.validate([torch.randn(sizes), sizes[0]])
    assert all(step.kind == "kernel" for step in fuser.explain(fd, torch.randn(3, 2, 4), 3).steps)
    assert len(fuser.explain(fd, torch.randn(3, 2, 4), 3).steps) == 1
    fd.validate([torch.randn(4, 6, 4), 8])  # not the merged dims


GROUPED = [4, 2, 5, 6]  # for images [4, 10, 2, 3]: two groups of five channels


def centered_groups() -> FusionDefinition:
    """Two images of symbolic sizes, grouped by constants and centered."""
    fd = FusionDefinition()
    images = [fd.define_tensor([-1, -1, -1, -1], contiguity=True) for _ in "xy"]
    x, y = (fd.ops.reshape(t, GROUPED) for t in images)
    weight = fd.ops.reshape(fd.define_tensor([-1], contiguity=True), [1, *GROUPED[1:3], 1])
    scaled = x * weight
    centered = (scaled - fd.ops.mean(scaled * y, [2, 3], keepdim=True)) * y
    fd.add_output(centered)
    return fd


def centered_groups_of_torch(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    x, y = (t.double().reshape(GROUPED) for t in (x, y))
    scaled = x * weight.double().reshape(1, *GROUPED[1:3], 1)
    return (scaled - (scaled * y).mean((2, 3), keepdim=True)) * y


@pytest.mark.parametrize("sizes", [(4, 10, 2, 3), (4, 10, 3, 2), (2, 20, 3, 2), (4, 2, 15, 2)])
def test_what_is_reshaped_by_constants_is_read_where_it_lies(
    sizes: tuple[int, ...], set_option: Callable[[str, object], None]
) -> None:
    """Reshapes by constants address dims, parts of dims, or a contiguous tensor without dividing
    coordinates; only the weight per channel needs a division."""
    set_option("FUSER_HOST_DEBUG", 1)
    fd = centered_groups()
    fd.validate([torch.randn(4, 10, 2, 3), torch.randn(4, 10, 2, 3), torch.randn(10)])
    given = [torch.randn(sizes), torch.randn(sizes), torch.randn(10)]
    (got,) = fd.execute(given)
    assert torch.allclose(got.double(), centered_groups_of_torch(*given), rtol=1e-5, atol=1e-5)
    (kernel,) = fd.fec.executor.kernels(given)
    body = kernel.text[kernel.text.rindex("KERNEL") :]
    assert "fast_mod" not in body
    x, y = (re.findall(rf"load1_if\({image} \+ (\w+),", body) for image in ("g_in0", "g_in2"))
    assert x
    assert x == y


def test_strides_of_what_is_reshaped_by_constants(
    set_option: Callable[[str, object], None],
) -> None:
    """With other strides the coordinates are divided, and results are correct."""
    set_option("FUSER_HOST_DEBUG", 1)
    fd = FusionDefinition()
    images = [fd.define_tensor([-1, -1, -1, -1]) for _ in "xy"]
    x, y = (fd.ops.reshape(t, GROUPED) for t in images)
    fd.add_output(fd.ops.sum(x * y, [2, 3]))
    for arrange in (
        lambda t: t.contiguous(memory_format=torch.channels_last),
        lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
        lambda t: torch.stack([t, t], 4)[..., 0],
        lambda t: t[:, :1].expand(4, 10, 2, 3),
    ):
        given = [arrange(torch.randn(4, 10, 2, 3)), torch.randn(4, 10, 2, 3)]
        for pair in (given, given[::-1]):
            a, b = (t.double().reshape(GROUPED) for t in pair)
            (got,) = fd.execute(pair)
            assert torch.allclose(got.double(), (a * b).sum((2, 3)), rtol=1e-5, atol=1e-5)
    with pytest.raises(ShapeError):
        fd.execute([torch.randn(4, 10, 2, 4), torch.randn(4, 10, 2, 4)])
