"""fuser.evaluate: reference results of a definition."""

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
    """The results of `fd` on `inputs` (tensors of any device, numbers for symbolic scalars),
    computed op by op on the CPU.

    Real ops are computed in float64 and complex ops in complex128 without intermediate rounding,
    integers and bool exactly in the type of the definition. A cast in the definition rounds to its
    type: it is part of the mathematics. Results are float64, complex128, an integer type or bool,
    in the order of add_output(); in-place outputs are included only if `aliased`. The inputs are
    not changed.

    Random numbers equal the numbers that execute() would draw now; torch's generator is not
    advanced.

    Raises UserError `argument-count` and `argument-type`, ShapeError `argument-rank` and
    `argument-size`, DTypeError `argument-dtype` for unsuitable inputs, as execute() does;
    ShapeError `evaluate-1` for sizes that do not match; Unsupported `evaluate-2` for attention with
    dropout, because only torch's kernel can draw its random numbers; LaunchError `evaluate-3` if a
    tensor of the definition exceeds memory and cannot be computed slice by slice.
    """
    # Imported here, because `import fuser` must not import torch.
    from fuser.debug.interpreter import interpret

    return interpret(fd, inputs, aliased)
