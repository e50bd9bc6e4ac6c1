"""Tables of rejected definitions: the error type, its rule and its message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from fuser import FusionDefinition, Tensor, UserError


class Refusal(NamedTuple):
    """The error that `provoke` raises on a definition and its tensors."""

    kind: type[UserError]
    rule: str
    text: str  # a substring of the message
    provoke: Callable[..., Any]

    @property
    def id(self) -> str:
        """Test id for pytest."""
        return f"{self.rule}-{self.text[:40]}"


def check_refused(refusal: Refusal, fd: FusionDefinition, *tensors: Tensor) -> None:
    with pytest.raises(UserError) as caught:
        refusal.provoke(fd, *tensors)
    assert type(caught.value) is refusal.kind
    assert caught.value.rule == refusal.rule
    assert refusal.text in str(caught.value)


def check_whole_message(refusal: Refusal, fd: FusionDefinition, *tensors: Tensor) -> None:
    """`text` is the complete message. In it {0}, {1}, ... are the lines that defined the tensors;
    the number after them is the line of `provoke`."""
    with pytest.raises(UserError) as caught:
        refusal.provoke(fd, *tensors)
    assert type(caught.value) is refusal.kind
    assert caught.value.rule == refusal.rule
    code = refusal.provoke.__code__
    lines = [*(t.location for t in tensors), f"{code.co_filename}:{code.co_firstlineno}"]
    expected = refusal.text
    for place, line in enumerate(lines):
        expected = expected.replace(f"{{{place}}}", line)
    assert str(caught.value) == expected
