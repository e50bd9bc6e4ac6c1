"""csrc/base/sha256 compared with hashlib."""

import hashlib

import numpy as np
import pytest

from fuser import _core


# Sizes around the limit between one and two blocks of padding.
@pytest.mark.parametrize("size", [0, 1, 3, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 1000, 70001])
def test_digest(size: int, rng: np.random.Generator) -> None:
    message = rng.bytes(size)
    assert _core.sha256(message) == hashlib.sha256(message).digest()
    assert _core.sha256_hex(message) == hashlib.sha256(message).hexdigest()


def test_pieces_make_the_same_digest(rng: np.random.Generator) -> None:
    chunks = [rng.bytes(int(size)) for size in rng.integers(0, 200, 100)]
    assert _core.sha256_chunks(chunks) == hashlib.sha256(b"".join(chunks)).digest()


def test_parts_are_kept_apart() -> None:
    assert _core.sha256_of_parts(b"ab", b"c") != _core.sha256_of_parts(b"a", b"bc")
    framed = (2).to_bytes(8, "little") + b"ab" + (1).to_bytes(8, "little") + b"c"
    assert _core.sha256_of_parts(b"ab", b"c") == hashlib.sha256(framed).digest()
