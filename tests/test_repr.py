"""repr(fd) is Python that rebuilds the definition: print.cpp and the frontend are inverse."""

import math
from collections.abc import Callable

import pytest

from fuser import DataType, FusionDefinition

Body = Callable[[FusionDefinition], None]


def define(body: Body) -> FusionDefinition:
    with FusionDefinition() as fd:
        body(fd)
    return fd


def rebuilt(fd: FusionDefinition) -> FusionDefinition:
    names: dict[str, object] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), names)
    return define(names["nvfuser_fusion"])  # type: ignore[arg-type]


def scalars(fd: FusionDefinition) -> None:
    early = fd.define_scalar(None, dtype=DataType.Int)
    x = fd.define_tensor([-1, 4], dtype=DataType.Half)
    late = fd.define_scalar(DataType.Float)
    fd.define_scalar()  # unused, but still an argument of execute()
    y = x * late + early * 2
    z = fd.define_tensor([-1, 1], contiguity=[False, None])
    after = fd.define_scalar(DataType.Bool)
    fd.add_output(fd.ops.where(after, y, z))


def constants(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1], dtype=DataType.Double)
    for value in (
        0.1,
        1e300,
        5e-324,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        3,
        -(2**63),
        2**63 - 1,
        True,
    ):
        x = x + value
    x = x * complex(math.inf, -0.5)
    x = x + fd.define_scalar(0.1, dtype=DataType.Float)
    x = x + fd.define_scalar(0.1, dtype=DataType.BFloat16)
    x = x + fd.define_scalar(7, dtype=DataType.Char)
    fd.add_output(x)


def sizes(fd: FusionDefinition) -> None:
    n = fd.define_scalar(DataType.Int)
    x = fd.define_tensor([-1, -1], contiguity=True)
    y = fd.define_tensor([-1], stride_order=[0])
    area = fd.ops.size(x, 1) * n * fd.ops.size(x, 0)
    fd.add_output(fd.ops.full([area // 1 + 3, fd.ops.size(y, 0), 2], 1.5, DataType.Half))
    fd.add_output(fd.ops.broadcast_in_dim(y, [x.size(0), y.size(0)], [1]) + x)


def movement(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, 1, 8], contiguity=[True, False, None], stride_order=[2, 0, 1])
    y = fd.ops.permute(fd.ops.squeeze(x, [1]), [1, 0])
    y = fd.ops.expand(fd.ops.broadcast(y, [False, True, False]), [-1, 5, -1])
    fd.add_output(fd.ops.stride_order(fd.ops.cast(y, DataType.BFloat16), [0, 2, 1]))


def aliases(fd: FusionDefinition) -> None:
    x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
    fd.add_output(x + y, alias_input=x)
    fd.add_output(x)
    fd.add_output(x - y, y)


def shared_scalars(fd: FusionDefinition) -> None:
    """As nested calls this text would have 2^60 characters."""
    s = fd.define_scalar(DataType.Double)
    x = fd.define_tensor([-1])
    for _ in range(60):
        s = s * s
    fd.add_output(x * s)


def order_of_sums(fd: FusionDefinition) -> None:
    """Sums of sizes are in creation order, and the text must not reorder them."""
    a, b, c = fd.define_vector(3)
    made_first, made_second = a // b, b // c
    x = fd.define_tensor([-1])
    fd.add_output(fd.ops.full([made_second], 0, DataType.Int))
    fd.add_output(fd.ops.full([made_second + made_first + x.size(0)], 0, DataType.Int))
    d = fd.define_scalar(DataType.Int)
    fd.add_output(fd.ops.full([made_first + d], 0, DataType.Int) + x)


def bounds_of_slices(fd: FusionDefinition) -> None:
    """A slice creates its sizes; expressions computed before it must stay before them."""
    x = fd.define_tensor([-1, -1])
    rows, columns = fd.ops.shape(fd.ops.chunk(x, 3, 1)[1])
    fd.add_output(fd.ops.full([fd.ops.mul(rows, columns)], 0, DataType.Float))


def reductions(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, 12], dtype=DataType.Half)
    index = fd.define_tensor([-1, 3], dtype=DataType.Int)
    fd.add_output(fd.ops.sum(x, [0], keepdim=True))
    fd.add_output(fd.ops.max(x, [-1], identity=True))
    fd.add_output(fd.ops.argmin(x, 1))
    fd.add_output(fd.ops.gather(x, index, 1))
    fd.add_output(fd.ops.take_along_axis(x, fd.ops.broadcast(fd.ops.iota(7), [True, False]), 1))
    fd.add_output(fd.ops.iota(x.size(0), 1, 3, DataType.Float))
    groups = fd.ops.split_dim(x, 1, [fd.ops.size(index, 1), -1])
    fd.add_output(fd.ops.merge_dims(groups, 1, 12))


def normalizations(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, 12, -1], dtype=DataType.BFloat16)
    running = fd.define_tensor([12])
    for y in fd.ops.group_norm(x, 4):
        fd.add_output(y)
    fd.add_output(fd.ops.batch_norm(x, None, None, running, None, 0.1, 1e-5, True)[0])
    fd.add_output(fd.ops.softmax(x, 1))
    target = fd.define_tensor([-1, -1], dtype=DataType.Int)
    fd.add_output(fd.ops.cross_entropy(x, target, label_smoothing=0.1))


