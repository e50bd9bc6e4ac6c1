"""fuser.evaluate: what a definition means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fuser.arguments import checked

if TYPE_CHECKING:
    import torch

    from fuser.definition import FusionDefinition


@checked
def evaluate(
    fd: FusionDefinition, inputs: Sequence[Any], *, aliased: bool = False
) -> list[torch.Tensor]:
    """The results of `fd` on `inputs` (tensors of any device, numbers for symbolic scalars), op by
    op on the CPU.

    Real ops are computed in float64 and complex ones in complex128 without rounding in between,
    integers and bool exactly in the type of the definition. A cast written in the definition rounds
    to its type: it is part of the mathematics. Results are float64, complex128, an integer type or
    bool, in the order of add_output(); those written into inputs are among them only with
    `aliased`. The inputs are not changed.

    Random numbers are those that execute() would give now; torch's generator stays where it is.

    Raises UserError `argument-count` and `argument-type`, ShapeError `argument-rank` and
    `argument-size`, DTypeError `argument-dtype` for inputs that do not fit, as execute() does;
    ShapeError `evaluate-1` where sizes do not go together; Unsupported `evaluate-2` for attention
    with dropout, whose numbers only torch's kernel knows; LaunchError `evaluate-3` where a tensor
    of the definition is larger than memory, which kernels compute element by element.
    """
    # Here, not above: `import fuser` must not cost an import of torch.
    from fuser.interpreter import interpret

    return interpret(fd, inputs, aliased)
