"""fuser/arguments.py: normalization of the arguments of fd.ops methods."""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import fuser
from fuser import (
    DataType,
    DTypeError,
    FusionDefinition,
    ShapeError,
    Tensor,
    Unsupported,
    UserError,
    arguments,
    errors,
)
from fuser.arguments import as_dtype, count_over, reduced_dims
from fuser.ops import Ops


def test_as_dtype() -> None:
    assert as_dtype(DataType.Half) is DataType.Half
    assert as_dtype(torch.bfloat16) == DataType.BFloat16
    with pytest.raises(DTypeError) as caught:
        as_dtype(torch.complex32)
    assert caught.value.rule == "dtype-torch"


@pytest.mark.parametrize(
    ("rank", "given", "dims", "dtype"),
    [
        (3, (None,), [0, 1, 2], None),
        (3, (DataType.Half,), [0, 1, 2], DataType.Half),
        (3, (torch.float64,), [0, 1, 2], DataType.Double),
        (3, (1, DataType.Half), [1], DataType.Half),
        (3, ((0, -1),), [0, -1], None),
        (3, ([],), [], None),
        (3, (None, None, 2), [2], None),
        (3, (7,), [7], None),  # rejected by the shape rule with a better message
        (0, (None,), [], None),
        (0, (0,), [], None),
        (0, (-1,), [], None),
        (0, (1,), [1], None),
    ],
)
def test_reduced_dims(
    rank: int, given: tuple[Any, ...], dims: list[int], dtype: DataType | None
) -> None:
    x = FusionDefinition().define_tensor([2] * rank)
    assert reduced_dims("sum", x, *given) == (dims, dtype)


def test_reduce_dim_4() -> None:
    x = FusionDefinition().define_tensor([2])
    with pytest.raises(UserError) as caught:
        reduced_dims("sum", x, [0], None, 0)
    assert caught.value.rule == "reduce-dim-4"
    assert str(caught.value) == "sum(): got both dims=[0] and dim=0"


def test_count_over() -> None:
    x = FusionDefinition().define_tensor([-1, 3, 4])
    assert count_over(x, []) == 1
    assert count_over(x, [1, 2]).value == 12
    assert str(count_over(x, [0, -1])) == str(x.size(0) * 4)


# Types that no argument accepts. "0" is a sequence, and a torch tensor resembles a fuser tensor.
MISFITS = (object(), "0", [object()], {}, torch.ones(2))
NAMES = sorted(n for n in dir(Ops) if not n.startswith("_"))
METHODS = sorted(
    n
    for n in dir(FusionDefinition)
    if not n.startswith("_") and inspect.isfunction(getattr(FusionDefinition, n))
)
ANY = {"execute": {"device"}, "validate": {"device"}, "cuda_code_for": {"device"}}
ANY["scheduled_fusion_ir_for"] = {"device"}  # torch reports the error


def argument(x: Tensor, parameter: inspect.Parameter) -> Any:
    """A plausible argument, by name and annotation."""
    named: dict[str, Any] = {
        "dtype": DataType.Float,
        "inputs": [torch.ones(4, 4)],
        "tensor": torch.ones(2),
        "output": x,
    }
    kind = str(parameter.annotation)
    if parameter.name in named:
        return named[parameter.name]
    if "Sequence[Tensor]" in kind:
        return [x, x]
    if "Tensor" in kind and "Sequence" not in kind:
        return x
    return [1] if "Sequence" in kind else 1


Call = tuple[str, Callable[[], Any]]


