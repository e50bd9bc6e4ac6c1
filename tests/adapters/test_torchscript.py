"""fuser.adapters.torchscript: supported ops of groups, switches, fallbacks, random scripts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fuser
from fuser import Unsupported
from fuser.adapters import torchscript
from tests.adapters.random_scripts import SCRIPTS, check_random_script
from tests.adapters.script_models import MODELS, WAYS, check_model, check_threads_and_forks
from tests.adapters.script_ops import (
    BATCHES,
    WITH_GRADIENTS,
    check_batch,
    check_gradients,
    eager,
)
from tests.adapters.script_programs import check_script, script_program
from tests.support.sampling import rotated, thorough
from tests.support.scripts import assert_same, compiled, fused, groups


@pytest.fixture(autouse=True)
def _fused() -> Iterator[None]:
    with fused():
        yield


# ---- the op list

DTYPES = [torch.float32, torch.bfloat16, torch.float64]


OPS = [
    (batch, dtype)
    for batch in BATCHES
    for dtype in DTYPES
    if thorough() or dtype == torch.float32 or (batch, dtype) == ("norms", torch.bfloat16)
]


@pytest.mark.parametrize(("batch", "dtype"), OPS, ids=str)
def test_ops(batch: str, dtype: torch.dtype) -> None:
    check_batch(batch, dtype, torch.device("cpu"))


@pytest.mark.parametrize("batch", WITH_GRADIENTS)
def test_gradients(batch: str) -> None:
    check_gradients(batch, torch.device("cpu"))


def test_a_sum_of_bools_to_a_size_counts() -> None:
    f = compiled("def f(x: Tensor, y: Tensor):\n    return (x & y).sum_to_size([1, 6]) * 2\n")
    x, y = torch.rand(4, 6) > 0.3, torch.rand(4, 6) > 0.3
    for _ in range(3):
        assert_same([f(x, y)], [(x & y).sum_to_size([1, 6]) * 2])
    assert groups(f.graph_for(x, y)) == 1


@pytest.mark.parametrize("value", ["2.5", "v"])
def test_a_fraction_scales_integers_as_an_integer(value: str) -> None:
    body = f"(torch.addcmul(x, x, x, value={value}) + 1) * 2"
    f = compiled(f"def f(x: Tensor, v: float):\n    return {body}\n")
    x = torch.arange(-4, 8)
    for _ in range(3):
        assert_same([f(x, 2.5)], [(torch.addcmul(x, x, x, value=2.5) + 1) * 2])
    assert groups(f.graph_for(x, 2.5)) == 1


@pytest.mark.parametrize("op", ["x % v", "torch.fmod(x, v)", "x == v", "x >= v"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_number_of_the_run_is_rounded_where_results_jump(op: str, dtype: torch.dtype) -> None:
    """A run-time scalar is rounded to the tensor's dtype in comparisons and discontinuous
    functions, as in torch."""
    source = f"def f(x: Tensor, v: float):\n    y = {op}\n    return y + 0, y == 1\n"
    f, expected = compiled(source), eager(source)
    for v in (0.1, 0.1, 0.1, 1 / 3, 2.7):
        x = torch.tensor([v, 3 * v, -v, 7 * v, 1.0, 5.5]).to(dtype)
        for a, b in zip(f(x, v), expected(x, v), strict=True):
            assert torch.equal(a, b)
    assert groups(f.graph_for(x, v)) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["float", "int"])
@pytest.mark.parametrize(
    "op",
    [
        "torch.celu(x * 2, v)",
        "torch.nn.functional.softplus(x * 2, v, 20.0)",
        "torch.nn.functional.softplus(x * 8, 1.0, v)",
        "torch.constant_pad_nd(x * 2, [1, 1], v)",
    ],
)
def test_a_number_of_the_run_is_no_part_of_the_definition(
    op: str, kind: str, dtype: torch.dtype
) -> None:
    if "softplus" in op and kind == "int":
        op = op.replace("20.0", "20").replace("1.0", "1")
        kind = "float"  # for softplus in torch.nn.functional
    source = f"def f(x: Tensor, v: {kind}):\n    return {op} + 1\n"
    f, expected = compiled(source), eager(source)
    x = torch.linspace(-4, 4, 24, dtype=torch.float64).view(4, 6).to(dtype)
    values = [1, 2, 3, 4, 7] if kind == "int" else [0.5, 1.0, 0.3, 2.7, 1 / 3]
    for v in values[:3]:
        f(x, v)
    written, unfused = torchscript.counters()["definitions"], torchscript.counters()["fallbacks"]
    for v in values:
        got = f(x, v)
        assert got.dtype == dtype
        assert_same([got], [expected(x.double(), v).to(dtype)])
    assert torchscript.counters()["definitions"] == written
    assert torchscript.counters()["fallbacks"] == unfused
    assert groups(f.graph_for(x, v)) == 1


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8], ids=str)
def test_integers_divided_by_zero_do_not_raise(dtype: torch.dtype) -> None:
    f = compiled("def f(x: Tensor, y: Tensor):\n    return x // y + 0, x % y + 0\n")
    x, y = torch.tensor([7, -7, 0, 5]).to(dtype), torch.tensor([0, 0, 0, 3]).to(dtype)
    for _ in range(3):
        f(x, x.clamp(min=1))
    assert [t.tolist() for t in f(x, y)] == [[-1, -1, -1, 1], [7, -7, 0, 2]]


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("op", ["any", "all", "sum", "amax"])
def test_reductions_over_no_dims(op: str, keepdim: bool) -> None:
    """An empty list of dims reduces no dims for any and all, and all dims for other reductions."""
    source = (
        f"def f(x: Tensor):\n    d: List[int] = []\n    return torch.{op}(x * 2, d, {keepdim})\n"
    )
    f, expected = compiled(source), eager(source)
    x = torch.tensor([[1.0, 0.0, 3.0], [0.0, 0.0, 2.0]])
    for _ in range(4):
        got, wanted = f(x), expected(x)
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        assert torch.equal(got, wanted)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize(
    "op", ["x.to(torch.float32)", "x.sum(1, dtype=torch.float32)", "x.softmax(1, torch.float32)"]
)
def test_complex_numbers_become_real_ones(op: str) -> None:
    source = f"def f(x: Tensor):\n    x = x * 2\n    return {op}\n"
    f, expected, unfused = compiled(source), eager(source), torchscript.counters()["fallbacks"]
    for _ in range(4):
        x = torch.randn(4, 6, dtype=torch.complex64)
        got = f(x)
        assert got.dtype == torch.float32
        assert_same([got], [expected(x)])
    assert torchscript.counters()["fallbacks"] == unfused
    assert groups(f.graph_for(x)) == 1


# ---- switches and errors


CONSTANT = ("prim::Constant", {"value": torch.ones(2)}, [], [1])
PARTS = ("aten::unbind.int", {}, [0, 1], [2])
ZERO = ("prim::Constant", {"value": 0}, [], [1])
THREE_NAMES = ("prim::ListUnpack", {}, [2], [3, 4, 5])
SIZE = ("aten::size.int", {}, [0, 1], [2])
REFUSED: list[tuple[str, list[torchscript.Node]]] = [
    ("script-constant", [CONSTANT]),
    ("aten-sizes", [ZERO, PARTS, THREE_NAMES]),  # the operand has one row
    ("script-split", [ZERO, ("aten::split.Tensor", {}, [0, 1, 1], [2])]),
    ("script-branch", [ZERO, SIZE, ("prim::If", {"blocks": ()}, [2], [])]),
    ("script-output", [ZERO, ("prim::ListConstruct", {}, [0, 1], [2])]),
]


@pytest.mark.parametrize(("rule", "nodes"), REFUSED, ids=[rule for rule, _ in REFUSED])
def test_graphs_without_a_definition(rule: str, nodes: list[torchscript.Node]) -> None:
    x = torch.ones(1, 3) if rule == "aten-sizes" else torch.ones(2, 3)
    with pytest.raises(Unsupported) as caught:
        torchscript.write_definition(([0], nodes, [2]), [torchscript._TENSOR], [x], [[]])
    assert caught.value.rule == rule


def test_statistics_that_batch_norm_is_given_on_a_gpu() -> None:
    """On a GPU, batch norm in evaluation returns the given statistics, as torch does; on the CPU it
    returns empty tensors."""
    norm = ("aten::native_batch_norm", {}, [0, 3, 3, 1, 2, 4, 5, 6], [7, 8, 9])
    values = [(3, None), (4, False), (5, 0.1), (6, 1e-5)]
    constants = [("prim::Constant", {"value": value}, [], [n]) for n, value in values]
    given = [torch.randn(3, 4), torch.randn(4), torch.rand(4)]
    roles, layouts = [torchscript._TENSOR] * 3, [[]] * 3
    for device in ("cpu", "meta"):  # "meta" counts as a device that is not the CPU
        arguments = [t.to(device) for t in given]
        graph = ([0, 1, 2], [*constants, norm], [7, 8, 9])
        fd, _ = torchscript.write_definition(graph, roles, arguments, layouts)
        _, mean, rstd = fuser.evaluate(fd, given)
        wanted = [given[1], (given[2].double() + 1e-5).rsqrt()]
        if device == "cpu":
            wanted = [torch.zeros(0)] * 2
        for a, b in zip((mean, rstd), wanted, strict=True):
            torch.testing.assert_close(a.double(), b.double(), rtol=1e-6, atol=0)


def test_fuser2_is_ours_while_enabled() -> None:
    source = "def f(x: Tensor):\n    return (x + 1).relu() * 2\n"
    x = torch.randn(4)
    with torch.jit.fuser("fuser2"):
        f = compiled(source)
        for _ in range(3):
            f(x)
        assert groups(f.graph_for(x)) == 1
    with torch.jit.fuser("none"):
        f = compiled(source)
        for _ in range(3):
            f(x)
        assert groups(f.graph_for(x)) == 0
    f = compiled(source)
    for _ in range(3):
        f(x)
    assert groups(f.graph_for(x)) == 1


def test_the_switch_leaves_others_alone() -> None:
    def switches() -> list[bool]:
        return [
            torch._C._jit_texpr_fuser_enabled(),
            torch._C._jit_can_fuse_on_cpu(),
            torch._C._jit_can_fuse_on_gpu(),
        ]

    before = switches()
    fuser.enable_torchscript_fuser()
    assert switches() == before
    fuser.enable_torchscript_fuser(False)
    assert switches() == before


def test_switches_of_nvfuser_are_ours() -> None:
    x = torch.randn(4, 8)

    def count(body: str) -> int:
        f = compiled(f"def f(x: Tensor, y: Tensor, z: Tensor):\n    return {body}\n")
        for _ in range(3):
            f(x, x + 1, x + 2)
        return groups(f.graph_for(x, x, x))

    siblings = "(x * y).relu(), (x * z).sigmoid()"
    assert (count("x.relu()"), count(siblings)) == (0, 1)
    single = torch._C._jit_set_nvfuser_single_node_mode(True)
    horizontal = torch._C._jit_set_nvfuser_horizontal_mode(False)
    try:
        assert (count("x.relu()"), count(siblings)) == (1, 2)
        skip = torch._C._jit_set_nvfuser_skip_node_kind
        assert skip("aten::relu", True) is False, "it was not skipped before"
        assert count("x.relu()") == 0
        assert [skip("aten::relu", False) for _ in range(2)] == [True, True]
        assert skip("aten::relu", True) is True
        assert skip("aten::relu", False) is False
    finally:
        torch._C._jit_set_nvfuser_single_node_mode(single)
        torch._C._jit_set_nvfuser_horizontal_mode(horizontal)
    assert (single, horizontal) == (False, True)


@pytest.mark.parametrize("unfused", [True, False])
def test_fused_runs_are_shown_beside_unfused_ones(unfused: bool) -> None:
    """The comparison callback, as in nvFuser, receives fused and unfused results."""
    seen: list[Any] = []
    f = compiled(
        """
        def f(x: Tensor, mean: Tensor, var: Tensor):
            return torch.batch_norm(x * 2, None, None, mean, var, True, 0.1, 1e-5, False).relu()
        """
    )
    x = torch.randn(4, 3)
    statistics = [torch.zeros(3), torch.ones(3)]
    torch._C._jit_nvfuser_set_comparison_callback(unfused, lambda *given: seen.append(given))
    try:
        results = [f(x, *statistics) for _ in range(3)]
    finally:
        torch._C._jit_nvfuser_clear_comparison_callback()
    f(x, *statistics)
    assert len(seen) == 2  # the first run was profiled, the last one not compared
    for (fused_results, others, graph), result in zip(seen, results[1:], strict=True):
        assert_same(fused_results, [result])
        assert_same(others, [result] if unfused else [], 4)
        assert "aten::relu" in graph
    # The unfused run does not update the statistics a second time.
    wanted = torch.zeros(3)
    for _ in range(4):
        wanted = 0.9 * wanted + 0.1 * (x * 2).mean(0)
    assert_same([statistics[0]], [wanted], 4)

    def refuse(*_: Any) -> None:
        raise ValueError("not the same")

    torch._C._jit_nvfuser_set_comparison_callback(unfused, refuse)
    try:
        with pytest.raises(RuntimeError, match="not the same"):
            f(x, *statistics)
    finally:
        torch._C._jit_nvfuser_clear_comparison_callback()
    f(x, *statistics)


def test_what_cannot_be_written_runs_unfused(
    monkeypatch: pytest.MonkeyPatch, set_option: Any
) -> None:
    def refuse(*_: Any) -> Any:
        raise Unsupported("not today", rule="script-output")

    monkeypatch.setattr(torchscript, "write_definition", refuse)
    x = torch.randn(4)
    f = compiled("def f(x: Tensor):\n    return (x + 1).relu() * 2\n")
    unfused = torchscript.counters()["fallbacks"]
    f(x)
    with pytest.warns(UserWarning, match="not today") as seen:
        f(x)
    path = re.findall(r"\S+\.py", str(seen[0].message))[0]
    set_option("FUSER_STRICT", 0)  # reset: the program sets it
    with pytest.raises(Exception, match="not today"):
        exec(Path(path).read_text(), {})
    fuser.enable_torchscript_fuser(True, cpu=True)
    for _ in range(2):
        assert_same([f(x)], [(x + 1).relu() * 2])
    assert torchscript.counters()["fallbacks"] > unfused
    set_option("FUSER_STRICT", 1)
    f = compiled("def f(x: Tensor):\n    return (x + 1).relu() * 2\n")
    f(x)
    with pytest.raises(RuntimeError, match="not today"):
        f(x)


def test_the_environment_switches_it_on() -> None:
    program = "import fuser; from fuser.adapters import torchscript as t; print(t._state, t._on)"
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "FUSER_TORCHSCRIPT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "(True, False) True"


@pytest.mark.parametrize("number", range(SCRIPTS))
def test_random_scripts(number: int) -> None:
    check_random_script(number, torch.device("cpu"))


# Script 8 has a group that becomes empty when its unused results are removed.
@pytest.mark.parametrize("number", range(100) if thorough() else [*range(6), 8])
def test_a_script_does_what_eager_does(number: int) -> None:
    p = script_program(number)
    if p is not None:
        fault, fallen = check_script(p, "cpu")
        assert fault is None, f"{fault}\n{p.text()}"
        assert not fallen, f"{fallen}\n{p.text()}"


# ---- models


@pytest.mark.parametrize(
    ("name", "how"), [(n, w) for place, n in enumerate(MODELS) for w in rotated(WAYS, place, 2)]
)
def test_models(name: str, how: str) -> None:
    check_model(name, how, torch.device("cpu"))


def test_threads_and_forks() -> None:
    check_threads_and_forks(torch.device("cpu"))


# ---- sizes computed by groups


@pytest.mark.parametrize("of", ["x * 2", "(x * 2)[:, :0]", "(x * 2).narrow(1, 1, 0)"])
def test_parts_of_nothing(of: str) -> None:
    """chunk() of an empty tensor returns the usual number of tensors."""
    f = compiled(f"def f(x: Tensor):\n    a, b = ({of}).chunk(2, 1)\n    return a + 1, b * 2\n")
    unfused = torchscript.counters()["fallbacks"]
    for columns in (4, 4, 4, 0, 6, 0):
        x = torch.randn(3, columns) if columns or of == "x * 2" else torch.randn(3, 5)
        a, b = eval(of, {"x": x}).chunk(2, 1)
        assert_same(f(x), [a + 1, b * 2])
    assert torchscript.counters()["fallbacks"] == unfused
    assert groups(f.graph_for(x)) == 1


@pytest.mark.parametrize("op", ["F.glu(x * 2, 1)", "F.prelu(x * 2, b)", "x.copy_(b[:, None])"])
def test_sizes_of_what_is_not_elementwise(op: str) -> None:
    """The size of a result inside a group is computed from the operands by the op's own rule."""
    source = f"def f(x: Tensor, b: Tensor):\n    y = {op}\n    return (y * y.size(1) + 1).relu()\n"
    source = source.replace("F.", "torch.nn.functional.")
    f, expected = compiled(source), eager(source)
    for shape in [(3, 6, 5), (3, 6, 5), (3, 6, 5), (2, 6, 8)]:
        x, b = torch.randn(shape), torch.randn(6)
        assert_same([f(x.clone(), b)], [expected(x, b)])


