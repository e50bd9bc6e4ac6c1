"""Fixtures and options for the tests in this folder."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture(autouse=True)
def own_options(set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_CACHE", 0)
    set_option("FUSER_HOST_ARCH", 80)
    set_option("FUSER_HOST_DEBUG", 0)
