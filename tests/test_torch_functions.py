"""fuser/torch_functions.py: every torch function that accepts a definition's tensors, compared with
torch.

One definition holds all calls of a kind, so that its kernels are compiled in one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fuser import DataType, FusionDefinition, Tensor, UserError
from fuser.torch_functions import ALIASES, FUNCTIONS

X = torch.linspace(0.05, 0.95, 24).reshape(4, 6)
Y = torch.linspace(0.9, 0.1, 24).reshape(4, 6)
N = torch.arange(1, 25).reshape(4, 6) % 7 + 1
M = torch.arange(24).reshape(4, 6) % 3 == 0
B = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
V = torch.linspace(0.5, 1.5, 6)
I = torch.tensor([[2, 0, 1, 3, 3, 0]])  # noqa: E741
DATA = {"x": X, "y": Y, "n": N, "m": M, "b": B, "v": V, "i": I}


# Calls as in programs, with x, y (floats), n (integers), m (a mask), b (three dims), v (a vector)
# and i (indices); "torch" and "F" are the modules.
def words(text: str) -> list[str]:
    return text.split()


UNARY_NAMES = words(
    "abs absolute neg negative positive exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square "
    "reciprocal sin cos tan asin acos atan sinh cosh tanh asinh atanh arcsin arccos arctan "
    "arcsinh arctanh erf erfc erfinv lgamma sigmoid floor ceil round trunc fix frac sign "
    "signbit isnan isinf isfinite isposinf isneginf isreal logit relu"
)
BINARY_NAMES = words(
    "add sub subtract mul multiply div divide true_divide floor_divide remainder fmod pow "
    "atan2 arctan2 maximum minimum eq ne not_equal lt less le less_equal gt greater ge "
    "greater_equal copysign nextafter hypot logaddexp xlogy rsub"
)
INTEGER_NAMES = words(
    "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd"
)
CALLS = [
    *(f"torch.{name}(x)" for name in UNARY_NAMES),
    *(f"x.{name}()" for name in UNARY_NAMES if name != "fix" or hasattr(torch.Tensor, name)),
    "torch.acosh(x + 1)",
    "torch.arccosh(x + 1)",
    *(f"torch.{name}(x, y)" for name in BINARY_NAMES if name != "rsub"),
    *(f"x.{name}(y)" for name in BINARY_NAMES if hasattr(torch.Tensor, name)),
    *(f"torch.{name}(n, n)" for name in INTEGER_NAMES),
    *(f"n.{name}(n)" for name in INTEGER_NAMES),
    *(f"torch.{name}(m, n > 3)" for name in ("logical_and", "logical_or", "logical_xor")),
    "torch.logical_not(m)",
    "torch.bitwise_not(n)",
    "x + 2",
    "2 - x",
    "x * 0.5",
    "1 / x",
    "x // 0.3",
    "x % 0.3",
    "x ** 2",
    "2 ** x",
    "-x",
    "+x",
    "abs(x)",
    "torch.round(x)",
    "n & 3",
    "n | 3",
    "n ^ 3",
    "~n",
    "n << 1",
    "n >> 1",
    "x < y",
    "x >= 0.5",
    "x == y",
    "x != y",
    "torch.add(x, y, alpha=2)",
    "x.sub(y, alpha=0.5)",
    "torch.rsub(x, y, alpha=2)",
    "torch.add(input=x, other=y)",
    "torch.div(x, y, rounding_mode='floor')",
    "torch.div(x, y, rounding_mode='trunc')",
    "torch.div(n, 2)",
    "torch.div(n, 2, rounding_mode='trunc')",
    "torch.clamp(x, 0.2, 0.8)",
    "x.clamp(min=0.3)",
    "x.clamp(max=0.3)",
    "x.clip(0.1, 0.5)",
    "torch.clamp_min(x, 0.4)",
    "torch.clamp_max(x, 0.4)",
    "torch.pow(x, exponent=3)",
    "torch.where(m, x, y)",
    "x.where(m, y)",
    "x.masked_fill(m, 0.0)",
    "torch.lerp(x, y, 0.25)",
    "torch.addcmul(x, x, y, value=2)",
    "torch.addcdiv(x, x, y, value=2)",
    "torch.logit(x, eps=0.1)",
    "torch.complex(x, y).real",
    "torch.complex(x, y).imag",
    "torch.special.expit(x)",
    "torch.special.log1p(x)",
    "torch.special.erfcx(x)",
    *(f"F.{name}(x)" for name in words("relu relu6 elu celu selu silu mish softplus")),
    *(f"F.{name}(x)" for name in words("hardtanh hardswish hardsigmoid leaky_relu")),
    *(f"F.{name}(x)" for name in words("tanhshrink softshrink hardshrink gelu sigmoid")),
    *(f"F.{name}(x)" for name in words("tanh softsign logsigmoid")),
    "F.gelu(x, approximate='tanh')",
    "F.relu(x, inplace=False)",
    "F.threshold(x, 0.5, 20.0)",
    "F.leaky_relu(x, 0.3)",
    "F.softplus(x, 2.0, 10.0)",
    "F.prelu(x, v)",
    *(
        f"torch.{name}(x)"
        for name in words("sum mean prod amax amin max min argmax argmin var std")
    ),
    *(f"x.{name}(1)" for name in words("sum mean prod amax amin argmax argmin var std")),
    *(f"x.{name}(dim=0, keepdim=True)" for name in words("sum mean amax argmin var std")),
    "x.sum((0, 1))",
    "x.sum(axis=-1)",
    "n.sum()",
    "x.sum(dtype=torch.float64)",
    "x.mean(dim=(0, 1), keepdim=True)",
    "m.any()",
    "m.all(1)",
    "torch.var(x, 1, unbiased=False)",
    "torch.var(x, False)",
    "torch.std(x, dim=1, correction=0)",
    "torch.var_mean(x, 1)",
    "torch.std_mean(x, 1)",
    "torch.aminmax(x, dim=1)",
    "torch.max(x, 1)",
    "x.max(dim=1, keepdim=True).indices",
    "x.min(0).values",
    "torch.max(x, y)",
    "torch.min(x, other=y)",
    "torch.logsumexp(x, 1)",
    "torch.norm(x)",
    "x.norm(dim=1)",
    "torch.norm(x, p=1, dim=1, keepdim=True)",
    "F.normalize(x, dim=1)",
    "torch.softmax(x, 1)",
    "x.softmax(dim=-1)",
    "F.softmax(x, dim=1)",
    "F.log_softmax(x, dim=0)",
    "F.softmin(x, dim=1)",
    "torch.cumsum(x, 1)",
    "x.cumprod(dim=0)",
    "torch.sort(x, 1, True)",
    "x.argsort(1)",
    "torch.topk(x, 2, 1)",
    "x.topk(3).values",
    "torch.gather(x, 0, i)",
    "x.gather(dim=0, index=i)",
    "torch.index_select(x, 1, v.long())",
    "x.select(1, 2)",
    "x.select(0, -1)",
    "torch.take_along_dim(x, i, 0)",
    "torch.scatter(x, 0, i, y)",
    "F.embedding(i, x)",
    "x.reshape(6, 4)",
    "x.reshape((2, -1))",
    "x.view(3, 8)",
    "x.view(-1)",
    "x.view_as(b)",
    "torch.reshape(b, (6, 4))",
    "b.permute(2, 0, 1)",
    "b.permute((1, 2, 0))",
    "torch.permute(b, dims=(0, 2, 1))",
    "b.transpose(0, -1)",
    "torch.swapaxes(b, 0, 1)",
    "x.t()",
    "x.T",
    "b.mT",
    "torch.movedim(b, 0, 2)",
    "b.moveaxis((0, 1), (2, 0))",
    "b.flatten()",
    "torch.flatten(b, 1)",
    "b.flatten(0, 1)",
    "b.ravel()",
    "x.unflatten(1, (2, 3))",
    "x.unsqueeze(0)",
    "torch.unsqueeze(x, -1)",
    "x.unsqueeze(1).squeeze(1)",
    "x[None].squeeze()",
    "v.expand(4, 6)",
    "v.expand(4, -1)",
    "v.expand_as(x)",
    "torch.broadcast_to(v, (2, 6))",
    "v.repeat(2)",
    "x.repeat(2, 1, 3)",
    "x.narrow(1, 1, 3)",
    "torch.chunk(x, 4, 1)",
    "x.chunk(2)",
    "torch.split(x, 4, dim=1)",
    "torch.split(x, [1, 5], 1)",
    "x.unbind(1)",
    "torch.cat([x, y], 1)",
    "torch.concat((x, y))",
    "torch.cat([x, y], dim=-1)",
    "torch.stack([x, y], dim=1)",
    "torch.roll(x, 1, 0)",
    "x.roll((1, 2), (0, 1))",
    "torch.roll(x, 5)",
    "x.flip(0, 1)",
    "torch.flip(x, [1])",
    "x.tril()",
    "torch.triu(x, diagonal=1)",
    "F.pad(x, (1, 2))",
    "F.pad(x, [1, 0, 0, 2], value=3.0)",
    "torch.outer(v, v)",
    "x @ y.T",
    "torch.matmul(x, y.t())",
    "x.mm(y.T)",
    "torch.bmm(b, b.mT)",
    "x @ v",
    "torch.dot(v, v)",
    "torch.addmm(v[:4], x, y.T, alpha=0.5)",
    "F.linear(x, y)",
    "F.linear(x, y, bias=v[:4])",
    "F.layer_norm(x, (6,), v, v)",
    "F.rms_norm(x, (6,), eps=1e-6)",
    "F.group_norm(x, 2)",
    "F.batch_norm(x, v, v, training=False)",
    "F.instance_norm(b)",
    "F.dropout(x, 0.5, training=False)",
    "F.cross_entropy(x, i[0, :4])",
    "F.nll_loss(x, i[0, :4], reduction='sum')",
    "F.mse_loss(x, y)",
    "F.l1_loss(x, y, reduction='none')",
    "torch.zeros_like(x)",
    "torch.ones_like(x, dtype=torch.int64)",
    "torch.full_like(x, 3.0)",
    "x.clone()",
    "x.detach() * 1",
    "x.contiguous() * 1",
    "x.to(torch.float64)",
    "x.to(n.dtype)",
    "x.to(dtype=torch.float16)",
    "x.type_as(n)",
    "x.double()",
    "x.half()",
    "x.int()",
    "n.float()",
    "m.long()",
    "x[0]",
    "x[-1]",
    "x[1:3]",
    "x[:, 2]",
    "x[..., 1:]",
    "x[None]",
    "x[:, None, ::2]",
    "b[..., -1, :]",
    "b[1, ..., 2]",
    "x[-3:-1, 4]",
    "x[i[0]]",
    "x[:, i]",
    "b[0, :, i[0]]",
    "x[1][2]",
    "torch.stack(list(x))",
    "sum(row for row in x)",
]


def value_of(call: str, **data: Any) -> Any:
    return eval(call, {"torch": torch, "F": F, **data})


def flat(value: Any) -> list[Any]:
    return [t for v in value for t in flat(v)] if isinstance(value, list | tuple) else [value]


def test_calls_give_torchs_values() -> None:
    """322 calls agree with torch: float32 within 1e-5 because torch may round differently, integers
    and dtypes exactly."""
    fd = FusionDefinition()
    tensors = {name: fd.from_pytorch(t, static_sizes=True) for name, t in DATA.items()}
    expected: list[tuple[str, torch.Tensor]] = []
    for call in CALLS:
        try:
            ours = flat(value_of(call, **tensors))
        except Exception as error:
            raise AssertionError(f"{call}: {error}") from error
        theirs = flat(value_of(call, **DATA))
        assert len(ours) == len(theirs), call
        for mine, wanted in zip(ours, theirs, strict=True):
            assert isinstance(mine, Tensor), call
            fd.add_output(fd.ops.set(mine))
            expected.append((call, wanted))
    found = fd.execute(list(DATA.values()))
    for mine, (call, wanted) in zip(found, expected, strict=True):
        kind = (
            torch.float32 if wanted.dtype == torch.float16 and "half" not in call else wanted.dtype
        )
        assert mine.shape == wanted.shape, f"{call}: {mine.shape} for {wanted.shape}"
        assert mine.dtype in (kind, wanted.dtype), f"{call}: {mine.dtype} for {wanted.dtype}"
        torch.testing.assert_close(
            mine, wanted, rtol=1e-5, atol=1e-6, msg=lambda m, call=call: f"{call}: {m}"
        )


def test_sizes_that_only_the_run_knows() -> None:
    """Calls that need no static size are correct on two shapes."""
    calls = [
        "x.sigmoid() @ y.T",
        "x[1:, None] + x[:-1, None]",
        "x.sum(1, keepdim=True) * x.mean(0)",
        "x.flatten().view_as(x) + x.T.T",
        "x.repeat(2, 1)[..., 0]",
        "x.narrow(0, 1, 1) + torch.roll(x, 1)",
        "x[0] + x[-1] + x.select(1, 0)[0]",
        "F.layer_norm(x, x.shape[-1:])",
        "torch.cat([x, y]).max(dim=0).values",
    ]
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1, -1]) for _ in range(2))
    for call in calls:
        fd.add_output(value_of(call, x=x, y=y))
    for shape in ((4, 6), (3, 5)):
        data = [torch.randn(shape) for _ in range(2)]
        for call, mine in zip(calls, fd.execute(data), strict=True):
            torch.testing.assert_close(mine, value_of(call, x=data[0], y=data[1]))


def test_types_are_those_of_the_ops() -> None:
    """Results of half-type operands are float32, as in fd.ops; to() and half() round."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1], dtype=DataType.Half)
    assert x.sigmoid().dtype == torch.sin(x).dtype == DataType.Float
    assert x.sigmoid().half().dtype == x.to(torch.float16).dtype == torch.float16
    assert repr(fd).count("fd.ops.sigmoid") == 2


