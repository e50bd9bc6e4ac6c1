"""fuser.reference: complete, and right where torch has no such op or another meaning.

tests/device compares it with the kernels' own functions.
"""

import math

import pytest
import torch

from fuser import _core
from fuser.reference import REFERENCES


def test_every_op_has_one() -> None:
    assert sorted(REFERENCES) == sorted(row.name for row in _core.op_rows())


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_integer_division(dtype: torch.dtype) -> None:
    least = torch.iinfo(dtype).min
    a = torch.tensor([7, -7, 7, -7, 5, least, 6], dtype=dtype)
    b = torch.tensor([2, 2, -2, -2, 0, -1, -3], dtype=dtype)
    expected = {
        "div": [3, -3, -3, 3, -1, least, -2],
        "mod": [1, -1, 1, -1, 5, 0, 0],
        "floor_divide": [3, -4, -4, 3, -1, least, -2],
        "remainder": [1, 1, -1, -1, 5, 0, 0],
        "ceil_div": [4, -3, -3, 4, -1, least, -2],
    }
    for name, values in expected.items():
        assert REFERENCES[name](a, b).tolist() == values, name


def test_shifts() -> None:
    a = torch.tensor([1, -128, -1, 3, -5, 64], dtype=torch.int8)
    count = torch.tensor([7, 1, 8, -1, 0, 1], dtype=torch.int8)
    assert REFERENCES["bitwise_left_shift"](a, count).tolist() == [-128, 0, 0, 0, -5, -128]
    assert REFERENCES["bitwise_right_shift"](a, count).tolist() == [0, -64, -1, 0, -5, 32]
    assert REFERENCES["logical_right_shift"](a, count).tolist() == [0, 64, 0, 0, -5, 32]
    long = torch.tensor([-1, -1])
    assert REFERENCES["logical_right_shift"](long, torch.tensor([1, 63])).tolist() == [2**63 - 1, 1]


def test_float_remainder_beyond_torch() -> None:
    a, b = torch.tensor([1.7976931348623157e308, 5.5]), torch.tensor([2.5e-308, -2.0])
    a, b = a.double(), b.double()
    assert REFERENCES["fmod"](a, b)[1] == 1.5
    assert REFERENCES["remainder"](a, b)[1] == -0.5
    assert REFERENCES["fmod"](torch.tensor(7.0).double(), torch.tensor(4.0).double()) == 3.0


def test_gelu_keeps_its_tail() -> None:
    x = torch.tensor([-10.0], dtype=torch.float64)
    exact = -10 * 0.5 * math.erfc(10 / math.sqrt(2))
    assert REFERENCES["gelu_erf"](x).item() == pytest.approx(exact, rel=1e-12)
    u = math.sqrt(2 / math.pi) * (-10 - 44.715)
    exact = -10 / (1 + math.exp(-2 * u))
    assert REFERENCES["gelu_tanh"](x).item() == pytest.approx(exact, rel=1e-12)


def test_erfcinv() -> None:
    c = torch.tensor([1e-30, 0.1, 0.5, 1.0, 1.5, 1.999], dtype=torch.float64)
    back = torch.erfc(REFERENCES["erfcinv"](c))
    assert torch.allclose(back, c, rtol=1e-12, atol=0)
