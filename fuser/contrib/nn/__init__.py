"""Modules of torch.nn whose kernels are definitions."""

from fuser.contrib.nn.normalization import (
    InstanceNorm1dNVFuser,
    InstanceNorm2dNVFuser,
    InstanceNorm3dNVFuser,
)

__all__ = ["InstanceNorm1dNVFuser", "InstanceNorm2dNVFuser", "InstanceNorm3dNVFuser"]
