"""Types of torch and of Python as a DataType, under the names that programs for nvFuser import."""

from __future__ import annotations

from typing import Any

from fuser._core import DataType
from fuser.arguments import as_dtype
from fuser.errors import DTypeError

__all__ = ["python_scalar_to_nvfuser_dtype", "torch_dtype_to_nvfuser_dtype"]

_OF_PYTHON = {
    bool: DataType.Bool,
    int: DataType.Int,
    float: DataType.Double,
    complex: DataType.ComplexDouble,
}


def torch_dtype_to_nvfuser_dtype(dtype: Any) -> DataType:
    """The DataType of a torch.dtype, or of bool, int, float and complex as Python has them. Raises
    DTypeError `dtype-torch` for a type that fuser lacks.
    """
    return _OF_PYTHON.get(dtype) or as_dtype(dtype)


def python_scalar_to_nvfuser_dtype(number: bool | int | float | complex) -> DataType:
    """The DataType in which define_scalar(number) holds it. Raises DTypeError `scalar-type-1` for
    what is no number.
    """
    found = _OF_PYTHON.get(type(number))
    if found is None:
        raise DTypeError(
            f"expected a bool, int, float or complex, got {type(number).__name__}",
            rule="scalar-type-1",
        )
    return found
