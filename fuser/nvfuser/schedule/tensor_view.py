"""TensorView: a view with the primitives that add tensors or depend on other tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from fuser.nvfuser.schedule import propagate, rewrite
from fuser.nvfuser.schedule.views import View

if TYPE_CHECKING:
    from fuser.nvfuser.schedule.graph import ScheduledFusion


class TensorView(View):
    """A tensor under a hand-written schedule, as nvFuser's class of that name."""

    fusion: ScheduledFusion

    def cache_before(self, op_type: Any = None) -> TensorView:
        """Returns a new tensor that computes the values of this one, which becomes a copy of it.
        Raises UserError `by-hand-cache` for an input, and for a tensor that is inlined already.
        """
        return rewrite.cache_before(self)

    def cache_after(
        self,
        op_type: Any = None,
        cache_op: Any = None,
        propagate_allocation_domain: bool = True,
        cached_uses: Sequence[Any] = (),
    ) -> TensorView:
        """Returns a copy of the tensor that its consumers (or those of `cached_uses`) read. Raises
        UserError `by-hand-cache` for a tensor without consumers, and for one that is inlined
        already.
        """
        return rewrite.cache_after(self, [self.fusion.view(tensor) for tensor in cached_uses])

    def cache_fork(self) -> TensorView:
        """Returns a copy that is the output in place of this tensor, for an output that other
        tensors read. Raises UserError `by-hand-cache` for another tensor.
        """
        return rewrite.cache_fork(self)

    def rfactor(self, axes: Sequence[int]) -> TensorView:
        """Returns a new tensor that reduces these axes and keeps the other reduced axes, which this
        tensor reduces afterwards. Raises UserError `by-hand-rfactor` unless `axes` are some, but
        not all, of the reduced axes; `by-hand-axis` for an axis out of range.
        """
        return rewrite.rfactor(self, axes)

    def inline_at(self, pos: int = -1, best_effort: bool = False) -> Self:
        """Inlines this tensor alone at a position of its loop nest. Raises UserError
        `by-hand-inline` as schedule.inline_at().
        """
        propagate.inline_at(self, pos, best_effort, [self])
        return self
