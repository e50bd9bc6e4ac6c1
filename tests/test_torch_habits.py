"""fuser/torch_habits.py: unsupported torch usage raises a fuser error with a hint, never an error
of Python itself."""

from __future__ import annotations

import inspect
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import get_testing_overrides

import fuser
from fuser import (
    ArgumentTypeError,
    DataType,
    FusionDefinition,
    Tensor,
    Unsupported,
    UserError,
)
from fuser.torch_habits import function_of


def opened(*shape: int, dtype: DataType = DataType.Float) -> tuple[FusionDefinition, Tensor]:
    fd = FusionDefinition()
    return fd, fd.define_tensor(list(shape) or [-1, -1], dtype=dtype)


def raised(act: Callable[[], Any]) -> UserError:
    with pytest.raises(UserError) as caught:
        act()
    return caught.value


DATA = torch.ones(4)
REFUSED: list[tuple[str, str, str]] = [
    ("habit-tensor", "x + torch.ones(4)", "from_pytorch"),
    ("habit-tensor", "torch.ones(4) * x", "from_pytorch"),
    ("habit-tensor", "torch.ones(4) @ x", "define_tensor"),
    ("habit-tensor", "x == torch.ones(4)", "define_tensor"),
    ("habit-tensor", "torch.where(x > 0, x, torch.zeros(4))", "float32"),
    ("habit-tensor", "torch.cat([x, torch.zeros(2, 2)])", "[2, 2]"),
    ("habit-tensor", "x[torch.tensor([0, 1])]", "int64"),
    ("habit-inplace", "x.add_(1)", "x = x.add(...)"),
    ("habit-inplace", "x.__setitem__(0, 1)", "fd.ops.where"),
    ("habit-inplace", "torch.relu_(x)", "relu"),
    ("habit-iterate", "list(x)", "fd.ops.select"),
    ("habit-iterate", "len(x)", "x.size(0)"),
    ("habit-iterate", "max(x)", "fd.ops.select"),
    ("habit-value", "float(x)", "fd.execute"),
    ("habit-value", "int(x)", "fd.execute"),
    ("habit-value", "float(x.size(0))", "fd.execute"),
    ("habit-value", "range(x.size(0))", "define_tensor"),
    ("habit-value", "1 in x", "fd.ops.any"),
    ("habit-value", "np.asarray(x)", "fd.execute"),
    ("habit-value", "x.item()", "fd.execute"),
    ("habit-value", "x.numpy()", "fd.execute"),
    ("habit-value", "x.tolist()", "fd.execute"),
    ("habit-value", "x.cuda()", "has no device"),
    ("habit-value", "x.cpu()", "has no device"),
    ("habit-value", "x.device", "has no device"),
    ("habit-value", "x.backward()", "memory_efficient_fusion"),
    ("habit-value", "x.grad", "memory_efficient_fusion"),
    ("habit-value", "x.requires_grad_()", "memory_efficient_fusion"),
    ("habit-value", "x.stride()", "stride_order"),
    ("habit-index", "x[0, 0, 0]", "at most 2"),
    ("habit-index", "x[..., ...]", "at most"),
    ("habit-index", "x[::-1]", "fd.ops.flip"),
    ("habit-index", "x['a']", "'a'"),
    ("habit-index", "x[True]", "True"),
    ("habit-index", "x[1.5]", "1.5"),
    ("habit-index", "x[x > 0]", "fd.ops.where"),
    ("habit-op", "x.kthvalue(2)", "fd.execute"),
    ("habit-op", "torch.kthvalue(x, 2)", "fd.execute"),
    ("habit-op", "torch.fft.fft(x)", "fd.execute"),
    ("habit-op", "x.sigmod()", "fd.ops.sigmoid"),
    ("habit-argument", "round(x, 2)", "fd.ops.round"),
    ("execute-arguments", "fd(x)", "fd.execute([a, b])"),
    ("execute-arguments", "fd.execute(DATA, DATA)", "fd.execute([a, b])"),
    ("execute-arguments", "fd.execute(a=1)", "fd.execute([a, b])"),
    ("execute-arguments", "fd.execute()", "fd.execute([a, b])"),
    ("execute-arguments", "fd.execute([DATA], devise=0)", "'device'"),
    ("truth-1", "bool(x > 0)", "fd.ops.where"),
    ("truth-1", "0 if x else 1", "fd.ops.where"),
]


@pytest.mark.parametrize(("rule", "program", "hint"), REFUSED, ids=lambda v: str(v)[:40])
def test_refused_with_what_to_write(rule: str, program: str, hint: str) -> None:
    fd, x = opened()
    scope = {"torch": torch, "np": np, "fd": fd, "x": x, "DATA": DATA, "math": math}
    error = raised(lambda: eval(program, scope))
    assert error.rule == rule, error
    assert hint in str(error), error
    assert "hint" in str(error), error


def test_what_python_raises_a_type_error_for_is_an_argument_type_error() -> None:
    fd, x = opened()
    calls: list[Callable[[], Any]] = [
        *(lambda f=f: f(x) for f in (float, int, len, iter, np.asarray)),
        *(lambda i=i: x[i] for i in ("a", [1, 2], 1.5)),
        lambda: 1 in x,
        lambda: operator.setitem(x, 0, 1.0),
        lambda: range(fd.define_scalar(DataType.Int)),
        lambda: x.gather(1),
        lambda: fd(x),
    ]
    for call in calls:
        with pytest.raises(ArgumentTypeError):
            call()


