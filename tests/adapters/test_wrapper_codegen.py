"""fuser/adapters/wrapper_codegen.py: code generation of a graph as one flat function."""

from __future__ import annotations

import weakref

import pytest
import torch

from fuser import FusionDefinition, InternalError, UserError
from fuser.adapters import region
from fuser.adapters.partition import partition
from fuser.adapters.wrapper_codegen import program
from tests.adapters.graphs import traced


def compiled(function, *inputs, dynamic: bool = False, strict: bool = True):
    module = traced(function, *inputs, dynamic=dynamic)
    return program(module, partition(module.graph), strict)


def test_text() -> None:
    call, definitions = compiled(lambda x: ((x.sin() + 1).mm(x).cos() * 2,), torch.ones(4, 4))
    assert len(definitions) == 2
    assert call.text.count("= r") == 2
    assert call.text.count("= f") == 1
    assert call.text.split("\n")[:3] == [
        "def call(args):",
        "    p0, = args",
        "    args.clear()",
    ]


def test_values_die_at_their_last_use() -> None:
    seen: list[weakref.ref] = []
    call, _ = compiled(lambda x: ((x.sin() + 1).mm(x).cos() * 2).mm(x), torch.ones(4, 4))
    x = torch.randn(4, 4)
    seen.append(weakref.ref(x))
    arguments = [x]
    expected = ((x.sin() + 1).mm(x).cos() * 2).mm(x)
    del x
    result = call(arguments)
    assert arguments == []
    assert seen[0]() is None
    torch.testing.assert_close(result, expected)


def test_a_view_that_both_sides_read_is_not_written_out() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x.sin() * 2).view(2, 6)
        return y.sum(0), y.t()

    call, definitions = compiled(f, torch.ones(4, 3))
    assert [str(n.target) for n in definitions[0].outputs] == [
        "aten.mul.Tensor",
        "aten.sum.dim_IntList",
    ]
    x = torch.randn(4, 3)
    for a, b in zip(call([x]), f(x), strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()


def test_a_layout_that_was_not_traced() -> None:
    """Views depend on the traced strides: an input with other strides is copied first."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.view(2, 8).t().mm(x.view(2, 8))

    call, _ = compiled(f, torch.ones(4, 4))
    assert "if p0.stride() != (4, 1)" in call.text
    for x in (torch.randn(4, 4), torch.randn(4, 4).t(), torch.randn(8, 8)[::2, 1:5]):
        torch.testing.assert_close(call([x]), f(x.contiguous()))


def test_ops_of_tensors_alone_are_called_by_torchs_own_functions() -> None:
    call, _ = compiled(lambda x: x.mm(x), torch.ones(4, 4))
    assert torch.mm in call.__globals__.values()


def test_writes_stay_in_order() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() * 2
        x.copy_(y)
        return (y + x).cos()

    call, _ = compiled(f, torch.ones(3))
    a, b = torch.randn(3), torch.randn(3)
    b.copy_(a)
    torch.testing.assert_close(call([a]), f(b))
    torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_runs_what_does_not_compile(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], dynamic: bool
) -> None:
    """A region that does not compile falls back to torch permanently, with one line of log;
    FUSER_STRICT raises."""

    other = FusionDefinition()
    for t in [other.from_pytorch(torch.ones(3)) for _ in range(9)]:
        other.add_output(other.ops.sin(t))

    def broken(definition, instead, strict):
        definition.fd = other
        return region.runner(definition, instead, strict)

    monkeypatch.setattr("fuser.adapters.wrapper_codegen.runner", broken)

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() + torch.ones(3)).view(x.size(0) * 3) * x.size(0)

    call, _ = compiled(f, torch.ones(4, 3), dynamic=dynamic, strict=False)
    for x in (torch.randn(4, 3), torch.randn(4, 3)):
        torch.testing.assert_close(call([x]), f(x))
    strict, _ = compiled(f, torch.ones(4, 3), dynamic=dynamic)
    with pytest.raises(UserError, match="expected 9 inputs"):
        strict([torch.randn(4, 3)])
    assert capfd.readouterr().err.count("expected 9 inputs") <= 1


def test_internal_error_is_one_of_ours() -> None:
    assert InternalError in region.RECOVERABLE
