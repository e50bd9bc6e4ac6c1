"""Tables of what a definition refuses: the error, its rule and how its message starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from fuser import FusionDefinition, Tensor, UserError


class Refusal(NamedTuple):
    """What `provoke` raises when it is given a definition and tensors of it."""

    kind: type[UserError]
    rule: str
    text: str  # a part of the message
    provoke: Callable[..., Any]

    @property
    def id(self) -> str:
        """For pytest."""
        return f"{self.rule}-{self.text[:40]}"


def check_refused(refusal: Refusal, fd: FusionDefinition, *tensors: Tensor) -> None:
    with pytest.raises(UserError) as caught:
        refusal.provoke(fd, *tensors)
    assert type(caught.value) is refusal.kind
    assert caught.value.rule == refusal.rule
    assert refusal.text in str(caught.value)
