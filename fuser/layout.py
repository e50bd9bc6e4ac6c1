"""Description of strides in the terms of define_tensor()."""

import operator
from collections.abc import Sequence

from fuser.arguments import checked
from fuser.errors import ShapeError


@checked
def compute_tensor_descriptor(
    sizes: Sequence[int], strides: Sequence[int]
) -> tuple[list[bool | None], list[int]]:
    """Returns (contiguity, stride_order) of a tensor with these sizes and strides, in elements.

    `stride_order[d]` is the position of dim d counted from the innermost: [1, 0] for a row-major
    matrix. Equal strides keep the order of the dims, and expanded dims (stride 0) their position
    among all dims. `contiguity` is listed from the outermost dim
    to the innermost: True if the stride of a dim is the stride of the next inner dim times its size
    (1 for the innermost), None for dims without memory of their own: dims of size 1 and expanded
    dims (stride 0).

    Raises ShapeError `layout-1` for a different number of sizes and strides, `layout-2` for a
    negative one.
    """
    if len(sizes) != len(strides):
        raise ShapeError(
            f"compute_tensor_descriptor(): {len(sizes)} sizes {list(sizes)} against "
            f"{len(strides)} strides {list(strides)}; expected one stride a dim",
            rule="layout-1",
        )
    if any(n < 0 for n in (*sizes, *strides)):
        raise ShapeError(
            f"compute_tensor_descriptor(): expected sizes and strides of at least 0, "
            f"got sizes {list(sizes)}, strides {list(strides)}",
            rule="layout-2",
        )
    sizes, strides = [operator.index(n) for n in sizes], [operator.index(n) for n in strides]
    outermost_first = sorted((d for d, n in enumerate(strides) if n), key=lambda d: -strides[d])
    for d, n in enumerate(strides):
        if n == 0:
            outermost_first.insert(d, d)
    stride_order = [0] * len(sizes)
    for place, d in enumerate(reversed(outermost_first)):
        stride_order[d] = place
    contiguity: list[bool | None] = [None] * len(sizes)
    expected = 1
    for i in reversed(range(len(sizes))):
        d = outermost_first[i]
        if sizes[d] == 1 or strides[d] == 0:
            continue
        contiguity[i] = strides[d] == expected
        expected = strides[d] * sizes[d]
    return contiguity, stride_order
