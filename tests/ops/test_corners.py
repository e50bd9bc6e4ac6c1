"""Edge cases of factories, movement ops and gathers: no dims, sizes of 0 and 1, empty lists, bounds
beyond the ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from tests.ops.corners import (
    COLUMNS,
    CUBE,
    I0,
    I1,
    INF,
    NAN,
    NO_INDEX,
    ONE,
    ROWS,
    SPECIAL,
    WIDE,
    B,
    C,
    Case,
    H,
    M,
    N,
    S,
    V,
    check_all,
)

FACTORIES: list[Case] = [
    ("full of no dims", lambda o: o.full([], 2.5, torch.float32), lambda: torch.tensor(2.5), []),
    (
        "full of nothing",
        lambda o: o.full([0, 3], 1, torch.int64),
        lambda: torch.ones(0, 3).long(),
        [],
    ),
    ("full of bool", lambda o: o.full([2, 1], 3, torch.bool), lambda: torch.full((2, 1), True), []),
    (
        "full drops a fraction",
        lambda o: o.full([2], -2.7, torch.int32),
        lambda: torch.tensor([-2, -2]).int(),
        [],
    ),
    ("full wraps", lambda o: o.full([1], -1, torch.uint8), lambda: torch.tensor([255]).byte(), []),
    (
        "full of complex",
        lambda o: o.full([1], 1 + 2j, torch.complex64),
        lambda: torch.tensor([1 + 2j]),
        [],
    ),
    (
        "full of NaN",
        lambda o: o.full([2], NAN, torch.float16),
        lambda: torch.full((2,), NAN).half(),
        [],
    ),
    (
        "full of inf in half",
        lambda o: o.full([2], 1e9, torch.float16),
        lambda: torch.tensor([INF, INF]).half(),
        [],
    ),
    ("iota of nothing", lambda o: o.iota(0), lambda: torch.arange(0), []),
    ("iota of one", lambda o: o.iota(1, 7, -3), lambda: torch.tensor([7]), []),
    ("iota backwards", lambda o: o.iota(4, 2, -3), lambda: torch.arange(2, -10, -3), []),
    ("iota that stands", lambda o: o.iota(3, 5, 0), lambda: torch.tensor([5, 5, 5]), []),
    (
        "iota of floats",
        lambda o: o.iota(4, 0.5, 0.25, torch.float32),
        lambda: torch.arange(0.5, 1.5, 0.25),
        [],
    ),
    (
        "iota of doubles",
        lambda o: o.iota(3, dtype=torch.float64),
        lambda: torch.arange(3.0).double(),
        [],
    ),
    (
        "iota of half",
        lambda o: o.iota(3, 1, 2, torch.float16),
        lambda: torch.tensor([1, 3, 5]).half(),
        [],
    ),
    (
        "iota of int32",
        lambda o: o.iota(3, 1, 2, torch.int32),
        lambda: torch.tensor([1, 3, 5]).int(),
        [],
    ),
    ("triu of a cube", lambda o, x: o.triu(x, 1), lambda x: x.triu(1), [CUBE]),
    ("triu of all", lambda o, x: o.triu(x, -9), lambda x: x.triu(-9), [M]),
    ("triu of none", lambda o, x: o.triu(x, 9), lambda x: x.triu(9), [M]),
    ("triu of nothing", lambda o, x: o.triu(x), lambda x: x.triu(), [ROWS]),
    ("triu of half", lambda o, x: o.triu(x), lambda x: x.triu(), [H]),
    ("triu of bool", lambda o, x: o.triu(x), lambda x: x.triu(), [B]),
    ("triu of NaN", lambda o, x: o.triu(x), lambda x: x.triu(), [SPECIAL]),
]

SHAPES: list[Case] = [
    (
        "broadcast of no dims",
        lambda o, x: o.broadcast(x, [True, True]),
        lambda x: x.view(1, 1),
        [S],
    ),
    ("broadcast of none", lambda o, x: o.broadcast(x, [False, False]), lambda x: x, [M]),
    (
        "broadcast between",
        lambda o, x: o.broadcast(x, [False, True, False]),
        lambda x: x[:, None],
        [M],
    ),
    (
        "broadcast of nothing",
        lambda o, x: o.broadcast(x, [True, False, False]),
        lambda x: x[None],
        [ROWS],
    ),
    (
        "broadcast_in_dim of no dims",
        lambda o, x: o.broadcast_in_dim(x, [2, 3], []),
        lambda x: x.expand(2, 3),
        [S],
    ),
    (
        "broadcast_in_dim",
        lambda o, x: o.broadcast_in_dim(x, [2, 5, 3], [1]),
        lambda x: x[:, None].expand(2, 5, 3),
        [V],
    ),
    (
        "broadcast_in_dim from the end",
        lambda o, x: o.broadcast_in_dim(x, [2, 3, 4], [-2, -1]),
        lambda x: x.expand(2, 3, 4),
        [M],
    ),
    (
        "broadcast_in_dim keeps",
        lambda o, x: o.broadcast_in_dim(x, [2, -1, -1], [1, 2]),
        lambda x: x.expand(2, 3, 4),
        [M],
    ),
    (
        "broadcast_in_dim of a 1",
        lambda o, x: o.broadcast_in_dim(x, [2, 3], [0, 1]),
        lambda x: x.expand(2, 3),
        [ONE],
    ),
    (
        "broadcast_in_dim to nothing",
        lambda o, x: o.broadcast_in_dim(x, [0, 3], [0, 1]),
        lambda x: x.expand(0, 3),
        [ONE],
    ),
    ("expand", lambda o, x: o.expand(x, [3, 2]), lambda x: x.expand(3, 2), [ONE]),
    ("expand keeps", lambda o, x: o.expand(x, [-1, 4]), lambda x: x.expand(3, 4), [M]),
    ("expand to nothing", lambda o, x: o.expand(x, [0, 1]), lambda x: x.expand(0, 1), [ONE]),
    (
        "expand to more dims",
        lambda o, x: o.expand(x, [2, 1, 3, 4]),
        lambda x: x.expand(2, 1, 3, 4),
        [M],
    ),
    ("expand of no dims", lambda o, x: o.expand(x, [2, 3]), lambda x: x.expand(2, 3), [S]),
    ("expand of no dims to none", lambda o, x: o.expand(x, []), lambda x: x, [S]),
    ("squeeze of none", lambda o, x: o.squeeze(x, []), lambda x: x, [M]),
    ("squeeze of all", lambda o, x: o.squeeze(x, [0, 1]), lambda x: x.view([]), [ONE]),
    ("squeeze from the end", lambda o, x: o.squeeze(x, [-2]), lambda x: x[0], [ONE]),
    ("squeeze twice named", lambda o, x: o.squeeze(x, [0, -2, 0]), lambda x: x[0], [ONE]),
    (
        "squeeze of an expanded dim",
        lambda o, x: o.squeeze(o.expand(x, [3, 2]), [1], True),
        lambda x: x.expand(3, 2)[:, 0],
        [ONE],
    ),
    (
        "squeeze of a moved one",
        lambda o, x: o.squeeze(
            o.permute(o.exp(o.broadcast_in_dim(x, [2, 5, 3], [1])), [2, 0, 1]),
            [1, 0],
            squeeze_expanded=True,
        ),
        lambda x: x.exp(),
        [V],
    ),
    ("permute of no dims", lambda o, x: o.permute(x, []), lambda x: x, [S]),
    (
        "permute from the end",
        lambda o, x: o.permute(x, [-1, 0, -2]),
        lambda x: x.permute(2, 0, 1),
        [CUBE],
    ),
    ("permute as it is", lambda o, x: o.permute(x, [0, 1]), lambda x: x, [M]),
    ("permute of nothing", lambda o, x: o.permute(x, [1, 0]), lambda x: x.T, [ROWS]),
    ("reshape of no dims", lambda o, x: o.reshape(x, [1, 1]), lambda x: x.reshape(1, 1), [S]),
    ("reshape to no dims", lambda o, x: o.reshape(x, []), lambda x: x.reshape([]), [ONE]),
    ("reshape of no dims to -1", lambda o, x: o.reshape(x, [-1]), lambda x: x.reshape(-1), [S]),
    ("reshape with -1", lambda o, x: o.reshape(x, [2, -1, 3]), lambda x: x.reshape(2, -1, 3), [M]),
    (
        "reshape with ones",
        lambda o, x: o.reshape(x, [1, 4, 1, 3, 1]),
        lambda x: x.reshape(1, 4, 1, 3, 1),
        [M],
    ),
    (
        "reshape of nothing",
        lambda o, x: o.reshape(x, [3, 0, 2]),
        lambda x: x.reshape(3, 0, 2),
        [ROWS],
    ),
    (
        "reshape of nothing with -1",
        lambda o, x: o.reshape(x, [-1, 2]),
        lambda x: x.reshape(-1, 2),
        [ROWS],
    ),
    (
        "reshape of a permuted",
        lambda o, x: o.reshape(o.permute(x, [1, 0]), [2, 6]),
        lambda x: x.T.reshape(2, 6),
        [M],
    ),
    ("reshape of an expanded", lambda o, x: o.reshape(x, [12]), lambda x: x.reshape(12), [WIDE]),
    ("slice of no dims", lambda o, x: o.slice(x, [], []), lambda x: x, [S]),
    (
        "slice from the end",
        lambda o, x: o.slice(x, [-2, -3], [None, -1]),
        lambda x: x[-2:, -3:-1],
        [M],
    ),
    ("slice beyond", lambda o, x: o.slice(x, [-9, 2], [9, 99]), lambda x: x[-9:9, 2:99], [M]),
    ("slice of nothing", lambda o, x: o.slice(x, [2, 0], [1, 4]), lambda x: x[2:1], [M]),
    ("slice of no rows", lambda o, x: o.slice(x, [0, 1], [5, 3]), lambda x: x[:5, 1:3], [ROWS]),
    (
        "slice with steps",
        lambda o, x: o.slice(x, [1, 0], [3, 4], [2, 3]),
        lambda x: x[1:3:2, ::3],
        [M],
    ),
    (
        "slice in long steps",
        lambda o, x: o.slice(x, [0, 3], [3, 4], [99, 1]),
        lambda x: x[::99, 3:],
        [M],
    ),
    (
        "slice in range",
        lambda o, x: o.slice(x, [1, 1], [2, 4], manual_normalization=True),
        lambda x: x[1:2, 1:],
        [M],
    ),
    ("pad of none", lambda o, x: o.pad(x, []), lambda x: x, [S]),
    ("pad by nothing", lambda o, x: o.pad(x, [0, 0, 0, 0]), lambda x: x, [M]),
    (
        "pad removes",
        lambda o, x: o.pad(x, [-1, 2, 1, -2], 9.0),
        lambda x: F.pad(x, (-1, 2, 1, -2), value=9.0),
        [M],
    ),
    ("pad to nothing", lambda o, x: o.pad(x, [-2, -2]), lambda x: F.pad(x, (-2, -2)), [M]),
    (
        "pad of nothing",
        lambda o, x: o.pad(x, [0, 0, 1, 1], 2.0),
        lambda x: F.pad(x, (0, 0, 1, 1), value=2.0),
        [ROWS],
    ),
    (
        "pad of bool",
        lambda o, x: o.pad(x, [1, 1], True),
        lambda x: F.pad(x, (1, 1), value=True),
        [B],
    ),
    (
        "pad of integers",
        lambda o, x: o.pad(x, [1, 0], -7),
        lambda x: F.pad(x, (1, 0), value=-7),
        [N],
    ),
    (
        "pad of half with NaN",
        lambda o, x: o.pad(x, [1, 0], NAN),
        lambda x: F.pad(x, (1, 0), value=NAN),
        [H],
    ),
    (
        "pad of complex",
        lambda o, x: o.pad(x, [0, 1], 1j),
        lambda x: torch.cat([x, torch.full((3, 1), 1j)], 1),
        [C],
    ),
    ("cat of one", lambda o, x: o.cat([x], 1), lambda x: x, [M]),
    ("cat from the end", lambda o, x: o.cat([x, x], -1), lambda x: torch.cat([x, x], -1), [M]),
    (
        "cat with nothing",
        lambda o, x, y: o.cat([x, y, x], 1),
        lambda x, y: torch.cat([x, y, x], 1),
        [M, COLUMNS],
    ),
    ("cat of nothing", lambda o, x: o.cat([x, x], 0), lambda x: torch.cat([x, x]), [ROWS]),
    ("cat of types", lambda o, x, y: o.cat([x, y], 0), lambda x, y: torch.cat([x, y]), [N, B]),
    ("cat of half", lambda o, x: o.cat([x, x], 0), lambda x: torch.cat([x, x]), [H]),
    ("stride_order of no dims", lambda o, x: o.stride_order(x, []), lambda x: x, [S]),
    (
        "stride_order",
        lambda o, x: o.stride_order(x, [0, 2, 1]),
        lambda x: x.permute(1, 2, 0).contiguous().permute(2, 0, 1),
        [CUBE],
    ),
    ("stride_order of a 1", lambda o, x: o.stride_order(o.neg(x), [0, 1]), lambda x: -x, [ONE]),
]

INDICES: list[Case] = [
    ("select of the first", lambda o, x: o.select(x, -3, 0), lambda x: x[0], [M]),
    ("select of a vector", lambda o, x: o.select(x, 4, 0), lambda x: x[4], [V]),
    ("select of a 1", lambda o, x: o.select(x, 0, -1), lambda x: x[:, 0], [ONE]),
    ("select of no columns", lambda o, x: o.select(x, 1, 0), lambda x: x[1], [COLUMNS]),
    ("select of half", lambda o, x: o.select(x, 1, 1), lambda x: x[:, 1], [H]),
    (
        "index_select by no dims",
        lambda o, x, i: o.index_select(x, i, 1),
        lambda x, i: x.index_select(1, i),
        [M, I0],
    ),
    (
        "index_select by one",
        lambda o, x, i: o.index_select(x, i, -2),
        lambda x, i: x.index_select(0, i),
        [M, I1],
    ),
    (
        "index_select by nothing",
        lambda o, x, i: o.index_select(x, i, 0),
        lambda x, i: x.index_select(0, i),
        [M, NO_INDEX],
    ),
    (
        "index_select by int32",
        lambda o, x, i: o.index_select(x, i, 0),
        lambda x, i: x.index_select(0, i),
        [H, I1.int()],
    ),
    (
        "index_select of no dims",
        lambda o, x, i: o.index_select(x, i, 0),
        lambda x, i: x.index_select(0, i),
        [S, torch.tensor([0])],
    ),
    (
        "index_select of no columns",
        lambda o, x, i: o.index_select(x, i, 0),
        lambda x, i: x.index_select(0, i),
        [COLUMNS, I1],
    ),
    (
        "gather of no dims",
        lambda o, x, i: o.gather(x, i, 0),
        lambda x, i: x.gather(0, i),
        [S, torch.tensor(0)],
    ),
    (
        "gather by nothing",
        lambda o, x, i: o.gather(x, i, 1),
        lambda x, i: x.gather(1, i),
        [M, torch.zeros(3, 0).long()],
    ),
    (
        "gather of fewer",
        lambda o, x, i: o.gather(x, i, 1),
        lambda x, i: x.gather(1, i),
        [M, torch.tensor([[3, 3], [0, 1]])],
    ),
    (
        "gather from the end",
        lambda o, x, i: o.gather(x, i, -2),
        lambda x, i: x.gather(0, i),
        [M, torch.tensor([[2, 0, 1]])],
    ),
    (
        "take_along_axis of no dims",
        lambda o, x, i: o.take_along_axis(x, i, 0),
        lambda x, i: x.gather(0, i),
        [S, torch.tensor(0)],
    ),
    (
        "take_along_axis broadcasts",
        lambda o, x, i: o.take_along_axis(x, i, 1),
        lambda x, i: x.take_along_dim(i, 1),
        [M, torch.tensor([[3, 0]])],
    ),
    (
        "take_along_axis of a row",
        lambda o, x, i: o.take_along_axis(x, i, 1),
        lambda x, i: x.take_along_dim(i, 1),
        [M[:1], torch.tensor([[3], [0]])],
    ),
    (
        "take_along_axis by nothing",
        lambda o, x, i: o.take_along_axis(x, i, 0),
        lambda x, i: x.take_along_dim(i, 0),
        [M, torch.zeros(0, 4).long()],
    ),
    (
        "scatter of a number",
        lambda o, x, i: o.scatter(x, i, 9.0, 1),
        lambda x, i: x.scatter(1, i, 9.0),
        [M, torch.tensor([[3], [0]])],
    ),
    (
        "scatter by nothing",
        lambda o, x, i, y: o.scatter(x, i, y, 0),
        lambda x, i, y: x.scatter(0, i, y),
        [M, torch.zeros(0, 4).long(), M],
    ),
    (
        "scatter of no dims",
        lambda o, x, i, y: o.scatter(x, i, y, 0),
        lambda x, i, y: x.scatter(0, i, y),
        [S, torch.tensor(0), S + 1],
    ),
    (
        "embedding of no dims",
        lambda o, i, x: o.embedding_fwd(i, x),
        lambda i, x: F.embedding(i, x),
        [I0, M],
    ),
    (
        "embedding of nothing",
        lambda o, i, x: o.embedding_fwd(i, x),
        lambda i, x: F.embedding(i, x),
        [NO_INDEX, M],
    ),
    (
        "embedding of half",
        lambda o, i, x: o.embedding_fwd(i, x, 1),
        lambda i, x: F.embedding(i, x, 1),
        [I1, H],
    ),
]
for _index, _name in ((torch.zeros(0).long(), "nothing"), (torch.tensor([1, 1]), "twice")):
    INDICES.append(
        (
            f"index_put_accumulate of {_name}",
            lambda o, x, i, v: o.index_put_accumulate(x, i, v),
            lambda x, i, v: x.index_put((i,), v, True),
            [M, _index, torch.ones(len(_index), 4)],
        )
    )

CASES = FACTORIES + SHAPES + INDICES


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
def test_corners(static: bool, set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    check_all(CASES, static)
