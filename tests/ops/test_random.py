"""fuser/ops/random: exact values, equal in every kernel that computes them, and their
distribution."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fuser import DataType, DTypeError, FusionDefinition, Scalar, UserError
from fuser._native import load_torch
from fuser.arguments import as_dtype
from fuser.ops.reference import philox
from fuser.runtime import toolkit

FIXED: dict[str, Any] = {"rng_seed": 1234567890123, "rng_offset": 2}
COUNT = 1 << 16


def run(build: Callable[[FusionDefinition], Any], inputs: list[Any]) -> list[Tensor]:
    fd = FusionDefinition()
    outputs = build(fd)
    for t in outputs if isinstance(outputs, list | tuple) else [outputs]:
        fd.add_output(t)
    return fd.validate(inputs, device="cpu")


def plain(shape: list[int], op: str = "uniform", **kwargs: Any) -> Tensor:
    return run(lambda fd: getattr(fd.ops, op)(0, 1, shape, **(FIXED | kwargs)), [])[0]


# ---- the generator


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        (0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (-1, -1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ],
)
def test_known_answers(counter: int, key: int, expected: str) -> None:
    """The known answers of Random123. They set the second counter, which offsets do not reach."""
    words = philox(torch.tensor(counter), torch.tensor(counter), torch.tensor(key))
    assert [f"{w.item():08x}" for w in words] == expected.split()


def test_words_of_a_kernel() -> None:
    """All words of call 0 under key 0, as 32 and as 64 bits."""

    def bits(fd: FusionDefinition) -> list[Any]:
        return [fd.ops.random32(fd.ops.iota(4), 0, 0), fd.ops.random64(fd.ops.iota(2), 0, 0)]

    words, pairs = run(bits, [])
    assert [f"{w:08x}" for w in words.tolist()] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    halves = [(p >> shift) & 0xFFFFFFFF for p in pairs.tolist() for shift in (0, 32)]
    assert halves == words.tolist()


def test_uniform_is_the_upper_bits() -> None:
    index, key = torch.arange(10) // 4, torch.tensor(FIXED["rng_seed"])
    words = torch.stack(philox(torch.tensor(2), index, key))[torch.arange(10) % 4, range(10)]
    assert plain([10]).equal((words >> 8).float() * 2.0**-24)


# ---- equal numbers in all kernels


@pytest.mark.parametrize("op", ["uniform", "normal"])
def test_the_shape_counts_by_its_elements(op: str) -> None:
    flat = plain([60], op)
    for shape in ([3, 20], [3, 4, 5], [60, 1], [1, 2, 30], [2, 1, 3, 1, 10]):
        assert plain(shape, op).equal(flat.view(shape))
    assert plain([7], op).equal(flat[:7])
    assert plain([], op).equal(flat[0])
    assert plain([0, 4], op).shape == (0, 4)


@pytest.mark.parametrize("shape", [(8, 64), (5, 7), (3, 1), (1, 9), (2, 0), (1, 1)])
@pytest.mark.parametrize("transposed", [False, True])
def test_added_to_an_input_of_any_layout(shape: tuple[int, int], transposed: bool) -> None:
    def build(fd: FusionDefinition) -> Any:
        x = fd.define_tensor([-1, -1])
        return fd.ops.add(x, fd.ops.uniform(0, 1, fd.ops.shape(x), **FIXED))

    x = torch.zeros(shape[::-1]).t() if transposed else torch.zeros(shape)
    assert run(build, [x])[0].equal(plain(list(shape)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_every_vector_width(dtype: torch.dtype) -> None:
    def build(fd: FusionDefinition) -> Any:
        x = fd.define_tensor([-1], dtype=dtype)
        return fd.ops.add(x, fd.ops.uniform(0, 1, [x.size(0)], **FIXED))

    for count in (1, 3, 64, 1001, 4096):
        got = run(build, [torch.zeros(count + 1, dtype=dtype)[count % 2 :][:count]])[0]
        assert got.to(torch.float32).equal(plain([count])), count


def test_inside_a_softmax() -> None:
    def build(fd: FusionDefinition) -> Any:
        x = fd.define_tensor([-1, -1])
        noise = fd.ops.uniform(0, 1, fd.ops.shape(x), **FIXED)
        return [fd.ops.softmax(fd.ops.add(x, noise), 1), noise]

    for columns in (33, 5000):
        x = torch.zeros(6, columns)
        softmax, noise = run(build, [x])
        assert noise.equal(plain([6, columns]))
        assert torch.allclose(softmax, torch.softmax(noise, 1))


def test_a_permuted_result_keeps_its_numbers() -> None:
    def build(fd: FusionDefinition) -> Any:
        return fd.ops.permute(fd.ops.uniform(0, 1, [6, 10], **FIXED), [1, 0])

    assert run(build, [])[0].equal(plain([6, 10]).t())


def test_ops_differ_unless_seed_and_offset_are_equal() -> None:
    def build(fd: FusionDefinition) -> Any:
        x = fd.define_tensor([-1])
        shape = fd.ops.shape(x)
        own = [fd.ops.rand_like(x), fd.ops.rand_like(x)]
        given = [fd.ops.uniform(0, 1, shape, rng_seed=3, rng_offset=o) for o in (0, 0, 1)]
        # A reduction makes segmentation compare the values (csrc/fusion/index/axis_sources.cpp).
        return [*own, *given, fd.ops.sum(fd.ops.sub(own[0], own[1]), [0])]

    a, b, c, d, e, difference = run(build, [torch.zeros(1000)])
    assert not a.equal(b)
    assert c.equal(d)
    assert not c.equal(e)
    assert difference.item() != 0


def test_seed_and_offset_may_be_inputs() -> None:
    def build(fd: FusionDefinition) -> Any:
        seed, offset = fd.define_vector(2)
        return fd.ops.uniform(0, 1, [100], rng_seed=seed, rng_offset=offset)

    assert run(build, [FIXED["rng_seed"], 2])[0].equal(plain([100]))
    assert not run(build, [FIXED["rng_seed"], 3])[0].equal(plain([100]))
    assert run(build, [FIXED["rng_seed"], 2**62 + 2])[0].equal(plain([100]))
    assert run(build, [FIXED["rng_seed"], 2 - 2**62])[0].equal(plain([100]))
    assert plain([100], rng_offset=2**62 + 2).equal(plain([100]))
    run(build, [-1, 2**62])


@pytest.mark.parametrize("dtype", [DataType.Int32, DataType.UInt32, DataType.UInt64])
def test_an_offset_of_another_integer_type(dtype: DataType) -> None:
    """Four times the offset exceeds 32 bits."""

    def build(fd: FusionDefinition) -> Any:
        offset = fd.define_scalar(dtype)
        return fd.ops.uniform(0, 1, [100], rng_seed=FIXED["rng_seed"], rng_offset=offset)

    assert run(build, [2**30 + 3])[0].equal(plain([100], rng_offset=2**30 + 3))


# ---- offsets, counted as in nvFuser


def words_of(seed: int, offset: int, calls: int) -> np.ndarray:
    """[calls, 4] words of Philox4x32-10 after Salmon et al. (2011), in numpy integers. The counter
    is (offset, call), each of 64 bits, low word first."""
    call = np.arange(calls, dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    at = np.full(calls, offset % 2**64, np.uint64)
    x = [at & low, at >> np.uint64(32), call & low, call >> np.uint64(32)]
    keys = [seed % 2**32, seed % 2**64 >> 32]
    for _ in range(10):
        p, q = x[0] * np.uint64(0xD2511F53), x[2] * np.uint64(0xCD9E8D57)
        k0, k1 = (np.uint64(k) for k in keys)
        x = [(q >> np.uint64(32)) ^ x[1] ^ k0, q & low, (p >> np.uint64(32)) ^ x[3] ^ k1, p & low]
        keys = [(keys[0] + 0x9E3779B9) % 2**32, (keys[1] + 0xBB67AE85) % 2**32]
    return np.stack(x, 1)


def test_the_reference_has_the_known_answer() -> None:
    assert [f"{w:08x}" for w in words_of(0, 0, 1)[0]] == [
        "6627e8d5",
        "e169c58d",
        "bc57ac4c",
        "9b00dbd8",
    ]


def expected_numbers(op: str, dtype: torch.dtype, seed: int, offset: int, count: int) -> np.ndarray:
    words = words_of(seed, offset, count + 2)
    pairs = words[:, 1::2] << np.uint64(32) | words[:, ::2]  # by call: two of 64 bits
    if op == "uniform":
        if dtype == torch.float64:
            return (pairs.ravel()[:count] >> np.uint64(11)) * 2.0**-53
        digits = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}[dtype]
        return (words.ravel()[:count] >> np.uint64(32 - digits)) * 2.0**-digits
    if dtype == torch.float64:
        u, v = ((pairs[:count, i] >> np.uint64(11)) * 2.0**-53 for i in (0, 1))
        return np.sqrt(-2 * np.log(u + 2.0**-53)) * np.cos(2 * np.pi * v)
    high, low = (part.ravel()[:count] >> np.uint64(8) for part in (words[:, 1::2], words[:, ::2]))
    u, v = (high + np.uint64(1)) * 2.0**-24, low * 2.0**-24
    return np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SEEDS = [0, 123, 2**40 + 5, -7]
OFFSETS = [*range(9), 2**32 - 1, 2**32, 2**61 + 3]


@pytest.mark.parametrize("op", ["uniform", "normal"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_exact_numbers(op: str, dtype: torch.dtype) -> None:
    """48 pairs of seed and offset for each op and type, with two sizes that are not multiples of
    four."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=as_dtype(dtype))
        seed, offset = fd.define_vector(2)
        state = {"rng_seed": seed, "rng_offset": offset}
        drawn = getattr(fd.ops, op)(0, 1, [x.size(0)], dtype=as_dtype(dtype), **state)
        fd.add_output(drawn)
    for number, place in itertools.product(SEEDS, OFFSETS):
        for count in (1, 103):
            (got,) = fd.execute([torch.empty(count, dtype=dtype), [number, place]], device="cpu")
            want = torch.from_numpy(expected_numbers(op, dtype, number, place, count))
            if op == "uniform":
                assert got.double().equal(want), (number, place)
            else:
                bound = {torch.float64: 1e-14, torch.float32: 1e-6}.get(dtype, 5e-3)
                torch.testing.assert_close(got.double(), want, rtol=bound, atol=bound)


