"""fuser/adapters/graph/eager_strides.py: strides of elementwise results equal eager's."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from fuser.adapters import aten
from fuser.adapters.aten import gradients, pointwise
from fuser.adapters.graph.eager_strides import correct_strides
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


def results(tensors: Sequence[Tensor], names: Container[str] | None = None) -> dict[str, Tensor]:
    """Results by name of the rows in `names`, or of all rows, that accept floats of these
    shapes."""
    found = {}
    for name, target, given in forms():
        if names is not None and name not in names:
            continue
        used = iter(tensors[: given.count(Tensor)])
        if all(t.ndim < 2 for t in tensors[: given.count(Tensor)]):
            continue
        try:
            result = target(*(next(used) if x is Tensor else x for x in given))
        except (RuntimeError, TypeError, NotImplementedError):
            continue
        if isinstance(result, Tensor):
            found[name] = result
    return found


def test_every_elementwise_row_lies_as_in_eager() -> None:
    """Results of all rows have eager's strides, for all pairs of four layouts of the first tensors:
    one graph per pair."""
    count = 0
    for layouts in itertools.product(LAYOUTS, repeat=2):
        tensors = [*(LAYOUTS[k]() for k in layouts), *torch.rand(3, 5, 6)]
        expected, names = results(tensors), []

        def every(*tensors: Tensor, expected: Any = expected, names: Any = names) -> list[Tensor]:
            found = results(tensors, expected)
            names[:] = found
            return list(found.values())

        graph = traced(every, *tensors).graph
        correct_strides(graph)
        (output,) = (n for n in graph.nodes if n.op == "output")
        for name, node in zip(names, output.args[0], strict=True):
            if node.meta["val"].shape != expected[name].shape:
                continue  # this torch traces another shape
            assert node.meta["val"].stride() == expected[name].stride(), (name, layouts)
            count += 1
    assert count > 2000, count


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
