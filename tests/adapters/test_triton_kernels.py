"""fuser/adapters/triton_kernels.py: launches of a user's Triton kernels between regions.

The machines of CI have no Triton. A stand-in has the attributes of a Triton kernel that torch's
launch reads, and computes with torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import fx

from fuser.adapters.autograd.aot_cache import is_known
from fuser.adapters.graph.effects import Effects
from fuser.adapters.partition import partition
from fuser.adapters.torch_compat import (
    triton_kernel_wrapper_functional,
    triton_kernel_wrapper_mutation,
)
from fuser.adapters.triton_kernels import is_triton_kernel, launch_of
from fuser.adapters.wrapper_codegen import program
from tests.adapters.graphs import traced


class _Kernel:
    """Stores 2 x + scale into `out`; records the grid and the address of `out`."""

    arg_names = ("x", "out", "scale", "BLOCK")

    def __init__(self) -> None:
        self.seen: list[tuple[Any, int]] = []

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(x: torch.Tensor, out: torch.Tensor, scale: float, BLOCK: int) -> None:
            assert BLOCK == 128
            self.seen.append((grid, out.data_ptr()))
            out.copy_(2 * x + scale)

        return launch


Launch = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@pytest.fixture
def kernel() -> Iterator[tuple[_Kernel, Launch]]:
    """The stand-in, and the functional launch that returns what it wrote."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    made = _Kernel()
    at = kernel_side_table.add_kernel(made)  # type: ignore[arg-type]
    constants = kernel_side_table.add_constant_args({"BLOCK": 128})

    def launch(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return triton_kernel_wrapper_functional(
            kernel_idx=at,
            constant_args_idx=constants,
            grid=[(3, 1, 1)],
            tma_descriptor_metadata={},
            kwargs={"x": x, "out": out, "scale": 0.5},
            tensors_to_clone=["out"],
        )["out"]

    yield made, launch
    kernel_side_table.reset_table()


def _compiled(function: Any, *inputs: torch.Tensor) -> tuple[Any, int]:
    module = traced(function, *inputs)
    call, definitions = program(module, partition(module.graph), strict=True)
    return call, len(definitions)


def test_a_launch_between_regions(kernel: tuple[_Kernel, Launch]) -> None:
    """Ops before and after the launch are a region each."""
    made, launch = kernel

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.sin() * 3 + 1
        return ((launch(y, torch.empty_like(y)) * 4 + y).cos(),)

    x = torch.randn(5, 7)
    call, regions = _compiled(f, x)
    assert regions == 2
    (got,) = call([x])
    y = x.double().sin() * 3 + 1
    torch.testing.assert_close(got.double(), ((2 * y + 0.5) * 4 + y).cos(), rtol=1e-5, atol=1e-5)
    assert made.seen[-1][0] == (3, 1, 1)


def test_only_fresh_memory_is_written_without_a_copy(kernel: tuple[_Kernel, Launch]) -> None:
    made, launch = kernel

    def fresh(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (launch(x, torch.zeros_like(x)),)

    def read_later(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = torch.zeros_like(x)
        return launch(x, out), out

    def given(x: torch.Tensor, out: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (launch(x, out),)

    def twice(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = torch.ones_like(x)
        return (launch(out, out),)

    x, out = torch.randn(4, 4), torch.zeros(4, 4)
    for function, inputs in ((fresh, [x]), (read_later, [x]), (given, [x, out])):
        call, _ = _compiled(function, *inputs)
        result, *rest = call([*inputs])
        torch.testing.assert_close(result, 2 * x + 0.5, rtol=0, atol=1e-6)
        assert result.data_ptr() == made.seen[-1][1]
        assert all(not t.any() for t in [*rest, out])
    call, _ = _compiled(twice, x)
    torch.testing.assert_close(call([x])[0], torch.full((4, 4), 2.5))
    for function, copies in ((fresh, 0), (read_later, 1), (given, 1), (twice, 1)):
        inputs = [x, out] if function is given else [x]
        (node,) = filter(is_triton_kernel, traced(function, *inputs).graph.nodes)
        assert len(_copied(node)) == copies, function.__name__


def _copied(node: fx.Node) -> list[torch.Tensor]:
    """The tensors that the launch copies, from a run on small tensors."""
    operands = {k: torch.ones(2) for k in ("x", "out")} | {"scale": 0.5}
    others = {k: v for k, v in node.kwargs.items() if k != "kwargs"}
    written = launch_of(node)(kwargs=operands, **others)
    return [t for k, t in written.items() if t is not operands[k]]


def test_a_launch_has_no_effect_beside_its_results(kernel: tuple[_Kernel, Launch]) -> None:
    """Random ops and collectives are in no order with it, so that it splits no region."""
    _, launch = kernel

    def f(x: torch.Tensor) -> torch.Tensor:
        return launch(x, torch.empty_like(x)) + torch.rand_like(x)

    graph = traced(f, torch.ones(4)).graph
    (node,) = filter(is_triton_kernel, graph.nodes)
    assert node not in Effects(graph.nodes).previous


def test_graphs_with_launches_are_not_stored() -> None:
    """The node names its kernel by a number that means nothing in another process."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(x)
    module = fx.GraphModule({}, graph)
    assert is_known(module, [torch.ones(2)])
    with graph.inserting_after(x):
        graph.call_function(
            triton_kernel_wrapper_mutation, (), {"kernel_idx": 0, "kwargs": {"x": x}}
        )
    assert not is_known(module, [torch.ones(2)])
