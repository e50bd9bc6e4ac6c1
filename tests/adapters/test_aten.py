"""fuser/adapters/aten: the table of torch's ops."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

from fuser import DataType, FusionDefinition, Unsupported, evaluate
from fuser.adapters import aten
from fuser.debug.interpreter import torch_dtype
from tests.adapters.graphs import names, traced
from tests.adapters.op_db import Check, Result, Waiting, compared
from tests.support.sampling import thorough

# Overloads of TorchScript ops that were fused in the past: they must keep their rows.
SCRIPTED = """
add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar div.Tensor div.Scalar
atan2.default mul.Tensor mul.Scalar max.other min.other pow.Tensor_Tensor pow.Tensor_Scalar
pow.Scalar remainder.Tensor fmod.Tensor bitwise_and.Tensor __and__.Tensor bitwise_or.Tensor
__or__.Tensor bitwise_xor.Tensor __xor__.Tensor bitwise_left_shift.Tensor __lshift__.Tensor
bitwise_right_shift.Tensor __rshift__.Tensor eq.Tensor eq.Scalar ne.Tensor ne.Scalar ge.Tensor
ge.Scalar gt.Tensor gt.Scalar le.Tensor le.Scalar lt.Tensor lt.Scalar abs.default
bitwise_not.default ceil.default floor.default frac.default neg.default relu.default round.default
silu.default trunc.default log.default log10.default log1p.default log2.default lgamma.default
exp.default expm1.default erf.default erfc.default cos.default acos.default cosh.default
sin.default asin.default sinh.default tan.default atan.default tanh.default atanh.default
sqrt.default rsqrt.default reciprocal.default sigmoid.default isfinite.default isinf.default
isnan.default isneginf.default isposinf.default isreal.default rand_like.default softplus.default
threshold.default threshold_backward.default clamp.default where.self lerp.Scalar lerp.Tensor
addcmul.default native_dropout.default dropout.default native_dropout_backward.default
instance_norm.default _batch_norm_impl_index.default native_batch_norm.default batch_norm.default
_batch_norm_impl_index_backward.default native_batch_norm_backward.default
native_layer_norm.default layer_norm.default native_layer_norm_backward.default softmax.int
log_softmax.int _softmax.default _log_softmax_backward_data.default _softmax_backward_data.default
var.dim std.dim sum.dim_IntList mean.dim _grad_sum_to_size.default sum_to_size.default
_autocast_to_reduced_precision.default _autocast_to_full_precision.default to.dtype
type_as.default linear.default gelu.default gelu_backward.default tanh_backward.default
amax.default amin.default reshape.default view.default flatten.using_ints _to_copy.default
leaky_relu.default exp2.default erfinv.default acosh.default asinh.default index_select.default
gather.default permute.default transpose.int _reshape_copy.default view_copy.default
squeeze_copy.default squeeze_copy.dim unsqueeze_copy.default expand_copy.default
permute_copy.default transpose_copy.int t_copy.default
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", SCRIPTED)
def test_ops_of_scripts_have_rows(name: str) -> None:
    assert aten.row(f"aten.{name}") is not None


def test_names_are_those_of_this_torch() -> None:
    """Every row names an op of this torch: a misspelled row would never be used. Exceptions are
    names of other releases."""
    elsewhere = {"prim", "prims.fma.default", "aten._reshape_copy.default"}
    missing = set()
    for name in aten.rows():
        space, op, overload = name.split(".")
        packet = getattr(getattr(torch.ops, space), op, None)
        if space != "prim" and getattr(packet, overload, None) is None:
            missing.add(name)
    assert missing <= elsewhere


def test_bind() -> None:
    assert aten.bind("aten.add.Tensor", [1], {"other": 2}) == ([1, 2], {"alpha": 1})
    assert aten.bind("aten._softmax.default", [1, 2, False], {}) == ([1, 2, False], {})
    assert aten.bind("prim.add_optional.default", [1, None], {}) == ([1, None], {})


