"""fuser.ops.reference: it is complete, and correct for ops that torch lacks or defines differently.

tests/device compares it with the kernels' device functions.
"""

import math

import pytest
import torch

from fuser import DataType, FusionDefinition, _core, _core_testing
from fuser.ops.reference import REDUCTIONS, REFERENCES


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


# ---- reductions


def test_every_reduction_of_the_frontend_has_one() -> None:
    """The remaining rows are forms that only the compiler generates."""
    fd = FusionDefinition()
    x = fd.define_tensor([2, 3], dtype=DataType.Int)
    for name in REDUCTIONS:
        fd.ops.reduction(name, x, [1])
    rows = {row.name for row in _core_testing.ir.reduction_rows()}
    assert rows - set(REDUCTIONS) == {"welford", "online_softmax"}


def test_nan_wins_then_the_lowest_index() -> None:
    rows = torch.tensor([[1.0, 3.0, 3.0], [math.inf, math.nan, math.nan], [-1.0, -1.0, 2.0]])
    value, place = REDUCTIONS["argmax"](rows)
    assert place.tolist() == [1, 1, 2]
    assert value[1].isnan()
    assert REDUCTIONS["argmin"](rows)[1].tolist() == [0, 1, 0]
    assert REDUCTIONS["max"](rows)[0][[0, 2]].tolist() == [3.0, 2.0]
    assert REDUCTIONS["min"](rows)[0][1].isnan()


def test_exclusive_or() -> None:
    rows = torch.tensor([[5, 3, -8, 1, 5], [0, 0, 0, 0, 7]])
    (value,) = REDUCTIONS["xor_sum"](rows)
    assert value.tolist() == [3 ^ -8 ^ 1, 7]
    assert REDUCTIONS["xor_sum"](rows[:, :0])[0].tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.int8, torch.uint8, torch.int64, torch.bool])
def test_identities(dtype: torch.dtype) -> None:
    """The result over zero elements is the identity: combining it leaves an element unchanged."""
    empty = torch.zeros(1, 0, dtype=dtype)
    for name in REDUCTIONS:
        if name in ("any", "all") and dtype != torch.bool:
            continue
        if name in ("sum", "prod") and dtype not in (torch.float64, torch.int64):
            continue
        if name == "xor_sum" and dtype != torch.int64:
            continue
        for element in (torch.zeros(1, 1, dtype=dtype), torch.ones(1, 1, dtype=dtype)):
            identity = REDUCTIONS[name](empty)[0].reshape(1, 1)
            assert REDUCTIONS[name](torch.cat([identity, element], 1))[0].item() == element.item()
