"""fuser/adapters/aten: single rows of the op table compared with torch: dtypes, special values."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from fuser import DataType, FusionDefinition, Unsupported, evaluate
from fuser.adapters import aten
from fuser.debug.interpreter import torch_dtype

NAN, INF = float("nan"), float("inf")


def called(name: str, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Any]:
    """The result of an op's row in the row's dtype, and torch's function."""
    packet, overload = name.split(".")
    fd, given, named = FusionDefinition(), *aten.bind(f"aten.{name}", args, kwargs)
    inputs = [x for x in given if isinstance(x, torch.Tensor)]
    stand_ins = [fd.from_pytorch(x) if isinstance(x, torch.Tensor) else x for x in given]
    result = aten.emit(fd, f"aten.{name}", stand_ins, named)
    fd.add_output(fd.ops.set(result))
    [got] = evaluate(fd, inputs)
    return got.to(torch_dtype(result.dtype())), getattr(getattr(torch.ops.aten, packet), overload)


def assert_as_torch(name: str, *args: Any, **kwargs: Any) -> None:
    """Assert torch's dtype, and the values that torch computes in double precision."""

    def wide(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not (x.is_floating_point() or x.is_complex()):
            return x
        return x.to(torch.complex128 if x.is_complex() else torch.float64)

    got, op = called(name, *args, **kwargs)
    assert got.dtype == op(*args, **kwargs).dtype
    torch.testing.assert_close(got, op(*map(wide, args), **kwargs).to(got.dtype))


def test_the_gradient_of_softplus_takes_numbers_of_the_run() -> None:
    fd, g, x = (
        FusionDefinition(),
        torch.linspace(1, 2, 9).double(),
        torch.linspace(-4, 4, 9).double(),
    )
    given = [fd.from_pytorch(g), fd.from_pytorch(x)]
    given += [fd.define_scalar(DataType.Double), fd.define_scalar(DataType.Int)]
    fd.add_output(aten.emit(fd, "aten.softplus_backward.default", given, {}))
    for beta, threshold in ((0.7, 2), (2.5, 20)):
        expected = torch.ops.aten.softplus_backward(g, x, beta, threshold)
        torch.testing.assert_close(fd.execute([g, x, beta, threshold])[0], expected)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.uint8, torch.complex64])
@pytest.mark.parametrize("dim", [[], [1], [0, 1], None], ids=str)
@pytest.mark.parametrize("op", ["any", "all"])
def test_no_dims_are_none_to_any_and_all(
    op: str, dim: list[int] | None, dtype: torch.dtype, keepdim: bool
) -> None:
    x = torch.tensor([[1.0, 0.0, 3.0], [torch.nan, 0.0, 2.0]]).nan_to_num(5).to(dtype)
    got, torchs = called(f"{op}.dims", x, dim, keepdim)
    expected = torchs(x, dim, keepdim)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert torch.equal(got, expected)
    dynamic = torch.compile(lambda x: torchs(x, dim, keepdim), backend="fuser")
    assert torch.equal(dynamic(x), expected)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("op", ["sum.dim_IntList", "mean.dim", "amax.default", "amin.default"])
def test_no_dims_are_all_to_other_reductions(op: str, keepdim: bool) -> None:
    assert_as_torch(op, torch.randn(2, 3), [], keepdim)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_hash_of_integers(dtype: torch.dtype) -> None:
    x = (torch.arange(60).reshape(4, 15) * 7919 - 200000).to(dtype)
    for args, named in (((), {}), (([1],), {}), (([0],), {"keepdim": True}), (([0, 1],), {})):
        got, torchs = called("hash_tensor.default", x, *args, **named)
        expected = torchs(x, *args, **named)
        assert (got.dtype, got.shape) == (torch.uint64, expected.shape)
        assert torch.equal(got.view(torch.int64), expected.view(torch.int64))


def test_hash_of_floats_is_torchs() -> None:
    with pytest.raises(Unsupported):
        called("hash_tensor.default", torch.ones(3))


@pytest.mark.parametrize("args", [(0, 2, 1), (-1, 3, 2), (1, 5, 1), (0, 0, 1)])
def test_unfold(args: tuple[int, int, int]) -> None:
    assert_as_torch("unfold.default", torch.randn(4, 5), *args)
    assert_as_torch("unfold_copy.default", torch.randn(4, 5), *args)


@pytest.mark.parametrize("size", [0, 1])
def test_unfold_of_a_tensor_without_dims(size: int) -> None:
    assert_as_torch("unfold.default", torch.tensor(1.5), 0, size, 1)


REAL = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


