"""Plans and schedules of typical pointwise problems."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fuser import DataType, FusionDefinition, Plan, UserError, testing
from fuser.ops import as_dtype
from fuser.runtime import toolkit
from tests.support.reducing import kernels_for
from tests.support.stages import stage_text

Build = Callable[[FusionDefinition, list[Any]], Any]

DATA = torch.zeros(1 << 16)


def dense(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(sizes, dtype=dtype)


def define(build: Build, inputs: list[Tensor]) -> FusionDefinition:
    fd = FusionDefinition()
    tensors = [fd.define_tensor([-1] * t.dim(), dtype=as_dtype(t.dtype)) for t in inputs]
    results = build(fd, tensors)
    for result in results if isinstance(results, list) else [results]:
        fd.add_output(result)
    return fd


def add(fd: FusionDefinition, t: list[Any]) -> Any:
    return t[0] + t[1]


def to_half(fd: FusionDefinition, t: list[Any]) -> Any:
    return fd.ops.cast(t[0] * 2.0, DataType.BFloat16)


def gelu_to_half(fd: FusionDefinition, t: list[Any]) -> Any:
    return fd.ops.cast(fd.ops.gelu(t[0] + t[1]), DataType.BFloat16)


def twice(fd: FusionDefinition, t: list[Any]) -> Any:
    return t[0] * 2.0


HALF = torch.bfloat16

# name: ops, inputs, (vector, merged, tail, wide), dims of the schedule. `wide` has a bit per
# access, reads first.
PROBLEMS: dict[str, tuple[Build, list[Tensor], tuple[int, int, int, int], str]] = {
    "dense": (add, [dense(8, 8)] * 2, (4, 1, 0, 7), "[a0 a1]"),
    "dense odd": (add, [dense(7, 9)] * 2, (4, 1, 1, 7), "[a0 a1]"),
    "half": (to_half, [dense(8, 8, dtype=HALF)], (8, 1, 0, 3), "[a0 a1]"),
    "mixed": (to_half, [dense(8, 8)], (4, 1, 0, 3), "[a0 a1]"),
    "bytes": (twice, [dense(64, dtype=torch.float8_e5m2)], (4, 1, 0, 3), "[a0]"),
    "float64": (twice, [dense(64, dtype=torch.float64)], (2, 1, 0, 3), "[a0]"),
    "complex128": (twice, [dense(64, dtype=torch.complex128)], (1, 1, 0, 0), "[a0]"),
    "bias": (
        gelu_to_half,
        [dense(6, 16, dtype=HALF), dense(16, dtype=HALF)],
        (8, 1, 0, 7),
        "[a0] [a1]",
    ),
    "bias, odd rows": (
        gelu_to_half,
        [dense(8, 9, dtype=HALF), dense(9, dtype=HALF)],
        (8, 2, 0, 5),
        "[a0 a1]",
    ),
    "bias, odd": (
        gelu_to_half,
        [dense(7, 9, dtype=HALF), dense(9, dtype=HALF)],
        (8, 2, 1, 5),
        "[a0 a1]",
    ),
    "column": (add, [dense(6, 8), dense(6, 1)], (4, 1, 0, 5), "[a0] [a1]"),
    "misaligned": (add, [DATA[1:65], DATA[:64]], (4, 1, 0, 6), "[a0]"),
    "padded rows": (twice, [DATA.as_strided((6, 8), (12, 1))], (4, 1, 0, 3), "[a0] [a1]"),
    "rows padded by 1": (twice, [DATA.as_strided((6, 8), (9, 1))], (4, 1, 0, 2), "[a0] [a1]"),
    "every second": (twice, [DATA.as_strided((64,), (2,))], (4, 1, 0, 2), "[a0]"),
    "columns": (twice, [dense(8, 16).T], (4, 1, 0, 3), "[a1 a0]"),
    "channels last": (
        twice,
        [dense(2, 8, 4, 4).contiguous(memory_format=torch.channels_last)],
        (4, 1, 0, 3),
        "[a0 a2 a3 a1]",
    ),
    "0-dim": (twice, [dense()], (1, 1, 0, 0), ""),
}


def per_row(fd: FusionDefinition, t: list[Any]) -> Any:
    return fd.ops.cast(t[0] * t[1], DataType.BFloat16)


@pytest.mark.parametrize("length", [99, 257, 1001])
def test_what_is_of_a_row_is_read_once_for_a_vector_in_it(length: int, set_option: Any) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    inputs = [torch.randn(9, length).to(HALF), torch.randn(9, 1).to(HALF)]
    fd = define(per_row, inputs)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    assert (plan.collapsed, plan.split_at_rows) == (2, length > 99)
    (got,) = fd.execute(inputs)
    assert torch.equal(got, (inputs[0].float() * inputs[1].float()).to(HALF))


@pytest.mark.parametrize("rows", [8, 9])
@pytest.mark.parametrize("length", [99, 1001])
def test_padded_rows_are_stored_as_whole_vectors(rows: int, length: int, set_option: Any) -> None:
    """Either the loads or the stores of a copy without the padding are vectors, of equal bytes."""
    set_option("FUSER_HOST_DEBUG", 1)
    inputs = [torch.randn(rows, length + 7 & ~7).to(HALF)[:, :length]]
    fd = define(to_half, inputs)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    stores = 1 << 1
    assert (plan.collapsed, plan.tail, plan.vectorized) == (2, rows % 8 > 0, stores)
    (got,) = fd.execute(inputs)
    assert torch.equal(got, inputs[0] * 2)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_plans(problem: str) -> None:
    build, inputs, fields, dims = PROBLEMS[problem]
    fd = define(build, inputs)
    schedule = stage_text(fd, inputs, "schedule")
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    got = tuple(plan[name] for name in ("vector", "collapsed", "tail", "vectorized"))
    assert (got, " ".join(re.findall(r"\[.*\]", schedule))) == (fields, dims), str(plan)


def test_a_schedule_as_text() -> None:
    build, inputs, *_ = PROBLEMS["bias"]
    plan, text = stage_text(define(build, inputs), inputs, "schedule").split("\n", 1)
    assert plan.startswith("pointwise(threads=128, vector=8, ")
    assert text.rstrip("\n") == (
        "dim d0 [a0]\ndim d1 [a1]\nnest\n  d0 GridThread\n  d1 GridThread\n  d1 Vector 8\n"
        "  computed 0-4\naccess 0 Aligned 8\naccess 1 Aligned 8\naccess 2 Aligned 8\n"
        "launch threads(128)"
    )


def test_fewer_elements_where_many_tensors_are_read() -> None:
    def sums(fd: FusionDefinition, t: list[Any]) -> Any:
        total = t[0]
        for other in t[1:]:
            total = total + other
        return fd.ops.cast(total, DataType.BFloat16)

    def vector(count: int) -> int:
        inputs = [dense(64, dtype=HALF)] * count
        plan = define(sums, inputs).plan(inputs)
        assert isinstance(plan, Plan)
        return int(plan["vector"])

    assert vector(3) == 8
    assert vector(40) < 8


@pytest.mark.parametrize("changes", [{"threads": 64}, {"vector": 2}, {"tail": 1}, {"vector": 1}])
def test_changed_plans_run(changes: dict[str, int]) -> None:
    x = torch.randn(6, 16)
    fd = define(twice, [x])
    plan = fd.plan([x])
    assert isinstance(plan, Plan)
    (got,) = fd.execute([x], plan=plan.replace(**changes))
    assert torch.equal(got, x * 2)


def test_half_as_many_elements_where_one_wave_has_all() -> None:
    """From a quarter of a million elements to a million, the threads of a large GPU hold the tensor
    in one wave, so vectors are halved."""

    def vectors(dtype: torch.dtype) -> list[int]:
        fd = define(twice, [dense(64, dtype=dtype)])
        counts = (64, 1 << 18, (1 << 18) + 1, 1 << 19, 1 << 20, (1 << 20) + 1)
        return [kernels_for(fd, [(count,)])[0]["plan"]["vector"] for count in counts]

    assert vectors(torch.float32) == [4, 4, 2, 2, 2, 4]
    assert vectors(torch.float64) == [2] * 6


def test_values_of_half_as_many_elements(rng: Any) -> None:
    for count in ((1 << 18) + 3, 1 << 19):
        x = torch.from_numpy(rng.integers(-9, 9, size=count)).to(torch.float32)
        fd = define(twice, [x])
        plan = fd.plan([x])
        assert isinstance(plan, Plan)
        assert plan.vector == 2
        assert torch.equal(fd.execute([x])[0], x * 2)


def sigmoids(count: int) -> Build:
    def build(fd: FusionDefinition, t: list[Any]) -> Any:
        for _ in range(count):
            t = [fd.ops.sigmoid(t[0]) * 1.5 + 0.25]
        return fd.ops.cast(t[0], DataType.BFloat16)

    return build


def drawn(fd: FusionDefinition, t: list[Any]) -> Any:
    noise = fd.ops.uniform(0.0, 1.0, [fd.ops.size(t[0], 0)])
    return sigmoids(40)(fd, [t[0] + noise])


def test_fewer_elements_where_code_is_long() -> None:
    """Long code uses shorter vectors, to fit into the instruction cache; it does not need
    vectorized accesses."""

    def vector(build: Build) -> int:
        x = [dense(256, dtype=HALF)]
        plan = define(build, x).plan(x)
        assert isinstance(plan, Plan)
        return int(plan.vector)

    assert [vector(sigmoids(n)) for n in (1, 8, 16, 40)] == [8, 8, 2, 1]
    assert vector(drawn) == 4, "neighbours that share a call"


@pytest.mark.parametrize(
    "changes",
    [
        {"threads": 100},
        {"threads": 2048},
        {"vector": 3},
        {"vector": 8},
        {"collapsed": 2},
        {"vectorized": 0},
    ],
)
def test_plan_1(changes: dict[str, int]) -> None:
    x = torch.randn(6, 16)
    fd = define(twice, [x])
    plan = fd.plan([x])
    assert isinstance(plan, Plan)
    with pytest.raises(UserError, match="is not allowed; expected") as caught:
        fd.execute([x], plan=plan.replace(**changes))
    assert caught.value.rule == "plan-1"


def test_a_plan_without_tail_is_refused_where_rows_are_odd() -> None:
    x = torch.randn(7, 9)
    fd = define(twice, [x])
    plan = fd.plan([x])
    assert isinstance(plan, Plan)
    with pytest.raises(UserError, match="tail=0 is not allowed"):
        fd.execute([x], plan=plan.replace(tail=0))


# ---- Select: values chosen by coordinates


def beside(*widths: int) -> tuple[Build, list[tuple[int, ...]], Callable[..., Tensor]]:
    """A cat of tensors of these widths."""
    return (
        lambda fd, t: fd.ops.cat(t, 1),
        [(5, width) for width in widths],
        lambda *t: torch.cat(t, 1),
    )


def rimmed(
    *around: int, rows: int = 12, columns: int = 24
) -> tuple[Build, list[tuple[int, ...]], Callable[..., Tensor]]:
    """A matrix padded with ones, or cropped."""
    return (
        lambda fd, t: fd.ops.pad(t[0], list(around), 1),
        [(rows, columns)],
        lambda x: torch.nn.functional.pad(x, around, value=1),
    )


# name: ops, shapes, reference; (scheduler, vector, one_side) for float32
CHOICES = {
    "whole vectors": (*beside(8, 16, 4), ("pointwise", 4, 1)),
    "pairs": (*beside(6, 2, 10), ("rows", 2, 1)),
    "odd": (*beside(3, 5, 8), ("pointwise", 4, 0)),
    "odd rows": (*beside(3, 4), ("pointwise", 4, 0)),
    "one is empty": (*beside(0, 8, 4), None),
    "rim of vectors": (*rimmed(4, 8, 1, 0), ("pointwise", 4, 1)),
    "rim of pairs": (*rimmed(2, 4, 3, 3), ("rows", 2, 1)),
    "odd rim": (*rimmed(1, 3), ("pointwise", 4, 0)),
    "without a rim": (*rimmed(-2, -2, 1, 1), None),
    "rows around": (*rimmed(0, 0, 2, 1), ("pointwise", 4, 1)),
    # Rows of many vectors, few of which contain a boundary; some tensors are narrower than a
    # vector.
    "long": (*beside(101, 57, 43), ("pointwise", 4, 0)),
    "long, narrow ones": (*beside(1, 130, 2, 3, 67), ("pointwise", 4, 0)),
    "long, odd rim": (*rimmed(1, 2, 1, 0, columns=214), ("pointwise", 4, 0)),
}


@pytest.mark.parametrize("name", [name for name, choice in CHOICES.items() if choice[-1]])
def test_vectors_on_one_side_of_every_boundary(name: str) -> None:
    build, shapes, _, wanted = CHOICES[name]
    inputs = [dense(*shape) for shape in shapes]
    plan = define(build, inputs).plan(inputs)
    assert isinstance(plan, Plan)
    assert (plan.scheduler, plan.vector, plan.uniform_select) == wanted, str(plan)


@pytest.mark.parametrize("vector", [2, 1])
def test_fewer_elements_of_long_rows_than_planned(vector: int) -> None:
    """A vector of one element is within one row and on one side of every boundary, so no conditions
    are needed."""
    build, shapes, reference, _ = CHOICES["long"]
    inputs = [dense(*shape) for shape in shapes]
    fd = define(build, inputs)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    assert (plan.vector, plan.split_at_rows) == (4, 1)
    (joined,) = fd.execute(inputs, plan=plan.replace(vector=vector))
    assert torch.equal(joined, reference(*inputs))


def test_a_choice_of_elements_takes_no_branch() -> None:
    """Selects do not branch per element; only loads and the bounds check branch."""
    build, shapes, _ = beside(16, 32, 8)
    inputs = [dense(*shape).to(torch.bfloat16) for shape in shapes]
    text = define(build, inputs).cuda_code_for(inputs, True)
    assert toolkit.ptx(text, 90).count("bra") <= 1 + len(inputs)


TYPES = (torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.float64, torch.complex64)


def test_values_of_choices(rng: Any, set_option: Callable[[str, Any], None]) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    made = []
    for name, (build, shapes, reference, _) in CHOICES.items():
        for dtype in TYPES:
            inputs = [torch.from_numpy(rng.integers(-9, 9, size=s)).to(dtype) for s in shapes]
            made.append((f"{name} {dtype}", define(build, inputs), inputs, reference))
    testing.compile_batch((fd, inputs) for _, fd, inputs, _ in made)
    for name, fd, inputs, reference in made:
        (got,) = fd.execute(inputs)
        assert torch.equal(got, reference(*inputs)), name


def ends_flipped(fd: FusionDefinition, t: list[Any]) -> Any:
    """Coordinates that decrease along lanes, and coordinates that restart within a row."""
    rows, columns = fd.ops.size(t[0], 0), fd.ops.size(t[0], 1)
    folded = fd.ops.reshape(fd.ops.reshape(t[1], [-1]), [rows, columns])
    return fd.ops.cat([fd.ops.flip(t[0], [1]), folded, t[0]], 1)


@pytest.mark.parametrize("name", ["long", "long, narrow ones", "long, odd rim"])
def test_vectors_in_one_row_share_their_conditions(name: str) -> None:
    """A vector needs one division, and its loops have precomputed conditions only."""
    build, shapes, _, _ = CHOICES[name]
    inputs = [dense(*shape) for shape in shapes]
    fd = define(build, inputs)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    assert (plan.collapsed, plan.split_at_rows) == (2, 1)
    whole, cut = stage_text(define(build, inputs), inputs, "cse").split("if logical_not")
    conditions = re.findall(r"load w_in.* in (.*)", whole)
    assert len(conditions) == sum(width > 1 for _, width in shapes), whole
    assert all(re.fullmatch(r"v\d+", condition) for condition in conditions), whole
    assert len(re.findall(r"load r_in", cut)) == len(shapes)
    assert len(re.findall(r" % ", whole)) == 1, whole


def test_values_of_strided_and_misaligned_choices(
    rng: Any, set_option: Callable[[str, Any], None]
) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    data = torch.from_numpy(rng.integers(-9, 9, size=1 << 15))
    made = []
    for dtype in TYPES:
        x = data.to(dtype)
        odd, apart = x[1:].as_strided((7, 501), (501, 1)), x[3:].as_strided((7, 45), (135, 3))
        few, none = x[5:].as_strided((7, 1), (1, 1)), x[:0].reshape(7, 0)
        build, _, reference = beside()
        for inputs in ([odd, apart, few], [few, odd, few, odd], [odd, none, apart], [none, none]):
            made.append((define(build, inputs), inputs, reference(*inputs)))
        folded = x[2:].as_strided((3, 301), (301, 1))
        wide = x[7:].as_strided((7, 129), (130, 1))
        inputs = [wide, folded.reshape(43, 21)]
        want = torch.cat([wide.flip(1), folded.reshape(7, 129), wide], 1)
        made.append((define(ends_flipped, inputs), inputs, want))
    testing.compile_batch((fd, inputs) for fd, inputs, _ in made)
    taken = 0
    for fd, inputs, want in made:
        plan = fd.plan(inputs)
        taken += isinstance(plan, Plan) and plan.get("split_at_rows") == 1
        (got,) = fd.execute(inputs)
        assert torch.equal(got, want), (inputs[0].dtype, [tuple(t.shape) for t in inputs])
    assert taken >= len(TYPES)


def test_what_comes_from_cache_makes_no_vector_shorter() -> None:
    """A float32 row, which stays in cache, does not shorten vectors of bfloat16 matrices; a float32
    matrix does."""
    matrix, row = dense(6, 16, dtype=HALF), dense(16)
    for other, vector in ((row, 8), (dense(6, 16), 4)):
        inputs = [matrix, other]
        plan = define(gelu_to_half, inputs).plan(inputs)
        assert isinstance(plan, Plan)
        assert plan.vector == vector


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8])
@pytest.mark.parametrize("pieces", [1, 2, 4])
@pytest.mark.parametrize("step", [1, 2, 3, 4])
@pytest.mark.parametrize("columns", [16, 24, 46, 64])
def test_lanes_read_windows(
    columns: int,
    step: int,
    pieces: int,
    dtype: torch.dtype,
    rng: Any,
    set_option: Callable[[str, object], None],
) -> None:
    """Strided accesses: every step-th element, and tensors stacked along the innermost axis, select
    lanes from wider windows."""
    set_option("FUSER_HOST_DEBUG", 1)
    x = torch.from_numpy(rng.integers(-9, 9, size=(5, columns))).to(dtype)
    row = torch.from_numpy(rng.integers(-9, 9, size=len(range(0, columns, step)))).to(dtype)

    if any(len(range(p % step, columns, step)) != len(row) for p in range(pieces)):
        columns = columns // step * step  # skip the remaining elements
        row = row[: columns // step]
    fd = FusionDefinition()
    t = [fd.define_tensor(s.shape, dtype=as_dtype(dtype)) for s in (x, row)]
    each = [
        fd.ops.mul(fd.ops.slice(t[0], [0, p % step], [5, columns], [1, step]), t[1])
        for p in range(pieces)
    ]
    fd.add_output(fd.ops.stack(each, dim=2) if pieces > 1 else each[0])
    wanted = [x[:, p % step : columns : step] * row for p in range(pieces)]
    expected = torch.stack(wanted, 2) if pieces > 1 else wanted[0]
    assert torch.equal(fd.execute([x, row])[0], expected)


def test_what_is_read_by_windows() -> None:
    def windows(columns: int, step: int, pieces: int) -> int:
        x = dense(512, columns, dtype=HALF)
        fd = FusionDefinition()
        t = fd.define_tensor(x.shape, dtype=DataType.BFloat16)
        parts = [fd.ops.slice(t, [0, p], [512, columns], [1, step]) for p in range(pieces)]
        parts = [p + p for p in parts]
        fd.add_output(fd.ops.stack(parts, dim=2) if pieces > 1 else parts[0])
        return int(kernels_for(fd, [x.shape])[0]["plan"]["strided"])

    assert windows(1024, 2, 2) == 0b11  # both elements of pairs
    assert windows(1024, 2, 1) == 0b1
    assert windows(1024, 4, 1) == 0b1
    assert windows(1024, 1, 1) == 0  # adjacent elements: one vectorized access
    assert windows(1026, 2, 2) == 0  # unaligned rows
    assert windows(1024, 8, 1) == 0  # most of the window would be unused
