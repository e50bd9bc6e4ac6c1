"""Random programs through torch.compile and memory_efficient_fusion, compared with eager."""

from __future__ import annotations

import pytest

from tests.adapters.compared import check
from tests.adapters.programs import program
from tests.support.sampling import thorough


@pytest.mark.parametrize("number", range(400 if thorough() else 6))
def test_a_program_does_what_eager_does(number: int) -> None:
    p = program(number)
    if p is not None:
        fault, _ = check(p, "cpu")
        assert fault is None, f"{fault}\n{p.text()}"


@pytest.mark.gpu
@pytest.mark.parametrize("first", range(4))
def test_programs_on_the_gpu(first: int) -> None:
    found = [(p, check(p, "cuda")[0]) for p in map(program, range(first, 40, 4)) if p is not None]
    assert not [f"{fault}\n{p.text()}" for p, fault in found if fault]