MIXED = list(itertools.product(REAL, REAL))


def numbers(dtype: torch.dtype, seed: int, *shape: int) -> torch.Tensor:
    """Random numbers between 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(shape or (3, 4), generator=generator, dtype=torch.float64) * 0.8 + 0.1
    return (torch.complex(x, x.flip(0)) if dtype.is_complex else x).to(dtype)


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize(
    ("loss", "rest"),
    [
        *[(name, ()) for name in ("l1_loss", "mse_loss", "soft_margin_loss", "kl_div")],
        *[(name, (0.4,)) for name in ("smooth_l1_loss", "huber_loss")],
    ],
)
def test_losses_of_mixed_dtypes(loss: str, rest: tuple, reduction: int) -> None:
    for x, y in MIXED:
        args = numbers(x, 1), numbers(y, 2)
        assert_as_torch(f"{loss}.default", *args, reduction, *rest)


@pytest.mark.parametrize("reduction", [0, 1])
def test_entropies_of_mixed_dtypes(reduction: int) -> None:
    for x, y in MIXED:
        logits, target = numbers(x, 1), numbers(y, 2)
        for dtype in (None, torch.float64, torch.bfloat16):
            weight = None if dtype is None else numbers(dtype, 3)
            positive = None if dtype is None else numbers(dtype, 4, 4)
            name = "binary_cross_entropy_with_logits.default"
            assert_as_torch(name, logits, target, weight, positive, reduction)
            scales = None if dtype is None else numbers(dtype, 5, 4)
            name = "cross_entropy_loss.default"
            assert_as_torch(name, logits, target, scales, reduction, -100, 0.1)
            signs = (target > 0.5).to(y) * 2 - 1
            assert_as_torch("hinge_embedding_loss.default", logits, signs, 1.0, reduction)
            assert_as_torch("poisson_nll_loss.default", logits, target, True, True, 1e-8, reduction)


@pytest.mark.parametrize("reduction", [0, 1])
@pytest.mark.parametrize(
    ("loss", "rest"),
    [
        ("mse_loss", ()),
        ("smooth_l1_loss", (0.4,)),
        ("huber_loss", (0.4,)),
        ("soft_margin_loss", ()),
    ],
)
def test_gradients_of_losses_have_the_dtype_of_their_input(
    loss: str, rest: tuple, reduction: int
) -> None:
    """The dtypes agree for all mixtures that torch's CPU kernels support."""
    compared = 0
    for g, (x, y) in itertools.product(REAL, MIXED):
        gradient = numbers(g, 3) if reduction == 0 else numbers(g, 3, 1)[0]
        args = gradient, numbers(x, 1), numbers(y, 2), reduction, *rest
        try:
            getattr(torch.ops.aten, f"{loss}_backward")(*args)
        except RuntimeError:
            continue
        assert_as_torch(f"{loss}_backward.default", *args)
        compared += x != y or g != x
    assert compared or loss == "huber_loss"


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_distances_of_complex_numbers_are_real(reduction: int) -> None:
    for dtype in (torch.complex64, torch.complex128):
        for other in (dtype, torch.complex64, torch.float64, torch.bfloat16):
            assert_as_torch("l1_loss.default", numbers(dtype, 1), numbers(other, 2), reduction)
    if reduction != 1:
        x, y = torch.arange(-4, 8, dtype=torch.int32), torch.full([12], 3, dtype=torch.int32)
        assert_as_torch("l1_loss.default", x, y, reduction)


def test_a_loss_of_another_kind_than_its_memory_is_left_to_torch() -> None:
    x, y = numbers(torch.float32, 1), numbers(torch.complex64, 2)
    for name in ("soft_margin_loss", "huber_loss"):
        args, kwargs = aten.bind(f"aten.{name}.default", [x, y], {})
        assert "cannot store " in str(aten.refusal(f"aten.{name}.default", args, kwargs))


@pytest.mark.parametrize("loss", ["huber_loss", "soft_margin_loss"])
@pytest.mark.parametrize(("x", "y"), [(torch.float32, torch.float64), (torch.bfloat16,) * 2])
def test_compiled_losses_of_mixed_dtypes(loss: str, x: torch.dtype, y: torch.dtype) -> None:
    function = getattr(torch.nn.functional, loss)
    given = numbers(x, 1), numbers(y, 2)
    got = torch.compile(lambda a, b: function(a * 2, b), backend="fuser")(*given)
    assert got.dtype == x
    torch.testing.assert_close(got, function(given[0].double() * 2, given[1].double()).to(x))


