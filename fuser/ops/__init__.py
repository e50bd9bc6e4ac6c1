"""fd.ops: every operation of a definition.

Ops inherits one class per theme: Elementwise has a method for each row of the compiler's op table,
Primitives has movement ops and reductions. The other classes compose these, call torch (extern.py)
or only raise Unsupported (block_scaled.py).
"""

from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

from fuser.arguments import Number, Operand, Size, as_dtype
from fuser.ops.block_scaled import BlockScaled
from fuser.ops.composites import Composites
from fuser.ops.extern import Extern
from fuser.ops.losses import Losses
from fuser.ops.normalizations import Normalizations
from fuser.ops.op_table import is_internal
from fuser.ops.random import Random

__all__ = ["Number", "Operand", "Ops", "Size", "as_dtype", "is_internal"]


class Ops(Composites, Normalizations, Losses, Extern, Random, BlockScaled):
    """The operations of one definition.

    Operands are tensors, scalars or Python numbers; shapes broadcast and types promote as in torch.
    Half types are computed in float32, and the result stays float32 until it is cast. Ops that
    select, bound or round values keep the type: where, clamp, threshold, abs, neg, sign, relu,
    ceil, floor, round, trunc, frac, real, max and min. Memory traffic arises only for inputs,
    results and tensors that one kernel passes to another, not per op; fuser.explain counts it.

    Unless its documentation says otherwise, an op is composed of other ops. It then accepts their
    types and raises their errors, and a NaN operand gives NaN. Its error is a few units in the last
    place of its largest intermediate value. An argument of an unsupported type raises UserError
    `argument-kind-1`, or `operand-1` for ops of the op table.
    """

    if not TYPE_CHECKING:  # type checkers report an unknown name

        def __getattr__(self, name: str) -> NoReturn:
            near = get_close_matches(
                name, [n for n in dir(type(self)) if not n.startswith("_")], n=1
            )
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"fd.ops has no op {name!r}{hint}", name=name, obj=self)