def wrong_calls(of: Any, name: str, x: Tensor) -> Iterator[Call]:
    """Calls of a method, each with one argument of an invalid type, or with too few or many."""
    method = getattr(of, name)
    parameters = list(inspect.signature(method).parameters.values())
    for wrong in parameters:
        if wrong.kind in (wrong.VAR_POSITIONAL, wrong.VAR_KEYWORD):
            continue
        for value in MISFITS:
            if wrong.name in ANY.get(name, ()) and isinstance(value, str | bytes):
                continue
            positional, named = [], {}
            for p in parameters:
                if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                    continue
                if p is not wrong and p.default is not p.empty:
                    continue
                given = value if p is wrong else argument(x, p)
                if p.kind == p.POSITIONAL_ONLY:
                    positional.append(given)
                else:
                    named[p.name] = given
            call = functools.partial(method, *positional, **named)
            yield f"{name}({wrong.name}={value!r:.30})", call
    # execute() bypasses the argument checks: Python reports its number of arguments.
    if name != "execute" and not any(
        p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters
    ):
        yield f"{name}() with 12", functools.partial(method, *[1] * 12)
        yield f"{name}(axis=0)", functools.partial(method, axis=0)


def strangers(calls: Iterator[Call]) -> list[str]:
    """Calls that raise errors which are not fuser's."""
    out = []
    for text, call in calls:
        try:
            call()
        except errors._Ruled:
            continue
        except Exception as error:
            out.append(f"{text}: {type(error).__name__}: {error}"[:200])
    return out


@pytest.mark.parametrize("name", NAMES)
def test_what_no_op_takes_is_the_users_error(name: str) -> None:
    fd = FusionDefinition()
    assert strangers(wrong_calls(fd.ops, name, fd.define_tensor([4, 4]))) == []


@pytest.mark.parametrize("name", METHODS)
def test_what_no_method_takes_is_the_users_error(name: str) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([4, 4])
    fd.add_output(fd.ops.sin(x))
    assert strangers(wrong_calls(fd, name, x)) == []


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda fd, x: fd.add_output(3),
            "add_output(): output: expected a Tensor or a Scalar, got int 3\n"
            "  hint: add_output(output, alias_input=None, *, stride_order=None)",
        ),
        (
            lambda fd, x: fd.ops.sum(x, "0"),
            "sum(): dims: expected an int, a list (each an int), None or a DataType, got str '0'\n"
            "  hint: sum(arg, dims=None, keepdim=False, dtype=None, *, dim=None)",
        ),
        (
            lambda fd, x: fd.ops.permute(x, [1.5, 0]),
            "permute(): dims: expected a list (each an int), "
            "got a list of float, int: [1.5, 0]\n  hint: permute(arg, dims)",
        ),
        (
            lambda fd, x: fd.ops.softmax(torch.ones(2), 0),
            "softmax(): x: expected a Tensor, got torch.Tensor\n"
            "  hint: softmax(x, dim, dtype=None); a tensor of torch is given to execute()",
        ),
        (
            lambda fd, x: fd.ops.mean(x, axis=0),
            "mean(): got an unexpected keyword argument 'axis'\n"
            "  hint: mean(arg, dims=None, keepdim=False, dtype=None, *, dim=None)",
        ),
        (
            lambda fd, x: fd.define_tensor(3),
            "define_tensor(): shape: expected a list (each an int), got int 3\n"
            "  hint: define_tensor(shape, contiguity=False, dtype=DataType.Float, is_cpu=False, "
            "stride_order=())",
        ),
        (
            lambda fd, x: fd.ops.permute(x, [2**70, 0]),
            "permute(): dims: expected a list (each an int), "
            f"got a list of int: [{2**70}, 0]\n  hint: permute(arg, dims)",
        ),
        (
            lambda fd, x: fd.signature(torch.ones(2, 3)),
            "signature(): inputs: expected a list, got torch.Tensor\n"
            "  hint: signature(inputs); one tensor is a list too: [x]",
        ),
        (
            lambda fd, x: fd.signature(iter([torch.ones(2, 3)])),
            "signature(): inputs: expected a list, got list_iterator\n  hint: signature(inputs)",
        ),
    ],
)
def test_argument_kind_1(call: Callable[..., Any], text: str) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([2, 3])
    fd.add_output(x * 2)
    with pytest.raises(UserError) as caught:
        call(fd, x)
    assert caught.value.rule == "argument-kind-1"
    assert str(caught.value) == text