DTYPES_OF_SUMS = [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.bool]


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("source", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("dtype", [*DTYPES_OF_SUMS, torch.uint8, torch.complex64], ids=str)
def test_complex_numbers_become_real_ones_where_a_program_says_so(
    source: torch.dtype, dtype: torch.dtype
) -> None:
    x = numbers(source, 1) * 3
    x[0] *= 0
    x[1] = torch.complex(x[1].real * 0, x[1].imag)
    got, op = called("to.dtype", x, dtype)
    assert torch.equal(got, op(x, dtype))
    for name in ("sum.dim_IntList", "mean.dim", "prod.dim_int"):
        if name == "mean.dim" and not (dtype.is_floating_point or dtype.is_complex):
            continue
        dim = 1 if name == "prod.dim_int" else [1]
        assert_as_torch(name, x, dim, False, dtype=dtype)
    if dtype.is_floating_point:
        for name in ("softmax.int", "log_softmax.int"):
            assert_as_torch(name, x, 1, dtype)


def results_of(
    inputs: list[torch.Tensor], calls: list[tuple[str, dict[str, Any], bool]]
) -> list[torch.Tensor]:
    """Results of op rows on the inputs: (op, its other arguments, True on a GPU) for each call."""
    fd = FusionDefinition()
    given = [fd.from_pytorch(t) for t in inputs]
    for name, rest, on_gpu in calls:
        args, kwargs = aten.bind(f"aten.{name}", given, rest)
        fd.add_output(aten.emit(fd, f"aten.{name}", args, kwargs, on_gpu))
    return fd.execute(inputs)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str
)
def test_gradients_of_losses_that_change_form(dtype: torch.dtype) -> None:
    """Gradients at the boundary between the two forms, on both sides of it, and at NaN."""
    values = [NAN, INF, -INF, 1.0, -1.0, 0.0, -0.0, 0.5, -0.5, 0.25, 2.0, -2.0, 3.0]
    x = torch.tensor(values, dtype=dtype)
    inputs = [torch.full_like(x, 3), x, torch.zeros_like(x)]
    arguments = {"smooth_l1_loss": "beta", "huber_loss": "delta"}
    forms = list(itertools.product(arguments, (0.0, 0.5, 1.0, 2.0)))
    calls = [
        (f"{loss}_backward.default", {"reduction": 0, arguments[loss]: width}, False)
        for loss, width in forms
    ]
    for got, (loss, width) in zip(results_of(inputs, calls), forms, strict=True):
        expected = getattr(torch.ops.aten, f"{loss}_backward")(*inputs, 0, width)
        message = f"{loss} of width {width}: {got}, expected {expected}"
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True, msg=message)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-6)], ids=str
)
def test_digamma_on_both_sides_of_its_poles(dtype: torch.dtype, tolerance: float) -> None:
    """digamma near its poles; torch itself loses digits there, so the reference uses the recurrence
    instead of the reflection formula."""
    poles = -torch.arange(16, dtype=torch.float64)[:, None]
    aside = 10.0 ** -torch.arange(1, 8, dtype=torch.float64) * 1.23
    random = torch.rand(2000, dtype=torch.float64) * 40 - 20
    x = torch.cat([t.flatten() for t in (poles + aside, poles - aside, poles - 0.5, random)])
    x = x.to(dtype)
    x = x[x != x.round()]
    up = x.double()[:, None] + torch.arange(31)
    exact = torch.digamma(up[:, -1]) - up[:, :-1].reciprocal().sum(1)
    (found,) = results_of([x], [("digamma.default", {}, False)])
    torch.testing.assert_close(found.double(), exact, rtol=tolerance, atol=tolerance)
    x = torch.tensor([0.0, -0.0, -1.0, -2.0, -1e10, INF, -INF, NAN, 1e-40, -1e-40], dtype=dtype)
    (found,) = results_of([x], [("digamma.default", {}, False)])
    torch.testing.assert_close(found, torch.digamma(x), equal_nan=True)


DECIMALS = (1, 2, 4, 5, 23, 310, -1, -2, -5, -310)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)
def test_rounding_to_decimals(dtype: torch.dtype) -> None:
    """Torch scales half types in float32 on the CPU, but in their own type on a GPU, which
    overflows for 710 to two decimals."""
    x = torch.cat([torch.linspace(-9, 9, 1001), torch.tensor([710, -746, 6e4, 0.125, INF, NAN])])
    x = x.to(dtype)
    forms = [(n, on_gpu) for on_gpu in (False, True) for n in DECIMALS if not on_gpu or 0 < n < 5]
    calls = [("round.decimals", {"decimals": n}, on_gpu) for n, on_gpu in forms]
    for got, (decimals, on_gpu) in zip(results_of([x], calls), forms, strict=True):
        power = torch.tensor(10.0**decimals if on_gpu else 1, dtype=dtype)
        expected = (x * power).round() / power if on_gpu else torch.round(x, decimals=decimals)
        message = f"{decimals} decimals, on a GPU: {on_gpu}"
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True, msg=message)


