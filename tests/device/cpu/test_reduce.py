"""Reductions over vectors: states of N lanes, and their merge in a fixed order."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.device.cpu.programs import Functions, build, run, runnable

LANES = 16
REAL = {torch.float32: "f32", torch.float64: "f64", torch.int32: "i32", torch.int8: "i8"}
SIMPLE = ("Sum", "Max", "Min", "Prod")


def functions() -> str:
    text = ""
    for t in REAL.values():
        for tag in SIMPLE:
            text += f"""
extern "C" void {tag}_{t}(i64 n, const {t}* a, const void*, const void*, {t}* out) {{
  for (i64 row = 0; row < n; ++row) {{
    Vec<{t}, {LANES}> s;
    identity_({tag}{{}}, s);
    for (i64 i = 0; i < 128; i += {LANES})
      accumulate_({tag}{{}}, s, load<{t}, {LANES}>(a + 128 * row + i));
    out[row] = merge_lanes<{tag}>(s);
  }}
}}
"""
        for tag in ("ArgMax", "ArgMin"):
            text += f"""
extern "C" void {tag}_{t}(i64 n, const {t}* a, {t}* values, const void*, i64* out) {{
  for (i64 row = 0; row < n; ++row) {{
    ArgState<Vec<{t}, {LANES}>> s;
    identity_({tag}{{}}, s);
    for (i64 i = 0; i < 128; i += {LANES})
      accumulate_({tag}{{}}, s, load<{t}, {LANES}>(a + 128 * row + i), iota<i64, {LANES}>(i));
    const ArgState<{t}> all = merge_lanes<{tag}>(s);
    values[row] = all.f0;
    out[row] = all.f1;
  }}
}}
"""
    for tag in ("Any", "All"):
        text += f"""
extern "C" void {tag}_bool(i64 n, const bool* a, const void*, const void*, bool* out) {{
  for (i64 row = 0; row < n; ++row) {{
    Vec<bool, {LANES}> s;
    identity_({tag}{{}}, s);
    for (i64 i = 0; i < 128; i += {LANES})
      accumulate_({tag}{{}}, s, load<bool, {LANES}>(a + 128 * row + i));
    out[row] = merge_lanes<{tag}>(s);
  }}
}}
"""
    for t in ("f32", "f64"):
        text += f"""
