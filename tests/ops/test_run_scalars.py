"""Numbers that nvFuser takes as Scalars: constants and run-time scalars give torch's results.

OPERANDS has the 128 operands of the rows of the op table; NUMBERS and RANDOM have the 56 arguments
of other ops, with 131 values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F

from fuser import DataType, FusionDefinition, Unsupported, _core, testing
from fuser.ops import is_internal
from fuser.ops.reference import REFERENCES

X = torch.arange(12.0).mul(5).remainder(13).reshape(3, 4)
UNIT = X / 13 + 0.02
WHOLE = X.to(torch.int64)
HEADS = torch.linspace(-1, 1, 64).reshape(1, 2, 4, 8)
STATE = [torch.zeros(2, dtype=torch.int64), torch.tensor(0)]
INDEX = torch.tensor([[2, 0, 1, 1]])
WORDS = torch.tensor([[0, 2], [1, 1]])


class Number(NamedTuple):
    """make(ops, tensors, number) is compared with reference(tensors, number), for these values."""

    make: Callable[..., Any]
    reference: Callable[..., Any]
    tensors: list[torch.Tensor]
    values: tuple[Any, ...]


def _batch_norm(x: torch.Tensor, momentum: float, eps: float) -> torch.Tensor:
    mean, var = torch.zeros(4), torch.ones(4)
    y = F.batch_norm(x, mean, var, None, None, True, momentum, eps)
    return torch.cat([y, mean[None], var[None]])


def _norm_of_batch(o: Any, t: Any, momentum: Any, eps: Any) -> Any:
    return o.batch_norm(t, None, None, None, None, momentum, eps, True)[0]


def _attention(q: torch.Tensor, causal: bool, scale: float | None) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, q, q, is_causal=causal, scale=scale)


def _attention_gradient(q: torch.Tensor, causal: bool, scale: float) -> torch.Tensor:
    a, b, c = (q.clone().requires_grad_() for _ in range(3))
    F.scaled_dot_product_attention(a, b, c, is_causal=causal, scale=scale).backward(q)
    assert a.grad is not None
    return a.grad


def _backward(o: Any, q: Any, seed: Any, offset: Any, causal: Any, scale: Any, p: Any = 0.0) -> Any:
    out, logsumexp, _, _ = o.sdpfa_fwd(q, q, q, None, None, p, causal, scale)
    return o.sdpfa_bwd(q, q, q, q, out, logsumexp, p, causal, seed, offset, scale)[0]


NUMBERS: dict[str, Number] = {
    "var correction": Number(
        lambda o, x, n: o.var(x, [1], n),
        lambda x, n: x.var(1, correction=n),
        [X],
        (0.0, 1.0, 2.0),
    ),
    "var_mean correction": Number(
        lambda o, x, n: o.var_mean(x, [0], n)[0],
        lambda x, n: x.var(0, correction=n),
        [X],
        (0, 1),
    ),
    "std correction": Number(
        lambda o, x, n: o.std(x, [1], n), lambda x, n: x.std(1, correction=n), [X], (0.0, 1.0)
    ),
    "norm p": Number(
        lambda o, x, n: o.norm(x, n, [1]),
        lambda x, n: torch.linalg.vector_norm(x, n, 1),
        [X],
        (0.0, 1.0, 2.0, 3.5, -1.0, float("inf"), float("-inf")),
    ),
    "cumsum init": Number(
        lambda o, x, n: o.cumsum(x, 1, n), lambda x, n: x.cumsum(1) + n, [X], (0.0, 2.5)
    ),
    "cumprod init": Number(
        lambda o, x, n: o.cumprod(x, 1, n), lambda x, n: x.cumprod(1) * n, [UNIT], (1.0, 2.5)
    ),
    "cummax init": Number(
        lambda o, x, n: o.cummax(x, 1, n), lambda x, n: x.cummax(1)[0].clamp(min=n), [X], (6.5,)
    ),
    "cummin init": Number(
        lambda o, x, n: o.cummin(x, 1, n), lambda x, n: x.cummin(1)[0].clamp(max=n), [X], (2.5,)
    ),
    "broadcast_in_dim shape": Number(
        lambda o, x, n: o.broadcast_in_dim(x, [n, 3, 4], [1, 2]),
        lambda x, n: x.expand(n, 3, 4),
        [X],
        (1, 5),
    ),
    "reshape new_shape": Number(
        lambda o, x, n: o.reshape(x, [n, -1]), lambda x, n: x.reshape(n, -1), [X], (2, 3, 12)
    ),
    "expand shape": Number(
        lambda o, x, n: o.expand(o.broadcast(x, [True, False, False]), [n, -1, -1]),
        lambda x, n: x.expand(n, 3, 4),
        [X],
        (1, 5),
    ),
    "slice start": Number(
        lambda o, x, n: o.slice(x, [0, n], [3, 4]), lambda x, n: x[:, n:], [X], (0, 1, -2, 9)
    ),
    "slice end": Number(
        lambda o, x, n: o.slice(x, [0, 0], [3, n]), lambda x, n: x[:, :n], [X], (0, 3, -1, 9)
    ),
    "pad width before": Number(
        lambda o, x, n: o.pad(x, [n, 1]), lambda x, n: F.pad(x, [n, 1]), [X], (0, 2, -1)
    ),
    "pad width after": Number(
        lambda o, x, n: o.pad(x, [0, 0, 1, n]), lambda x, n: F.pad(x, [0, 0, 1, n]), [X], (0, 2)
    ),
    "pad value": Number(
        lambda o, x, n: o.pad(x, [1, 1], n),
        lambda x, n: F.pad(x, [1, 1], value=n),
        [X],
        (0.0, 2.5, float("inf")),
    ),
    "select index": Number(
        lambda o, x, n: o.select(x, n, 1), lambda x, n: x.select(1, n), [X], (0, 3, -1)
    ),
    "scatter src": Number(
        lambda o, x, i, n: o.scatter(x, i, n, 0),
        lambda x, i, n: x.scatter(0, i, n),
        [X, INDEX],
        (0.0, 2.5),
    ),
    "full shape": Number(
        lambda o, x, n: o.mul(o.full([n, 4], 2.0, DataType.Float), o.select(x, 0, 0)),
        lambda x, n: 2 * x[0].expand(n, 4),
        [X],
        (0, 1, 6),
    ),
    "full fill_value": Number(
        lambda o, x, n: o.full([2, 3], n, DataType.Float),
        lambda x, n: torch.full((2, 3), n),
        [X],
        (2.5,),
    ),
    "full fill_value of Int": Number(
        lambda o, x, n: o.full([2], n, DataType.Int32),
        lambda x, n: torch.full((2,), n, dtype=torch.int32),
        [X],
        (-7,),
    ),
    "iota length": Number(lambda o, x, n: o.iota(n), lambda x, n: torch.arange(n), [X], (0, 1, 9)),
    "iota start": Number(
        lambda o, x, n: o.iota(5, n), lambda x, n: torch.arange(n, n + 5), [X], (-3, 0, 2**40)
    ),
    "iota step": Number(
        lambda o, x, n: o.iota(5, 1, n), lambda x, n: 1 + n * torch.arange(5), [X], (-2, 0, 3)
    ),
    "iota start of Float": Number(
        lambda o, x, n: o.iota(5, n, 0.25, DataType.Float),
        lambda x, n: n + 0.25 * torch.arange(5.0),
        [X],
        (-1.5, 0.0),
    ),
    "iota step of Double": Number(
        lambda o, x, n: o.iota(5, 1.0, n, DataType.Double),
        lambda x, n: 1 + n * torch.arange(5, dtype=torch.float64),
        [X],
        (-0.5, 0.1),
    ),
    "iota step of Half": Number(
        lambda o, x, n: o.iota(5, 1.0, n, DataType.Half),
        lambda x, n: (1 + n * torch.arange(5.0)).half(),
        [X],
        (-0.5, 0.125),
    ),
    "triu diagonal": Number(
        lambda o, x, n: o.triu(x, n), lambda x, n: x.triu(n), [X], (-9, -1, 0, 2, 9)
    ),
    "topk k": Number(
        lambda o, x, n: o.topk(x, n, 1, True, True)[0], lambda x, n: x.topk(n, 1)[0], [X], (0, 1, 4)
    ),
    "embedding padding_idx": Number(
        lambda o, x, i, n: o.embedding_fwd(i, x, n),
        lambda x, i, n: F.embedding(i, x, n),
        [X, WORDS],
        (0, -1),
    ),
    "embedding max_norm": Number(
        lambda o, x, i, n: o.embedding_fwd(i, x, None, n),
        lambda x, i, n: F.embedding(i, x.clone(), max_norm=n),
        [X, WORDS],
        (1.5, 100.0),
    ),
    "embedding norm_type": Number(
        lambda o, x, i, n: o.embedding_fwd(i, x, None, 1.5, n),
        lambda x, i, n: F.embedding(i, x.clone(), max_norm=1.5, norm_type=n),
        [X, WORDS],
        (1.0, 2.0, 3.0, float("inf")),
    ),
    "embedding scale_grad_by_freq": Number(
        lambda o, x, i, n: o.embedding_fwd(i, x, None, None, None, n),
        lambda x, i, n: F.embedding(i, x),
        [X, WORDS],
        (False, True),
    ),
    "embedding sparse": Number(
        lambda o, x, i, n: o.embedding_fwd(i, x, None, None, None, None, n),
        lambda x, i, n: F.embedding(i, x),
        [X, WORDS],
        (False, True),
    ),
    "batch_norm momentum": Number(
        lambda o, x, n: _norm_of_batch(o, x, n, 1e-5),
        lambda x, n: _batch_norm(x, n, 1e-5)[:3],
        [X],
        (0.1, 0.5),
    ),
    "batch_norm eps": Number(
        lambda o, x, n: _norm_of_batch(o, x, 0.1, n),
        lambda x, n: _batch_norm(x, 0.1, n)[:3],
        [X],
        (1e-5, 0.5),
    ),
    "add_alpha alpha": Number(
        lambda o, x, n: o.add_alpha(x, x, n),
        lambda x, n: torch.add(x, x, alpha=n),
        [X],
        (1.0, -2.5),
    ),
    "sub_alpha alpha": Number(
        lambda o, x, n: o.sub_alpha(x, x, n),
        lambda x, n: torch.sub(x, x, alpha=n),
        [X],
        (1.0, -2.5),
    ),
    "addcmul value": Number(
        lambda o, x, n: o.addcmul(x, x, x, n), lambda x, n: x + n * x * x, [X], (1.0, -2.5)
    ),
    "sdpfa_fwd dropout_p": Number(
        lambda o, q, n: o.sdpfa_fwd(q, q, q, dropout_p=n)[0],
        lambda q, n: _attention(q, False, None),
        [HEADS],
        (0.0,),
    ),
    "sdpfa_fwd is_causal": Number(
        lambda o, q, n: o.sdpfa_fwd(q, q, q, is_causal=n)[0],
        lambda q, n: _attention(q, n, None),
        [HEADS],
        (False, True),
    ),
    "sdpfa_fwd scale": Number(
        lambda o, q, n: o.sdpfa_fwd(q, q, q, scale=n)[0],
        lambda q, n: _attention(q, False, n),
        [HEADS],
        (0.5, 0.0, -1.0, 2),
    ),
    "sdpfa_fwd scale of older definitions": Number(
        lambda o, q, n: o.sdpfa_fwd(q, q, q, 0.0, True, n)[0],
        lambda q, n: _attention(q, True, n),
        [HEADS],
        (0.5,),
    ),
    "sdpfa_bwd dropout_p": Number(
        lambda o, q, s, f, n: _backward(o, q, s, f, False, 0.5, n),
        lambda q, s, f, n: _attention_gradient(q, False, 0.5),
        [HEADS, *STATE],
        (0.0,),
    ),
    "sdpfa_bwd is_causal": Number(
        lambda o, q, s, f, n: _backward(o, q, s, f, n, 0.5),
        lambda q, s, f, n: _attention_gradient(q, n, 0.5),
        [HEADS, *STATE],
        (False, True),
    ),
    "sdpfa_bwd scale": Number(
        lambda o, q, s, f, n: _backward(o, q, s, f, True, n),
        lambda q, s, f, n: _attention_gradient(q, True, n),
        [HEADS, *STATE],
        (0.5, 2.0),
    ),
}
RANDOM = {
    "minval": lambda o, n: o.uniform(n, 5.0, [64], rng_seed=3, rng_offset=0),
    "maxval": lambda o, n: o.uniform(-1.0, n, [64], rng_seed=3, rng_offset=0),
    "uniform shape": lambda o, n: o.uniform(-1.0, 1.0, [n], rng_seed=3, rng_offset=0),
    "uniform rng_seed": lambda o, n: o.uniform(-1.0, 1.0, [64], rng_seed=n, rng_offset=0),
    "uniform rng_offset": lambda o, n: o.uniform(-1.0, 1.0, [64], rng_seed=3, rng_offset=n),
    "mean": lambda o, n: o.normal(n, 1.0, [64], rng_seed=3, rng_offset=0),
    "std": lambda o, n: o.normal(1.0, n, [64], rng_seed=3, rng_offset=0),
    "normal shape": lambda o, n: o.normal(0.0, 1.0, [n], rng_seed=3, rng_offset=0),
    "normal rng_seed": lambda o, n: o.normal(0.0, 1.0, [64], rng_seed=n, rng_offset=0),
    "normal rng_offset": lambda o, n: o.normal(0.0, 1.0, [64], rng_seed=3, rng_offset=n),
}


def _type_of(value: Any) -> DataType:
    kinds = {bool: DataType.Bool, int: DataType.Int, float: DataType.Double}
    return kinds[type(value)]


Made = tuple[FusionDefinition, list[Any]]


def _pair(tensors: list[torch.Tensor], make: Callable[..., Any], value: Any) -> tuple[Made, Made]:
    """make(ops, tensors, value) with the value as a constant, and as a run-time scalar."""
    constant, given = FusionDefinition(), FusionDefinition()
    for fd, number in ((constant, value), (given, given.define_scalar(_type_of(value)))):
        # Define the scalar first, because it is the first input.
        results = make(fd.ops, *(fd.from_pytorch(x) for x in tensors), number)
        for result in results if isinstance(results, list) else [results]:
            fd.add_output(result)
    return (constant, tensors), (given, [value, *tensors])


def test_numbers_of_ops() -> None:
    pairs = [
        (name, case, value, _pair(case.tensors, case.make, value))
        for name, case in NUMBERS.items()
        for value in case.values
    ]
    testing.compile_batch([made for *_, pair in pairs for made in pair])
    wrong = []
    for name, case, value, ((fixed, tensors), (given, inputs)) in pairs:
        want = case.reference(*case.tensors, value)
        for form, fd, args in (("constant", fixed, tensors), ("of the run", given, inputs)):
            (got,) = fd.execute(args)
            try:
                torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5, equal_nan=True)
            except AssertionError as error:
                wrong.append(f"{name}={value} {form}: {str(error).splitlines()[0]}")
    assert not wrong, "\n".join(wrong)


def test_one_definition_takes_every_number() -> None:
    """A scalar that affects no size is not part of the key, so other values compile no kernels."""
    case = NUMBERS["sdpfa_fwd scale"]
    _, (fd, inputs) = _pair(case.tensors, case.make, 0.5)
    fd.execute(inputs)
    records = fd.fec.executor.signature(inputs)
    for scale in (2.0, -1.0, 0.0):
        (got,) = fd.execute([scale, HEADS])
        torch.testing.assert_close(got, _attention(HEADS, False, scale), rtol=1e-5, atol=1e-5)
    assert fd.fec.executor.signature([7.0, HEADS]) == records
    fd.validate(inputs)
    again = FusionDefinition()
    exec(f"from fuser import *\n{fd!r}\nnvfuser_fusion(again)", {"again": again})
    assert repr(again) == repr(fd)


def test_numbers_of_random_ops() -> None:
    """Constants and run-time scalars draw equal random numbers."""
    pairs = [
        (name, _pair([], make, value))
        for name, make in RANDOM.items()
        for value in ((64,) if "shape" in name else (0, 8) if "rng" in name else (0.5, 2.0))
    ]
    testing.compile_batch([made for _, pair in pairs for made in pair])
    for name, ((fixed, _), (given, inputs)) in pairs:
        (a,), (b,) = fixed.execute([], device="cpu"), given.execute(inputs, device="cpu")
        assert torch.equal(a, b), name


def _operands() -> list[tuple[str, int, torch.dtype]]:
    found = []
    for row in _core.op_rows():
        if is_internal(row.name) or row.name in ("set", "random32", "random64"):
            continue
        dtype = torch.float32 if "Float" in row.accepts else torch.int64
        if "Float" not in row.accepts and "Complex" in row.accepts:
            continue  # imag
        found += [(row.name, place, dtype) for place in range(row.arity)]
    return found


OPERANDS = _operands()


def _number_and_tensors(op: str, place: int, dtype: torch.dtype) -> tuple[Any, list[torch.Tensor]]:
    """A number for this operand of an op, and tensors for its other operands."""
    arity = next(row.arity for row in _core.op_rows() if row.name == op)
    base = UNIT if dtype == torch.float32 else WHOLE + 1
    tensors = [base] * (arity - 1)
    if op == "where" and place:
        tensors[0] = X > 5
    number: Any = 0.25 if dtype == torch.float32 else 3
    return (True if op == "where" and not place else number), tensors


def test_operands_of_rows() -> None:
    """Each operand of each op as a scalar, combined with tensors, or with scalars only. A
    definition has all ops with equal operands."""
    groups: dict[Any, list[tuple[str, int]]] = {}
    given: dict[Any, tuple[Any, list[torch.Tensor]]] = {}
    for op, place, dtype in OPERANDS:
        number, tensors = _number_and_tensors(op, place, dtype)
        key = number, *(t.dtype for t in tensors)
        given.setdefault(key, (number, tensors))
        groups.setdefault(key, []).append((op, place))
    runs = []
    for key, group in groups.items():
        number, tensors = given[key]

        def outputs(o: Any, *args: Any, group: Any = group) -> Any:
            *operands, last = args
            return [getattr(o, op)(*operands[:n], last, *operands[n:]) for op, n in group]

        runs.append((group, *_pair(tensors, outputs, number)))
    testing.compile_batch([made for _, *pair in runs for made in pair])
    for group, (fixed, tensors), (of_the_run, inputs) in runs:
        device = None if tensors else "cpu"
        results = fixed.execute(tensors, device=device), of_the_run.execute(inputs, device=device)
        value = inputs[0]
        exact = [x.double() if x.is_floating_point() else x for x in tensors]
        wide = torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
        for (op, place), a, b in zip(group, *results, strict=True):
            name = f"{op} operand {place}"
            assert a.dtype == b.dtype, name
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6, equal_nan=True, msg=name)
            want = REFERENCES[op](*exact[:place], wide, *exact[place:])
            b, want = b.to(want.dtype), want.expand(b.shape)
            torch.testing.assert_close(b, want, rtol=2e-5, atol=1e-6, equal_nan=True, msg=name)


@pytest.mark.parametrize("name", ["dropout_p", "is_causal", "scale"])
def test_library_4(name: str) -> None:
    """A computed scalar cannot be an argument of an extern op."""
    fd = FusionDefinition()
    q, s = fd.from_pytorch(HEADS), fd.define_scalar(DataType.Double)
    with pytest.raises(Unsupported, match=f"{name}: expected a number or a scalar input") as caught:
        fd.ops.sdpfa_fwd(q, q, q, **{name: s * 2.0})
    assert caught.value.rule == "library-4"