@pytest.mark.parametrize(("start", "length"), [(2, 3), (-3, 3), (-3, 2), (6, 3), (0, 9)])
def test_narrow_ends_within_the_dim(start: int, length: int) -> None:
    f = compiled("def f(x: Tensor, n: int, m: int):\n    return (x + 1).narrow(1, n, m) * 2\n")
    x = torch.randn(4, 8)
    for _ in range(3):
        f(x, 3, 4)
    if length <= (-start if start < 0 else 8 - start):
        assert_same([f(x, start, length)], [(x + 1).narrow(1, start, length) * 2])
        assert groups(f.graph_for(x, start, length)) == 1
    else:
        with pytest.raises(RuntimeError, match="exceeds dimension size"):
            f(x, start, length)


@pytest.mark.parametrize("size", ["(x + y).numel()", "len(x + y)", "(x + y).dim()"])
def test_what_asks_for_sizes_of_a_result_splits_no_group(size: str) -> None:
    """Sizes of a broadcast result are computed from its operands, so that they do not split the
    group."""
    source = f"def f(x: Tensor, y: Tensor):\n    return ((x + y) / {size}).relu() * 2\n"
    f, expected = compiled(source), eager(source)
    for rows in (4, 4, 4, 5):
        x, y = torch.randn(rows, 1), torch.randn(6)
        assert_same([f(x, y)], [expected(x, y)])
    assert groups(f.graph_for(x, y)) == 1


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        ("torch.nextafter(x, x * 2)", torch.bfloat16),
        ("torch.nn.functional.pad(x, [1, 1], 'replicate')", torch.float32),
        ("torch.linalg.norm(x, 'fro')", torch.float32),
        ("torch.linalg.norm(x, 1)", torch.float32),
        ("x.mH * 2", torch.complex64),
        ("x.logsumexp(1)", torch.complex64),
        ("torch.rms_norm(x, [6])", torch.complex64),
        ("torch.binary_cross_entropy_with_logits(x.abs(), x, None, None, 1)", torch.complex64),
        ("torch.nn.functional.cross_entropy(x.real, x.real.softmax(1), x[0])", torch.complex64),
        ("torch.rand_like(x) * 0", torch.complex64),
        ("torch.randn_like(x) * 0", torch.complex64),
    ],
)
def test_forms_that_no_definition_has_stay_outside(op: str, dtype: torch.dtype) -> None:
    source = f"def f(x: Tensor):\n    x = x * 2\n    return {op}, x * 2 + 1\n"
    f, expected, unfused = compiled(source), eager(source), torchscript.counters()["fallbacks"]
    for _ in range(4):
        x = torch.randn(4, 6).to(dtype)
        torch.testing.assert_close(f(x), expected(x))
    assert torchscript.counters()["fallbacks"] == unfused


