"""fuser/ops/extern.py compared with torch: values, number of kernels, and the ops around a call. It
is one file because every extern op is a row of these tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from fuser import (
    DataType,
    DTypeError,
    FusionDefinition,
    ShapeError,
    Unsupported,
    UserError,
    evaluate,
)
from fuser.plan import Plan

Define = Callable[..., Any]
Case = tuple[str, Define, Callable[..., Any], list[torch.Tensor], int]

torch.manual_seed(0)
X, W, BIAS = torch.randn(5, 7), torch.randn(3, 7), torch.randn(3)
A, B = torch.randn(4, 1, 5, 7), torch.randn(2, 7, 3)
WIDE = torch.arange(60.0).mul(37).remainder(59).reshape(5, 12)  # two elements are equal
INTS = torch.arange(60).mul(37).remainder(101).reshape(5, 12)
PLACES = torch.tensor([[0, 2, 1], [4, 0, 3]])
ROWS = torch.tensor([3, 0, 3])


def define(make: Define, *inputs: torch.Tensor) -> FusionDefinition:
    with FusionDefinition() as fd:
        made = make(fd.ops, *[fd.from_pytorch(x) for x in inputs])
        for out in made if isinstance(made, tuple) else (made,):
            fd.add_output(out)
    return fd


def kernels(fd: FusionDefinition, inputs: list[torch.Tensor]) -> int:
    plans = fd.plan(inputs)
    return 1 if isinstance(plans, Plan) else len(plans)


@pytest.mark.parametrize("known", [True, False])
def test_topk_of_a_scalar(known: bool) -> None:
    fd = FusionDefinition()
    x = fd.from_pytorch(INTS)
    k = fd.define_scalar(3) if known else fd.define_scalar(DataType.Int)
    for out in (*fd.ops.topk(x, k, sorted=True), *fd.ops.topk(x, k, 0, False, True)):
        fd.add_output(out)
    got = fd.execute([INTS] if known else [INTS, 3])
    want = (*INTS.topk(3), *INTS.topk(3, 0, False))
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    if not known:
        with pytest.raises(ShapeError, match="12 against 13"):
            fd.execute([INTS, 13])


def test_numbers_as_scalars() -> None:
    q = torch.randn(2, 2, 4, 8)
    fd = FusionDefinition()
    x = fd.from_pytorch(q)
    causal, scale = fd.define_scalar(True), fd.define_scalar(0.3)
    fd.add_output(fd.ops.sdpfa_fwd(x, x, x, None, None, fd.define_scalar(0.0), causal, scale)[0])
    (got,) = fd.execute([q])
    want = F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3)
    torch.testing.assert_close(got, want)
    older = define(lambda o, x: o.sdpfa_fwd(x, x, x, 0.0, True, 0.3)[0], q)
    torch.testing.assert_close(older.execute([q])[0], want)
    older = define(lambda o, x: o.sdpfa_fwd(x, x, x, None, True, scale=0.3)[0], q)
    torch.testing.assert_close(older.execute([q])[0], want)


def attention(o: Any, q: Any, k: Any, v: Any) -> Any:
    scores = o.matmul(q, o.permute(k, [0, 2, 1])) * 0.5
    shifted = o.exp(scores - o.max(scores, [2], keepdim=True))
    return o.matmul(shifted / o.sum(shifted, [2], keepdim=True), v)


# Name, definition, torch function, inputs, number of kernels.
CASES: list[Case] = [
    ("matmul", lambda o, x, w: o.matmul(x, o.permute(w, [1, 0])), lambda x, w: x @ w.T, [X, W], 0),
    ("vectors", lambda o, x, y: o.matmul(x, y), torch.matmul, [X[0], X[1]], 0),
    ("matrix by vector", lambda o, x, y: o.matmul(x, y), torch.matmul, [X, W[0]], 0),
    ("vector by matrices", lambda o, x, y: o.matmul(x, y), torch.matmul, [X[0], B], 0),
    ("batches that broadcast", lambda o, x, y: o.matmul(x, y), torch.matmul, [A, B], 0),
    ("linear", lambda o, x, w, b: o.linear(x, w, b), F.linear, [A, W, BIAS], 0),
    ("linear by a row", lambda o, x, w: o.linear(x, w), F.linear, [A, W[0]], 0),
    ("and a number", lambda o, x, w, b: o.linear(x, w, b), F.linear, [A, W[0], BIAS[0]], 1),
    (
        "scatter of a number",
        lambda o, x, i: o.scatter(x, i, 2, 1),
        lambda x, i: x.scatter(1, i, 2.0),
        [X, PLACES],
        1,
    ),
    (
        "bias and gelu",
        lambda o, x, w, b: o.gelu(o.linear(x, w) + b),
        lambda x, w, b: F.gelu(F.linear(x, w) + b),
        [X, W, BIAS],
        1,
    ),
    (
        "kernel, matmul, kernel",
        lambda o, x, w, b: o.gelu(o.linear(o.relu(x), w) + b),
        lambda x, w, b: F.gelu(F.linear(F.relu(x), w) + b),
        [X, W, BIAS],
        2,
    ),
    (
        "two layers",
        lambda o, x, w, b: o.matmul(o.tanh(o.linear(x, w, b)), w),
        lambda x, w, b: torch.tanh(F.linear(x, w, b)) @ w,
        [X, W, BIAS],
        1,
    ),
    (
        "attention",
        attention,
        lambda q, k, v: torch.softmax(q @ k.mT * 0.5, 2) @ v,
        [torch.randn(2, 5, 4), torch.randn(2, 6, 4), torch.randn(2, 6, 3)],
        1,
    ),
    (
        "its result and what comes of it",
        lambda o, x, w: (
            o.linear(x, w),
            o.sum(o.linear(x, w), [1]),
            o.permute(o.linear(x, w), [1, 0]),
        ),
        lambda x, w: ((y := F.linear(x, w)), y.sum(1), y.T),
        [X, W],
        2,
    ),
    (
        "of a transposed result",
        lambda o, x, w: o.matmul(o.permute(o.linear(x, w), [1, 0]), x),
        lambda x, w: F.linear(x, w).T @ x,
        [X, W],
        0,
    ),
    (
        "of a reduction",
        lambda o, x, w: o.linear(x / o.sum(x, [1], keepdim=True), w) * 2.0,
        lambda x, w: F.linear(x / x.sum(1, keepdim=True), w) * 2,
        [X.abs(), W],
        2,
    ),
    (
        "baddbmm",
        lambda o, c, a, b: o.baddbmm(c, a, b),
        torch.baddbmm,
        [torch.randn(2, 5, 3), torch.randn(2, 5, 7), B],
        0,
    ),
    (
        "topk",
        lambda o, x: o.topk(-x, 3, dim=1, sorted=True),
        lambda x: tuple(torch.topk(-x, 3, 1)),
        [WIDE],
        1,
    ),
    (
        "least, of dim 0",
        lambda o, x: o.topk(x, 2, 0, False, True),
        lambda x: tuple(torch.topk(x, 2, 0, False)),
        [WIDE],
        0,
    ),
    (
        "indices only",
        lambda o, x: o.topk(x, 3, sorted=True)[1] + 1,
        lambda x: torch.topk(x, 3)[1] + 1,
        [WIDE],
        1,
    ),
    (
        "gather of sorted",
        lambda o, x: o.gather(x, o.argsort(x, 1, stable=True), 1) + o.sort(x, 1)[0],
        lambda x: 2 * x.sort(1)[0],
        [WIDE],
        1,
    ),
    (
        "sort",
        lambda o, x: o.sort(x, 0, descending=True, stable=True),
        lambda x: tuple(torch.sort(x, stable=True, dim=0, descending=True)),
        [INTS],
        0,
    ),
    (
        "scans",
        lambda o, x: (o.cumsum(x, 1), o.cumprod(x, -1), o.cummax(x, 0), o.cummin(x, 1)),
        lambda x: (x.cumsum(1), x.cumprod(1), x.cummax(0)[0], x.cummin(1)[0]),
        [WIDE / 30],
        0,
    ),
    (
        "scatter",
        lambda o, x, i, s: o.scatter(x, i, s * 2.0, 0),
        lambda x, i, s: x.scatter(0, i, s * 2),
        [X, PLACES, torch.randn(2, 3)],
        1,
    ),
    (
        "index_put_accumulate",
        lambda o, x, i, v: o.index_put_accumulate(x, i, v),
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        [X, ROWS, torch.randn(3, 7)],
        0,
    ),
    (
        "index of int32",
        lambda o, x, i, v: o.index_put_accumulate(x, i, v),
        lambda x, i, v: x.index_put((i.long(),), v, accumulate=True),
        [X, ROWS.int(), torch.randn(3, 7)],
        1,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_case(case: Case, set_option: Any) -> None:
    """Each case is correct with every access checked, and after a rebuild from the definition's
    text."""
    set_option("FUSER_HOST_DEBUG", "1")
    _, make, reference, inputs, count = case
    fd = define(make, *inputs)
    got, wanted = fd.validate(inputs), reference(*inputs)
    for x, y in zip(got, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)
    assert kernels(fd, inputs) == count
    scope: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), scope)
    with FusionDefinition() as again:
        scope["nvfuser_fusion"](again)
    assert repr(again) == repr(fd)
    for x, y in zip(again.execute(inputs), got, strict=True):
        assert torch.equal(x, y)


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64, torch.complex128])
def test_products_keep_the_type(dtype: torch.dtype) -> None:
    inputs = [X.to(dtype), W.to(dtype), BIAS.to(dtype)]
    fd = define(lambda o, x, w, b: (o.linear(x, w, b), o.matmul(o.linear(x, w), w)), *inputs)
    first, second = fd.execute(inputs)
    assert first.dtype == second.dtype == dtype
    assert torch.equal(first, F.linear(*inputs))
    assert torch.equal(second, F.linear(inputs[0], inputs[1]) @ inputs[1])


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint8, *DTYPES])
def test_others_keep_the_type(dtype: torch.dtype) -> None:
    x = INTS.to(dtype)
    fd = define(lambda o, x: (o.cumsum(x, 1), *o.sort(x, 1, stable=True), o.cummax(x, 0)), x)
    total, values, indices, most = fd.execute([x])
    assert total.dtype == values.dtype == most.dtype == dtype
    assert torch.equal(total, x.cumsum(1, dtype=dtype))
    assert torch.equal(values, x.sort(dim=1, stable=True)[0])
    assert torch.equal(indices, x.sort(dim=1, stable=True)[1])


def test_a_half_result_rounds_before_it_is_used() -> None:
    x, w = X.bfloat16(), W.bfloat16()
    fd = define(lambda o, x, w: o.linear(x, w) * 1.0, x, w)
    (got,) = fd.execute([x, w])
    assert got.dtype == torch.float32
    assert torch.equal(got, F.linear(x, w).float())
    assert torch.equal(evaluate(fd, [x, w])[0].bfloat16().double(), evaluate(fd, [x, w])[0])


@pytest.mark.parametrize(
    "sizes", [(5, 7, 3), (1, 7, 3), (5, 1, 3), (0, 7, 3), (5, 0, 3), (1, 1, 1)]
)
def test_sizes_of_one_definition(sizes: tuple[int, int, int]) -> None:
    """Sizes of 0 and 1 work, although an operand of a call is then a tensor that no kernel
    stores."""
    m, k, n = sizes
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        w = fd.define_tensor([-1, -1])
        y = fd.ops.linear(fd.ops.relu(x), w)
        fd.add_output(y)
        fd.add_output(fd.ops.gelu(y) + 1.0)
    for scale in (1, 3):
        inputs = [torch.randn(m * scale, k), torch.randn(n * scale, k)]
        y, z = fd.execute(inputs)
        expected = F.linear(inputs[0].relu(), inputs[1])
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(z, F.gelu(expected) + 1)


def test_strides_of_operands() -> None:
    x, w = torch.randn(7, 5).T, torch.randn(3, 14)[:, ::2]
    fd = define(lambda o, x, w: o.linear(x, w), x, w)
    torch.testing.assert_close(fd.execute([x, w])[0], F.linear(x, w))


def test_equal_calls_run_once() -> None:
    fd = define(lambda o, x, w: o.linear(x, w) + o.exp(o.linear(x, w)), X, W)
    y = F.linear(X, W)
    torch.testing.assert_close(fd.execute([X, W])[0], y + y.exp())
    records = [r["kind"] for r in fd.fusion.records()["tensors"]]
    assert records.count("Library") == 2


def test_a_result_that_is_several_outputs() -> None:
    fd = define(lambda o, x, w: (y := o.linear(x, w), y), X, W)
    first, second = fd.execute([X, W])
    assert torch.equal(first, F.linear(X, W))
    assert torch.equal(first, second)
    assert first.data_ptr() != second.data_ptr()


@pytest.mark.parametrize("also", [False, True])
def test_in_place(also: bool) -> None:
    """A call reads an input that is overwritten in place by its own result, or by a kernel's."""
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    with FusionDefinition() as fd:
        a, b = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
        y = fd.ops.matmul(a, b)
        fd.add_output(a * 2.0 if also else y, alias_input=a)
        fd.add_output(y + 1.0)
    expected, version = x @ w, x._version
    doubled = x * 2
    (got,) = fd.execute([x, w])
    torch.testing.assert_close(got, expected + 1)
    torch.testing.assert_close(x, doubled if also else expected)
    assert x._version > version