@pytest.mark.parametrize(
    ("name", "args", "reason"),
    [
        ("aten.mkldnn.default", [], aten.NO_ROW),
        ("aten.add.Tensor", [torch.ones(3), torch.ones(3, device="meta"), 1], "tensors on"),
        ("aten.sub.Tensor", [torch.ones(3) > 0, torch.ones(3) > 0], "bool"),
        ("aten.index.Tensor", [torch.ones(3), [torch.ones(3) > 0]], "by a mask"),
        (
            "aten.view_as_complex.default",
            [torch.ones(3, 2).half()],
            "complex numbers with parts of type",
        ),
        (
            "aten.complex.default",
            [torch.ones(3).half(), torch.ones(3).half()],
            "complex numbers with parts of type",
        ),
    ],
    ids=["unknown", "devices", "bool", "masks", "complex_halves", "parts_in_half"],
)
def test_refusal(name: str, args: list, reason: str) -> None:
    args, kwargs = aten.bind(name, args, {}) if name != "aten.mkldnn.default" else (args, {})
    assert reason in str(aten.refusal(name, args, kwargs))


@pytest.mark.parametrize(
    ("name", "dtype", "number", "reason"),
    [
        ("aten.sub.Scalar", torch.bool, 1, "None"),
        ("aten.sub.Scalar", torch.bool, True, "subtraction of bools"),
        ("aten.sub.Scalar", torch.bool, 1.0, "None"),
        ("aten.bitwise_and.Scalar", torch.int64, 1, "None"),
        ("aten.bitwise_and.Scalar", torch.int64, 1.0, "not defined on float32"),
        ("aten.bitwise_and.Scalar", torch.bool, True, "None"),
    ],
)
def test_refusals_tell_equal_numbers_apart(
    name: str, dtype: torch.dtype, number: Any, reason: str
) -> None:
    """The reason of a rejection is cached per call; the cache must distinguish 1, 1.0 and True."""
    args, kwargs = aten.bind(name, [torch.ones(3, dtype=dtype), number], {})
    assert reason in str(aten.refusal(name, args, kwargs))


def test_zero_writes_zeros_whatever_it_is_given() -> None:
    """`x.zero_()` is recorded as aten.zero, which must not multiply x by 0."""
    x = torch.tensor([1.0, torch.inf, torch.nan])
    fd = FusionDefinition()
    fd.add_output(aten.emit(fd, "aten.zero.default", [fd.from_pytorch(x)], {}))
    assert fd.execute([x])[0].tolist() == [0.0, 0.0, 0.0]


def test_unknown_op() -> None:
    with pytest.raises(Unsupported) as caught:
        aten.emit(FusionDefinition(), "aten.mkldnn.default", [], {})
    assert caught.value.rule == "adapter-row"


def test_form_that_no_definition_has() -> None:
    fd = FusionDefinition()
    with pytest.raises(Unsupported, match=r"aten\.permute\.default: permute") as caught:
        aten.emit(fd, "aten.permute.default", [fd.define_tensor([2, 2]), [0, 0]], {})
    assert caught.value.rule == "adapter-form"


def test_narrow_past_the_end_of_a_known_dim() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[2, 3], contiguity=[True, True], dtype=DataType.Float)
    aten.emit(fd, "aten.narrow.default", [x, 1, 1, 2], {})
    with pytest.raises(Unsupported, match="cannot view 2 elements as 3") as caught:
        aten.emit(fd, "aten.narrow.default", [x, 1, 1, 3], {})
    assert caught.value.rule == "aten-sizes"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (torch.ones(2, dtype=torch.bfloat16), torch.ones((), dtype=torch.float32)),
        (torch.ones(2, dtype=torch.int32), 2.5),
        (torch.ones(2, dtype=torch.uint8), torch.ones((), dtype=torch.int64)),
        (torch.ones(2, dtype=torch.bool), 3),
        (torch.ones((), dtype=torch.int64), torch.ones(2, dtype=torch.float16)),
        (torch.ones(2, dtype=torch.float16), torch.ones(2, dtype=torch.bfloat16)),
        (torch.ones(2, dtype=torch.int8), torch.ones((), dtype=torch.float64)),
    ],
    ids=lambda v: f"{v.dtype}-{v.ndim}" if isinstance(v, torch.Tensor) else repr(v),
)
def test_types_of_mixed_operands(left: torch.Tensor, right: object) -> None:
    fd = FusionDefinition()
    args = [
        fd.define_tensor(shape=list(t.shape), dtype=t.dtype) if isinstance(t, torch.Tensor) else t
        for t in (left, right)
    ]
    result = aten.emit(fd, "aten.mul.Tensor", args, {})
    assert f"torch.{result.dtype().torch_name}" == str(torch.result_type(left, right))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        *[(name, ([0],)) for name in ("squeeze.dims", "flip.default", "sum.dim_IntList")],
        *[(name, ([-1],)) for name in ("mean.dim", "logsumexp.default", "amax.default")],
        *[(name, (0,)) for name in ("squeeze.dim", "argmax.default", "any.dim", "max.dim")],
        *[("transpose.int", (0, -1)), ("permute.default", ([],)), ("roll.default", ([2],))],
        *[("_softmax.default", (0, False)), ("linalg_vector_norm.default", (2, [0]))],
        ("unsqueeze.default", (-1,)),
    ],
)
def test_dims_of_a_tensor_without_dims(name: str, args: tuple) -> None:
    """A tensor without dims counts as having one."""
    result, x = Result(), torch.tensor(1.5)
    packet, overload = name.split(".")
    with Check(result):
        getattr(getattr(torch.ops.aten, packet), overload)(x, *args)
    assert dict(result.right) == {f"aten.{name}": 1}, (result.wrong, result.refused)


