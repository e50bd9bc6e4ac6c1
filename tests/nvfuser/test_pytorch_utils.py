"""fuser/nvfuser/pytorch_utils.py: types and GPU properties under nvFuser's names."""

import pytest
import torch

from fuser import DataType, DTypeError, pytorch_utils
from fuser.pytorch_utils import (
    clear_cuda_cache,
    get_device_properties,
    python_scalar_to_nvfuser_dtype,
    retry_on_oom_or_skip_test,
    torch_dtype_to_nvfuser_dtype,
)


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
        torch_dtype_to_nvfuser_dtype(torch.qint8)
    with pytest.raises(DTypeError) as caught:
        python_scalar_to_nvfuser_dtype("2")  # type: ignore[arg-type]
    assert caught.value.rule == "scalar-type-1"


def test_a_test_runs_again_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: cleared.append(True))
    cleared: list[bool] = []
    tries = [torch.OutOfMemoryError("first"), None]

    @retry_on_oom_or_skip_test
    def once_too_large(x: int) -> int:
        if error := tries.pop(0):
            raise error
        return x

    assert once_too_large(3) == 3
    assert cleared == [True]
    tries += [torch.OutOfMemoryError("first"), torch.OutOfMemoryError("second")]
    with pytest.raises(pytest.skip.Exception, match="too little memory: second"):
        once_too_large(3)
    clear_cuda_cache()
    assert len(cleared) == 3


def test_properties_of_the_gpu() -> None:
    if not torch.cuda.is_available():
        assert pytorch_utils.DEVICE_PROPERTIES is None
    with pytest.raises(AttributeError, match="has no attribute 'DEVICES'"):
        pytorch_utils.DEVICES  # noqa: B018


@pytest.mark.gpu
def test_properties_of_this_gpu() -> None:
    found = get_device_properties()
    assert found == pytorch_utils.DEVICE_PROPERTIES
    assert found["gpu_name"] == torch.cuda.get_device_name()
    assert found["gpu_peak_bandwidth_gbps"] > 100
    assert found["gpu_sm_count"] > 1
    minor = found.pop("gpu_compute_capability_minor")  # 0 for many GPUs
    assert minor == torch.cuda.get_device_capability()[1]
    assert all(value for value in found.values())
