"""The setuptools backend; requires torch only if the target environment has no torch.

The torch-facing module is compiled against torch's headers. setup.py finds an installed torch even
under pip's build isolation; a fixed build requirement would download a second one of gigabytes,
perhaps another version. Without an installed torch, the build takes the newest version that the
project allows, which pip then also installs for it.
"""

import subprocess
import sys
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

_HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"


def _torch_if_missing() -> list[str]:
    # -I ignores the isolation's PYTHONPATH, so this sees the target environment.
    found = subprocess.run([sys.executable, "-I", "-c", _HAS_TORCH], check=False).returncode == 0
    return [] if found else ["torch>=2.11"]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_torch_if_missing()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return [*build_meta.get_requires_for_build_editable(config_settings), *_torch_if_missing()]