def test_float64_is_the_referee_where_torch_rounds_on_its_way() -> None:
    """If torch's rounding is larger, float64 is the reference: a norm over one element has no
    gradient, and exp(88) overflows in half only. A result farther from float64 than torch's is
    still wrong."""
    result, one = Result(), torch.tensor([0.8])
    x, sign = torch.tensor([88.0, -3.0]).half(), torch.tensor([-1.0, 1.0]).half()
    with Check(result):
        _, mean, rstd = torch.ops.aten.native_layer_norm(-5.4 * one, [1], None, None, 1e-5)
        torch.ops.aten.native_layer_norm_backward(
            one, -5.4 * one, [1], mean, rstd, -8.5 * one, None, [True, True, False]
        )
        torch.ops.aten.soft_margin_loss(x, sign)
    assert result.wrong == {}
    call = Waiting("aten.exp.default", "", FusionDefinition(), [], [(0, None, one)], one.double)
    call.results = [(0, FusionDefinition().define_tensor([1]), one)]
    assert compared(call, [one * 1.01]) is not None
    assert compared(call, [one]) is None


_INF, _NAN = torch.inf, torch.nan


@pytest.mark.parametrize(
    ("name", "dtype", "args"),
    [
        (
            "heaviside.default",
            torch.float32,
            ([-1.0, 0.0, 2.0, _NAN, 3.0], [_NAN, 7.0, _INF, 5, 2]),
        ),
        ("div.Tensor_mode", torch.bfloat16, ([1.0, -1.0, 3.5], [0.1, 0.1, 0.7])),
        ("div.Tensor_mode", torch.float16, ([1.0, 1.5, -1.5], [0.1, 0.3, 0.3])),
        ("fmod.Scalar", torch.bfloat16, ([10.0, 88.0, -7.0], 0.7)),
        ("remainder.Scalar", torch.float16, ([10.0, 88.0, -7.0], 0.7)),
        ("threshold.default", torch.int32, ([2**31 - 2, 0, 1], 0.5, 20.5)),
        ("_to_copy.default", torch.float32, ([-1.0, -2.75, 255.5, 300.0, 3.0],)),
    ],
    ids=lambda v: str(v) if not isinstance(v, tuple) else "",
)
def test_values_that_only_torchs_order_of_roundings_gives(
    name: str, dtype: torch.dtype, args: tuple
) -> None:
    given = [torch.tensor(a, dtype=dtype) if isinstance(a, list) else a for a in args]
    fd = FusionDefinition()
    modes = {
        "div.Tensor_mode": {"rounding_mode": "trunc"},
        "_to_copy.default": {"dtype": torch.uint8},
    }
    named: dict = modes.get(name, {})
    bound, named = aten.bind(f"aten.{name}", given, named)
    tensors = [fd.from_pytorch(a) if isinstance(a, torch.Tensor) else a for a in bound]
    fd.add_output(aten.emit(fd, f"aten.{name}", tensors, named))
    (result,) = fd.execute([a for a in given if isinstance(a, torch.Tensor)])
    op, _, overload = name.partition(".")
    expected = getattr(getattr(torch.ops.aten, op), overload)(*bound, **named)
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


