"""Edge cases of reductions, scans, sorts and matrix products: no dims, no elements, one element,
NaN, every kind of type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.ops.corners import (
    COLUMNS,
    CUBE,
    INF,
    NAN,
    ONE,
    ROWS,
    SPECIAL,
    B,
    C,
    Case,
    Define,
    H,
    M,
    N,
    S,
    V,
    check_all,
)

TORCHS = {"sum": torch.sum, "prod": torch.prod, "max": torch.amax, "min": torch.amin}


def reduced(op: str, dims: Any, keepdim: bool = False) -> tuple[Define, Callable[..., Any]]:
    """The reduction in fd.ops and in torch, whose prod reduces one dim at a time."""

    def by_torch(x: torch.Tensor) -> torch.Tensor:
        listed = range(x.ndim) if dims is None else [dims] if isinstance(dims, int) else dims
        if op != "prod":
            return TORCHS[op](x, list(listed), keepdim)  # type: ignore[operator]
        gone = {d % max(x.ndim, 1) for d in listed}
        for d in gone:
            x = x.prod(d, True)
        return x if keepdim else x.reshape([n for d, n in enumerate(x.shape) if d not in gone])

    return lambda o, x: getattr(o, op)(x, dims, keepdim), by_torch


def scanned(op: str, dim: int) -> tuple[Define, Callable[..., Any]]:
    def by_torch(x: torch.Tensor) -> torch.Tensor:
        if op in ("cummax", "cummin"):
            return getattr(torch, op)(x, dim)[0]
        return getattr(torch, op)(x, dim, dtype=x.dtype)

    return lambda o, x: getattr(o, op)(x, dim), by_torch


REDUCTIONS: list[Case] = []
for _op in TORCHS:
    for _dims in (None, 0, -1, [0, -1], [1]):
        for _keep in (False, True):
            _of = CUBE if _dims == [0, -1] else M
            REDUCTIONS.append((f"{_op} over {_dims} {_keep}", *reduced(_op, _dims, _keep), [_of]))
    REDUCTIONS += [
        (f"{_op} of no dims", *reduced(_op, 0), [S]),
        (f"{_op} of no dims over the last", *reduced(_op, [-1], True), [S]),
        (f"{_op} of one", *reduced(_op, [0, 1]), [ONE]),
        (f"{_op} beside nothing", *reduced(_op, [1]), [ROWS]),
        (f"{_op} of NaN", *reduced(_op, [1]), [SPECIAL]),
        (f"{_op} of int32", *reduced(_op, [0]), [N.int()]),
        (f"{_op} of int8", *reduced(_op, [0]), [N.to(torch.int8)]),
        (f"{_op} of uint8", *reduced(_op, [0]), [N.to(torch.uint8)]),
        (f"{_op} of bool", *reduced(_op, [1]), [B]),
        (f"{_op} of double", *reduced(_op, [1]), [M.double()]),
    ]
REDUCTIONS += [
    ("sum over none", lambda o, x: o.sum(x, []), lambda x: x, [M]),
    ("max over none", lambda o, x: o.max(x, []), lambda x: x, [H]),
    ("sum of nothing", lambda o, x: o.sum(x, [0]), lambda x: x.sum(0), [ROWS]),
    ("sum of all of nothing", lambda o, x: o.sum(x), lambda x: x.sum(), [ROWS]),
    ("prod of nothing", lambda o, x: o.prod(x, [0], True), lambda x: x.prod(0, True), [ROWS]),
    (
        "max of nothing",
        lambda o, x: o.max(x, [0], identity=True),
        lambda x: torch.full((3,), -INF),
        [ROWS],
    ),
    (
        "min of nothing",
        lambda o, x: o.min(x, [0], identity=True),
        lambda x: torch.full((3,), INF),
        [ROWS],
    ),
    (
        "sum in a type",
        lambda o, x: o.sum(x, [0], dtype=torch.float64),
        lambda x: x.sum(0, dtype=torch.float64),
        [M],
    ),
    ("sum in int32", lambda o, x: o.sum(x, torch.int32), lambda x: x.sum(dtype=torch.int32), [N]),
    (
        "sum of bool in float",
        lambda o, x: o.sum(x, 1, dtype=torch.float32),
        lambda x: x.sum(1, dtype=torch.float32),
        [B],
    ),
    ("max of half", lambda o, x: o.max(x, [1]), lambda x: x.amax(1), [H]),
    (
        "min of bfloat16",
        lambda o, x: o.min(x, [0], True),
        lambda x: x.amin(0, True),
        [M.bfloat16()],
    ),
    (
        "max of half in float32",
        lambda o, x: o.max(x, [1], dtype=torch.float32),
        lambda x: x.amax(1).float(),
        [H],
    ),
    ("argmax of no dims", lambda o, x: o.argmax(x), lambda x: x.argmax(), [S]),
    ("argmax of NaN", lambda o, x: o.argmax(x, 1, True), lambda x: x.argmax(1, True), [SPECIAL]),
    ("argmin of all", lambda o, x: o.argmin(x), lambda x: x.argmin(), [M]),
    ("argmax of half", lambda o, x: o.argmax(x, 0), lambda x: x.argmax(0), [H]),
]
for _correction in (0, 1, 2, 4, 5, 0.5):
    for _keep in (False, True):
        REDUCTIONS.append(
            (
                f"var_mean {_correction} {_keep}",
                lambda o, x, c=_correction, k=_keep: o.var_mean(x, [1], c, k),
                lambda x, c=_correction, k=_keep: torch.var_mean(x, 1, correction=c, keepdim=k),
                [M],
            )
        )
REDUCTIONS += [
    ("var of no dims", lambda o, x: o.var(x, [0], 0), lambda x: x.var(0, correction=0), [S]),
    ("var of one", lambda o, x: o.var(x, [1]), lambda x: x.var(1), [ONE]),
    ("var of nothing", lambda o, x: o.var_mean(x, [0]), lambda x: torch.var_mean(x, 0), [ROWS]),
    ("var of double", lambda o, x: o.var(x, [0, 1]), lambda x: x.var(), [M.double()]),
    ("var of complex", lambda o, x: o.var(x, [1]), lambda x: x.var(1), [C]),
    (
        "welford",
        lambda o, x: o.welford(x, [1]),
        lambda x: (x.mean(1), x.var(1, correction=0) * 4, torch.full((3,), 4)),
        [M],
    ),
    (
        "welford of nothing",
        lambda o, x: o.welford(x, [1]),
        lambda x: (torch.full((3,), NAN), torch.zeros(3), torch.zeros(3).long()),
        [COLUMNS],
    ),
]

SCANS: list[Case] = []
for _op in ("cumsum", "cumprod", "cummax", "cummin"):
    for _dim, _of in (
        (0, M),
        (-1, CUBE),
        (0, S),
        (-1, S),
        (0, ROWS),
        (1, ROWS),
        (0, ONE),
        (1, N),
        (0, H),
        (1, SPECIAL),
    ):
        SCANS.append((f"{_op} {_dim} of {list(_of.shape)} {_of.dtype}", *scanned(_op, _dim), [_of]))
SCANS += [
    ("cumsum from a number", lambda o, x: o.cumsum(x, 1, 2.0), lambda x: x.cumsum(1) + 2, [M]),
    (
        "cumprod of integers from 2",
        lambda o, x: o.cumprod(x, 0, 2),
        lambda x: x.cumprod(0) * 2,
        [N],
    ),
    ("cummax from 0", lambda o, x: o.cummax(x, 1, 0.0), lambda x: x.cummax(1)[0].clamp(min=0), [M]),
    ("topk of none", lambda o, x: o.topk(x, 0), lambda x: tuple(x.topk(0)), [M]),
    ("topk of all", lambda o, x: o.topk(x, 4, -1, True, True), lambda x: tuple(x.topk(4)), [M]),
    (
        "topk of the least",
        lambda o, x: o.topk(x, 2, 0, False, True),
        lambda x: tuple(x.topk(2, 0, False)),
        [N.float()],
    ),
    ("topk of no dims", lambda o, x: o.topk(x, 1), lambda x: tuple(x.topk(1)), [S]),
    ("topk of half", lambda o, x: o.topk(x, 2, sorted=True), lambda x: tuple(x.topk(2)), [H]),
    ("topk of nothing", lambda o, x: o.topk(x, 1, 1), lambda x: tuple(x.topk(1, 1)), [ROWS]),
    ("argsort of no dims", lambda o, x: o.argsort(x, 0), lambda x: x.argsort(0), [S]),
    ("argsort of nothing", lambda o, x: o.argsort(x, 0), lambda x: x.argsort(0), [ROWS]),
    ("argsort down", lambda o, x: o.argsort(x, -1, True), lambda x: x.argsort(-1, True), [M]),
    (
        "argsort of equals",
        lambda o, x: o.argsort(x, 1, stable=True),
        lambda x: x.argsort(dim=1, stable=True),
        [B],
    ),
    ("argsort of NaN", lambda o, x: o.argsort(x, 1), lambda x: x.argsort(1), [SPECIAL]),
]

PRODUCTS: list[Case] = [
    ("matmul of vectors", lambda o, x: o.matmul(x, x), lambda x: x @ x, [V]),
    ("matmul by a vector", lambda o, x, y: o.matmul(x, y), lambda x, y: x @ y, [M, V[:4]]),
    ("matmul of a vector", lambda o, x, y: o.matmul(x, y), lambda x, y: x @ y, [V[:3], M]),
    ("matmul of batches", lambda o, x, y: o.matmul(x, y), lambda x, y: x @ y, [CUBE[:, None], M.T]),
    ("matmul of no terms", lambda o, x, y: o.matmul(x, y), lambda x, y: x @ y, [COLUMNS, ROWS]),
    ("matmul of no rows", lambda o, x, y: o.matmul(x, y), lambda x, y: x @ y, [ROWS, M]),
    ("matmul of half", lambda o, x: o.matmul(x, o.permute(x, [1, 0])), lambda x: x @ x.T, [H]),
    ("linear", lambda o, x, w, b: o.linear(x, w, b), F.linear, [CUBE, M, V[:3]]),
    ("linear of a vector", lambda o, x, w: o.linear(x, w), F.linear, [V[:4], M]),
    ("linear to no dims", lambda o, x, w: o.linear(x, w), F.linear, [M, V[:4]]),
    (
        "linear of no terms",
        lambda o, x, w, b: o.linear(x, w, b),
        F.linear,
        [COLUMNS, torch.zeros(5, 0), V],
    ),
]

CASES = REDUCTIONS + SCANS + PRODUCTS


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
def test_corners(static: bool, set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    check_all(CASES, static)
