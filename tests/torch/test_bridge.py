"""csrc/torch/bridge: torch tensors as arguments and results."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from fuser import (
    DTypeError,
    FusionDefinition,
    UserError,
    memory_efficient_fusion,
    torchscript_fuser,
)
from fuser.ops import as_dtype
from tests.support.definitions import scaled

DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16),
    *(torch.float32, torch.float64, torch.complex64, torch.complex128),
]


def copy_of(dtype: torch.dtype) -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.permute(fd.define_tensor([-1], dtype=as_dtype(dtype)), [0]))
    return fd


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
def test_every_dtype_goes_in_and_out(dtype: torch.dtype) -> None:
    """All bit patterns, including NaNs, pass unchanged."""
    count = 64 // dtype.itemsize
    generator = torch.Generator().manual_seed(3)
    data = torch.randint(0, 2 if dtype == torch.bool else 256, (64,), generator=generator)
    x = data.to(torch.uint8).view(dtype)
    assert x.shape == (count,)
    (result,) = copy_of(dtype).execute([x])
    assert result.dtype == dtype
    assert result.device.type == "cpu"
    assert result.view(torch.uint8).equal(x.view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.complex32, torch.bits16], ids=str)
def test_other_dtypes(dtype: torch.dtype) -> None:
    with pytest.raises(DTypeError, match="expected a dtype of DataType") as caught:
        scaled(2.0).execute([torch.empty(4, dtype=dtype)])
    assert caught.value.rule == "argument-dtype"


def test_lazy_conjugation_and_negation() -> None:
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert z.conj().is_conj()
    (result,) = scaled(2.0, dtype=torch.complex64).execute([z.conj()])
    assert result.tolist() == [2 - 4j, 6 + 8j]
    assert z.conj().imag.is_neg()
    (result,) = scaled(2.0).execute([z.conj().imag])
    assert result.tolist() == [-4.0, 8.0]


def test_zeros_without_memory() -> None:
    """Torch creates these tensors for gradients of forward-mode AD."""
    zero = torch._efficientzerotensor((2,))
    (result,) = scaled(2.0).execute([zero])
    assert result.tolist() == [0.0, 0.0]
    x = torch.ones(2, requires_grad=True)
    f = lambda x, y: x * 2 + y  # noqa: E731
    with torchscript_fuser(cpu=True):
        functions = [memory_efficient_fusion(f), torch.jit.trace(f, (x, x))]
        for function in functions:
            assert [function(x, zero).tolist() for _ in range(3)] == [[2.0, 2.0]] * 3


@pytest.mark.parametrize("kind", ["sparse", "meta", "nested", "fake"])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_argument_tensor(kind: str) -> None:
    if kind == "sparse":
        given = torch.ones(2, 2).to_sparse()
    elif kind == "meta":
        given = torch.ones(2, 2, device="meta")
    elif kind == "nested":
        given = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    else:
        from torch._subclasses import FakeTensorMode

        given = FakeTensorMode().from_tensor(torch.ones(2, 2))
    with pytest.raises(UserError) as caught:
        scaled(2.0, rank=2).execute([given])
    assert caught.value.rule == "argument-tensor"
    assert str(caught.value).startswith("execute(): argument 0 is ")


def test_parameters_and_tensors_that_require_grad() -> None:
    weight = torch.nn.Parameter(torch.arange(4.0))
    (result,) = scaled(2.0).execute([weight])
    assert result.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert not result.requires_grad
    assert type(result) is torch.Tensor


def test_results_are_new_and_owned_by_the_caller() -> None:
    fd, x = scaled(2.0), torch.arange(4.0)
    (first,), (second,) = fd.execute([x]), fd.execute([x])
    assert first.data_ptr() != second.data_ptr()
    assert first.untyped_storage().nbytes() == 16
    first.add_(1)
    assert second.tolist() == [0.0, 2.0, 4.0, 6.0]
    dead = weakref.ref(first)
    del first
    gc.collect()
    assert dead() is None


def test_inputs_are_not_kept() -> None:
    fd, x = scaled(2.0), torch.arange(4.0)
    fd.execute([x])
    dead = weakref.ref(x)
    del x
    gc.collect()
    assert dead() is None


def test_memory_that_is_not_torch_s() -> None:
    import numpy as np

    array = np.arange(8, dtype=np.float32)
    (result,) = scaled(2.0).execute([torch.from_numpy(array[1:])])
    assert result.tolist() == [2.0 * n for n in range(1, 8)]


def test_the_temporary_of_an_in_place_output_is_copied_without_autograd() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.permute(x, [1, 0]), x)
    leaf = torch.arange(9.0).view(3, 3).requires_grad_()
    fd.execute([leaf])
    assert leaf.detach().equal(torch.arange(9.0).view(3, 3).T)
    assert leaf.is_leaf
    assert leaf.grad_fn is None
