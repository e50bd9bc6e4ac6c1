"""Decomposes ops on lists of tensors, e.g. `_foreach_add`, into ops on their members. Regions take
these, and identical kernels become one horizontal launch.

Reductions stay whole, because torch processes all tensors of a list at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from fuser.adapters.aten.table import reduces, row
from fuser.adapters.torch_compat import all_op_names

_PREFIX = "_foreach_"

# Members with another name in torch.
_MEMBERS = {"maximum": "clamp_min", "minimum": "clamp_max", "zero": "zeros_like"}
# Keyword in the member op for the last positional argument.
_KEYWORDS = {"addcmul": "value", "addcdiv": "value"}


def decompositions() -> dict[Any, Callable[..., Any]]:
    """For each list op with rows for its member op, a function of equal arguments."""
    found: dict[Any, Callable[..., Any]] = {}
    for op in _ops():
        name = op._opname.removeprefix(_PREFIX)
        member = getattr(torch.ops.aten, _MEMBERS.get(name, name), None)
        # A tensor of numbers, one per member, is not supported.
        scalars = any(a.name == "scalars" and str(a.type) == "Tensor" for a in op._schema.arguments)
        if member is not None and not scalars and _is_elementwise(member):
            found[op] = partial(_by_members, op, member, _KEYWORDS.get(name))
    return found


def _ops() -> list[Any]:
    names = {
        name.removeprefix("aten::").partition(".")[0]
        for name in all_op_names()
        if name.startswith("aten::" + _PREFIX)
    }
    packets = [getattr(torch.ops.aten, n) for n in sorted(names)]
    ops = [getattr(packet, overload) for packet in packets for overload in packet.overloads()]
    return [op for op in ops if not op._schema.is_mutable]


def _is_elementwise(member: Any) -> bool:
    names = [str(getattr(member, overload)) for overload in member.overloads()]
    kinds = {found.kind for n in names if (found := row(n)) is not None}
    return bool(kinds & {"compute", "create"}) and not any(reduces(n) for n in names)


def _by_members(
    op: Any, member: Callable[..., Any], keyword: str | None, *args: Any, **kwargs: Any
) -> list[Any]:
    """Calls `member` on the first element of each list, on the second, ...; other arguments are
    shared.
    """
    given = dict(zip((a.name for a in op._schema.arguments), args, strict=False)) | kwargs
    lists = {a.name for a in op._schema.arguments if str(a.type).startswith("List")}
    named = {a.name for a in op._schema.arguments if a.kwarg_only}
    plain = [name for name in given if name not in named]
    behind = {plain.pop(): keyword} if keyword and len(plain) > 3 else {}

    def call(i: int) -> Any:
        one = {name: value[i] if name in lists else value for name, value in given.items()}
        keywords = {behind.get(n, n): v for n, v in one.items() if n in named or n in behind}
        return member(*(one[n] for n in plain), **keywords)

    return [call(i) for i in range(len(next(given[name] for name in given if name in lists)))]
