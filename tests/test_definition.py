"""fuser/definition.py: defining, closing, running and inspecting, on the host executor."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fuser
from fuser import (
    DataType,
    DTypeError,
    FusionDefinition,
    FusionExecutorCache,
    Plan,
    ShapeError,
    Tensor,
    UserError,
    Vector,
)

ROOT = Path(__file__).resolve().parent.parent


def bias_gelu() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.BFloat16)
        bias = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.BFloat16)
        scale = fd.define_scalar()
        fd.add_output(fd.ops.cast(fd.ops.gelu(x + bias) * scale, DataType.BFloat16))
    return fd


INPUTS = [torch.randn(5, 8).bfloat16(), torch.randn(8).bfloat16(), 0.5]


def declared(fd: FusionDefinition) -> str:
    return repr(fd).splitlines()[-1].partition("define_tensor")[2]


# ---- defining


@pytest.mark.parametrize(
    ("define", "text"),
    [
        (
            lambda fd: fd.define_tensor([-1, 0, 1, 5]),
            "(shape=[-1, 0, 1, 5], contiguity=[False, False, None, False], dtype=DataType.Float, "
            "is_cpu=False)",
        ),
        (
            lambda fd: fd.define_tensor([-1, 1], True, torch.float16, True),
            "(shape=[-1, 1], contiguity=[True, None], dtype=DataType.Half, is_cpu=True)",
        ),
        (
            lambda fd: fd.define_tensor(
                shape=[-1, 3], contiguity=[None, True], stride_order=[0, 1]
            ),
            "(shape=[-1, 3], contiguity=[None, True], dtype=DataType.Float, is_cpu=False, "
            "stride_order=[0, 1])",
        ),
        (
            lambda fd: fd.define_tensor(shape=[-1, 3], stride_order=[1, 0], contiguity=True),
            "(shape=[-1, 3], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)",
        ),
        (
            lambda fd: fd.define_tensor([1, 4, 3], contiguity=True, stride_order=[1, 0, 2]),
            "(shape=[1, 4, 3], contiguity=[True, None, True], dtype=DataType.Float, is_cpu=False, "
            "stride_order=[1, 0, 2])",
        ),
        (
            lambda fd: fd.define_tensor([2, 3], [3, 1], DataType.Int),
            "(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Int, is_cpu=False)",
        ),
        (
            lambda fd: fd.define_tensor(sizes=[2, 1, 0], strides=[1, 2, 2], static_sizes=False),
            "(shape=[-1, 1, 0], contiguity=[None, True, True], dtype=DataType.Float, is_cpu=False, "
            "stride_order=[0, 2, 1])",
        ),
        (
            lambda fd: fd.define_tensor([2, 3], [4, 1], DataType.Int, True, True),
            "(shape=[2, 3], contiguity=[False, True], dtype=DataType.Int, is_cpu=True)",
        ),
        (
            lambda fd: fd.define_tensor([], []),
            "(shape=[], contiguity=[], dtype=DataType.Float, is_cpu=False)",
        ),
        (
            lambda fd: fd.from_pytorch(torch.empty(4, 1, 3, dtype=torch.int8)),
            "(shape=[-1, 1, -1], contiguity=[True, None, True], dtype=DataType.Char, is_cpu=False)",
        ),
        (
            lambda fd: fd.from_pytorch(torch.empty(4, 3).T, static_sizes=True),
            "(shape=[3, 4], contiguity=[True, True], dtype=DataType.Float, is_cpu=False, "
            "stride_order=[0, 1])",
        ),
        (
            lambda fd: fd.from_pytorch(torch.tensor(1.0)),
            "(shape=[], contiguity=[], dtype=DataType.Float, is_cpu=True)",
        ),
    ],
)
def test_define_tensor(define: Callable[[FusionDefinition], Tensor], text: str) -> None:
    fd = FusionDefinition()
    define(fd)
    assert declared(fd) == text


@pytest.mark.parametrize(
    ("keywords", "rule", "text"),
    [
        (
            {"shape": [2, 3], "contiguity": [True]},
            "define-tensor-2",
            "define_tensor(shape=[2, 3]): contiguity: expected 2 values (one a dim), got 1",
        ),
        (
            {"shape": [2, 3], "stride_order": [1, 1]},
            "define-tensor-3",
            "define_tensor(shape=[2, 3]): stride_order: expected each of 0..1 once, got [1, 1]",
        ),
    ],
)
def test_define_tensor_errors(keywords: dict[str, Any], rule: str, text: str) -> None:
    with pytest.raises(ShapeError) as caught:
        FusionDefinition().define_tensor(**keywords)
    assert (caught.value.rule, str(caught.value)) == (rule, text)


def test_a_size_of_an_input_is_a_number() -> None:
    fd = FusionDefinition()
    with pytest.raises(UserError, match=r"shape: expected a list \(each an int\)") as caught:
        fd.define_tensor([fd.define_scalar(DataType.Int)])  # type: ignore[list-item]
    assert caught.value.rule == "argument-kind-1"


def test_define_scalar() -> None:
    fd = FusionDefinition()
    assert str(fd.define_scalar()) == "float64 s0"
    assert str(fd.define_scalar(None)) == "float64 s1"
    assert str(fd.define_scalar(DataType.Int32)) == "int32 s2"
    assert str(fd.define_scalar(None, dtype=torch.bool)) == "bool s3"
    assert str(fd.define_scalar(dtype=DataType.ComplexFloat)) == "complex64 s4"
    assert [fd.define_scalar(v).dtype() for v in (True, 2, 2.0, 2j)] == [
        DataType.Bool,
        DataType.Int,
        DataType.Double,
        DataType.ComplexDouble,
    ]
    assert fd.define_scalar(2, dtype=DataType.Half).dtype() == DataType.Half
    assert [fd.define_scalar(v, DataType.Int).value for v in (-2.5, 3.0, True)] == [-2, 3, 1]
    assert len(fd.fusion.inputs()) == 5


def test_define_constant() -> None:
    fd = FusionDefinition()
    assert str(fd.define_constant(2.5)) == str(fd.define_scalar(2.5))
    assert str(fd.define_constant(2, DataType.Int32)) == str(fd.define_scalar(2, DataType.Int32))


def test_define_vector() -> None:
    fd = FusionDefinition()
    vector = fd.define_vector(3)
    assert [str(s) for s in vector] == ["int64 s0", "int64 s1", "int64 s2"]
    assert isinstance(vector, Vector)
    assert isinstance(vector, list)
    assert vector.size == len(vector) == 3
    assert vector.at(1) is vector[1]
    shape = fd.ops.shape(fd.define_tensor([-1, 4]))
    assert isinstance(shape, Vector)
    assert shape.at(-1).value == 4
    assert isinstance(fd.define_vector([2, vector[0]]), Vector)


def test_an_error_inside_with_passes_through(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), FusionDefinition():
        1 / 0  # noqa: B018
    assert capsys.readouterr() == ("", "")


def test_body_functions_and_no_with() -> None:
    def body(fd: FusionDefinition) -> None:
        fd.add_output(fd.define_tensor([-1]) * 2)

    with FusionDefinition() as one:
        body(one)
    two = FusionDefinition()
    body(two)
    assert one.fusion == two.fusion
    assert two.execute([torch.ones(3)])[0].tolist() == [2.0, 2.0, 2.0]


# ---- closing


def test_definition_1() -> None:
    for use in (FusionDefinition.validate_definition, lambda fd: fd.execute([])):
        with pytest.raises(NotImplementedError) as caught:  # as in nvFuser
            use(FusionDefinition())
        assert isinstance(caught.value, UserError)
        assert caught.value.rule == "definition-1"
        assert str(caught.value) == (
            "the definition is empty\n  hint: define inputs with fd.define_tensor(...) "
            "and a result with fd.add_output(...)"
        )


def test_definition_2() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([2])
    with pytest.raises(UserError) as caught:
        fd.execute([torch.ones(2)])
    assert caught.value.rule == "definition-2"
    assert str(caught.value) == (
        "the definition has no output\n  hint: name a result with fd.add_output(...)"
    )
    fd.add_output(x + 1)  # the failed call added no op
    assert fd.execute([torch.ones(2)])[0].tolist() == [2.0, 2.0]


def test_definition_3() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([2])
    s = fd.define_scalar(1.0)
    fd.add_output(x + s)
    fd.execute([torch.ones(2)])
    for use in (
        lambda: x + 1,
        lambda: s + 1,
        lambda: fd.define_tensor([2]),
        lambda: fd.define_scalar(),
        lambda: fd.define_scalar(2),
        lambda: fd.add_output(x),
        lambda: fd.ops.cast(x, DataType.Half),
        lambda: fd.ops.permute(x, [0]),
        lambda: fd.ops.full([2], 0, DataType.Int),
    ):
        with pytest.raises(UserError) as caught:
            use()
        assert caught.value.rule == "definition-3"
        assert str(caught.value) == (
            "the definition is compiled and cannot be extended\n"
            "  hint: add all ops before the first execute(), or make another FusionDefinition"
        )


# ---- running


def test_execute_and_validate() -> None:
    fd = bias_gelu()
    (result,) = fd.execute(INPUTS)
    assert result.dtype == torch.bfloat16
    assert fd.validate(INPUTS)[0].equal(result)
    x, bias, scale = INPUTS
    expected = torch.nn.functional.gelu(x.double() + bias.double()) * scale
    torch.testing.assert_close(result.double(), expected, rtol=8e-3, atol=1e-5)
    assert fd.execute(tuple(INPUTS), device="cpu")[0].equal(result)


def test_outputs_in_place() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(x + 1, alias_input=x)
        fd.add_output(x * 2)
    given = torch.tensor([1.0, 2.0])
    (doubled,) = fd.execute([given])
    assert doubled.tolist() == [2.0, 4.0]
    assert given.tolist() == [2.0, 3.0]
    (doubled,) = fd.validate([given])
    assert given.tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    ("inputs", "kind"),
    [
        (INPUTS[:2], UserError),
        ([INPUTS[1], INPUTS[1], 0.5], ShapeError),
        ([INPUTS[0].float(), INPUTS[1], 0.5], DTypeError),
        ([INPUTS[0], torch.ones(7).bfloat16(), 0.5], ShapeError),
        ([INPUTS[0], 0.5, INPUTS[1]], UserError),
    ],
)
def test_inputs_that_do_not_fit(inputs: list[Any], kind: type[UserError]) -> None:
    fd = bias_gelu()
    with pytest.raises(kind):
        fd.execute(inputs)
    assert fd.execute(INPUTS)[0].shape == (5, 8)


def test_plans(gpu_plans: None) -> None:
    fd = bias_gelu()
    (expected,) = fd.execute(INPUTS)
    plan = fd.plan(INPUTS)
    assert isinstance(plan, Plan)
    assert plan.scheduler == "pointwise"
    assert fd.execute(INPUTS, plan=plan)[0].equal(expected)
    changed = plan.replace(threads=plan.threads // 2)
    assert fd.execute(INPUTS, plan=changed)[0].equal(expected)
    assert f"KERNEL({changed.threads})" in fd.last_cuda_code()
    assert fd.plan(INPUTS) == plan


def test_signature() -> None:
    fd = bias_gelu()
    # CPU kernels of eight rows and more loop over rows inside of each vector.
    larger = [torch.randn(7, 16).bfloat16(), torch.randn(16).bfloat16(), 2.0]
    assert fd.signature(INPUTS) == fd.signature(larger)
    strided = [torch.randn(5, 16).bfloat16()[:, ::2], *INPUTS[1:]]
    assert fd.signature(strided) != fd.signature(INPUTS)


def test_options_of_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    fd = bias_gelu()
    seen: list[str] = []
    fd._run = lambda *_: seen.append(fuser._core.get_option("FUSER_HOST_DEBUG"))
    before = fuser._core.get_option("FUSER_HOST_DEBUG")
    fd.execute(INPUTS, _enable_options=["host_debug"])
    fd.execute(INPUTS, _disable_options=["host_debug"])
    fd.execute(INPUTS)
    assert seen == ["1", "0", before]
    assert fuser._core.get_option("FUSER_HOST_DEBUG") == before
    with pytest.raises(UserError) as caught:
        fd.execute(INPUTS, _enable_options=["fast_matmul"])
    assert caught.value.rule == "option-flag"
    assert str(caught.value).startswith(
        "no option 'fast_matmul' to enable or disable; expected one of "
    )
    fd.execute(INPUTS, _enable_options=["fuse_matmul"], _disable_options=["id_model(all)", "fma"])
    assert seen[3:] == [before]


# ---- inspecting


def test_cuda_code(gpu_plans: None) -> None:
    fd = bias_gelu()
    with pytest.raises(UserError) as caught:
        fd.last_cuda_code()
    assert caught.value.rule == "last-run-1"
    fd.execute(INPUTS)
    text = fd.last_cuda_code()
    assert text.startswith("KERNEL(")
    assert fd.cuda_code_for(INPUTS) == text
    whole = fd.cuda_code_for(INPUTS, intrinsic_code=True)
    assert whole.endswith(text)
    assert "#define KERNEL" in whole


def test_printing(gpu_plans: None, capsys: pytest.CaptureFixture[str]) -> None:
    fd = bias_gelu()
    fd.fusion.print_math()
    assert capsys.readouterr().out == repr(fd) + "\n"
    fd.execute(INPUTS)
    fd.fusion.print_kernel()
    shown = capsys.readouterr().out
    assert "KERNEL(" in shown
    fd.fusion.print_kernel(compile_params=None)
    assert capsys.readouterr().out == shown


def test_fusion() -> None:
    fd = bias_gelu()
    assert [str(v) for v in fd.fusion.inputs()] == [
        "t0: bfloat16[size(t0, 0), size(t0, 1)]",
        "t1: bfloat16[size(t1, 0)]",
        "float64 s0",
    ]
    assert len(fd.fusion.outputs()) == 1
    assert fd.fusion == bias_gelu().fusion
    assert fd.fusion != FusionDefinition().fusion
    assert fd.fusion != "text"
    assert str(fd.fusion) == repr(fd)


def test_fec() -> None:
    fd, same = bias_gelu(), bias_gelu()
    assert isinstance(fd.fec, FusionExecutorCache)
    assert not fd.fec.is_compiled(INPUTS)
    (expected,) = fd.execute(INPUTS)
    assert fd.fec.is_compiled(INPUTS)
    same.fec = fd.fec
    assert same.fec.is_compiled(INPUTS)
    assert same.execute(INPUTS)[0].equal(expected)
    other = FusionDefinition()
    other.add_output(other.define_tensor([2]) + 1)
    with pytest.raises(UserError) as caught:
        other.fec = fd.fec
    assert caught.value.rule == "fec-2"


def test_repro_scripts_run() -> None:
    fd = bias_gelu()
    with pytest.raises(UserError) as caught:
        fd.last_repro_script()
    assert caught.value.rule == "repro-1"
    fd.execute(INPUTS)
    with pytest.raises(UserError):
        fd.last_repro_script()
    fd.execute(INPUTS, save_repro_inputs=True)
    assert fd.last_repro_script() == fd.repro_script_for(INPUTS)
    for script in (fd.repro_script_for(INPUTS), fd.repro_script_for()):
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=Path(fuser.__path__[0]).parent,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_a_program_whose_path_the_locale_cannot_read(tmp_path: Path) -> None:
    """Source locations with non-ASCII paths are escaped."""
    program = tmp_path / "größe" / "program.py"
    program.parent.mkdir()
    program.write_text(
        "from fuser import FusionDefinition, ShapeError\n"
        "fd = FusionDefinition()\n"
        "try: fd.define_tensor([2]) + fd.define_tensor([3])\n"
        "except ShapeError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, program],
        env=os.environ
        | {"PYTHONPATH": str(Path(fuser.__path__[0]).parent)}
        | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert r"gr\udcc3\udcb6\udcc3\udc9fe/program.py:3" in done.stdout


def test_outputs_are_laid_out_as_asked() -> None:
    """stride_order by name or as the second argument, which may also be the in-place input."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    fd.add_output(x + 1.0, [0, 1])
    fd.add_output(x + 1.0, stride_order=[1, 0])
    turned, rows = fd.execute([torch.ones(4, 6)])
    assert turned.stride() == (1, 4)
    assert rows.stride() == (6, 1)


