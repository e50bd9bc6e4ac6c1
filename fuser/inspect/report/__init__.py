"""fuser.report: one HTML file that shows the kernels of a definition or a model."""

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
    """Writes a report about `target` on these inputs into one HTML file, and returns its path.

        fuser.report(fd, x, bias)
        fuser.report(model, batch, path="model.html")

    It shows the graph with its steps; for each kernel the scheduler, plan, launch, bytes, predicted
    and measured times; a roofline; the reason of each fusion break; CUDA C next to the program's
    lines; resources of the machine code; and the timeline of one call. `target` is a definition, or
    a module or function of tensors, which is run by torch.compile(target, backend="fuser").
    Compiles the kernels. If `measured`, also runs them a few times, with in-place inputs copied.
    The file loads no external resources.

    Raises the errors of explain(), and UserError `report-path` if the folder of the file is
    missing.
    """
    # imported here, because it would slow down `import fuser` and few programs write reports
    from fuser.inspect.report.page import page

    place = Path(path)
    if not place.parent.is_dir():  # check before the work, which takes long
        raise UserError(f"report: the folder {place.parent} does not exist", rule="report-path")
    text = page(target, inputs, device, measured, named)
    place.write_text(text, encoding="utf-8", errors="backslashreplace")
    return place