def test_every_attribute_of_a_torch_tensor_is_there_or_says_why_not() -> None:
    """Some 240 public names of torch.Tensor exist; the rest raise an AttributeError with a hint."""
    _, x = opened(2, 3, dtype=DataType.ComplexFloat)
    names = [n for n in dir(torch.Tensor) if not n.startswith("_")]
    there = [n for n in names if hasattr(x, n)]
    for name in set(names).difference(there):
        with pytest.raises(UserError, match="hint"):
            getattr(x, name)
    assert len(there) > 200


def test_every_function_of_torch_works_or_raises_an_error_of_ours() -> None:
    """Each of some 800 overridable torch functions, called with a tensor for every required
    argument, returns a result or raises a fuser error. torch raises its own error if it checks the
    arguments first."""
    ended: dict[str, list[tuple[Any, Any]]] = {"works": [], "ours": [], "torch": []}
    for function, stand_in in get_testing_overrides().items():
        name = getattr(function, "__name__", "")
        if name.startswith("__") or getattr(torch.Tensor, name, None) is function:
            continue  # a method, which requires a torch.Tensor
        needed = [
            p
            for p in inspect.signature(stand_in).parameters.values()
            if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
        ]
        if not needed or isinstance(function, property) or not callable(function):
            continue
        _, x = opened(3, 3)
        try:
            ended["works"].append((function, function(*[x] * len(needed))))
        except (UserError, Unsupported) as error:
            ended["ours"].append((function, error))
        except (TypeError, ValueError) as error:
            ended["torch"].append((function, error))
    counts = {kind: len(found) for kind, found in ended.items()}
    assert counts["works"] > 180, counts
    assert counts["ours"] > 500, counts
    assert counts["torch"] < 20, counts
    for function, error in ended["ours"]:
        known = function_of(function.__name__) is not None
        assert known or "hint" in str(error), (function, error)
    for function, error in ended["torch"]:
        assert "fuser/" not in _origin(error), (function, error)


def _origin(error: BaseException) -> str:
    """The file that raised the error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename if trace is not None else ""


def test_sizes_and_types_read_as_those_of_torch() -> None:
    """x.shape and x.dtype are values; calling them, as in nvFuser, returns the values too."""
    _, x = opened(2, -1, dtype=DataType.Half)
    assert x.shape[0].value == x.shape()[0].value == x.size(0).value == 2
    assert len(x.shape) == len(x.size()) == x.dim() == x.ndim == 2
    assert x.shape[1].is_same(x.size(1))
    assert x.dtype == x.dtype() == DataType.Half == torch.float16
    assert x.dtype != torch.float32
    assert DataType.Half != DataType.Float
    assert x.dtype is not None
    assert {DataType.Half: 1}[x.dtype] == 1
    assert opened(2, 3)[1].numel() == 6
    assert x.numel().value is None
    assert [i for i in range(x.size(0))] == [0, 1]
    assert float(x.size(0)) == 2.0
    assert len(x) == 2
    assert x.is_floating_point()
    assert not x.is_complex()


def test_in_place_operators_rebind() -> None:
    fd, x = opened()
    y = x
    y += 1
    y *= 2
    assert y is not x
    fd.add_output(y)
    data = torch.randn(2, 3)
    torch.testing.assert_close(fd.execute([data])[0], (data + 1) * 2)
    assert x.id == 0


def test_operators_with_scalars_of_the_definition() -> None:
    fd, x = opened()
    s = fd.define_scalar(DataType.Double)
    for value in (x + s, s + x, s * x, x / s, s - x, x**s, x % s, x // s, torch.sin(s) + x):
        fd.add_output(value)
    data = torch.rand(2, 3) + 0.5
    found = fd.execute([data, 1.5])
    wanted = [
        *(data + 1.5, 1.5 + data, 1.5 * data, data / 1.5, 1.5 - data, data**1.5, data % 1.5),
        *(data // 1.5, math.sin(1.5) + data),
    ]
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_python_still_finds_no_attributes_of_its_own() -> None:
    """Attributes that copy, pickle, numpy and debuggers look up are absent, and raise Python's
    plain errors."""
    _, x = opened()
    for name in ("__array_interface__", "__len_hint__", "__fspath__", "_repr_html_"):
        assert not hasattr(x, name)
    assert isinstance(hash(x), int)
    assert x in {x: 1}
    with pytest.raises(TypeError):
        pickle.dumps(x)
    assert (np.float32(2) * x).dtype == DataType.Float


def test_a_row_that_reads_a_position_of_the_run() -> None:
    """An index computed at run time works; an index out of range reads the nearest element, as in
    fd.ops.take_along_axis."""
    fd, x = opened(-1, 2)
    i = fd.define_tensor([-1], dtype=DataType.Int)
    fd.add_output(x[i])
    data, index = torch.randn(5, 2), torch.tensor([4, 0, -1])
    assert fd.execute([data, index])[0].equal(data[index])
    assert fuser.evaluate(fd, [data, index])[0].equal(data[index])
