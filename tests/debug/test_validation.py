"""fuser/debug/validation.py: results that validate() accepts, and its messages for wrong ones."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import fuser
from fuser import DataType, FusionDefinition, InternalError, UserError, testing
from fuser.debug.validation import TOLERANCES, difference
from tests.support.sampling import thorough


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
    """validate() tolerates a float32 rounding error in a float64 sum only if the product is
    computed in float32."""
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
        ([], "validate(): expected 1 references, one per result, got 0"),
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


# ---- half-type intermediates

Step = Any


def test_results_of_a_run_beside_its_inputs() -> None:
    """Validation of given results: a row mean, which is also an in-place output, and its rounded
    double."""
    with FusionDefinition() as fd:
        x, kept = fd.define_tensor([-1, -1]), fd.define_tensor([-1])
        mean = fd.ops.mean(x, [1])
        fd.add_output(mean, alias_input=kept)
        fd.add_output(fd.ops.mul(mean, 2.0))
        fd.add_output(fd.ops.cast(mean, DataType.BFloat16))
    inputs = [torch.ones(2, 1024), torch.zeros(2)]
    before = [t.clone() for t in inputs]
    results = fd.execute(inputs)
    fuser.validate_with_auto_inferred_outputs(fd.fusion, results, before)
    float32, bfloat16 = (TOLERANCES[t].of_sums(1024) for t in (torch.float32, torch.bfloat16))
    assert fuser.get_val_tolerances(fd.fusion, before) == [
        (float32.absolute, float32.relative),
        (bfloat16.absolute, bfloat16.relative),
    ]
    for wrong, rule in ([[results[0] + 1, results[1]], "validate-1"], [[], "validate-2"]):
        with pytest.raises((InternalError, UserError)) as caught:
            fuser.validate_with_auto_inferred_outputs(fd.fusion, wrong, before)
        assert caught.value.rule == rule


def _programs(generator: torch.Generator, count: int) -> list[tuple[FusionDefinition, list[Any]]]:
    """Random chains of arithmetic, casts, reductions, products and selects."""

    def pick(options: list[Any]) -> Any:
        return options[int(torch.randint(len(options), (), generator=generator))]

    halves = [DataType.Half, DataType.BFloat16]
    made = []
    for _ in range(count):
        rows, size = pick([3, 33]), pick([16, 48])
        fd = FusionDefinition()
        inputs: list[Any] = [
            torch.randn(rows, size, generator=generator).to(
                pick([torch.float16, torch.bfloat16, torch.float32])
            )
            for _ in range(3)
        ] + [torch.randn(size, size, generator=generator) / 4]
        o = fd.ops
        *values, weight = (fd.from_pytorch(x) for x in inputs)
        steps: list[Callable[[Any, Any], Any]] = [
            lambda x, y, o=o: o.add(x, y),
            lambda x, y, o=o: o.sub(x, y),
            lambda x, y, o=o: o.mul(x, y),
            lambda x, y, o=o: o.truediv(x, o.add(o.abs(y), 0.5)),
            lambda x, y, o=o: o.cast(x, pick(halves)),
            lambda x, y, o=o: o.cast(o.mul(x, y), pick(halves)),
            lambda x, y, o=o: o.cast(o.cast(x, DataType.Float), DataType.Double),
            lambda x, y, o=o: o.exp(o.minimum(x, 3.0)),
            lambda x, y, o=o: o.tanh(x),
            lambda x, y, o=o: o.gelu(x),
            lambda x, y, o=o: o.where(o.gt(x, y), x, o.mul(y, 0.3)),
            lambda x, y, o=o: o.clamp(x, -0.7, 0.9),
            lambda x, y, o=o: o.floor(o.mul(x, 4.0)),
            lambda x, y, o=o: o.sub(x, o.mean(x, [1], True)),
            lambda x, y, o=o: o.mul(x, o.rsqrt(o.add(o.var(x, [1], 1, True), 1e-3))),
            lambda x, y, o=o: o.softmax(x, 1),
            lambda x, y, o=o: o.flip(x, [1]),
            lambda x, y, o=o, w=weight: o.linear(
                o.cast(x, DataType.BFloat16), o.cast(w, DataType.BFloat16)
            ),
            lambda x, y, o=o, w=weight: o.matmul(o.cast(x, DataType.Float), w),
            lambda x, y, o=o: o.cumsum(o.cast(x, DataType.Float), 1),
        ]
        for _ in range(pick([3, 6, 9])):
            values.append(pick(steps)(pick(values), pick(values)))
        for value in values[-2:]:
            fd.add_output(o.cast(value, DataType.Float) if pick([True, False]) else value)
        fd.add_output(o.sum(o.cast(values[-1], DataType.Float), [0]))
        made.append((fd, inputs))
    return made


def test_right_programs_are_valid(rng: np.random.Generator) -> None:
    """30 random programs with half-type intermediates validate (60 with `--thorough`). In ten
    results of each, one corrupted element is detected if its error exceeds a wrong rounding of a
    half type."""
    drawn = torch.Generator().manual_seed(int(rng.integers(2**31)))
    programs = _programs(drawn, 60 if thorough() else 30)
    testing.compile_batch(programs)
    found = tried = 0
    for fd, inputs in programs:
        results = fd.validate(inputs)
        for place, right in enumerate(results):
            if not right.is_floating_point() or not bool(right.isfinite().all()):
                continue
            wrong = [r.clone() for r in results]
            flat = wrong[place].view(-1)
            at = int(torch.randint(flat.numel(), (), generator=drawn))
            flat[at] = flat[at] + right.abs().max() + 1
            fd._run = lambda inputs, *_, wrong=wrong: wrong
            tried += 1
            try:
                fd.validate(inputs)
            except InternalError as error:
                found += f"output {place} of" in str(error)
    assert 3 * tried > 5 * len(programs)
    assert found >= 0.95 * tried, (found, tried)


def test_a_tie_of_a_half_step_is_allowed_and_nothing_else() -> None:
    """1 + 2^-11 is a tie between two float16 numbers: both roundings are accepted, also after
    doubling in float32."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(fd.ops.cast(fd.ops.cast(x * x, DataType.Half), DataType.Float) * 2.0)
    exact = torch.tensor([1 + 2.0**-12, 1.25, 1.0])
    step = 2.0**-9  # ULP of the result
    for off, right in (
        ([step, 0, 0], True),
        ([0, 0, 0], True),
        ([2 * step, 0, 0], False),
        ([0, step, 0], False),
        ([0, 0, -step], False),
    ):
        got = (exact.double() ** 2).float().half().float() * 2 + torch.tensor(off)
        fd._run = lambda inputs, *_, got=got: [got]
        if right:
            fd.validate([exact])
        else:
            with pytest.raises(InternalError, match="output 0 of 1 differs"):
                fd.validate([exact])


def test_two_linears_of_bfloat16_are_valid(rng: np.random.Generator) -> None:
    drawn = torch.Generator().manual_seed(int(rng.integers(2**31)))
    p, w, q = (torch.randn(n, 256, generator=drawn).bfloat16() for n in (128, 256, 128))
    with FusionDefinition() as fd:
        a, b, c = map(fd.from_pytorch, (p, w, q))
        hidden = fd.ops.cast(fd.ops.add(fd.ops.linear(a, b), c), DataType.BFloat16)
        fd.add_output(fd.ops.add(fd.ops.linear(hidden, b), hidden))
    (right,) = fd.validate([p, w, q])
    for off in (1.0, -1.0):
        wrong = right.clone()
        wrong[5, 7] += off * float(right.abs().mean())
        fd._run = lambda inputs, *_, wrong=wrong: [wrong]
        with pytest.raises(InternalError, match="1 of 32768 elements, the first at"):
            fd.validate([p, w, q])
