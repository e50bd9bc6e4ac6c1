"""fuser/arguments.py: what methods of fd.ops take, in one form."""

from typing import Any

import pytest
import torch

from fuser import DataType, DTypeError, FusionDefinition, UserError
from fuser.arguments import as_dtype, count_over, reduced_dims


def test_as_dtype() -> None:
    assert as_dtype(DataType.Half) is DataType.Half
    assert as_dtype(torch.bfloat16) == DataType.BFloat16
    with pytest.raises(DTypeError) as caught:
        as_dtype(torch.complex32)
    assert caught.value.rule == "dtype-torch"


@pytest.mark.parametrize(
    ("rank", "given", "dims", "dtype"),
    [
        (3, (None,), [0, 1, 2], None),
        (3, (DataType.Half,), [0, 1, 2], DataType.Half),
        (3, (torch.float64,), [0, 1, 2], DataType.Double),
        (3, (1, DataType.Half), [1], DataType.Half),
        (3, ((0, -1),), [0, -1], None),
        (3, ([],), [], None),
        (3, (None, None, 2), [2], None),
        (3, (7,), [7], None),  # the shape rule refuses it, with a better text
        (0, (None,), [], None),
        (0, (0,), [], None),
        (0, (-1,), [], None),
        (0, (1,), [1], None),
    ],
)
def test_reduced_dims(
    rank: int, given: tuple[Any, ...], dims: list[int], dtype: DataType | None
) -> None:
    x = FusionDefinition().define_tensor([2] * rank)
    assert reduced_dims("sum", x, *given) == (dims, dtype)


def test_reduce_dim_4() -> None:
    x = FusionDefinition().define_tensor([2])
    with pytest.raises(UserError) as caught:
        reduced_dims("sum", x, [0], None, 0)
    assert caught.value.rule == "reduce-dim-4"
    assert str(caught.value) == "sum(): got both dims=[0] and dim=0"


def test_count_over() -> None:
    x = FusionDefinition().define_tensor([-1, 3, 4])
    assert count_over(x, []) == 1
    assert count_over(x, [1, 2]).value == 12
    assert str(count_over(x, [0, -1])) == str(x.size(0) * 4)
