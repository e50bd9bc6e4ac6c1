"""fuser/testing/utils.py: properties of GPUs and layouts."""

from __future__ import annotations

import types

import pytest
import torch

from fuser.testing import utils


def test_generations_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [utils.is_pre_volta, utils.is_pre_ampere, utils.is_pre_hopper, utils.is_pre_blackwell]
    for major, expected in [(None, 4), (6, 4), (7, 3), (8, 2), (9, 1), (10, 0)]:
        device = types.SimpleNamespace(major=major, total_memory=major and major * 2**30)
        monkeypatch.setattr(torch.cuda, "is_available", lambda d=device: d.major is not None)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _=0, d=device: d)
        assert sum(f() for f in asked) == expected
        skips = utils.skip_if_global_memory_below_gb(8).args[0]
        assert skips == (major is None or major < 8)


def test_stride_orders() -> None:
    x = torch.empty(2, 3, 4, 5)
    utils.verify_stride_order(x.stride(), [3, 2, 1, 0])
    utils.verify_stride_order(x.to(memory_format=torch.channels_last).stride(), [3, 0, 2, 1])
    with pytest.raises(AssertionError, match="are in the order"):
        utils.verify_stride_order(x.stride(), [3, 0, 2, 1])
    assert torch.float8_e5m2 in utils.FLOAT8_DTYPES
