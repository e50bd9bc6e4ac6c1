"""fuser/debug/interpreter.py: casts and movement ops, compared with kernels."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from fuser import DataType, FusionDefinition, ShapeError, evaluate, testing
from fuser.arguments import as_dtype
from fuser.debug.interpreter import convert, torch_dtype

FLOATS = [DataType.Half, DataType.BFloat16, DataType.Float8_e4m3fn, DataType.Float8_e5m2]


def test_torch_dtype() -> None:
    assert torch_dtype(DataType.Half) is torch.float16
    assert torch_dtype(DataType.Int) is torch.int64
    assert torch_dtype(DataType.ComplexDouble) is torch.complex128


@pytest.mark.parametrize(
    ("dtype", "given", "expected"),
    [
        (DataType.Int32, [1.9, -1.9, 0.0], [1, -1, 0]),
        (DataType.Int32, [1e10, -1e10, math.nan], [2**31 - 1, -(2**31), 0]),
        (DataType.Int32, [2**31 - 0.5, -(2**31) - 0.5], [2**31 - 1, -(2**31)]),
        (DataType.Int, [1e30, -1e30, math.inf], [2**63 - 1, -(2**63), 2**63 - 1]),
        (DataType.Int, [2.0**62, -(2.0**63)], [2**62, -(2**63)]),
        (DataType.Char, [127.9, 128.0, -128.9, -129.0], [127, 127, -128, -128]),
        (DataType.Byte, [-0.9, -1.0, 255.5, 256.0], [0, 0, 255, 255]),
        (DataType.Bool, [0.0, -0.0, 0.1, math.nan], [False, False, True, True]),
    ],
)
def test_float_to_integer_saturates(
    dtype: DataType, given: list[float], expected: list[int]
) -> None:
    result = convert(torch.tensor(given, dtype=torch.float64), dtype)
    assert result.dtype == torch_dtype(dtype)
    assert result.tolist() == expected


def test_integers_wrap() -> None:
    given = torch.tensor([300, -1, 2**40 + 7])
    assert convert(given, DataType.Byte).tolist() == [44, 255, 7]
    assert convert(given, DataType.Char).tolist() == [44, -1, 7]


def test_floats_round_and_are_held_exactly() -> None:
    given = torch.tensor([0.1, 1.0, 1e300, math.nan], dtype=torch.float64)
    result = convert(given, DataType.Float)
    assert result.dtype == torch.float64
    assert result[:3].tolist() == [0.10000000149011612, 1.0, math.inf]
    assert result[3].isnan()


@pytest.mark.parametrize("dtype", FLOATS)
def test_narrow_floats_are_those_of_torch(dtype: DataType) -> None:
    given = torch.linspace(-500, 500, 4001, dtype=torch.float64)
    # float8_e4m3fn has no infinity and saturates, like torch since 2.13.
    inside = given.clamp(-448, 448) if dtype == DataType.Float8_e4m3fn else given
    expected = inside.float().to(torch_dtype(dtype)).double()
    torch.testing.assert_close(convert(given, dtype), expected, rtol=0, atol=0, equal_nan=True)


def test_a_dim_that_was_expanded_is_squeezed_where_asked() -> None:
    for asked in (True, False):
        fd = FusionDefinition()
        x = fd.define_tensor([1, -1])
        rows = fd.define_tensor([-1, -1])
        wide = fd.ops.expand(x, [rows.size(0), -1])
        fd.add_output(fd.ops.squeeze(wide, [0], squeeze_expanded=asked))
        given = torch.tensor([[1.0, 2.0]])
        if asked:
            assert evaluate(fd, [given, torch.ones(3, 2)])[0].tolist() == [1.0, 2.0]
        else:
            with pytest.raises(ShapeError) as caught:
                evaluate(fd, [given, torch.ones(3, 2)])
            assert caught.value.rule == "squeeze-2"


# ---- movement, compared with execute() and with numpy


def numpy_pad(x: np.ndarray, widths: list[tuple[int, int]], value: int) -> np.ndarray:
    """Pad element by element; widths by dim, negative ones crop."""
    out = np.full([n + a + b for n, (a, b) in zip(x.shape, widths, strict=True)], value, x.dtype)
    for place in np.ndindex(*out.shape):
        source = tuple(i - a for i, (a, _) in zip(place, widths, strict=True))
        if all(0 <= i < n for i, n in zip(source, x.shape, strict=True)):
            out[place] = x[source]
    return out


def assert_all_are(fd: FusionDefinition, inputs: list[Any], expected: np.ndarray) -> None:
    for got in (fd.execute(inputs, device="cpu")[0], evaluate(fd, inputs)[0]):
        assert got.shape == expected.shape, inputs
        assert got.to(torch.int64).equal(torch.from_numpy(expected.astype(np.int64))), inputs


def test_every_width_of_a_pad() -> None:
    """320 pads of one dim with zero to three elements; widths crop zero or some elements, all, or
    more than exist."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=DataType.Int)
        fd.add_output(fd.ops.pad(x, list(fd.define_vector(2)), 7))
    count = 0
    for n in range(4):
        for before, after in itertools.product(range(-5, 6), repeat=2):
            given = torch.arange(1, n + 1)
            if n + before + after < 0:
                with pytest.raises(ShapeError):
                    fd.execute([given, [before, after]])
                with pytest.raises(ShapeError):
                    evaluate(fd, [given, [before, after]])
                continue
            assert_all_are(
                fd, [given, [before, after]], numpy_pad(given.numpy(), [(before, after)], 7)
            )
            count += 1
    assert count == 320