FLAGS: dict[str, Callable[..., Any]] = {
    "sum": lambda o, x, flag: o.sum(x, [0], flag),
    "prod": lambda o, x, flag: o.prod(x, [], flag),
    "max": lambda o, x, flag: o.max(x, [0], flag),
    "any": lambda o, x, flag: o.any(x, [0], flag),
    "argmax": lambda o, x, flag: o.argmax(x, 0, flag),
    "mean": lambda o, x, flag: o.mean(x, [0], flag),
    "var": lambda o, x, flag: o.var(x, [0], 1, flag),
    "std": lambda o, x, flag: o.std(x, [0], 1, flag),
    "var_mean": lambda o, x, flag: o.var_mean(x, [0], 1, flag)[0],
    "norm": lambda o, x, flag: o.norm(x, 2, [0], flag),
    "logsumexp": lambda o, x, flag: o.logsumexp(x, [0], flag),
}
TRAINING: dict[str, Callable[..., Any]] = {
    "dropout": lambda o, x, flag: o.dropout(x, 0.5, flag),
    "batch_norm": lambda o, x, flag: o.batch_norm(x, *[None] * 4, 0.1, 1e-5, flag),
    "instance_norm": lambda o, x, flag: o.instance_norm(x, *[None] * 4, 0.1, 1e-5, flag),
}


@pytest.mark.parametrize("op", [*FLAGS, *TRAINING])
@pytest.mark.parametrize("wrong", [DataType.Double, "no", [1], "a tensor"])
def test_a_flag_is_a_bool(op: str, wrong: Any) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([2, 3])
    with pytest.raises(UserError) as caught:
        (FLAGS | TRAINING)[op](fd.ops, x, x if wrong == "a tensor" else wrong)
    assert caught.value.rule == "argument-kind-1"
    name = "use_input_stats" if op == "instance_norm" else "training" if op in TRAINING else ""
    assert str(caught.value).startswith(f"{op}(): {name or 'keepdim'}: expected a bool, got ")


@pytest.mark.parametrize("op", FLAGS)
def test_numbers_are_flags(op: str) -> None:
    """Flags accept numbers as bools, as the bindings do."""
    fd = FusionDefinition()
    x = fd.define_tensor([2, 3])
    dims = 2 if op == "prod" else 1  # prod gets no dims here and keeps all
    for no in (False, 0, np.False_, None):
        assert FLAGS[op](fd.ops, x, no).ndim == dims
    for yes in (True, 1, np.True_, np.int64(1)):
        assert FLAGS[op](fd.ops, x, yes).ndim == 2


def test_errors_of_arguments_that_fit_stay_what_they_are() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([2, 3])
    with pytest.raises(IndexError):
        fd.ops.at(fd.ops.shape(x), 5)
    for dims in (np.array([0, 1]), (0, np.int32(1)), torch.Size([0, 1]), range(2)):
        assert fd.ops.sum(x, dims).ndim == 0


