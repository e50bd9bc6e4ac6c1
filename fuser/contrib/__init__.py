"""Modules implemented with definitions, under the names that programs for nvFuser import."""

from fuser.contrib import nn

__all__ = ["nn"]
