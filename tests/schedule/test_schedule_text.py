"""The text of a schedule: every field, read back."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import texts
from benchmarks.families import TABLES
from fuser import FusionDefinition, UserError, _core
from tests.support.reducing import kernels_for

Schedule = _core.schedules.Schedule

# Every field of every struct, none at its default.
WHOLE = """form single_pass
dim d0 [a0 a2]
dim d1 [a1] divides lines(1, 32)
dim d2 []
nest
  d1 Serial unroll(4)
  d0 Grid 128
  d0 Grid
  d1 Cluster 2
  d0 ThreadY 4
  d1 ThreadX 32
  d1 Unroll 3
  d0 GridThread
  d1 Vector 8
  lanes tail axes(2) uniform_select split_at_rows
  computed 0-3 7 5-6
  stores 0 2
nest ends
  d1 Vector 1
access 0 Scalar
access 1 Aligned 8 streaming
access 2 Unaligned 8
access 3 Strided 8 window(16, 2, 3, 1) streaming
staging access 1 Registers Row
staging access 2 Shared PackedRows stages(3)
staging access 3 Shared Tile rows_per_vector(4) prefetch swizzle(2) pad(1)
staging value 5 Registers Row
reduction d1 LastBlock
reduction d0 Cooperative columns(32)
launch threads(512) min_blocks_per_sm(2) reverse_grid
"""


def test_the_text_is_read_back() -> None:
    assert str(Schedule(WHOLE)) == WHOLE


def test_space_empty_lines_and_the_order_of_attributes_are_free() -> None:
    free = WHOLE.replace("\n", "  \n\n").replace(
        "lanes tail axes(2) uniform_select", "lanes   uniform_select tail axes( 2 )"
    )
    assert Schedule(free) == Schedule(WHOLE)


@pytest.mark.parametrize("arch", [80, 90])
def test_schedules_of_all_benchmarks_are_read_back(arch: int) -> None:
    seen: set[str] = set()
    for family in TABLES.values():
        for case in (row.case() for row in family):
            inputs = case.make(texts.Described())
            shapes, strides = [t.shape for t in inputs], [t.stride() for t in inputs]
            fd = case.definition(inputs, False)
            kernels = kernels_for(fd, shapes, arch, text=True, strides=strides)
            seen.update(kernel["schedule"] for kernel in kernels)
    assert len(seen) > 100
    for text in seen:
        made = Schedule(text)
        assert str(made) == text
        assert made == Schedule(str(made))


def random_text(rng: np.random.Generator) -> str:
    """A text of random lines, each with random attributes."""

    def number(most: int = 1 << 20) -> int:
        return int(rng.integers(1, most))

    def some(*attributes: str) -> str:
        return "".join(f" {a}" for a in attributes if a and rng.random() < 0.5)

    def of(*words: str) -> str:
        return str(rng.choice(words))

    lines = [f"dim d{d} [a{d}]{some('divides', 'lines(2, 64)')}" for d in range(3)]
    for _ in range(number(3)):
        lines.append(f"nest{some('ends')}")
        for _ in range(number(6)):
            bind = of("Grid", "Cluster", "ThreadY", "ThreadX", "Serial", "Unroll", "Vector")
            unroll = f"unroll({number(9) + 1})" if bind == "Serial" else ""
            lines.append(f"  d{number(3)} {bind} {number()}{some(unroll)}")
        properties = some("tail", f"axes({number(5)})", "uniform_select", "split_at_rows")
        if properties:
            lines.append(f"  lanes{properties}")
    for i in range(number(5)):
        kind = of("Aligned", "Unaligned", "Strided")
        window = f"window({number(99)}, 2, 3, 4)" if kind == "Strided" else ""
        lines.append(f"access {i} {kind} {number(16) + 1}{some(window, 'streaming')}")
    for i in range(number(4)):
        staged = f"staging {of('access', 'value')} {i} {of('Registers', 'Shared')}"
        shape = of("Row", "PackedRows", "Tile")
        more = some(f"rows_per_vector({number(9) + 1})", f"stages({number(9) + 1})", "prefetch")
        lines.append(f"{staged} {shape}{more}")
    lines.append(f"launch threads({number()}){some('min_blocks_per_sm(3)', 'reverse_grid')}")
    return "\n".join(lines) + "\n"


def test_random_schedules_are_read_back(rng: np.random.Generator) -> None:
    for _ in range(500):
        text = random_text(rng)
        assert str(Schedule(text)) == text
        assert hash(Schedule(text)) == hash(Schedule(str(Schedule(text))))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dim d1 [a0]", "line 1: expected dim 0 before dim 1"),
        ("dim d0 [a0", 'expected an axis like a0, or "]", got the end'),
        ("dim d0 [a0] splits", 'expected the end of the line, got "splits"'),
        ("nest\n  d0 ThreadZ 4", "line 2: expected a kind of loop (GridThread, Grid,"),
        ("nest\n  d0 ThreadX 12345678901", "expected a number"),
        ("nest\n  lanes axes(x)", 'expected a number, got "x"'),
        ("nest\n  lanes axes 2", 'expected "(", got "2"'),
        ("access 0 Aligned 4 streaming streaming", "expected the end of the line"),
        ("staging tensor 0 Shared Row", 'expected "value", got "tensor"'),
        ("staging value 0 L2 Row", "expected a memory (Registers, Shared, Reload)"),
        ("reduction d0 Sometimes", "expected a scope (InTile, LastBlock, Cooperative)"),
        ("threads 4", "expected form, dim, nest, access, staging, reduction or launch"),
        ("nest\n  computed 0-99999999", "expected fewer numbers"),
    ],
)
def test_schedule_1_names_the_line_and_what_is_expected(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        Schedule(text)
    assert caught.value.rule == "schedule-1"
    assert message in str(caught.value)
    assert "hint: start from a text of fd.schedules(inputs)" in str(caught.value)


def test_text_of_a_kernel() -> None:
    fd = FusionDefinition()
    fd.add_output(fd.ops.softmax(fd.define_tensor([-1, -1]), 1))
    (kernel,) = kernels_for(fd, [(4096, 1024)], text=True)
    assert kernel["schedule"] == SOFTMAX


# The example of docs/design/schedules.md.
SOFTMAX = """dim d0 [a0]
dim d1 [a1]
nest
  d0 Grid
  d1 Unroll 2
  d0 ThreadY 1
  d1 ThreadX 128
  d1 Vector 4
  lanes axes(1)
access 0 Aligned 4
access 1 Aligned 4
staging access 0 Registers Row
reduction d1 InTile
launch threads(128)
"""
