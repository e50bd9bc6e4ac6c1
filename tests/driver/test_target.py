"""csrc/driver/target: the options that choose between CPU kernels and emulated kernels of a GPU."""

from collections.abc import Callable

import pytest
import torch

import fuser
from fuser import _core
from fuser.errors import Unsupported
from tests.support.definitions import bias_gelu, counted


def inputs() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(8, 64, generator=generator)
    return [x.bfloat16(), torch.randn(64, generator=generator).bfloat16()]


def test_kernels_follow_the_options_of_each_call(set_option: Callable[..., None]) -> None:
    """One definition, called with other options, makes another record for each."""
    fd = bias_gelu()
    results = []
    for arch in (80, 90, 0, 70):
        set_option("FUSER_HOST_ARCH", arch)
        before = fuser.cache_info()
        results.append(fd.execute(inputs())[0])
        fd.execute(inputs())
        assert counted(before) == (1, 1)
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], rtol=2**-7, atol=0)


def test_instruction_set_of_another_cpu(set_option: Callable[..., None]) -> None:
    """It matters to CPU kernels alone."""
    foreign = next(isa for isa in ("neon", "avx512") if not _core.can_run_isa(isa))
    set_option("FUSER_CPU_ISA", foreign)
    set_option("FUSER_HOST_ARCH", 80)
    bias_gelu().execute(inputs())
    set_option("FUSER_HOST_ARCH", 0)
    with pytest.raises(Unsupported, match=f"FUSER_CPU_ISA={foreign}.* expected generic") as caught:
        bias_gelu().execute(inputs())
    assert caught.value.rule == "cpu-isa-2"