def test_a_pad_of_an_operand_that_was_broadcast() -> None:
    """The sizes of x say one column; broadcast against y it has seven, which the pad keeps."""
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.pad(x + y, [1, -2], 3.0))
    columns, row = torch.arange(2.0)[:, None], torch.arange(7.0)[None]
    whole = torch.nn.functional.pad(columns + row, [1, -2], value=3.0)
    assert whole.shape == (2, 6)
    assert torch.equal(evaluate(fd, [columns, row])[0], whole.double())
    assert torch.equal(fd.execute([columns, row])[0], whole)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int32, torch.float16, torch.float64, torch.complex64]
)
def test_pads_of_two_dims(dtype: torch.dtype, rng: np.random.Generator) -> None:
    """40 pads per type, including sizes of 0."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=as_dtype(dtype))
        fd.add_output(fd.ops.pad(x, list(fd.define_vector(4)), 1))
    for _ in range(40):
        sizes = rng.integers(0, 5, 2)
        widths = [
            (before, max(int(rng.integers(-4, 5)), -before - int(n)))
            for n, before in zip(sizes, rng.integers(-6, 6, 2).tolist(), strict=True)
        ]
        given = torch.from_numpy(rng.integers(0, 2, sizes)).to(dtype)
        inputs = [given, [*widths[1], *widths[0]]]
        real = given.real if dtype.is_complex else given
        expected = numpy_pad(real.to(torch.int64).numpy(), widths, 1)
        for got in (fd.execute(inputs)[0], evaluate(fd, inputs)[0]):
            assert got.shape == expected.shape, inputs
            value = got.real if got.is_complex() else got
            assert value.to(torch.int64).equal(torch.from_numpy(expected)), inputs


def test_every_slice() -> None:
    """Bounds from far below to far above the size, with three steps: 1,083 slices."""
    count = 0
    for step in (1, 2, 5):
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1], dtype=DataType.Int)
            bounds = fd.define_vector(2)
            fd.add_output(fd.ops.slice(x, [bounds[0]], [bounds[1]], [step]))
        for first, last in itertools.product(range(-9, 10), repeat=2):
            given = torch.arange(1, 7)
            assert_all_are(fd, [given, [first, last]], given.numpy()[first:last:step])
            count += 1
    assert count == 1083


def test_cats_with_empty_parts(rng: np.random.Generator) -> None:
    """60 cats of one to five operands, each possibly empty, flipped or sliced."""
    calls: list[tuple[FusionDefinition, list[Any]]] = []
    expected: list[np.ndarray] = []
    for _ in range(60):
        fd, inputs, parts = FusionDefinition(), [], []
        for n in rng.integers(0, 4, rng.integers(1, 6)).tolist():
            x = fd.define_tensor([-1, -1], dtype=DataType.Int)
            given = torch.from_numpy(rng.integers(0, 9, (2, n)))
            inputs.append(given)
            match int(rng.integers(0, 3)):
                case 0:
                    parts.append((fd.ops.flip(x, [1]), np.flip(given.numpy(), 1)))
                case 1:
                    parts.append((fd.ops.slice(x, [0, 1], [2, 9]), given.numpy()[:, 1:]))
                case _:
                    parts.append((x, given.numpy()))
        fd.add_output(fd.ops.cat([t for t, _ in parts], 1))
        calls.append((fd, inputs))
        expected.append(np.concatenate([a for _, a in parts], 1))
    testing.compile_batch(calls)
    for (fd, inputs), want in zip(calls, expected, strict=True):
        assert_all_are(fd, inputs, want)