def test_modes_of_the_caller_do_not_count() -> None:
    """Gradients are not recorded, and autocast changes no type."""
    fd = define(lambda o, x, w: o.linear(x, w), X, W)
    x = X.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (got,) = fd.execute([x, W])
    assert got.dtype == torch.float32
    assert not got.requires_grad
    assert torch.equal(got, F.linear(X, W))


def test_sizes_that_do_not_fit_in_a_run() -> None:
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.linear(x, w))
        fd.add_output(fd.ops.topk(x, 4, 1)[0])
    with pytest.raises(ShapeError, match=r"linear\(t0, t1\)"):
        fd.execute([torch.randn(3, 5), torch.randn(3, 6)])
    with pytest.raises(ShapeError, match=r"topk\(t0\)"):
        fd.execute([torch.randn(2, 3), torch.randn(2, 3)])


def test_what_is_shown_of_a_call_alone() -> None:
    fd = define(lambda o, x, w: o.linear(x, w), X, W)
    fd.execute([X, W])
    assert fd.plan([X, W]) == ()
    assert fd.fec.get_cuda_kernel([X, W]).startswith("// no kernel runs: ")


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_case_on_a_gpu(case: Case) -> None:
    _, make, reference, inputs, _ = case
    here = [x.cuda() for x in inputs]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # ordered with the kernels
        got = define(make, *here).execute(here)
    torch.cuda.current_stream().wait_stream(side)
    wanted = reference(*here)
    for x, y in zip(got, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert x.device == here[0].device
        torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-4)


