"""fuser.explain: the kernels of a definition or model, their memory traffic, predicted and measured
times, and the reasons for fusion breaks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from fuser.definition import FusionDefinition
from fuser.errors import UserError
from fuser.inspect.explain_definition import (
    Explanation,
    Step,
    Use,
    arguments_of,
    explain_definition,
)

if TYPE_CHECKING:
    from fuser.adapters.report import ModelReport

__all__ = ["Explanation", "Step", "Use", "arguments_of", "explain"]


@overload
def explain(
    target: FusionDefinition, *inputs: Any, device: Any = ..., measured: bool = ...
) -> Explanation: ...
@overload
def explain(target: Callable[..., Any], *inputs: Any, **named: Any) -> ModelReport: ...
def explain(
    target: Any, *inputs: Any, device: Any = None, measured: bool = False, **named: Any
) -> Any:
    """Explains how `target`, a definition, a module or a function on tensors, runs on these inputs.

        print(fuser.explain(fd, x, bias))
        print(fuser.explain(model, batch))

    For a definition, returns the Explanation of fd.execute(inputs). It has the scheduler, plan and
    bytes of each step, total bytes against the ideal, predicted times, and the reason of every
    fusion break. It only plans and compiles no kernel. If `measured` requests times, it runs the
    definition. Bytes count whole tensors, even if a step reads only a slice. The inputs may be
    passed as one list, as in execute().

    For DTensors, and for a definition with placements, returns a ShardedExplanation: the local
    definitions, the collectives between them and the reason of each collective.

    For a model, returns the ModelReport of a run of torch.compile(target, backend="fuser"),
    including the backward pass if a result requires gradients. It lists ops by region, ops left to
    torch with reasons, and the Explanation of each region.

    Raises the errors of a run for unsuitable inputs; UserError `explain-target` if `target` is
    neither a definition nor callable.
    """
    if not isinstance(target, FusionDefinition):
        if not callable(target):
            raise UserError(
                "expected a FusionDefinition, a module or a function of tensors, got "
                f"{type(target).__name__}",
                rule="explain-target",
            )
        from fuser.adapters.report import explain_model

        named |= {} if device is None else {"device": device}
        return explain_model(target, *inputs, measured=measured, **named)
    given = arguments_of(inputs)
    if target._is_sharded(given):
        from fuser.multidevice.explain import explain_sharded

        return explain_sharded(target, given)
    return explain_definition(target, given, device, measured)