extern "C" void Welford_{t}(i64 n, const {t}* a, const void*, const void*, {t}* out) {{
  for (i64 row = 0; row < n / 3; ++row) {{
    WelfordState<Vec<{t}, {LANES}>> s;
    identity_(Welford{{}}, s);
    for (i64 i = 0; i < 128; i += {LANES})
      accumulate_(Welford{{}}, s, load<{t}, {LANES}>(a + 128 * row + i));
    const WelfordState<{t}> all = merge_lanes<Welford>(s);
    out[3 * row] = all.f0;
    out[3 * row + 1] = all.f1;
    out[3 * row + 2] = all.f2;
  }}
}}
extern "C" void OnlineSoftmax_{t}(i64 n, const {t}* a, const void*, const void*, {t}* out) {{
  for (i64 row = 0; row < n / 2; ++row) {{
    OnlineState<Vec<{t}, {LANES}>> s;
    identity_(OnlineSoftmax{{}}, s);
    for (i64 i = 0; i < 128; i += {LANES})
      accumulate_(OnlineSoftmax{{}}, s, load<{t}, {LANES}>(a + 128 * row + i));
    const OnlineState<{t}> all = merge_lanes<OnlineSoftmax>(s);
    out[2 * row] = all.f0;
    out[2 * row + 1] = all.f1;
  }}
}}
"""
    return text


@pytest.fixture(scope="module", params=runnable())
def library(request: pytest.FixtureRequest) -> Functions:
    return build(functions(), request.param)


def rows_of(dtype: torch.dtype, request: pytest.FixtureRequest) -> Tensor:
    """64 rows of 128 elements, some with equal elements, infinities, NaN and zeros."""
    seed = request.config.option.seed
    print(f"seed {seed}: repeat with --seed={seed}")
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point:
        return torch.randint(-100, 100, (64, 128), generator=generator).to(dtype)
    x = torch.randn(64, 128, generator=generator, dtype=dtype)
    x[1] = 0.0
    x[2, 17] = math.nan
    x[3, [5, 99]] = math.inf
    x[4, [5, 99]] = -math.inf
    x[5] = -math.inf
    x[6, [70, 20]] = math.nan
    x[7] = x[7].round()
    return x


@pytest.mark.parametrize("dtype", REAL, ids=REAL.values())
def test_one_field(dtype: torch.dtype, library: Functions, request: pytest.FixtureRequest) -> None:
    x = rows_of(dtype, request)
    for tag in SIMPLE:
        if tag == "Prod" and dtype.is_floating_point:
            x = x.clamp(-2, 2) / 4 + 1  # no product is denormal
        got = run(library, f"{tag}_{REAL[dtype]}", [x], torch.empty(len(x), dtype=dtype))
        if tag in ("Max", "Min"):
            expected = x.amax(1) if tag == "Max" else x.amin(1)
            torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
        elif not dtype.is_floating_point:
            wide = x.long()
            exact = wide.sum(1) if tag == "Sum" else wide.prod(1)
            assert torch.equal(got, exact.to(dtype))
        else:
            wide = x.double()
            exact = wide.sum(1) if tag == "Sum" else wide.prod(1)
            size = wide.abs().sum(1) if tag == "Sum" else exact.abs()
            bound = 128 * torch.finfo(dtype).eps * size
            same = ((got.double() - exact).abs() <= bound) | (got == exact)
            assert (same | (got.isnan() & exact.isnan())).all(), tag


@pytest.mark.parametrize("dtype", REAL, ids=REAL.values())
def test_argmax(dtype: torch.dtype, library: Functions, request: pytest.FixtureRequest) -> None:
    x = rows_of(dtype, request)
    for tag in ("ArgMax", "ArgMin"):
        values = torch.empty(len(x), dtype=dtype)
        got = run(library, f"{tag}_{REAL[dtype]}", [x, values], torch.empty(len(x)).long())
        wide = x.double().nan_to_num(nan=math.inf if tag == "ArgMax" else -math.inf)
        nan = x.isnan() if dtype.is_floating_point else torch.zeros_like(x, dtype=torch.bool)
        best = wide.amax(1) if tag == "ArgMax" else wide.amin(1)
        for row in range(len(x)):
            is_best = nan[row] if nan[row].any() else wide[row] == best[row]
            assert got[row] == int(is_best.nonzero()[0]), (tag, row)
            torch.testing.assert_close(values[row], x[row, got[row]], equal_nan=True)


def test_any_and_all(library: Functions, request: pytest.FixtureRequest) -> None:
    generator = torch.Generator().manual_seed(request.config.option.seed)
    x = torch.rand(64, 128, generator=generator) < torch.linspace(0, 1, 64)[:, None] ** 4
    x[-1] = True
    x[0] = False
    assert torch.equal(run(library, "Any_bool", [x], torch.empty(64).bool()), x.any(1))
    assert torch.equal(run(library, "All_bool", [x], torch.empty(64).bool()), x.all(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_welford(dtype: torch.dtype, library: Functions, request: pytest.FixtureRequest) -> None:
    x = rows_of(dtype, request)[8:] + 3
    got = run(library, f"Welford_{REAL[dtype]}", [x], torch.empty(3 * len(x), dtype=dtype))
    mean, squares, count = got.view(-1, 3).double().unbind(1)
    wide, eps = x.double(), torch.finfo(dtype).eps
    assert (count == 128).all()
    torch.testing.assert_close(mean, wide.mean(1), rtol=32 * eps, atol=0)
    torch.testing.assert_close(squares, wide.var(1, correction=0) * 128, rtol=64 * eps, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_online_softmax(
    dtype: torch.dtype, library: Functions, request: pytest.FixtureRequest
) -> None:
    x = rows_of(dtype, request)
    got = run(library, f"OnlineSoftmax_{REAL[dtype]}", [x], torch.empty(2 * len(x), dtype=dtype))
    top, total = got.view(-1, 2).unbind(1)
    torch.testing.assert_close(top, x.amax(1), rtol=0, atol=0, equal_nan=True)
    wide = x.double()
    exact = torch.exp(wide - wide.amax(1, keepdim=True)).sum(1)
    exact = torch.where(wide.amax(1) == -math.inf, 0.0, exact)  # no finite element
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(total.double(), exact, rtol=64 * eps, atol=0, equal_nan=True)
