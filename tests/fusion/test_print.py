"""csrc/fusion/build/print.cpp: the text of a definition. tests/test_repr.py tests rebuilding from
the text.
"""

import math

import pytest

from fuser import DataType, FusionDefinition


def lines(fd: FusionDefinition) -> list[str]:
    return [line.strip() for line in repr(fd).splitlines()[1:]]


def test_scalar_inputs_stand_in_the_order_of_arguments() -> None:
    fd = FusionDefinition()
    first = fd.define_scalar(DataType.Int)
    x = fd.define_tensor([4])
    fd.define_scalar(DataType.Bool)
    second = fd.define_scalar(DataType.Float)
    y = x * second
    fd.define_tensor([2], dtype=DataType.Half)
    fd.define_scalar(DataType.Half)
    fd.add_output(y + first)
    assert [line.partition(" (")[0] for line in lines(fd)] == [
        "S0 = fd.define_scalar(None, dtype=DataType.Int)",
        "T0 = fd.define_tensor(shape=[4], contiguity=[False], dtype=DataType.Float, is_cpu=False)",
        "S1 = fd.define_scalar(None, dtype=DataType.Bool)",
        "S2 = fd.define_scalar(None, dtype=DataType.Float)",
        "T1 = fd.ops.mul(T0, S2)",
        "T2 = fd.define_tensor(shape=[2], contiguity=[False], dtype=DataType.Half, is_cpu=False)",
        "T3 = fd.ops.add(T1, S0)",
        "S3 = fd.define_scalar(None, dtype=DataType.Half)",
        "fd.add_output(T3)",
    ]


def test_shared_scalars_are_printed_once_and_unused_ones_not() -> None:
    fd = FusionDefinition()
    s = fd.define_scalar()
    x = fd.define_tensor([4])
    t = fd.ops.exp(s)
    fd.ops.tan(s)
    fd.add_output(x * (t * t) + t)
    assert lines(fd)[2:] == [
        "E0 = fd.ops.exp(S0)",
        "E1 = fd.ops.mul(E0, E0)",
        "T1 = fd.ops.mul(T0, E1)",
        "T2 = fd.ops.add(T1, E0)",
        "fd.add_output(T2)",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "True"),
        (-3, "-3"),
        (0.1, "0.1"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e22, "1e+22"),
        (5e-324, "5e-324"),
        (math.inf, 'float("inf")'),
        (-math.inf, 'float("-inf")'),
        (math.nan, 'float("nan")'),
        (complex(1, -math.inf), 'complex(1.0, float("-inf"))'),
    ],
)
def test_constants(value: complex, text: str) -> None:
    fd = FusionDefinition()
    fd.ops.add(fd.define_tensor([], dtype=DataType.ComplexDouble), value)
    assert lines(fd)[-1] == f"T1 = fd.ops.add(T0, {text})"


def test_constants_of_other_types() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([])
    _ = x + fd.define_scalar(0.5, dtype=DataType.Float)
    assert lines(fd)[-1] == "T1 = fd.ops.add(T0, fd.define_scalar(0.5, dtype=DataType.Float))"


def test_sizes_name_the_tensor_not_the_input() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1])
    y = -x
    z = fd.define_tensor([-1])
    assert z.id == 2
    fd.ops.full([z.size(0)], y.size(0) + 1, DataType.Int)
    assert lines(fd)[-2:] == [
        "E0 = fd.ops.add(fd.ops.size(T0, 0), 1)",
        "T3 = fd.ops.full(shape=[fd.ops.size(T2, 0)], fill_value=E0, dtype=DataType.Int)",
    ]


def test_descriptions() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, 8], dtype=DataType.BFloat16)
    assert str(x) == "t0: bfloat16[size(t0, 0), 8]"
    assert str(fd.define_tensor([])) == "t1: float32[]"
    assert str(fd.define_scalar(DataType.Int)) == "int64 s0"
