"""fuser.report: one HTML file that shows what became of a definition or a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuser.errors import UserError

if TYPE_CHECKING:
    from fuser.definition import FusionDefinition

__all__ = ["report"]


def report(
    target: FusionDefinition | Callable[..., Any],
    *inputs: Any,
    path: str | Path = "report.html",
    device: Any = None,
    measured: bool = True,
    **named: Any,
) -> Path:
    """Writes what became of `target` on these inputs into one HTML file, and returns its path.

        fuser.report(fd, x, bias)
        fuser.report(model, batch, path="model.html")

    It shows the graph with the steps that it became, each kernel with its scheduler, plan, launch,
    bytes, predicted and measured times, a roofline, the reasons for each cut, CUDA C with the lines
    of the program beside it, what the machine code takes, and the timeline of one call. `target` is
    a definition, or a module or function of tensors, which is run by torch.compile(target,
    backend="fuser"). Builds the kernels; with `measured` it runs them a few times, on copies of
    inputs that are written in place. The file loads nothing from elsewhere.

    Raises what explain() does, and UserError `report-path` where there is no folder for the file.
    """
    from fuser.report.page import page  # a quarter of `import fuser`, and few programs write one

    place = Path(path)
    if not place.parent.is_dir():  # said before the work, which takes a while
        raise UserError(f"no folder {place.parent} for the report", rule="report-path")
    text = page(target, inputs, device, measured, named)
    place.write_text(text, encoding="utf-8", errors="backslashreplace")
    return place