# ---- attention and grouped matrix products


def attend(o: Any, q: Any, k: Any, v: Any, *rest: Any, **attributes: Any) -> Any:
    """The results, or with the gradient `rest` also the gradients of q, k and v."""
    out, total, seed, offset = o.sdpfa_fwd(q, k, v, **attributes)
    if not rest:
        return out, total
    arguments = {"dropout_p": None, "is_causal": None, "scale": None} | attributes
    return out, *o.sdpfa_bwd(
        rest[0],
        q,
        k,
        v,
        out,
        total,
        arguments["dropout_p"],
        arguments["is_causal"],
        seed,
        offset,
        arguments["scale"],
    )


def attention_by_torch(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, **attributes: Any
) -> list[torch.Tensor]:
    leaves = [t.double().requires_grad_() for t in (q, k, v)]
    out = F.scaled_dot_product_attention(*leaves, **attributes)
    return [out.detach(), *torch.autograd.grad(out, leaves, g.double())]


def heads(length: int, keys: int, size: int, dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    """Query, key, value and a gradient of the result."""
    made = [torch.randn(2, 3, n, size) for n in (length, keys, keys, length)]
    return [t.to(device, dtype) for t in made]


ATTENTION: list[tuple[int, int, int, dict[str, Any]]] = [
    (16, 16, 8, {}),
    (16, 16, 8, {"is_causal": True}),
    (5, 9, 20, {"scale": 0.3}),
]


@pytest.mark.parametrize(("length", "keys", "size", "attributes"), ATTENTION)
def test_attention_and_its_gradients(
    length: int, keys: int, size: int, attributes: dict[str, Any]
) -> None:
    inputs = heads(length, keys, size, torch.float32, "cpu")
    fd = define(lambda o, *t: attend(o, *t, **attributes), *inputs)
    got = fd.validate(inputs)
    for x, y in zip(got, attention_by_torch(*inputs, **attributes), strict=True):
        torch.testing.assert_close(x.double(), y, rtol=1e-4, atol=1e-5)
    assert kernels(fd, inputs) == 0


def test_attention_with_mask_and_bias() -> None:
    q, k, v, _ = heads(5, 9, 8, torch.float32, "cpu")
    bias, mask = torch.randn(2, 3, 5, 9), torch.rand(2, 1, 5, 9) < 0.7
    fd = define(lambda o, q, k, v, b, m: o.sdpfa_fwd(q, k, v, b, m)[0], q, k, v, bias, mask)
    (got,) = fd.validate([q, k, v, bias, mask])
    allowed = bias.masked_fill(~mask, -torch.inf)
    torch.testing.assert_close(got, F.scaled_dot_product_attention(q, k, v, attn_mask=allowed))


@pytest.mark.parametrize(
    ("rule", "attributes"),
    [("sdpfa-dropout", {"dropout_p": 0.5}), ("sdpfa-causal", {"is_causal": True})],
)
def test_attention_that_torch_lacks(rule: str, attributes: dict[str, Any]) -> None:
    q, k, v, _ = heads(5, 9, 8, torch.float32, "cpu")
    fd = define(lambda o, q, k, v: attend(o, q, k, v, **attributes), q, k, v)
    with pytest.raises(Unsupported, match=r"sdpfa_fwd\(\)") as caught:
        fd.execute([q, k, v])
    assert caught.value.rule == rule


def test_attention_with_dropout_has_no_reference() -> None:
    q, k, v, _ = heads(5, 5, 8, torch.float32, "cpu")
    fd = define(lambda o, q, k, v: attend(o, q, k, v, dropout_p=0.5), q, k, v)
    with pytest.raises(Unsupported) as caught:
        evaluate(fd, [q, k, v])
    assert caught.value.rule == "evaluate-2"


# GPUs require groups of a multiple of 16 bytes.
ENDS = torch.tensor([8, 8, 16])
GROUPS = [
    ((16, 16), (3, 16, 8)),
    ((3, 8, 16), (16, 16)),
    ((8, 16), (16, 8)),
    ((3, 8, 16), (3, 16, 8)),
]


@pytest.mark.parametrize(("a", "b"), GROUPS[:2] + GROUPS[3:])
def test_grouped_mm(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    inputs = [torch.randn(a), torch.randn(b), ENDS]
    fd = define(lambda o, x, y, ends: o.grouped_mm(x, y, ends), *inputs)
    if len(a) == len(b) == 3:
        torch.testing.assert_close(evaluate(fd, inputs)[0].float(), inputs[0] @ inputs[1])
    else:
        fd.validate(inputs)


@pytest.mark.parametrize("rows", [False, True])
def test_scaled_mm(rows: bool) -> None:
    x = torch.randn(16, 32).to(torch.float8_e4m3fn)
    w = torch.randn(48, 32).to(torch.float8_e4m3fn)
    scales = [torch.rand(16, 1), torch.rand(1, 48)] if rows else [torch.rand(1), torch.rand(1)]
    inputs = [x, w, *scales]
    try:
        torch._scaled_mm(x, w.t(), *scales, out_dtype=torch.bfloat16)
    except RuntimeError as error:  # raised by torch 2.11 for `rows`
        pytest.skip(f"torch cannot do it on this CPU: {str(error).splitlines()[0]}")
    fd = define(lambda o, x, w, s, t: o.scaled_mm(x, o.permute(w, [1, 0]), s, t), *inputs)
    (got,) = fd.validate(inputs)
    wanted = (x.float() * scales[0]) @ (w.float().T * scales[1])
    torch.testing.assert_close(got.float(), wanted, rtol=2e-2, atol=2e-2)
    assert got.dtype == torch.bfloat16


@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummax", "cummin"])
def test_scans_that_start_at(op: str) -> None:
    fd = define(lambda o, x: getattr(o, op)(x, 1, 3), INTS)
    (got,) = fd.execute([INTS])
    first = torch.full((5, 1), 3)
    scan = getattr(torch, op)(torch.cat([first, INTS], 1), 1)
    assert torch.equal(got, (scan if op.startswith("cums") or op == "cumprod" else scan[0])[:, 1:])


@pytest.mark.parametrize("op", ["cummax", "cummin"])
def test_places_of_extremes(op: str) -> None:
    fd = define(lambda o, x: o.result(getattr(o, op)(x, 1), 1), INTS)
    assert torch.equal(fd.execute([INTS])[0], getattr(torch, op)(INTS, 1)[1])


@pytest.mark.parametrize("op", ["cummax", "cummin"])
@pytest.mark.parametrize("dim", [0, -1])
def test_places_of_extremes_without_dims(op: str, dim: int) -> None:
    """result() works for tensors without dims too."""
    x = torch.tensor(3.5)

    def both(o: Any, t: Any) -> tuple[Any, Any]:
        values = getattr(o, op)(t, dim)
        return values, o.result(values, 1)

    got = define(both, x).execute([x])
    for result, expected in zip(got, getattr(torch, op)(x, dim), strict=True):
        assert result.dtype == expected.dtype
        assert result.equal(expected)
    with pytest.raises(UserError) as caught:
        define(lambda o, t: o.result(getattr(o, op)(t, dim), 2), x)
    assert caught.value.rule == "result-2"


REFUSED: list[tuple[str, type[Exception], Callable[[Any, Any], Any]]] = [
    ("sdpfa-2", UserError, lambda o, x: o.sdpfa_fwd(x, x, x, x, True)),
    ("sdpfa-2", UserError, lambda o, x: o.sdpfa_fwd(x, x, x, 0.1, x)),
    ("grouped-mm-1", Unsupported, lambda o, x: o.grouped_mm(x, x, x, x, x, alpha=x)),
    ("grouped-mm-2", UserError, lambda o, x: o.grouped_mm(x, x, x, scale1=x)),
    ("library-dtype-1", DTypeError, lambda o, x: o.grouped_mm(x, x, o.iota(2), x, x)),
    ("scaled-mm-1", Unsupported, lambda o, x: o.scaled_mm(x, x, x, x, output_gamma=True)),
    ("library-3", UserError, lambda o, x: o.library("cumsum", [x], dim=0.5)),
    ("library-dtype-1", DTypeError, lambda o, x: o.scaled_mm(x, x, x, x)),
    ("library-rank-1", ShapeError, lambda o, x: o.sdpfa_fwd(x, x, x)),
    ("library-rank-1", ShapeError, lambda o, x: o.linear(x, o.sum(x, 0), o.sum(x, 0))),
]


@pytest.mark.parametrize(("rule", "kind", "make"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refused(rule: str, kind: type[Exception], make: Callable[[Any, Any], Any]) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([4, 4])
    with pytest.raises(kind) as caught:
        make(fd.ops, x)
    assert caught.value.rule == rule  # type: ignore[attr-defined]


@pytest.mark.gpu
@pytest.mark.parametrize(("length", "keys", "size", "attributes"), ATTENTION)
def test_attention_on_a_gpu(length: int, keys: int, size: int, attributes: dict[str, Any]) -> None:
    inputs = heads(length, keys, size, torch.bfloat16, "cuda")
    got = define(lambda o, *t: attend(o, *t, **attributes), *inputs).execute(inputs)
    for x, y in zip(got, attention_by_torch(*inputs, **attributes), strict=True):
        torch.testing.assert_close(x.double(), y, rtol=3e-2, atol=3e-2)


@pytest.mark.gpu
def test_attention_with_dropout_on_a_gpu() -> None:
    inputs = heads(64, 64, 32, torch.bfloat16, "cuda")
    fd = define(lambda o, *t: attend(o, *t, dropout_p=0.3), *inputs)
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(fd.execute(inputs))
    assert torch.equal(runs[0][0], runs[1][0])
    assert not torch.equal(runs[0][0], runs[2][0])
    wide = [t.double() for t in inputs]
    fd = define(lambda o, *t: attend(o, *t), *wide)
    with pytest.raises(Unsupported, match="bfloat16"):
        fd.execute(wide)


@pytest.mark.gpu
@pytest.mark.parametrize(("a", "b"), GROUPS[:3])
def test_grouped_mm_on_a_gpu(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    inputs = [torch.randn(a).cuda().bfloat16(), torch.randn(b).cuda().bfloat16()]
    ends = ENDS.cuda()
    define(lambda o, x, y, e: o.grouped_mm(x, y, e), *inputs, ends).validate([*inputs, ends])


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [False, True])
def test_scaled_mm_on_a_gpu(rows: bool) -> None:
    """scaled_mm of small integers, scaled by powers of 2, is exact: even the hardware's short
    accumulators represent the sums."""
    x, w = torch.randint(-2, 3, (16, 32)), torch.randint(-2, 3, (48, 32))
    sizes = [(16, 1), (1, 48)] if rows else [(1,), (1,)]
    scales = [2.0 ** torch.randint(-3, 2, size) for size in sizes]
    narrow = [t.cuda().to(torch.float8_e4m3fn) for t in (x, w)]
    inputs = [*narrow, *[s.cuda() for s in scales]]
    fd = define(lambda o, x, w, s, t: o.scaled_mm(x, o.permute(w, [1, 0]), s, t), *inputs)
    (result,) = fd.validate(inputs)
    expected = (x.double() * scales[0]) @ (w.double().T * scales[1])
    assert torch.equal(result.cpu().double(), expected)


X3, HEADS = torch.randn(2, 3, 7), torch.randn(2, 5, 24)
# A call on a slice of an input, and its counterpart in torch.
VIEWS: list[tuple[str, Define, Callable[..., Any], list[torch.Tensor]]] = [
    (
        "rows",
        lambda o, x, w: o.linear(o.slice(x, [1, 0], [4, 7]), w),
        lambda x, w: F.linear(x[1:4], w),
        [X, W],
    ),
    (
        "columns, permuted",
        lambda o, x, w: o.matmul(o.permute(o.slice(x, [0, 2], [5, 6]), [1, 0]), o.select(w, 0, 0)),
        lambda x, w: x[:, 2:6].t() @ w[0],
        [X, torch.randn(3, 5)],
    ),
    (
        "every second",
        lambda o, x, w: o.linear(o.slice(x, [0, 0], [5, 7], [2, 1]), w, o.select(w, 0, 1)),
        lambda x, w: F.linear(x[::2], w, w[:, 0]),
        [X, W],
    ),
    (
        "merged",
        lambda o, x, w: o.linear(o.reshape(x, [6, 7]), w),
        lambda x, w: F.linear(x.reshape(6, 7), w),
        [X3, W],
    ),
    (
        "expanded",
        lambda o, x, y: o.matmul(o.expand(o.broadcast(x, [True, False, False]), [2, -1, -1]), y),
        lambda x, y: x.expand(2, 5, 7) @ y,
        [X, B],
    ),
    (
        "a result too, twice",
        lambda o, x, w: (y := o.slice(x, [0, 1], [5, 4]), o.matmul(y, w), o.matmul(w, w)),
        lambda x, w: (x[:, 1:4], x[:, 1:4] @ w, w @ w),
        [X, torch.randn(3, 3)],
    ),
    (
        "scan, sort",
        lambda o, x: (o.cumsum(o.slice(x, [0, 1], [5, 4]), 1), *o.sort(o.select(x, 3, 1))),
        lambda x: (x[:, 1:4].cumsum(1), *x[:, 3].sort()),
        [X],
    ),
    (
        "heads",
        lambda o, x: o.sdpfa_fwd(
            *(
                o.permute(o.reshape(part, [*o.shape(x)[:2], 2, 4]), [0, 2, 1, 3])
                for part in o.chunk(x, 3, 2)
            ),
            is_causal=True,
        )[0],
        lambda x: F.scaled_dot_product_attention(
            *(part.view(2, 5, 2, 4).transpose(1, 2) for part in x.chunk(3, 2)), is_causal=True
        ),
        [HEADS],
    ),
]


@pytest.mark.parametrize("case", VIEWS, ids=lambda case: case[0])
def test_parts_of_inputs_are_read_where_they_stand(case: Any) -> None:
    _, make, reference, inputs = case
    fd = define(make, *inputs)
    got, want = fd.execute(inputs), reference(*inputs)
    for x, y in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)
    assert kernels(fd, inputs) == 0


def test_a_part_of_what_is_overwritten_is_copied_before() -> None:
    fd = FusionDefinition()
    x, w = fd.from_pytorch(X), fd.from_pytorch(W)
    fd.add_output(fd.ops.linear(fd.ops.slice(x, [1, 0], [4, 7]), w))
    fd.add_output(x * 2.0, x)
    given = X.clone()
    (got,) = fd.execute([given, W])
    torch.testing.assert_close(got, F.linear(X[1:4], W))
    assert torch.equal(given, X * 2.0)