def test_define_vector_1() -> None:
    with pytest.raises(ShapeError) as caught:
        FusionDefinition().define_vector(-1)
    assert caught.value.rule == "define-vector-1"
    assert FusionDefinition().define_vector(0) == []


@pytest.mark.parametrize(
    ("take", "rule", "text"),
    [
        (
            lambda fd: fd.define_scalar(1 << 31, DataType.Int32),
            "scalar-fits-1",
            "2147483648 is out of range",
        ),
        (lambda fd: fd.define_scalar(1j, DataType.Double), "cast-1", "{0.0, 1.0} as float64"),
        (lambda fd: fd.ops.full([2], 300, DataType.Char), "scalar-fits-1", "300 is out of range"),
        (lambda fd: fd.ops.full([2], -256, DataType.Byte), "scalar-fits-1", "-256 is out of range"),
        (lambda fd: fd.ops.full([2], 1 + 0j, DataType.Int), "cast-1", "as int64"),
        (
            lambda fd: fd.ops.full([2], fd.define_scalar(DataType.ComplexFloat), DataType.Float),
            "cast-1",
            "s0 as float32",
        ),
        (
            lambda fd: fd.ops.pad(fd.define_tensor([-1], dtype=DataType.Short), [1, 1], 1 << 15),
            "scalar-fits-1",
            "pad(t0, ...): 32768 is out of range for int16",
        ),
        (
            lambda fd: fd.ops.where(True, fd.define_tensor([-1], dtype=DataType.Byte), 300),
            "scalar-fits-1",
            "where(true, t0, 300): 300 is out of range for uint8",
        ),
        (
            lambda fd: fd.ops.clamp(fd.define_tensor([-1], dtype=DataType.Int32), 0, 1 << 40),
            "scalar-fits-1",
            "clamp(t0, 0, 1099511627776): 1099511627776 is out of range for int32",
        ),
        (
            lambda fd: fd.ops.threshold(fd.define_tensor([-1], dtype=DataType.Char), -200, 0),
            "scalar-fits-1",
            "threshold(t0, -200, 0): -200 is out of range for int8",
        ),
        (
            lambda fd: fd.ops.pow(fd.define_tensor([-1], dtype=DataType.Char), 200),
            "scalar-fits-1",
            "pow(t0, 200): 200 is out of range for int8",
        ),
        (
            lambda fd: fd.ops.pow(fd.define_tensor([-1], dtype=DataType.Byte), -1),
            "scalar-fits-1",
            "pow(t0, -1): -1 is out of range for uint8",
        ),
    ],
)
def test_a_number_that_its_type_does_not_hold(
    take: Callable[[FusionDefinition], Any], rule: str, text: str
) -> None:
    with pytest.raises(DTypeError) as caught:
        take(FusionDefinition())
    assert caught.value.rule == rule
    assert text in str(caught.value)


