"""benchmarks/parallel.py: its programs on two gloo processes; times of overlapping kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.parallel import length, merged, overlap, parser, report, run
from benchmarks.parallel_networks import PROGRAMS, SMALL


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_train_compiled_as_in_eager_mode(name: str) -> None:
    """The first loss in bfloat16: within 1%, with dropout within 5%."""
    options = ["--contenders", "eager", "fuser", "--small", "--rounds", "1", "--steps", "1"]
    record = run(name, parser().parse_args([*options, "--device", "cpu", "--limit", "250"]))
    assert not record["failed"]
    numbers = record["numbers"]
    bound = 0.05 if name == "bert_ddp" else 0.01
    assert numbers["fuser"]["loss"] == pytest.approx(numbers["eager"]["loss"], rel=bound)
    assert numbers["eager"]["loss"] == pytest.approx(math.log(SMALL.words), rel=0.2)
    assert all(numbers[c]["ms"] > 0 and numbers[c]["first s"] > 0 for c in ("eager", "fuser"))
    (row,) = [line for line in report([record], ["fuser"]).split("\n") if name in line]
    assert f"{numbers['fuser']['ms']:.2f}" in row
    assert "1.000" in row


def test_overlap_of_spans(rng: np.random.Generator) -> None:
    """Unions and intersections of random spans, against sets of integers."""
    for _ in range(20):
        kinds = []
        for _ in range(2):
            starts = rng.integers(50, size=rng.integers(6)).tolist()
            kinds.append([(float(s), float(s + rng.integers(1, 9))) for s in starts])
        a, b = ({n for s, e in spans for n in range(int(s), int(e))} for spans in kinds)
        assert length(merged(kinds[0])) == len(a)
        assert overlap(*kinds) == len(a & b)
