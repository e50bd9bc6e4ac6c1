"""Invalid shapes raise a ShapeError (a DTypeError for an index) that names op, operands and rule,
with static and with run-time sizes; evaluate() rejects them too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import fuser
from fuser import DataType, DTypeError, FusionDefinition, ShapeError, Unsupported


class Wrong(NamedTuple):
    rule: str
    name: str  # name of the op in the message
    make: Callable[..., Any]  # called with fd.ops, the tensors, then the scalars
    sizes: tuple[tuple[int, ...], ...] = ((4, 6),)
    scalars: tuple[int, ...] = ()
    late: str = ""  # rule for run-time sizes if it differs
    kind: type[Exception] = ShapeError
    integers: bool = False  # True if all tensors but the first are integers
    hint: str = ""


FLOAT = DataType.Float
CASES = {
    "slice, of another rank": Wrong("slice-1", "slice(t0", lambda o, x: o.slice(x, [0], [1])),
    "slice, by no step": Wrong(
        "slice-2", "slice(t0", lambda o, x: o.slice(x, [0] * 2, [4, 6], [0, 1])
    ),
    "select": Wrong("select-1", "select(", lambda o, x: o.select(x, 4, 0), late="squeeze-2"),
    "sum, dim": Wrong("reduce-dim-1", "sum(t0", lambda o, x: o.sum(x, [2])),
    "flip, dim": Wrong("flip-1", "flip(t0", lambda o, x: o.flip(x, [-3])),
    "roll, dim": Wrong("roll-dim", "roll(t0", lambda o, x: o.roll(x, 1, 2)),
    "cat, dim": Wrong("cat-2", "cat(t0, t0)", lambda o, x: o.cat([x, x], 2)),
    "cat": Wrong("cat-5", "cat(t0, t1)", lambda o, x, y: o.cat([x, y], 0), ((4, 6), (4, 5))),
    "stack": Wrong("cat-5", "stack(): cat(", lambda o, x, y: o.stack([x, y], 0), ((4, 6), (4, 5))),
    "unsqueeze, dim": Wrong("unsqueeze-dim", "unsqueeze(t0", lambda o, x: o.unsqueeze(x, 4)),
    "squeeze": Wrong("squeeze-2", "squeeze(t0, [0])", lambda o, x: o.squeeze(x, [0])),
    "permute": Wrong("permute-1", "permute(t0", lambda o, x: o.permute(x, [0, 2])),
    "expand": Wrong("expand-2", "expand(t0", lambda o, x: o.expand(x, [4, 7])),
    "expand, scalar": Wrong(
        "expand-2", "expand(t0", lambda o, x, s: o.expand(x, [4, s]), scalars=(7,)
    ),
    "add": Wrong("broadcast-1", "add(t0, t1)", lambda o, x, y: o.add(x, y), ((4, 6), (4, 5))),
    "reshape": Wrong(
        "reshape-2", "reshape(", lambda o, x: o.reshape(x, [5, 5]), late="split-dim-3"
    ),
    "reshape, the rest": Wrong(
        "reshape-2", "reshape(", lambda o, x: o.reshape(x, [5, -1]), late="split-dim-3"
    ),
    "reshape, one size": Wrong(
        "reshape-2", "reshape(", lambda o, x: o.reshape(x, [25]), late="merge-dims-2"
    ),
    "reshape, to nothing": Wrong(
        "reshape-2", "reshape(", lambda o, x: o.reshape(x, [0, 3]), late="merge-dims-2"
    ),
    "reshape, scalars": Wrong(
        "split-dim-3", "reshape()", lambda o, x, s, t: o.reshape(x, [s, t, 3]), scalars=(2, 5)
    ),
    "reshape, scalar -1": Wrong(
        "split-dim-3",
        "reshape()",
        lambda o, x, s: o.reshape(x, [s, 3]),
        scalars=(-1,),
        hint="-1 is inferred only if it is a number in the definition",
    ),
    "reshape, one scalar -1": Wrong(
        "merge-dims-2",
        "reshape()",
        lambda o, x, s: o.reshape(x, [s]),
        scalars=(-1,),
        hint="-1 is inferred only if it is a number in the definition",
    ),
    "reshape, negative": Wrong("reshape-3", "reshape(", lambda o, x: o.reshape(x, [-3, 8])),
    "reshape, two open": Wrong("reshape-1", "reshape(", lambda o, x: o.reshape(x, [-1, -1])),
    "full": Wrong("full-1", "full()", lambda o, x: o.full([-2], 1.0, FLOAT)),
    "full, scalar": Wrong(
        "size-1", "full(): axis 0", lambda o, x, s: o.full([s], 1.0, FLOAT), scalars=(-2,)
    ),
    "iota": Wrong("iota-1", "iota(", lambda o, x: o.iota(-4)),
    "iota, scalar": Wrong("size-1", "iota(): axis 0", lambda o, x, s: o.iota(s), scalars=(-4,)),
    "eye, scalar": Wrong("size-1", "eye(): axis 0", lambda o, x, s: o.eye(s), scalars=(-4,)),
    "pad": Wrong("pad-3", "pad(", lambda o, x: o.pad(x, [-4, -3]), late="size-1"),
    "pad, scalar": Wrong(
        "size-1", "pad(): axis 1", lambda o, x, s: o.pad(x, [s, 0]), scalars=(-7,)
    ),
    "gather, dtype": Wrong(
        "index-dtype-1", "gather(t0, t0)", lambda o, x: o.gather(x, x, 1), kind=DTypeError
    ),
    "index_select, dtype": Wrong(
        "index-dtype-1",
        "index_select(): take_along_axis(t0",
        lambda o, x, y: o.index_select(x, y, 0),
        ((4, 6), (3,)),
        kind=DTypeError,
    ),
    "embedding, dtype": Wrong(
        "index-dtype-1",
        "embedding_fwd(): take_along_axis(",
        lambda o, x, y: o.embedding_fwd(y, x),
        ((4, 6), (3,)),
        kind=DTypeError,
    ),
    "scatter, dtype": Wrong(
        "library-dtype-2",
        "scatter(t0, t0, t0)",
        lambda o, x: o.scatter(x, x, x, 0),
        kind=DTypeError,
    ),
    "gather, dim": Wrong(
        "take-along-axis-2",
        "gather(t0, t1)",
        lambda o, x, i: o.gather(x, i, 2),
        ((4, 6), (4, 6)),
        integers=True,
    ),
    "gather": Wrong(
        "gather-1",
        "gather(t0, t1)",
        lambda o, x, i: o.gather(x, i, 1),
        ((4, 6), (5, 2)),
        integers=True,
    ),
    "take_along_axis": Wrong(
        "broadcast-1",
        "take_along_axis(t0, t1)",
        lambda o, x, i: o.take_along_axis(x, i, 1),
        ((4, 6), (3, 2)),
        integers=True,
    ),
    "scatter": Wrong(
        "library-size-1",
        "scatter(t0, t1, t0)",
        lambda o, x, i: o.scatter(x, i, x, 1),
        ((4, 6), (5, 2)),
        integers=True,
    ),
    "matmul": Wrong(
        "library-size-1", "matmul(t0, t1)", lambda o, x, y: o.matmul(x, y), ((4, 6), (5, 3))
    ),
    "topk": Wrong("topk-1", "topk(", lambda o, x: o.topk(x, 9, 1)[0], late="library-size-1"),
    "max of nothing": Wrong("reduce-empty-1", "max(t0", lambda o, x: o.max(x, [0]), ((0, 3),)),
    "group_norm": Wrong(
        "split-dim-3", "group_norm", lambda o, x: o.group_norm(x, 4)[0], ((2, 6, 3),)
    ),
}


def inputs_of(wrong: Wrong) -> list[torch.Tensor]:
    tensors = [torch.randn(s) for s in wrong.sizes]
    return [t if i == 0 or not wrong.integers else t.long() * 0 for i, t in enumerate(tensors)]


def define(wrong: Wrong, static: bool) -> tuple[FusionDefinition, list[Any]]:
    fd, tensors = FusionDefinition(), inputs_of(wrong)
    given = [fd.from_pytorch(t, static_sizes=static) for t in tensors]
    scalars = [fd.define_scalar(DataType.Int) for _ in wrong.scalars]
    fd.add_output(fd.ops.set(wrong.make(fd.ops, *given, *scalars)))
    return fd, [*tensors, *wrong.scalars]


def run(wrong: Wrong, static: bool, defined: list[FusionDefinition]) -> None:
    """Evaluate and execute; appends the definition once it is built."""
    fd, inputs = define(wrong, static)
    defined.append(fd)
    with pytest.raises(ShapeError):
        fuser.evaluate(fd, inputs)
    fd.execute(inputs)


@pytest.mark.parametrize("static", [True, False], ids=["sizes known", "sizes of the call"])
@pytest.mark.parametrize("case", CASES)
def test_it_names_op_operands_and_rule(case: str, static: bool) -> None:
    wrong = CASES[case]
    defined: list[FusionDefinition] = []
    with pytest.raises(wrong.kind) as caught:
        run(wrong, static, defined)
    error = caught.value
    assert type(error) is wrong.kind
    assert error.rule == (wrong.late or wrong.rule if defined else wrong.rule)  # type: ignore[attr-defined]
    message = str(error)
    assert message.startswith(wrong.name), message
    assert wrong.hint in message
    assert "defined at" in message or not wrong.sizes or wrong.rule in ("full-1", "iota-1"), message


def test_a_tensor_has_at_most_64_dims() -> None:
    """torch's reductions have this limit too."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1] * 64, contiguity=[False] * 64)
    with pytest.raises(Unsupported, match="t1 has 65 dims, expected at most 64") as caught:
        fd.ops.unsqueeze(x, 0)
    assert caught.value.rule == "rank-1"
    fd.add_output(fd.ops.sum(x, list(range(64))))
    assert fd.execute([torch.full([1] * 64, 3.0)])[0] == 3


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ((0, 2, 4), (5, 0)),
        ((2, 0), (0,)),
        ((0, 3), (3, 0, 7)),
        ((2, 0, 3), (0, 1, 1)),
        ((0,), (0, 4)),
    ],
)
@pytest.mark.parametrize("known", ["all", "of the result", "when it runs"])
def test_reshapes_without_elements(
    known: str, sizes: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    """Reshapes of empty tensors are valid for any other sizes, as in torch."""
    x = torch.ones(sizes)
    fd = FusionDefinition()
    t = fd.from_pytorch(x, static_sizes=known == "all")
    late = known == "when it runs"
    wanted: list[Any] = [fd.define_scalar(DataType.Int) for _ in shape] if late else list(shape)
    fd.add_output(fd.ops.reshape(t, wanted) * 2.0)
    inputs = [x, *shape] if late else [x]
    assert fd.execute(inputs)[0].shape == x.reshape(shape).shape
    assert fuser.evaluate(fd, inputs)[0].shape == shape