_SIN = torch.cat([torch.linspace(-9, 9, 257), torch.tensor([0.1, 0.3047])]).bfloat16()


@pytest.mark.parametrize(
    "decide",
    [
        lambda y: y == y.flip(0).amax(),
        lambda y: y.gt(0.3),
        lambda y: (y * 1e38).isinf(),
        lambda y: (y * 1e-40).count_nonzero(),
        lambda y: (y * 1e-40).any(),
        lambda y: y.argmax(),
        lambda y: y.min(0)[1],
        lambda y: y == 0.3,
        lambda y: (y * 0 + 2048) == 2049,
        lambda y: y.float() == y,
        lambda y: y.div(0.1, rounding_mode="trunc"),
        lambda y: y.floor(),
        lambda y: y // y.flip(0),
        lambda y: y.remainder(y.flip(0)),
        lambda y: (y * 1e38).nan_to_num(posinf=0, neginf=0) == 0,
    ],
    ids=[
        *("eq", "gt", "isinf", "count_nonzero", "any", "argmax", "min", "number", "integer"),
        *("mixed", "trunc", "floor", "floor_divide", "remainder", "nan_to_num"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_jumps_follows_rounded_values(dtype: torch.dtype, decide) -> None:
    """sin(x) of a half type is rounded before comparisons, rounding and other discontinuous
    functions, as in torch."""
    torch._dynamo.reset()
    function = torch.compile(lambda x: decide(x.sin()), backend="fuser")
    x = _SIN.to(dtype)
    torch.testing.assert_close(function(x), decide(x.sin()), rtol=0, atol=0, equal_nan=True)


def test_half_types_have_neighbours_of_their_own() -> None:
    x = torch.ones(3, dtype=torch.bfloat16)
    assert "half types" in str(aten.refusal("aten.nextafter.default", [x, x], {}))


def test_decompositions_keep_norms_over_rows() -> None:
    table = {str(op) for op in aten.decompositions()}
    assert {"aten._log_softmax.default", "aten.native_dropout.default"} <= table
    assert "aten.native_layer_norm_backward.default" not in table
    x, weight = torch.randn(2, 3), torch.randn(3)
    norm = aten.decompositions()[torch.ops.aten.native_layer_norm.default]
    assert norm(x, [3], weight, None, 1e-5) is NotImplemented


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(4, 5), (5,), (4, 5, 3, 2)], ids=str)
def test_the_gradient_of_a_loss_over_classes(
    shape: tuple[int, ...], weighted: bool, reduction: int
) -> None:
    name = "nll_loss2d" if len(shape) == 4 else "nll_loss"
    backward = getattr(torch.ops.aten, f"{name}_backward").default
    x = torch.randn(shape)
    target = torch.randint(0, 5, (*shape[:1], *shape[2:]) if len(shape) > 1 else ())
    weight = torch.rand(5) if weighted else None
    rest = target, weight, reduction, 2
    loss, total = getattr(torch.ops.aten, f"{name}_forward")(x, *rest)
    g = torch.randn(loss.shape)
    found = aten.decompositions()[backward](g, x, *rest, total)
    torch.testing.assert_close(found, backward(g, x, *rest, total), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("shape", "dim"), [((4, 33), -1), ((4, 33), 0), ((), 0), ((1,), 0)], ids=str
)
def test_softmax_divides_once_a_row(
    shape: tuple[int, ...], dim: int, dtype: torch.dtype, rng: np.random.Generator
) -> None:
    op = torch.ops.aten._softmax.default
    x = torch.tensor(8 * rng.standard_normal(shape), dtype=dtype)
    softmax = aten.decompositions()[op]
    found, exact = softmax(x, dim, False), op(x.double(), dim, False)
    assert (found.dtype, found.stride()) == (dtype, op(x, dim, False).stride())
    # float32: half an ULP for each of the exp, which is of a rounded difference below 64, the sum
    # of 33, the division and the product.
    relative = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 2.0**-8}[dtype]
    torch.testing.assert_close(found.double(), exact, rtol=relative, atol=0)
    divided = [n for n in traced(lambda x: softmax(x, dim, False), x).graph.nodes if n.op[0] == "c"]
    assert "div" not in names(divided)
    assert names(divided).count("reciprocal") == 1


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_softmax_of_what_is_no_number(value: float) -> None:
    op = torch.ops.aten._softmax.default
    x = torch.tensor([[value, 1.0, 2.0], [value, value, value]])
    torch.testing.assert_close(
        aten.decompositions()[op](x, 1, False), op(x, 1, False), equal_nan=True
    )


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_softmax_of_nothing(shape: tuple[int, ...]) -> None:
    softmax = torch.compile(lambda x: x.softmax(1), backend="fuser")
    assert softmax(torch.ones(shape)).shape == shape