def test_an_attribute_method_writes_the_op_of_its_name() -> None:
    def defined(write: Callable[[FusionDefinition, Tensor], Tensor]) -> str:
        fd = FusionDefinition()
        fd.add_output(write(fd, fd.define_tensor([-1, -1])))
        return repr(fd)

    assert defined(lambda fd, x: x.sigmoid()) == defined(lambda fd, x: fd.ops.sigmoid(x))
    assert defined(lambda fd, x: torch.sum(x, 1)) == defined(lambda fd, x: fd.ops.sum(x, 1))
    assert defined(lambda fd, x: x @ x) == defined(lambda fd, x: fd.ops.matmul(x, x))


def test_every_alias_leads_somewhere() -> None:
    from fuser.ops import Ops

    assert [n for n in ALIASES.values() if n not in FUNCTIONS and not hasattr(Ops, n)] == []


@pytest.mark.parametrize(
    ("rule", "call"),
    [
        ("habit-argument", "torch.div(x, x, rounding_mode='up')"),
        ("habit-argument", "x.clamp()"),
        ("habit-argument", "x.view(torch.int32)"),
        ("op-arity-1", "x.sigmoid(3)"),
        ("habit-argument", "x.gather(1)"),
        ("habit-device", "x.to('cuda')"),
        ("habit-dim", "x.transpose(0, 5)"),
        ("habit-dim", "x[None].t()"),
        ("habit-dim", "x.repeat(2)"),
        ("habit-size", "x.unbind()"),
        ("habit-size", "torch.split(x, 2)"),
    ],
)
def test_refused(rule: str, call: str) -> None:
    x = FusionDefinition().define_tensor([-1, -1])
    with pytest.raises(UserError) as caught:
        value_of(call, x=x)
    assert caught.value.rule == rule, caught.value
