"""fuser/repro.py: the layout of inputs as text."""

import math

import pytest
import torch

from fuser.repro import InputSpec, input_spec, repro_script

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