@pytest.mark.parametrize("size", [0, 1, 2, 5])
@pytest.mark.parametrize("start", [None, 0, 1, 3, -1, -2, 7, -9])
@pytest.mark.parametrize("end", [None, 0, 1, 3, -1, 7, sys.maxsize, -9])
def test_a_slice_between_what_lies_around_it(size: int, start: int | None, end: int | None) -> None:
    op = torch.ops.aten.slice_scatter.default
    x, part = (
        torch.zeros(3, size, 4),
        torch.ones(3, len(range(*slice(start, end).indices(size))), 4),
    )
    for order in ((0, 1, 2), (1, 2, 0), (2, 1, 0)):
        dim = order.index(1)
        result = aten.decompositions()[op](x.permute(order), part.permute(order), dim, start, end)
        expected = op(x.permute(order), part.permute(order), dim, start, end)
        assert torch.equal(result, expected)
        assert result.stride() == expected.stride() or size < 2
        assert result is not x


@pytest.mark.parametrize("size", [1, 4, 5])
@pytest.mark.parametrize("start", [None, 1, -3, 7])
@pytest.mark.parametrize("end", [None, 3, -1, sys.maxsize])
@pytest.mark.parametrize("step", [2, 3])
def test_slices_with_steps(size: int, start: int | None, end: int | None, step: int) -> None:
    aten_ops, result = torch.ops.aten, Result()
    x = torch.randn(3, size, 4)
    part = x[:, slice(start, end, step)].clone()
    if not part.numel():
        return
    with Check(result):
        first = 0 if start is None else start
        last = sys.maxsize if end is None else end
        aten_ops.slice_backward(part, [3, size, 4], 1, first, last, step)
    assert result.right["aten.slice_backward.default"] == 1, (result.wrong, result.refused)
    given = torch.zeros(3, size, 4), part, 1, start, end, step
    found = aten.decompositions()[aten_ops.slice_scatter.default](*given)
    assert torch.equal(found, aten_ops.slice_scatter(*given))


@pytest.mark.parametrize("sizes", [[3, 1, 4], [3, 6, 4]], ids=str)
def test_scatters_of_one_element_of_each_row(sizes: list[int]) -> None:
    ops, how = torch.ops.aten, aten.decompositions()
    x, index = torch.randn(3, 5, 4), torch.randint(0, 5, sizes)
    src = torch.randn(sizes)
    for op, given in (
        (ops.scatter.src, (x, 1, index, src)),
        (ops.scatter.value, (x, -2, index, 1.5)),
        (ops.scatter.value, (x > 0, 1, index, True)),
        (ops.scatter.value, (x.long(), 1, index, 2)),
        (ops.scatter_add.default, (x, 1, index, src)),
    ):
        found = how[op](*given)
        if sizes[1] == 1:
            torch.testing.assert_close(found, op(*given), rtol=0, atol=0)
        else:  # several consecutive positions
            assert found is NotImplemented
    permuted, one = x.permute(2, 1, 0), index[:, :1].permute(2, 1, 0)
    assert how[ops.scatter.value](permuted, 1, one, 1.0) is NotImplemented
    fewer = index[:, :1, :2]
    assert how[ops.scatter.value](x, 1, fewer, 1.0) is NotImplemented


def test_indices_below_a_mask() -> None:
    result = Result()
    x, rows = torch.randn(4, 5), torch.tensor([[0], [-9], [3]])
    with Check(result):
        torch.ops.aten._unsafe_index(x, [rows.clamp(0), None])
        torch.ops.aten._unsafe_masked_index(x, rows >= 0, [rows, torch.arange(5)], 0.5)
    assert sum(result.right.values()) >= 2, (result.wrong, result.refused)