@pytest.mark.parametrize("norm", ["batch_norm", "instance_norm"])
def test_one_element_does_not_stand_for_all_channels(norm: str) -> None:
    source = f"""
        def f(x: Tensor, m: Tensor, v: Tensor, w: Tensor):
            return torch.nn.functional.{norm}(x * 2, m, v, w, None, False) + 1
    """
    f, expected = compiled(source), eager(textwrap.dedent(source))
    for shape in [(3, 4, 5)] * 3 + [(3, 1, 5)]:
        x, m, v, w = torch.randn(shape), torch.randn(4), torch.rand(4), torch.randn(4)
        if shape[1] == 4:
            assert_same([f(x, m, v, w)], [expected(x, m, v, w)])
            with pytest.raises(RuntimeError):
                f(x, m[:1], v, w)
        else:
            with pytest.raises(RuntimeError):
                f(x, m, v, w)
    m, v, w = torch.randn(1), torch.rand(1), torch.randn(1)
    assert_same([f(x, m, v, w)], [expected(x, m, v, w)])


def test_integers_are_summed_to_a_size_as_by_sum() -> None:
    source = """
def f(x: Tensor):
    x = x * 2
    return x.sum_to_size([6]), x.sum_to_size([4, 6]), torch.lcm(x, x + 2)
"""
    f, expected = compiled(source), eager(source)
    for _ in range(4):
        x = torch.randint(-9, 9, (4, 6), dtype=torch.int32)
        for got, wanted in zip(f(x), expected(x), strict=True):
            assert got.dtype == wanted.dtype
            assert torch.equal(got, wanted)