EXACT = (
    *(
        "add.Tensor",
        "sub.Tensor",
        "rsub.Tensor",
        "mul.Tensor",
        "div.Tensor",
        "floor_divide.default",
    ),
    *("remainder.Tensor", "fmod.Tensor", "maximum.default", "minimum.default", "fmax.default"),
    *("fmin.default", "lt.Tensor", "le.Tensor", "gt.Tensor", "ge.Tensor", "eq.Tensor", "ne.Tensor"),
    "copysign.Tensor",
)
WITHIN_ONE_UNIT = (
    *("pow.Tensor_Tensor", "atan2.default", "hypot.default", "xlogy.Tensor"),
    "floor_divide.default",  # torch rounds intermediate values
)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("other", [torch.float64, torch.float32, torch.int64], ids=str)
def test_tensors_without_dims_are_rounded_beside_half_types_where_torch_rounds_them(
    half: torch.dtype, other: torch.dtype
) -> None:
    """Each op and number, in both orders: 24 ops, 2 orders, 4 numbers. The numbers are inputs of
    one definition."""
    x = torch.linspace(-4, 4, 203).to(half)
    fd = FusionDefinition()
    tensor, stand_in = fd.from_pytorch(x), fd.from_pytorch(torch.tensor(1, dtype=other))
    cases = []
    for name in (*EXACT, *WITHIN_ONE_UNIT):
        packet, overload = name.split(".")
        for swapped in (False, True):
            given = (stand_in, tensor) if swapped else (tensor, stand_in)
            args, named = aten.bind(f"aten.{name}", given, {})
            fd.add_output(aten.emit(fd, f"aten.{name}", args, named))
            cases.append((name, swapped, getattr(getattr(torch.ops.aten, packet), overload)))
    assert len(cases) == 24 * 2
    for value in (3, -7, 2049, 5003) if other == torch.int64 else (0.1, -0.3, 1.7, 3.3):
        number = torch.tensor(value, dtype=other)
        for got, (name, swapped, op) in zip(fd.execute([x, number]), cases, strict=True):
            right = op(number, x) if swapped else op(x, number)
            assert got.dtype == right.dtype
            rtol = torch.finfo(half).eps if name in WITHIN_ONE_UNIT else 0.0
            torch.testing.assert_close(
                *(got, right),
                rtol=rtol,
                atol=0,
                equal_nan=True,
                msg=f"{name} {value} {'first' if swapped else 'second'}: {got} {right}",
            )


@pytest.mark.parametrize("mode", ["floor", "trunc", None])
def test_quotients_with_tensors_without_dims_are_rounded_as_torch_rounds_them(mode: Any) -> None:
    for half in (torch.bfloat16, torch.float16):
        x, number = torch.linspace(-4, 4, 203).to(half), torch.tensor(0.1, dtype=torch.float64)
        fd = FusionDefinition()
        given = [fd.from_pytorch(x), fd.from_pytorch(number)]
        args, named = aten.bind("aten.div.Tensor_mode", given, {"rounding_mode": mode})
        fd.add_output(aten.emit(fd, "aten.div.Tensor_mode", args, named))
        [got] = fd.execute([x, number])
        assert torch.equal(got, torch.div(x, number, rounding_mode=mode))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_gelu_at_infinities_is_what_x_times_its_limit_is(dtype: Any, approximate: str) -> None:
    """The result stored directly, and rounded after another op, which for half types is the short
    form."""
    x = torch.tensor([-INF, INF, NAN, -60000.0, 60000.0, 0.0], dtype=dtype)
    fd = FusionDefinition()
    args, named = aten.bind("aten.gelu.default", [fd.from_pytorch(x)], {"approximate": approximate})
    once = aten.emit(fd, "aten.gelu.default", args, named)
    fd.add_output(once)
    fd.add_output(fd.ops.cast(fd.ops.add(once, 0.0), DataType.Double))
    for got in fd.execute([x]):
        assert got[[0, 2]].isnan().all()
        torch.testing.assert_close(
            got[[1, 3, 4, 5]].double(), x[[1, 4, 4, 5]].double() * torch.tensor([1.0, 0, 1, 1])
        )