def test_numbers_of_exponential_size() -> None:
    """The values are finite, positive and distributed correctly for all bits of the generator,
    including the extremes."""
    how = aten.decompositions()[torch.ops.aten.exponential.default]
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        torch.manual_seed(0)
        drawn = how(torch.empty(100_000, dtype=dtype), 2.0).double()
        assert drawn.isfinite().all()
        assert (drawn > 0).all()
        assert abs(drawn.mean() - 0.5) < 0.01
        assert abs(drawn.std() - 0.5) < 0.01
    assert how(torch.empty(3), generator=torch.Generator()) is NotImplemented


@pytest.mark.parametrize(
    "numbers", [(0, 3.1), (0.5, 3.1), (-0.9, 2.9), (0.0, -8.000001, -4.0), (0, 5, 1.9)], ids=str
)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_numbers_of_ranges_of_integers(numbers: tuple, dtype: torch.dtype) -> None:
    """Torch before 2.14 truncates the arguments before counting in int64, later versions after."""
    op = torch.ops.aten.arange.start_step if len(numbers) > 2 else torch.ops.aten.arange.start
    result = Result()
    with Check(result):
        op(*numbers, dtype=dtype)
    assert result.right[str(op)] == 1, result.wrong


def test_the_gradient_of_dropout_of_integers_is_a_float() -> None:
    result = Result()
    with Check(result):
        mask = torch.tensor([True, False, True])
        torch.ops.aten.native_dropout_backward(torch.tensor([1, 2, 3]), mask, 2.0)
    assert result.right["aten.native_dropout_backward.default"] == 1, result.wrong


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_group_norm_in_pieces(layout: torch.memory_format, dtype: torch.dtype) -> None:
    op = torch.ops.aten.native_group_norm.default
    x = torch.randn(3, 8, 4, 5, dtype=dtype).to(memory_format=layout)
    weight, bias = torch.rand(8, dtype=dtype), torch.rand(8, dtype=dtype)
    found = aten.decompositions()[op](x, weight, bias, 3, 8, 20, 2, 1e-5)
    for a, b in zip(found, op(x, weight, bias, 3, 8, 20, 2, 1e-5), strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()


@pytest.mark.parametrize("sizes", [(3, 4), (2, 4, 3, 5)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_batch_norm_with_given_statistics_in_pieces(sizes: tuple[int, ...], dtype: Any) -> None:
    ops, how = torch.ops.aten, aten.decompositions()
    x, g = torch.randn(sizes, dtype=dtype), torch.randn(sizes, dtype=dtype)
    weight, bias, mean, var = torch.rand(4), torch.rand(4), torch.rand(4), torch.rand(4)
    forward, backward = ops._native_batch_norm_legit_no_training, ops.native_batch_norm_backward
    given = (x, weight, bias, mean, var, 0.1, 1e-5)
    results = forward(*given)
    saved = (g, x, weight, mean, var, *results[1:], False, 1e-5, [True] * 3)
    pairs = [*zip(how[forward.default](*given), results, strict=True)]
    pairs += zip(how[backward.default](*saved), backward(*saved), strict=True)
    for a, b in pairs:
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("on_gpu", [False, True])
def test_statistics_that_batch_norm_is_given(on_gpu: bool, dtype: torch.dtype) -> None:
    """On a GPU torch returns the given statistics, in its computation type; on the CPU it returns
    empty tensors."""
    fd = FusionDefinition()
    x, mean, var = torch.randn(3, 4, dtype=dtype), torch.randn(4), torch.rand(4)
    given = [fd.define_tensor(shape=[*t.shape], dtype=t.dtype) for t in (x, mean, var)]
    args = [given[0], None, None, *given[1:], False, 0.1, 1e-5]
    name = "aten._native_batch_norm_legit.default"
    for t in aten.emit(fd, name, args, {}, on_gpu):
        fd.add_output(t)
        assert torch_dtype(t.dtype()) == dtype
    found = evaluate(fd, [x, mean, var])[1:]
    expected = [mean, (var.double() + 1e-5).rsqrt()] if on_gpu else [torch.zeros(0)] * 2
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("wanted", [(True, True), (False, True)])
def test_the_gradient_of_a_bias_is_a_sum(wanted: tuple[bool, bool]) -> None:
    """The bias gradient becomes a sum next to the convolution's gradients, whichever of them are
    needed; without a bias the op is not decomposed."""
    op = torch.ops.aten.convolution_backward.default
    x, weight, g = torch.randn(2, 4, 5, 5), torch.randn(6, 4, 3, 3), torch.randn(2, 6, 3, 3)
    settings = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    found = aten.decompositions()[op](g, x, weight, [6], *settings, [*wanted, True])
    for a, b in zip(found, op(g, x, weight, [6], *settings, [*wanted, True]), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    none = aten.decompositions()[op](g, x, weight, None, *settings, [*wanted, False])
    assert none is NotImplemented


def test_the_bias_of_a_convolution_is_added_by_what_reads_it() -> None:
    """On a GPU the bias is added by a separate op, unless torch's depthwise kernel adds it; on a
    CPU the op is not decomposed."""
    op = torch.ops.aten.convolution.default
    settings = ([1, 1], [1, 1], [1, 1], False, [0, 0])
    image = torch.randn(2, 4, 5, 6)
    weight, single, bias = torch.randn(6, 4, 3, 3), torch.randn(4, 1, 3, 3), torch.randn(6)
    decomposed = aten.decompositions()[op]
    assert decomposed(image, weight, bias, *settings, 1) is NotImplemented
    x, w, one, b = (t.to("meta") for t in (image, weight, single, bias))
    assert decomposed(x, w, None, *settings, 1) is NotImplemented
    assert decomposed(x, one, b[:4], *settings, 4) is NotImplemented
    last = x.to(memory_format=torch.channels_last)
    assert decomposed(last, one, b[:4], *settings, 4).shape == (2, 4, 5, 6)
    for layout in (torch.channels_last, torch.contiguous_format):
        given = [t.to(memory_format=layout) for t in (x, w)]
        found, expected = decomposed(*given, b, *settings, 1), op(*given, b, *settings, 1)
        assert (found.shape, found.stride()) == (expected.shape, expected.stride())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    ("window", "stride", "padding", "divisor", "applies"),
    [
        ([2, 3], [], [0, 0], None, True),
        ([2], [2, 2], [0], 3, True),
        ([2, 2], [1, 1], [0, 0], None, False),
        ([2, 2], [2, 2], [1, 1], None, False),
        ([4, 4], [4, 4], [0, 0], None, False),  # the windows do not cover the image
    ],
)
def test_gradients_of_windows_side_by_side(
    layout: Any,
    window: list[int],
    stride: list[int],
    padding: list[int],
    divisor: Any,
    applies: Any,
) -> None:
    op = torch.ops.aten.avg_pool2d_backward.default
    x = torch.randn(2, 3, 8, 6).contiguous(memory_format=layout)
    settings = (window, stride, padding, False, True, divisor)
    g = torch.randn_like(torch.ops.aten.avg_pool2d.default(x, *settings))
    found = aten.decompositions()[op](g, x, *settings)
    if not applies:
        assert found is NotImplemented
        return
    expected = op(g, x, *settings)
    assert found.stride() == expected.stride()
    torch.testing.assert_close(found, expected)
    if layout == torch.contiguous_format:  # images without a batch
        torch.testing.assert_close(aten.decompositions()[op](g[0], x[0], *settings), expected[0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_the_op_suite(dtype: str) -> None:
    """A fixed fraction of torch's samples; all of them with `python -m tests.adapters.op_db --share
    1` or --thorough."""
    pytest.importorskip("expecttest")
    from tests.adapters.op_db import sweep

    result = sweep(1.0 if thorough() else 0.01, getattr(torch, dtype))
    assert result.wrong == {}
    assert sum(result.right.values()) > 30


def test_complex_numbers_of_half_precision_are_refused() -> None:
    """Results of complex32 are rejected; bfloat16 gives complex64 before torch 2.14."""
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.zeros(2, dtype=dtype)
        reason = aten.refusal("aten.mul.Tensor", [x, 2j], {})
        assert (reason is None) == (torch.result_type(x, 2j) == torch.complex64), reason
    fd = FusionDefinition()
    with pytest.raises(Unsupported) as caught:
        aten.emit(fd, "aten.mul.Tensor", [fd.define_tensor([2], dtype=DataType.Half), 2j], {})
    assert caught.value.rule == "aten-dtype"
