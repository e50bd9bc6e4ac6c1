"""fuser/adapters/eager_strides.py: strides of elementwise results equal eager's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from fuser.adapters import aten
from fuser.adapters.aten import gradients, pointwise
from fuser.adapters.eager_strides import correct_strides
from tests.adapters.graphs import traced


def forms() -> Iterator[tuple[str, Any, list[Any]]]:
    """Elementwise rows with two or more tensors, and numbers for their arguments without
    defaults."""
    for name in sorted({**pointwise.ROWS, **gradients.ROWS}):
        namespace, op, overload = name.split(".")
        target = getattr(getattr(getattr(torch.ops, namespace), op, None), overload, None)
        if target is None:
            continue
        given: list[Any] = []
        for argument in target._schema.arguments:
            kind = str(argument.type)
            if kind == "Tensor":
                given.append(Tensor)
            elif argument.has_default_value():
                break
            else:
                given.append({"bool": False, "int": 1, "str": "none"}.get(kind, 2.0))
        if given.count(Tensor) >= 1:
            yield name, target, given


LAYOUTS = {
    "transposed": lambda: torch.rand(6, 5).mT,
    "row-major": lambda: torch.rand(5, 6),
    "row": lambda: torch.rand(6),
    "column": lambda: torch.rand(5, 1),
}


def test_every_elementwise_row_lies_as_in_eager() -> None:
    """Results of all rows have eager's strides, for all pairs of four layouts of the first
    tensors."""
    count = 0
    for (name, target, given), layouts in itertools.product(
        forms(), itertools.product(LAYOUTS, repeat=2)
    ):
        made = itertools.chain((LAYOUTS[k]() for k in layouts), itertools.repeat(torch.rand(5, 6)))
        tensors = [next(made) for x in given if x is Tensor]
        if max(t.ndim for t in tensors) < 2:
            continue

        def call(*tensors: Tensor, given: Any = given, target: Any = target) -> Any:
            left = iter(tensors)
            return target(*(next(left) if x is Tensor else x for x in given))

        try:
            expected = call(*tensors)
            graph = traced(call, *tensors)
        except (RuntimeError, TypeError, NotImplementedError):
            continue  # requires other dtypes or shapes
        correct_strides(graph.graph)
        output = next(n for n in graph.graph.nodes if n.op == "output").args[0]
        if not isinstance(expected, Tensor):
            continue
        if output.meta["val"].shape != expected.shape:
            continue  # this torch traces another shape
        assert output.meta["val"].stride() == expected.stride(), (name, layouts)
        count += 1
    assert count > 1000, count


@pytest.mark.parametrize("dynamic", [None, True])
def test_compiled_programs_lie_as_in_eager(dynamic: bool | None) -> None:
    def program(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        sign = torch.copysign(a, b - 1.5)
        return (
            *(sign, torch.floor_divide(a, b), torch.div(a, b, rounding_mode="floor")),
            *(sign.exp() + 1, torch.xlogy(a, b).mT, torch.hypot(a, b).unsqueeze(0) * 2),
        )

    a, b = torch.rand(6, 5).mT, torch.rand(5, 6) + 1
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="fuser", dynamic=dynamic)
    for x, y in ((a, b), (b, a), (a, a), (b, b)):
        for got, expected in zip(compiled(x, y), program(x, y), strict=True):
            assert got.stride() == expected.stride()
            torch.testing.assert_close(got, expected)


def test_rows_of_the_table_are_elementwise_as_named() -> None:
    assert aten.by_element("aten.copysign.Tensor")
    assert not aten.by_element("aten.sum.default")
