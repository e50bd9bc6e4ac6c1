"""fuser/interpreter.py: casts as kernels do them."""

import math

import pytest
import torch

from fuser import DataType, FusionDefinition, ShapeError, evaluate
from fuser.interpreter import convert, torch_dtype

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
    # Without infinity float8_e4m3fn saturates, as torch does from 2.13 on.
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