def test_numbers_at_the_ends_of_their_types() -> None:
    fd = FusionDefinition()
    kinds = [DataType.Char, DataType.Short, DataType.Int32, DataType.Int]
    ends = [
        (kind, sign * 2 ** (b - 1) - (sign > 0))
        for kind, b in zip(kinds, (8, 16, 32, 64), strict=True)
        for sign in (1, -1)
    ]
    for kind, end in ends:
        fd.add_output(fd.ops.full([1], end, kind))
        fd.add_output(fd.define_scalar(end, kind))
    fd.add_output(fd.ops.full([1], -1, DataType.Byte))  # as in torch.full
    got = [int(x) for x in fd.execute([], device="cpu")]
    assert got == [end for _, end in ends for _ in range(2)] + [255]


def test_a_device_that_torch_does_not_know() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1]) * 2)
    for device in ("bogus", "cpu:x", "meta"):
        with pytest.raises(UserError, match="expected a CPU or CUDA device") as caught:
            fd.execute([torch.ones(3)], device=device)
        assert caught.value.rule == "argument-device"


def test_vectors_of_numbers() -> None:
    fd = FusionDefinition()
    n = fd.define_scalar(DataType.Int)
    fd.add_output(fd.ops.full(fd.define_vector([2, n]), 1.0, DataType.Float))
    assert fd.execute([3], device="cpu")[0].shape == (2, 3)