def shapes(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, 12], dtype=DataType.Half)
    half = x.size(0) // 2
    low = fd.ops.slice(x, [0, -7], [half, None], [1, 2])
    fd.add_output(fd.ops.cat([low, fd.ops.flip(low, [0])], 0))
    fd.add_output(fd.ops.pad(x, [half, -1, 0, 2], 1.5))
    fd.add_output(fd.ops.reshape(x, [x.size(0), 3, -1]))
    fd.add_output(fd.ops.roll(x, 5, 0))


BODIES = [scalars, constants, sizes, movement, aliases, shared_scalars, order_of_sums]
BODIES += [bounds_of_slices, reductions, normalizations, shapes]


@pytest.mark.parametrize("body", BODIES)
def test_round_trip(body: Body) -> None:
    fd = define(body)
    copy = rebuilt(fd)
    assert repr(copy) == repr(fd)
    assert copy.fusion == fd.fusion
    assert hash(copy.fusion) == hash(fd.fusion)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("other", BODIES)
def test_equality_is_structural(body: Body, other: Body) -> None:
    assert (define(body).fusion == define(other).fusion) == (body is other)


def test_the_text() -> None:
    def body(fd: FusionDefinition) -> None:
        s = fd.define_scalar(None)
        x = fd.define_tensor(shape=[-1, 1], contiguity=True, dtype=DataType.BFloat16)
        y = fd.ops.cast(fd.ops.tanh(x * (s * 0.5)), DataType.BFloat16)
        fd.add_output(y, alias_input=x)

    assert repr(define(body)) == (
        "def nvfuser_fusion(fd: FusionDefinition) -> None:\n"
        "    S0 = fd.define_scalar(None, dtype=DataType.Double)\n"
        "    T0 = fd.define_tensor(shape=[-1, 1], contiguity=[True, None], "
        "dtype=DataType.BFloat16, is_cpu=False)\n"
        "    E0 = fd.ops.mul(S0, 0.5)\n"
        "    T1 = fd.ops.mul(T0, E0)\n"
        "    T2 = fd.ops.tanh(T1)\n"
        "    T3 = fd.ops.cast(T2, dtype=DataType.BFloat16)\n"
        "    fd.add_output(T3, alias_input=T0)\n"
    )


def test_an_empty_definition() -> None:
    text = "def nvfuser_fusion(fd: FusionDefinition) -> None:\n    pass\n"
    assert repr(FusionDefinition()) == text
    assert repr(rebuilt(FusionDefinition())) == text


@pytest.mark.parametrize("kind", ["tensor", "scalar"])
def test_ten_thousand_ops(kind: str) -> None:
    """Defining, printing, hashing, comparing, rebuilding and freeing do not recurse on the depth of
    the graph."""

    def body(fd: FusionDefinition) -> None:
        x, s = fd.define_tensor([-1]), fd.define_scalar()
        for i in range(10_000):
            if kind == "tensor":
                x = fd.ops.neg(x) if i % 2 else x + s
            else:
                s = fd.ops.neg(s) if i % 2 else s * 0.5
        fd.add_output(x * s)

    fd = define(body)
    copy = rebuilt(fd)
    assert len(repr(fd).splitlines()) > 10_000
    assert copy.fusion == fd.fusion
    del fd, copy


def test_is_tensor() -> None:
    """is_tensor() for tensors and scalars, as in nvFuser."""
    fd = FusionDefinition()
    t, s = fd.define_tensor([-1]), fd.define_scalar(1.0)
    values = [t, s, t + s, s + s, fd.define_scalar(), *fd.ops.shape(t), *fd.define_vector(1)]
    assert [v.is_tensor() for v in values] == [True, False, True, False, False, False, False]