API: Any = fuser  # for calls that a type checker rejects


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda fd: API.evaluate(None, []),
            "evaluate(): fd: expected a FusionDefinition, got NoneType\n"
            "  hint: evaluate(fd, inputs, *, aliased=False)",
        ),
        (
            lambda fd: API.autotune(3, []),
            "autotune(): fd: expected a FusionDefinition, got int 3\n"
            "  hint: autotune(fd, inputs, *, device=None, candidates=12)",
        ),
        (
            lambda fd: API.clone(fd, None),
            "clone(): target: expected a FusionDefinition, got NoneType\n"
            "  hint: clone(source, target)",
        ),
        (
            lambda fd: API.FusionExecutorCache(fd),
            "FusionExecutorCache(): fusion: expected a Fusion, got fuser.definition."
            "FusionDefinition\n"
            "  hint: FusionExecutorCache(fusion, fusion_id=0, auto_schedule=True)",
        ),
        (
            lambda fd: API.LRUCache("a"),
            "LRUCache(): max_fusions: expected an int, got str 'a'\n"
            "  hint: LRUCache(max_fusions=16384)",
        ),
        (
            lambda fd: API.LruFusionCache(None),
            "LruFusionCache(): max_fusions: expected an int, got NoneType\n"
            "  hint: LruFusionCache(max_fusions=16384)",
        ),
        (
            lambda fd: API.compute_tensor_descriptor([2, 3], None),
            "compute_tensor_descriptor(): strides: expected a list (each an int), got NoneType\n"
            "  hint: compute_tensor_descriptor(sizes, strides)",
        ),
        (
            lambda fd: API.compute_contiguity("ab", "cd"),
            "compute_contiguity(): sizes: expected a list (each an int), got str 'ab'\n"
            "  hint: compute_contiguity(sizes, strides)",
        ),
        (
            lambda fd: API.clear_caches("disk"),
            "clear_caches(): disk: expected a bool, got str 'disk'\n"
            "  hint: clear_caches(disk=False)",
        ),
    ],
)
def test_what_no_function_takes_is_the_users_error(call: Callable[..., Any], text: str) -> None:
    with pytest.raises(UserError) as caught:
        call(FusionDefinition())
    assert caught.value.rule == "argument-kind-1"
    assert str(caught.value) == text


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
def test_a_softmax_is_along_a_dim(op: str) -> None:
    """Softmax requires a dim; without one, other reductions reduce all dims."""
    fd = FusionDefinition()
    with pytest.raises(UserError) as caught:
        getattr(fd.ops, op)(fd.define_tensor([2, 3]), None)
    assert str(caught.value).startswith(f"{op}(): dim: expected an int, got NoneType")


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (lambda fd, x: fd.ops.cast(x, "half"), "cast(): dtype: expected a DataType or"),
        (lambda fd, x: fd.ops.sum(x, 0, dtype=torch.qint8), "sum(): torch.qint8 has no"),
        (lambda fd, x: fd.ops.softmax(x, 0, 3), "softmax(): dtype: expected a DataType or"),
        (lambda fd, x: fd.define_scalar(1, dtype="half"), "define_scalar(): dtype: expected a"),
    ],
)
def test_a_wrong_dtype_is_named_with_its_op(call: Callable[..., Any], shown: str) -> None:
    fd = FusionDefinition()
    with pytest.raises(DTypeError) as caught:
        call(fd, fd.define_tensor([2, 3]))
    assert caught.value.rule == "dtype-torch"
    assert str(caught.value).startswith(shown)


def test_a_tensor_of_torch_is_told_from_one_of_a_definition() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([2])
    with pytest.raises(UserError, match=r"operand 1: expected a Tensor, .* got torch\.Tensor"):
        fd.ops.add(x, torch.ones(2))
    with pytest.raises(UserError, match=r"tensors: expected a list .* got fuser\.Tensor"):
        fd.ops.cat(x)


@pytest.mark.parametrize(
    "without_strides",
    [
        torch.eye(3).to_sparse(),
        torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
    ],
    ids=["sparse", "nested"],
)
def test_from_pytorch_1(without_strides: torch.Tensor) -> None:
    with pytest.raises(UserError) as caught:
        FusionDefinition().from_pytorch(without_strides)
    assert caught.value.rule == "from-pytorch-1"
    assert "expected a strided tensor, got layout torch." in str(caught.value)


# ---- every argument of every method with values of other types

WRONG: list[Any] = [
    *(1.5, "x", None, [], [None], ["a"], {}, object(), 2**63, -(2**70), [2**63], [1.5], 1j, (0, 1)),
    *(float("nan"), True, torch.ones(2), slice(1), b"x", DataType.Int, int, 7, -7),
]
METHODS = (
    *("add_output", "define_constant", "define_scalar", "define_vector", "from_pytorch", "plan"),
    *("random_state", "signature", "id", "segment", "manual_execute", "manual_validate"),
)


