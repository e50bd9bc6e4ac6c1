"""fuser/debug/repro.py: the layout of inputs as text, and the scripts that adapters write."""

import math
import re
from collections.abc import Callable

import pytest
import torch

import fuser
from fuser.adapters import torchscript
from fuser.debug.minify import error_of, shrunk
from fuser.debug.repro import InputSpec, input_spec, repro_script

DEFINITION = "def nvfuser_fusion(fd: FusionDefinition) -> None:\n    pass\n"


def rebuilt(values: list[object]) -> list[object]:
    script = repro_script(DEFINITION, [input_spec(v) for v in values])
    lines = script.partition("inputs = [\n")[2].partition("\n]\n")[0]
    result = eval(f"[{lines}]", {"torch": torch})
    assert isinstance(result, list)
    return result


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(2, 3),
        torch.zeros(3, 2).T,
        torch.zeros(4, 6, dtype=torch.bfloat16)[1:, 1::2],
        torch.zeros(3, 1, dtype=torch.int8).expand(3, 5),
        torch.zeros(0, 3, dtype=torch.bool),
        torch.zeros((), dtype=torch.complex64),
        torch.zeros(9, dtype=torch.float8_e5m2)[3:],
    ],
    ids=lambda t: f"{t.dtype}{list(t.shape)}",
)
def test_tensors_come_back_with_their_layout(tensor: torch.Tensor) -> None:
    (copy,) = rebuilt([tensor])
    assert input_spec(copy) == input_spec(tensor)


def test_alignment_is_kept() -> None:
    spec = input_spec(torch.zeros(8)[1:])
    assert spec == InputSpec((7,), (1,), "torch.float32", "cpu", 1)


def test_numbers_come_back() -> None:
    given = [2.5, -3, True, math.inf, complex(1.0, -math.inf)]
    assert rebuilt(given) == given
    (nan,) = rebuilt([math.nan])
    assert isinstance(nan, float)
    assert math.isnan(nan)


def test_without_inputs_the_definition_is_printed() -> None:
    assert repro_script(DEFINITION, None).endswith("    nvfuser_fusion(fd)\nprint(fd)\n")


# ---- adapters


@pytest.fixture
def no_compiler(set_option: Callable[[str, object], None]) -> None:
    """Makes the compilation of new kernels fail."""
    set_option("FUSER_CXX", "/nonexistent/c++")


def script_named_in(text: str) -> str:
    match = re.search(r"this run as a script: (\S+)", text)
    assert match, text
    with open(match.group(1)) as file:
        return file.read()


@pytest.mark.usefixtures("no_compiler")
def test_a_region_of_torch_compile_leaves_a_script(capfd: pytest.CaptureFixture[str]) -> None:
    x = torch.randn(4, 8)
    got = torch.compile(lambda x: (x * 0.1387).relu() + 1, backend="fuser")(x)
    torch.testing.assert_close(got, (x * 0.1387).relu() + 1)
    script = script_named_in(capfd.readouterr().err)
    assert "fd.ops.relu" in script
    assert error_of(script) == "CompileError host-compiler"


@pytest.mark.usefixtures("no_compiler")
def test_a_group_of_a_script_leaves_a_script(
    set_option: Callable[[str, object], None],
) -> None:
    x = torch.randn(4, 8)
    with fuser.torchscript_fuser(cpu=True):
        scripted = torch.jit.script(_scaled)
        scripted(x)  # profiling run
        with pytest.warns(UserWarning, match="runs unfused") as caught:
            results = [scripted(x) for _ in range(2)]
    for result in results:
        torch.testing.assert_close(result, _scaled(x))
    script = script_named_in(str(caught[0].message))
    assert "CompileError: " in str(caught[0].message)
    assert "fd.ops.relu" in script
    assert error_of(script) == "CompileError host-compiler"
    assert shrunk(script, "CompileError host-compiler").count("= fd.ops.") == 1


def _scaled(x: torch.Tensor) -> torch.Tensor:
    return (x * 0.1389).relu() + 1


def test_numbers_and_sizes_of_a_script_are_inputs_of_its_definition() -> None:
    """Inputs are in the order of the definition, without the constants."""
    x = torch.randn(3, 4)
    inputs = torchscript._run_inputs(
        [0, 1, 2, 2, 3], [x, 2.5, [3, 1, 4, -1], 1, "tanh"]
    )  # TENSOR, NUMBER, SIZES, SIZES, CONSTANT
    assert inputs[0] is x
    assert inputs[1:] == [2.5, 3, 4]


def test_a_group_without_a_definition_leaves_its_graph(
    set_option: Callable[[str, object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise fuser.Unsupported("not today", rule="test")

    x = torch.randn(4, 8)
    monkeypatch.setattr(torchscript, "write_definition", refuse)
    with fuser.torchscript_fuser(cpu=True):
        scripted = torch.jit.script(_two_results)
        scripted(x)
        with pytest.warns(UserWarning, match="Unsupported: not today") as caught:
            results = [scripted(x) for _ in range(2)]
    monkeypatch.undo()
    torch.testing.assert_close(results[0], _two_results(x))
    set_option("FUSER_STRICT", 0)  # reset: the repro script sets it
    with fuser.torchscript_fuser(cpu=True):
        assert error_of(script_named_in(str(caught[0].message))) == "", "it has two results"


def _two_results(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = (x * 0.1391).relu()
    return y, y.tanh()
