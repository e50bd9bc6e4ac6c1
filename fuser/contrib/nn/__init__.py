"""Modules of torch.nn that run definitions."""

from fuser.contrib.nn.normalization import (
    InstanceNorm1dNVFuser,
    InstanceNorm2dNVFuser,
    InstanceNorm3dNVFuser,
)

__all__ = ["InstanceNorm1dNVFuser", "InstanceNorm2dNVFuser", "InstanceNorm3dNVFuser"]