def _fitting(kind: Any, name: str, tensor: Any) -> Any:
    """A value that the method accepts."""
    if "shape" in name:
        return [2, 3]
    for value in (tensor, 1, [tensor], [0], "sum", True):
        if arguments.fits(value, kind):
            return value
    return None


def _calls() -> list[tuple[str, str, Any]]:
    """(method, argument, value) for values that the argument does not accept."""
    found = []
    for owner, kind in (("ops.", Ops), ("", FusionDefinition)):
        for name in sorted(dir(kind)) if owner else METHODS:
            method = inspect.getattr_static(kind, name)
            if name.startswith("_") or not inspect.isfunction(method):
                continue
            expected = arguments._annotations(method)
            found += [
                (owner + name, parameter, value)
                for parameter in inspect.signature(method).parameters
                if parameter != "self"
                for value in WRONG
                if not arguments.fits(value, expected.get(parameter, Any))
            ]
    return found


def _call(method: str, parameter: str, value: Any) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    fd.add_output(x)
    function = getattr(fd.ops if "." in method else fd, method.removeprefix("ops."))
    kinds = arguments._annotations(function)
    positional, named = [], {}
    for name, given in inspect.signature(function).parameters.items():
        wanted = name == parameter
        if not wanted and given.default is not given.empty:
            continue
        one = value if wanted else _fitting(kinds.get(name, Any), name, x)
        if given.kind == given.POSITIONAL_ONLY:
            positional.append(one)
        else:
            named[name] = one
    function(*positional, **named)


def test_values_of_wrong_types_are_type_errors() -> None:
    """Over 7000 calls raise a UserError that is also a TypeError, or an integer range error. Some
    values are accepted because they have the required elements, e.g. an empty dict."""
    calls = _calls()
    assert len(calls) > 7000
    wrong, taken = [], 0
    for method, parameter, value in calls:
        shown = f"{method}({parameter}={value!r})"
        try:
            _call(method, parameter, value)
        except (UserError, Unsupported) as error:
            if not isinstance(error, TypeError) and error.rule not in ("operand-2", "by-hand-1"):
                wrong.append(f"{shown}: {type(error).__name__} {error.rule}")
        except IndexError:  # raised by Python for ops.at()
            assert method == "ops.at"
        except Exception as error:
            wrong.append(f"{shown}: {type(error).__name__}: {error}")
        else:
            taken += 1
    assert not wrong, "\n".join(wrong)
    assert taken < len(calls) // 50


@pytest.mark.parametrize(
    "call",
    [
        lambda fd, x: fd.ops.permute(x, [0.0, 1.0]),
        lambda fd, x: fd.ops.cumsum(x, 0.0),
        lambda fd, x: fd.ops.var_mean(x, 3.0),
        lambda fd, x: fd.define_tensor([2**63]),
        lambda fd, x: fd.define_tensor("x"),
        lambda fd, x: fd.define_tensor([2, 3], dtype=3.0),
        lambda fd, x: fd.ops.cast(x, "float"),
        lambda fd, x: fd.execute("x"),
        lambda fd, x: fd.execute([1.0]),
        lambda fd, x: fd.execute([torch.ones(2, 3)], device=[]),
        lambda fd, x: fd.validate(1.0),
        lambda fd, x: fuser.evaluate(fd, 3),
        lambda fd, x: fuser.compute_tensor_descriptor([1.5], [1]),
        lambda fd, x: fuser.compute_contiguity(1, [1]),
    ],
)
def test_wrong_types_are_type_errors(call: Callable[..., Any]) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([2, 3])
    fd.add_output(x)
    with pytest.raises(TypeError) as caught:
        call(fd, x)
    assert isinstance(caught.value, UserError)


def test_define_vector_1() -> None:
    with pytest.raises(ShapeError, match="from 0 to 65535") as caught:
        FusionDefinition().define_vector(2**62)
    assert caught.value.rule == "define-vector-1"
