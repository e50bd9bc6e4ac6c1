"""fuser/pytorch_utils.py: types under the names of nvFuser."""

import pytest
import torch

from fuser import DataType, DTypeError
from fuser.pytorch_utils import python_scalar_to_nvfuser_dtype, torch_dtype_to_nvfuser_dtype


def test_types() -> None:
    for given, wanted in [
        (torch.bfloat16, DataType.BFloat16),
        (torch.int64, DataType.Int),
        (torch.complex64, DataType.ComplexFloat),
        (DataType.Half, DataType.Half),
        (bool, DataType.Bool),
        (int, DataType.Int),
        (float, DataType.Double),
        (complex, DataType.ComplexDouble),
    ]:
        assert torch_dtype_to_nvfuser_dtype(given) == wanted
    for number in (True, 2, 2.0, 2j):
        assert python_scalar_to_nvfuser_dtype(number) == torch_dtype_to_nvfuser_dtype(type(number))
    with pytest.raises(DTypeError):
        torch_dtype_to_nvfuser_dtype(torch.uint64)
    with pytest.raises(DTypeError) as caught:
        python_scalar_to_nvfuser_dtype("2")  # type: ignore[arg-type]
    assert caught.value.rule == "scalar-type-1"