@pytest.mark.parametrize("op", ["rand_like", "randn_like"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_consecutive_offsets_share_nothing(op: str, dtype: torch.dtype) -> None:
    """Numbers of nine offsets, compared in pairs, with shifts of up to eight elements. Random
    numbers of k bits are equal with probability 2^-k."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=as_dtype(dtype))
        for o in range(9):
            fd.add_output(getattr(fd.ops, op)(x, rng_seed=123, rng_offset=o))
    drawn = torch.stack(fd.validate([torch.empty(1003, dtype=dtype)], device="cpu")).double()
    left = drawn[:, 8:-8]
    apart = ~torch.eye(9, dtype=torch.bool)
    for shift in range(-8, 9):
        right = drawn[:, 8 + shift : 995 + shift]
        equal = (left[:, None] == right[None]).double().mean(-1)
        assert equal[apart].max() < 0.05, shift
        correlation = torch.corrcoef(torch.cat([left, right]))[:9, 9:]
        assert correlation[apart].abs().max() < 5.5 / math.sqrt(left.shape[1]), shift


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_distribution_over_offsets(dtype: torch.dtype) -> None:
    """Element 5 over 4096 offsets is as uniform as the elements of one offset: mean, variance and
    Kolmogorov-Smirnov distance, at five standard deviations."""
    drawn = np.array([expected_numbers("uniform", dtype, 9, o, 6)[5] for o in range(4096)])
    with FusionDefinition() as fd:
        offset = fd.define_scalar(DataType.Int)
        fd.add_output(
            fd.ops.uniform(0, 1, [6], rng_seed=9, rng_offset=offset, dtype=as_dtype(dtype))
        )
    for o in (0, 1, 4095):
        assert fd.execute([o], device="cpu")[0][5].item() == drawn[o]
    n = len(drawn)
    assert abs(drawn.mean() - 0.5) < 5 * math.sqrt(1 / 12 / n)
    assert abs(drawn.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / n)
    distance = np.abs(np.sort(drawn) - (np.arange(n) + 0.5) / n).max()
    assert distance < 1.95 / math.sqrt(n)  # exceeded with probability 0.001


def test_an_op_takes_one_offset_where_torch_s_generator_moves_by_four() -> None:
    """Torch's offset divided by four is nvFuser's offset: Thunder passes it so."""
    torch.manual_seed(11)
    state = torch.get_rng_state()
    seed, offset = load_torch().take_random_position(-1, 3)
    torch.set_rng_state(state)

    def implicit(fd: FusionDefinition) -> Any:
        x = fd.define_tensor([-1])
        return [fd.ops.rand_like(x) for _ in range(3)]

    def explicit(fd: FusionDefinition) -> Any:
        x = fd.define_tensor([-1])
        places = [offset // 4 + k for k in range(3)]
        return [fd.ops.rand_like(x, rng_seed=seed, rng_offset=o) for o in places]

    x = torch.zeros(101)
    try:
        drawn = run(implicit, [x])
    finally:
        torch.set_rng_state(state)
    for a, b in zip(drawn, run(explicit, [x]), strict=True):
        assert a.equal(b)


@pytest.mark.parametrize("given", ["rng_seed", "rng_offset"])
@pytest.mark.parametrize("value", [1.5, "1", DataType.Double])
def test_random_4(given: str, value: Any) -> None:
    fd = FusionDefinition()
    if isinstance(value, DataType):
        value = fd.define_scalar(value)
    with pytest.raises((DTypeError, UserError), match=given) as caught:
        fd.ops.normal(0, 1, [3], **{"rng_seed": 1, "rng_offset": 1, given: value})
    assert caught.value.rule == "random-4" or not isinstance(value, Scalar)


def scaled(ops: Any, x: Any, row: Any) -> Any:
    return x * row


def softmax(ops: Any, x: Any, row: Any) -> Any:
    return ops.softmax(x, 1)


def alone(ops: Any, x: Any, row: Any) -> Any:
    return x


@pytest.mark.usefixtures("gpu_plans")
@pytest.mark.parametrize("beside", [alone, scaled, softmax])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_lanes_share_a_call(beside: Callable[..., Any], dtype: torch.dtype) -> None:
    """Four neighbouring elements of a thread use the words of one call of ten rounds. For a short
    vector the first rounds, which differ little, are computed separately."""
    lanes = 16 // dtype.itemsize
    inputs = [torch.zeros(64, 64, dtype=dtype), torch.zeros(64, dtype=dtype)]
    with FusionDefinition() as fd:
        x, row = fd.define_tensor([-1, -1], dtype=dtype), fd.define_tensor([-1], dtype=dtype)
        noise = fd.ops.rand_like(fd.ops.cast(x, DataType.Float))
        fd.add_output(fd.ops.cast(beside(fd.ops, x, row) + noise, dtype))
    text = fd.cuda_code_for(inputs, True)
    loops = 2 if beside is softmax else 1  # a loop for full vectors and one with a mask per lane
    rounds = toolkit.ptx(text, 90).count(str(0xD2511F53))
    assert rounds <= loops * (10 * lanes // 4 + 3), rounds


# ---- distributions


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_uniform(dtype: torch.dtype) -> None:
    u = plain([COUNT], dtype=dtype).double()
    assert u.min() >= 0
    assert u.max() < 1
    digits = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}[dtype]
    assert (u * 2.0**digits).frac().eq(0).all()
    assert abs(u.mean() + 2.0 ** -(digits + 1) - 0.5) < 5 * math.sqrt(1 / 12 / COUNT)
    assert abs(u.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / COUNT)
    assert (u.histc(16, 0, 1) - COUNT / 16).abs().max() < 5 * math.sqrt(COUNT / 16)
    assert abs((u[1:] * u[:-1]).mean() - u.mean() ** 2) < 5 / math.sqrt(COUNT) / 4


@pytest.mark.parametrize(("low", "high"), [(0, 4), (0.5, 1), (0.0, -2.0)])
def test_uniform_is_scaled_where_one_bound_is_that_of_the_unit(low: float, high: float) -> None:
    """The bounds scale the unit interval by powers of two, which is exact."""

    def build(fd: FusionDefinition) -> list[Any]:
        shape = [fd.define_tensor([-1]).size(0)]
        return [fd.ops.uniform(*bounds, shape, **FIXED) for bounds in ((0, 1), (low, high))]

    unit, scaled = run(build, [torch.empty(100)])
    assert torch.equal(scaled, unit * (high - low) + low)


def test_uniform_between_bounds() -> None:
    def build(fd: FusionDefinition) -> Any:
        low = fd.define_scalar(DataType.Double)
        return fd.ops.uniform(low, 5.0, [COUNT], **FIXED)

    u = run(build, [-3.0])[0]
    assert u.min() >= -3
    assert u.max() <= 5
    assert abs(u.mean() - 1) < 0.1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_normal(dtype: torch.dtype) -> None:
    z = plain([COUNT], "normal", dtype=dtype).double()
    assert z.isfinite().all()
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((z**power).mean() - moment) < 5 * math.sqrt(spread / COUNT) + 1e-3, power
    assert abs((z.abs() < 1).double().mean() - 0.6827) < 0.01
    assert abs((z[1:] * z[:-1]).mean()) < 5 / math.sqrt(COUNT)


def test_normal_with_mean_and_deviation() -> None:
    z = plain([1000], "normal")
    moved = run(lambda fd: fd.ops.normal(2.0, 3.0, [1000], **FIXED), [])[0]
    assert torch.allclose(moved, 2 + 3 * z, atol=1e-5)


@pytest.mark.parametrize("op", ["rand_like", "randn_like"])
def test_like_an_input(op: str) -> None:
    def build(fd: FusionDefinition) -> Any:
        return getattr(fd.ops, op)(fd.define_tensor([-1, -1], dtype=DataType.BFloat16))

    got = run(build, [torch.zeros(40, 50, dtype=torch.bfloat16)])[0]
    assert got.dtype == torch.bfloat16
    assert got.shape == (40, 50)
    assert len({*got.flatten().tolist()}) > 100


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_dropout(p: float) -> None:
    def build(fd: FusionDefinition) -> Any:
        return fd.ops.dropout(fd.define_tensor([-1]), p)

    x = torch.arange(1.0, COUNT + 1)
    y, mask = run(build, [x])
    assert abs(mask.double().mean() - (1 - p)) <= 5 * math.sqrt(p * (1 - p) / COUNT)
    assert y[~mask].eq(0).all()
    assert torch.allclose(y[mask], x[mask] / (1 - p)) if p < 1 else not mask.any()


def test_dropout_of_what_is_not_training() -> None:
    x = torch.randn(100)
    y, mask = run(lambda fd: fd.ops.dropout(fd.define_tensor([-1]), 0.5, False), [x])
    assert y.equal(x)
    assert mask.all()


@pytest.mark.parametrize("given", ["rng_seed", "rng_offset"])
def test_random_2(given: str) -> None:
    with pytest.raises(UserError, match="expected both rng_seed and rng_offset") as caught:
        FusionDefinition().ops.normal(0, 1, [3], **{given: 1})
    assert caught.value.rule == "random-2"


def test_random_3() -> None:
    with pytest.raises(DTypeError, match="int64") as caught:
        FusionDefinition().ops.uniform(0, 1, [3], dtype=DataType.Int)
    assert caught.value.rule == "random-3"


def test_dropout_1() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([3])
    with pytest.raises(UserError, match="expected a number in") as caught:
        fd.ops.dropout(x, 1.5)
    assert caught.value.rule == "dropout-1"


@pytest.mark.usefixtures("gpu_plans")
@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Double])
def test_nvrtc_compiles_it(dtype: DataType) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=dtype)
        noise = fd.ops.normal(0, 1, fd.ops.shape(x), dtype=dtype)
        fd.add_output(fd.ops.dropout(fd.ops.add(x, noise), 0.1)[0])
    code = fd.cuda_code_for([torch.zeros(64, 64, dtype=getattr(torch, dtype.torch_name))], True)
    assert toolkit.ptx(code, 90)


@pytest.mark.gpu
def test_given_offsets_in_a_cuda_graph() -> None:
    with FusionDefinition() as fd:
        x, offset = fd.define_tensor([-1]), fd.define_scalar(DataType.Int)
        for o in (offset, offset + 1, 7):
            fd.add_output(fd.ops.rand_like(x, rng_seed=123, rng_offset=o))
    x = torch.empty(103, device="cuda")
    for o in (0, 2**40):
        fd.execute([x, o])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = fd.execute([x, o])
        graph.replay()
        for got, place in zip(captured, (o, o + 1, 7), strict=True):
            want = expected_numbers("uniform", torch.float32, 123, place, 103)
            assert got.cpu().double().equal(torch.from_numpy(want))


@pytest.mark.gpu
def test_a_gpu_gives_the_numbers_of_the_cpu() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.add(x, fd.ops.uniform(0, 1, fd.ops.shape(x), **FIXED)))
    for shape in ((64, 64), (5, 7), (1, 4097)):
        assert fd.execute([torch.zeros(shape, device="cuda")])[0].cpu().equal(plain(list(shape)))
