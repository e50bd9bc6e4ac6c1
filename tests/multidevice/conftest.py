"""One group of four processes for all tests of the folder."""

from collections.abc import Iterator

import pytest

from tests.multidevice.ranks import Ranks, ranks


@pytest.fixture(scope="session")
def four() -> Iterator[Ranks]:
    """Four ranks; meshes of two are parts of them."""
    with ranks(4) as found:
        yield found
