"""csrc/torch/script/torchscript: operands other than tensors: indices, devices, dims."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.adapters.script_ops import eager
from tests.support.scripts import assert_same, fallbacks, fused, groups, warmed


@pytest.fixture(autouse=True)
def _fused() -> Iterator[None]:
    with fused():
        yield


@pytest.mark.parametrize("indices", ["[[0, -1]]", "[:, [2, 0, 1]]", "[x > 0]"])
def test_indices_that_stand_in_the_script(indices: str) -> None:
    source = f"def f(x: Tensor):\n    return (x * 2 + 1){indices} * 2 + 1\n"
    f, expected = torch.jit.CompilationUnit(source).f, eager(source)
    x = torch.randn(4, 8)
    unfused = fallbacks()
    for _ in range(3):
        assert_same([f(x)], [expected(x)])
    assert fallbacks() == unfused
    assert groups(f.graph_for(x)) >= 1


@pytest.mark.parametrize(
    "indices",
    [
        *("[i]", "[:, i]", "[:, i.view(3, 1)]", "[i[0]]", "[i, i]", "[:, i, i.view(3, 1).int()]"),
        *("[i, :, i]", "[i, 1:, i + 1]", "[:2, i.view(1, 3), i.view(3, 1)]", "[i, i, i]", "[m]"),
    ],
)
def test_tensors_of_indices_are_in_the_group(indices: str) -> None:
    """Index tensors are part of the group; masks are left to torch."""
    source = f"def f(x: Tensor, i: Tensor, m: Tensor):\n    return (x * 2 + 1){indices} * 2 + 1\n"
    f, expected = torch.jit.CompilationUnit(source).f, eager(source)
    i, unfused = torch.tensor([2, -1, 0]), fallbacks()
    for rows in (4, 4, 4, 5):
        x = torch.randn(rows, 8, 5)
        m = x[:, 0, 0] > 0
        assert_same([f(x, i, m)], [expected(x, i, m)])
    assert fallbacks() == unfused
    assert groups(f.graph_for(x, i, m)) == 1 + (indices == "[m]")


def test_the_one_element_of_a_tensor_without_dims_is_selected() -> None:
    source = "def f(x: Tensor, i: Tensor):\n    return (x * 2).index_select(0, i) + 1\n"
    f, expected = torch.jit.CompilationUnit(source).f, eager(source)
    x, unfused = torch.tensor(1.5), fallbacks()
    for i in [torch.tensor([0])] * 3 + [torch.tensor(0)]:
        assert_same([f(x, i)], [expected(x, i)])
    assert fallbacks() == unfused
    assert groups(f.graph_for(x, i)) == 1


def test_a_gather_without_dims_is_in_the_group() -> None:
    """A gather from a tensor without dims, or by an index without dims, which counts as one
    element."""
    source = "def f(x: Tensor, i: Tensor):\n    return torch.gather(x * 2, 0, i) + 1\n"
    f, expected, unfused = torch.jit.CompilationUnit(source).f, eager(source), fallbacks()
    one, three, several = torch.tensor(1.5), torch.randn(3), torch.tensor([0, 0, 0])
    calls = [(one, torch.tensor(0)), (one, several[:1]), (one, several), (three, torch.tensor(2))]
    for x, i in [*calls[:1] * 3, *calls[1:] * 2]:
        assert_same([f(x, i)], [expected(x, i)])
    assert fallbacks() == unfused
    assert groups(f.graph_for(*calls[0])) == 1


def test_what_moves_to_another_device_stays_outside() -> None:
    def moved(x: torch.Tensor) -> torch.Tensor:
        return (x * 2 + 1).to(torch.device("meta"))

    x = torch.randn(4, 8)
    unfused = fallbacks()
    f = warmed(moved, x)
    assert f(x).device.type == "meta"
    assert fallbacks() == unfused
    assert groups(f.graph_for(x)) == 1


@pytest.mark.parametrize(
    "op",
    [
        "to('cpu')",
        "to(y.device)",
        "to(z.device)",
        "to(y.device, torch.float64)",
        "to(torch.device('cpu'), z.dtype)",
        "movedim([0, 1], [1, 0]).true_divide(2).movedim(0, 1)",
        "to(d)",
        "cpu()",
    ],
)
def test_a_move_to_the_same_device_is_in_the_group(op: str) -> None:
    source = f"""
def f(x: Tensor, y: Tensor, d: Device):
    z = y * 2
    return (x + 1).{op} * 2 + z