def test_vals() -> None:
    fd = FusionDefinition()
    t, s = fd.define_tensor([-1]), fd.define_scalar(DataType.Int)
    u = fd.ops.add(t, s)
    assert [str(v) for v in fd.fusion.vals()] == [str(s), str(t), str(u)]


def test_sizes_of_any_integers() -> None:
    """int32 and int8 scalars are valid as sizes and bounds, like int64 ones."""
    x = torch.arange(12.0).view(3, 4)
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1])
        n, m = fd.define_scalar(DataType.Int32), fd.define_scalar(DataType.Char)
        o = fd.ops
        for result in (
            o.reshape(t, fd.define_vector([o.size(t, 0), n, m])),
            o.full([n, m], 2.0, DataType.Float),
            o.broadcast_in_dim(t, [n, 3, 4], [1, 2]),
            o.expand(o.unsqueeze(t, 0), [m, -1, -1]),
            o.slice(t, [0, n], [m, 4]),
            o.pad(t, [n, m]),
            o.iota(n),
            o.topk(t, n)[0],
        ):
            fd.add_output(result)
    sizes = [list(r.shape) for r in fd.execute([x, 2, 2])]
    expected = [[3, 2, 2], [2, 2], [2, 3, 4], [2, 3, 4], [2, 2], [3, 8], [2], [3, 2]]
    assert sizes == expected
    assert [list(r.shape) for r in fuser.evaluate(fd, [x, 2, 2])] == expected


def test_a_list_is_as_many_scalars() -> None:
    """A define_vector() accepts its scalars as one list, tuple or shape."""
    x = torch.arange(12.0).view(3, 4)
    with FusionDefinition() as fd:
        shape = fd.define_vector(2)
        t = fd.define_tensor([-1, -1])
        factor = fd.define_scalar(DataType.Double)
        fd.add_output(fd.ops.mul(fd.ops.reshape(t, shape), factor))
    expected = 2 * x.view(2, 6)
    inputs: list[Any]
    for inputs in (
        [2, 6, x, 2.0],
        [[2, 6], x, 2.0],
        [(2, 6), x, [2.0]],
        [torch.Size([2, 6]), x, 2],
    ):
        assert fd.execute(inputs)[0].equal(expected)
        assert fd.validate(inputs, save_repro_inputs=True)[0].equal(expected)
        exec(fd.last_repro_script(), {})
    for wrong in ([[2], x, 2.0], [[2, 6, 1], x, 2.0], [2, 6, [x], 2.0], [[2, x], 6, 2.0]):
        with pytest.raises(UserError, match="expected"):
            fd.execute(wrong)
