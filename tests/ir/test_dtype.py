"""csrc/ir/dtype: the table of element types agrees with torch, including promotion."""

import itertools

import pytest
import torch

from fuser import _core
from fuser.errors import DTypeError

DataType = _core.DataType
TYPES = list(DataType.__members__.values())
FLOAT8 = {DataType.Float8_e4m3fn, DataType.Float8_e5m2}
WIDE_UNSIGNED = {DataType.UInt16, DataType.UInt32, DataType.UInt64}


def torch_type(dtype: _core.DataType) -> torch.dtype:
    return getattr(torch, dtype.torch_name)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.name)
def test_row_agrees_with_torch(dtype: _core.DataType) -> None:
    counterpart = torch_type(dtype)
    assert dtype.bytes == counterpart.itemsize
    kind = (
        "Complex" if counterpart.is_complex else "Float" if counterpart.is_floating_point else "Int"
    )
    assert dtype.kind == ("Bool" if counterpart == torch.bool else kind)
    assert _core.dtype_from_torch(dtype.torch_name) == dtype


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.name)
def test_compute_type(dtype: _core.DataType) -> None:
    short = dtype.kind == "Float" and dtype.bytes < 4
    assert dtype.compute == (DataType.Float if short else dtype)


def test_names_are_unique() -> None:
    for attribute in ("name", "torch_name", "device_name"):
        assert len({getattr(dtype, attribute) for dtype in TYPES}) == len(TYPES)


def test_null_means_not_given() -> None:
    assert DataType.Null is None
    assert "Null" not in DataType.__members__


def promoted(a: _core.DataType, b: _core.DataType) -> torch.dtype:
    """torch's promotion. torch does not promote float8; fuser treats it as another float below
    float32, as torch treats bfloat16 next to float16."""
    if a == b or not {a, b} & FLOAT8:
        return torch.promote_types(torch_type(a), torch_type(b))
    small = {a, b} & {*FLOAT8, DataType.Half, DataType.BFloat16}
    if len(small) == 2:
        return torch.float32
    (float8,) = small
    other = torch_type(b if float8 == a else a)
    found = torch.promote_types(torch.bfloat16, other)
    return torch_type(float8) if found == torch.bfloat16 else found


@pytest.mark.parametrize(("a", "b"), [*itertools.product(TYPES, TYPES)], ids=lambda t: t.name)
def test_promotion_is_that_of_torch(a: _core.DataType, b: _core.DataType) -> None:
    if a.kind == b.kind == "Int" and a != b and {a, b} & WIDE_UNSIGNED:
        with pytest.raises(RuntimeError, match="is not supported"):
            promoted(a, b)
        with pytest.raises(DTypeError, match="have no common type") as caught:
            _core.promote_types(a, b)
        assert caught.value.rule == "promote-1"
        return
    if {a, b} & WIDE_UNSIGNED and {a.kind, b.kind} & {"Bool", "Complex"}:  # torch rejects these too
        wider = b if a.kind == "Bool" or b.kind == "Complex" else a
        assert _core.promote_types(a, b) == wider
        return
    assert torch_type(_core.promote_types(a, b)) == promoted(a, b)


@pytest.mark.parametrize(
    ("dtype", "real", "complex_"),
    [
        (DataType.Float, DataType.Float, DataType.ComplexFloat),
        (DataType.Double, DataType.Double, DataType.ComplexDouble),
        (DataType.Half, DataType.Half, DataType.ComplexFloat),
        (DataType.ComplexFloat, DataType.Float, DataType.ComplexFloat),
        (DataType.ComplexDouble, DataType.Double, DataType.ComplexDouble),
    ],
)
def test_real_and_complex_type(
    dtype: _core.DataType, real: _core.DataType, complex_: _core.DataType
) -> None:
    assert _core.real_type(dtype) == real
    assert _core.complex_type(dtype) == complex_


def test_dtype_torch() -> None:
    with pytest.raises(DTypeError, match="quint8 has no counterpart") as caught:
        _core.dtype_from_torch("quint8")
    assert caught.value.rule == "dtype-torch"
