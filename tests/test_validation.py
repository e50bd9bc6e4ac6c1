"""fuser/validation.py: what validate() accepts and what it says otherwise."""

import math

import pytest
import torch

from fuser import DataType, FusionDefinition, InternalError, UserError
from fuser.validation import TOLERANCES, difference


def test_tolerances_cover_a_rounding_of_the_type() -> None:
    for dtype, tolerance in TOLERANCES.items():
        real = dtype.to_real() if dtype.is_complex else dtype
        assert tolerance.relative >= torch.finfo(real).eps / 2


@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_one_step_passes_and_much_more_does_not(dtype: torch.dtype) -> None:
    exact = torch.tensor([1.0, 3.0, -0.5]).to(
        torch.complex128 if dtype.is_complex else torch.float64
    )
    assert difference(exact.to(dtype), exact * (1 + TOLERANCES[dtype].relative / 4)) == ""
    assert difference(exact.to(dtype), exact * 1.6) != ""


def test_text() -> None:
    got = torch.tensor([[1.0, 2.0], [3.0, math.nan]])
    expected = torch.tensor([[1.0, 2.5], [3.5, math.nan]], dtype=torch.float64)
    assert difference(got, expected) == (
        "2 of 4 elements, the first at [0, 1]: got 2.0, expected 2.5 (rtol 1e-05, atol 1e-05)"
    )
    assert difference(got, expected[0]) == "got shape [2, 2], expected [2]"


def test_integers_and_bool_are_exact() -> None:
    big = torch.tensor([2**62 + 1])
    assert difference(big, big) == ""
    assert difference(big, big - 1) == (
        f"1 of 1 elements, the first at [0]: got {2**62 + 1}, expected {2**62} (rtol 0, atol 0)"
    )
    assert difference(torch.tensor([True]), torch.tensor([False])) != ""


def test_tolerances_grow_with_the_length_of_sums() -> None:
    got, exact = torch.tensor([1.0]), torch.tensor([1.0 + 1e-4], dtype=torch.float64)
    assert difference(got, exact) != ""
    assert difference(got, exact, 64) != ""
    assert difference(got, exact, 64 * 36) == ""
    whole = torch.tensor([1])
    assert difference(whole, whole + 1, 1 << 40) != "", "integers stay exact"


def test_validate_knows_the_length_of_sums() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.max(x, 1))
        fd.add_output(fd.ops.var(x, 1) + 1.0)
    ones = torch.ones(2, 64 * 36)
    for place in range(2):
        fd._run = lambda inputs, *_, p=place: [
            torch.ones(2) * (1 + 1e-4 * (p == place)) for place in range(2)
        ]
        if place:
            fd.validate([ones])
            continue
        with pytest.raises(InternalError, match="output 0 of 2 differs"):
            fd.validate([ones])


def test_validate_knows_what_was_computed_in_float32() -> None:
    """A product that float32 rounds, in a sum of float64; and one of float64 in the same one."""
    x = torch.rand(1000, generator=torch.Generator().manual_seed(3))
    y = x.double() + 1

    def run(narrow: bool) -> list[torch.Tensor]:
        with FusionDefinition() as fd:
            a, b = fd.from_pytorch(x), fd.from_pytorch(y)
            a = fd.ops.permute(a, [0]) if narrow else fd.ops.cast(a, DataType.Double)
            fd.add_output(a * a + b)
        off = x.double() * x.double() + y + 1e-7
        fd._run = lambda inputs, *_: [off]
        return fd.validate([x, y])

    run(narrow=True)
    with pytest.raises(InternalError, match="rtol 1e-09"):
        run(narrow=False)


def doubled(wrong: bool = False) -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1]) * 2)
    if wrong:
        fd._run = lambda inputs, *_: [inputs[0] * 3]
    return fd


def test_validate_1() -> None:
    with pytest.raises(InternalError) as caught:
        doubled(wrong=True).validate([torch.ones(2)])
    assert caught.value.rule == "validate-1"
    assert str(caught.value) == (
        "output 0 of 1 differs from fuser.evaluate: 2 of 2 elements, the first at [0]: got 3.0, "
        "expected 2.0 (rtol 1e-05, atol 1e-05)\n  hint: report fd.repro_script_for(inputs)"
    )


def test_validate_2() -> None:
    fd, ones = doubled(), torch.ones(2)
    assert fd.validate([ones], [ones * 2])[0].tolist() == [2.0, 2.0]
    for references, text in [
        ([], "validate(): the definition gives 1 results, got 0 references"),
        (
            [ones],
            "result 0 of 1 differs from its reference: 2 of 2 elements, the first at [0]: got 2.0, "
            "expected 1.0 (rtol 1e-05, atol 1e-05)",
        ),
        (
            [ones.double()],
            "result 0 of 1 differs from its reference: got torch.float32, expected torch.float64",
        ),
    ]:
        with pytest.raises(UserError) as caught:
            fd.validate([ones], references)
        assert (caught.value.rule, str(caught.value)) == ("validate-2", text)