"""
    f = torch.jit.CompilationUnit(source).f
    expected = eager(source.replace(": Device", ""))
    x, y, unfused = torch.randn(4, 8), torch.randn(4, 8), fallbacks()
    for _ in range(4):
        got, wanted = f(x, y, torch.device("cpu")), expected(x, y, torch.device("cpu"))
        assert_same([got], [wanted])
        assert got.dtype == wanted.dtype
    assert fallbacks() == unfused
    assert groups(f.graph_for(x, y, torch.device("cpu"))) == 1


def test_a_device_of_the_run_is_where_results_are() -> None:
    """A run-time device other than the tensors' raises Unsupported `script-device`: torch's ops run
    instead."""
    source = "def f(x: Tensor, d: Device):\n    return ((x + 1).to(d) * 2).relu()\n"
    f, x = torch.jit.CompilationUnit(source).f, torch.randn(4, 8)
    for _ in range(3):
        f(x, torch.device("cpu"))
    with pytest.warns(UserWarning, match="a copy of tensors from cpu to meta"):
        assert f(x, torch.device("meta")).device.type == "meta"
    assert_same([f(x, torch.device("cpu"))], [((x + 1) * 2).relu()])


@pytest.mark.parametrize(
    "op",
    [
        "softmax(d)",
        "sum(d)",
        "flatten(d)",
        "transpose(0, d)",
        "unsqueeze(d + 1)",
        "narrow(d, 0, 1)",
    ],
)
def test_a_dim_that_there_is_not_is_an_error(op: str) -> None:
    """A dim out of range is rejected as `script-dim`, and torch raises its error."""
    f = torch.jit.CompilationUnit(f"def f(x: Tensor, d: int):\n    return (x * 2).{op} + 1\n").f
    x, unfused = torch.randn(4, 8), fallbacks()
    for _ in range(3):
        f(x, 1)
    for _ in range(2):
        with pytest.raises((IndexError, RuntimeError), match="Dimension out of range"):
            f(x, 2)
    f(x, 0)
    assert fallbacks() == unfused


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float16], ids=str)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("number", ["z", "(2 - 1j)"])
def test_complex_numbers(number: str, dtype: torch.dtype) -> None:
    """Each value of a run-time complex number has its own definition; half types combined with it
    are left to torch."""
    body = f"y = (x * {number} + 1) * (x - {number})\n    return y, torch.rsub(y, {number}) == 2"
    source = f"def f(x: Tensor, z: complex):\n    {body}\n"
    f, expected = torch.jit.CompilationUnit(source).f, eager(source)
    x, unfused = (torch.arange(-4, 4) / 2).to(dtype), fallbacks()
    for z in (2 + 1j, 2 + 1j, 2 + 1j, -0.5j):
        for got, wanted in zip(f(x, z), expected(x, z), strict=True):
            torch.testing.assert_close(got, wanted)
    assert fallbacks() == unfused
    assert groups(f.graph_for(x, z)) == (dtype != torch.float16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.filterwarnings("ignore:B?Complex")
def test_complex_tensors_of_half_precision_are_left_to_torch(dtype: torch.dtype) -> None:
    """Complex half-precision operands are left to torch, including complex bfloat16, which exists
    since torch 2.14."""
    source = "def f(x: Tensor):\n    return x.to(torch.complex64) * 2 + x.to(torch.complex64)\n"
    f, expected = torch.jit.CompilationUnit(source).f, eager(source)
    x, unfused = torch.ones(2, 3).to(dtype.to_complex()), fallbacks()
    for _ in range(4):
        torch.testing.assert_close(f(x), expected(x))
    assert fallbacks() == unfused


@pytest.mark.parametrize("op", ["select(0, n)", "[n]", "[:, n]", "select(-1, n)"])
def test_an_index_that_there_is_not_is_an_error(op: str) -> None:
    """An index out of range raises torch's error, also if sizes and index are run-time values."""
    op = op if op[0] == "[" else f".{op}"
    source = f"def f(x: Tensor, n: int):\n    return (x * 2){op} + 1\n"
    f, expected = torch.jit.CompilationUnit(source).f, eager(source)
    unfused = fallbacks()
    for n, rows in [(1, 4), (1, 4), (2, 4), (3, 5), (-2, 4), (-4, 4), (2, 3)]:
        x = torch.randn(rows, rows)
        assert_same([f(x, n)], [expected(x, n)])
    for n in (3, 7, -4):
        with pytest.raises((IndexError, RuntimeError), match=f"index {n} out of range"):
            f(x, n)
    assert fallbacks() == unfused
    assert groups(f.graph_for(x, 2)) == 1


@pytest.mark.parametrize(
    "op",
    ["tile([2])", "tile([3, 4])", "unsqueeze(-3)", "sum(0).sum(-1).sum(-1)", "flatten(-2, -1)"],
)
def test_numbers_that_look_like_a_dim_too_many(op: str) -> None:
    source = f"""
def f(x: Tensor, y: Tensor):
    z = torch.nn.functional.cosine_similarity(y * 2, x, 1)
    return (x * 2).{op} + 1, z, torch.stack([x, x + 1], 2) * 2
"""
    f, expected = torch.jit.CompilationUnit(source).f, eager(source)
    x, y, unfused = torch.randn(4, 8), torch.randn(8), fallbacks()
    for _ in range(3):
        for got, wanted in zip(f(x, y), expected(x, y), strict=True):
            assert_same([got], [wanted])
    assert fallbacks() == unfused
    assert groups(f.graph_for(x, y)) == 1


@pytest.mark.parametrize("dims", ["", "1", "-2, 1, 2", "2, 0, 1", "0, -1, 0", "0, 1, 0"])
def test_a_diagonal_is_in_the_group(dims: str) -> None:
    source = f"def f(x: Tensor):\n    return (x * 2).diagonal({dims}) + 1\n"
    f, expected = torch.jit.CompilationUnit(source).f, eager(source)
    unfused = fallbacks()
    for shape in [(4, 6, 5)] * 3 + [(6, 4, 5), (3, 3, 7)]:
        x = torch.randn(shape)
        assert_same([f(x)], [expected(x)])
    assert fallbacks() == unfused
    assert groups(f.graph_for(x)) == 1
