"""Repro scripts: a definition and inputs of equal layout as runnable Python, without the data.

A compile, launch or internal error of execute() writes one and names its path; `python -m fuser
repro FILE` runs and shrinks it (fuser/debug/minify.py).
"""

import functools
import hashlib
import math
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

_HEAD = """\
# Rebuilds a definition of fuser and runs it on random inputs of the same sizes, strides, types and
# alignment.
import torch

from fuser import DataType, FusionDefinition


"""

_BODY = """

with FusionDefinition() as fd:
    nvfuser_fusion(fd)
"""


class InputSpec(NamedTuple):
    """Properties of an input tensor that a kernel depends on."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str  # "torch.float32"
    device: str
    offset: int  # elements from a 16-byte boundary to the first element


def input_spec(value: Any) -> Any:
    """The InputSpec of a tensor; a number is returned unchanged."""
    if not hasattr(value, "stride"):
        return value
    offset = value.data_ptr() % 16 // value.element_size()
    return InputSpec(
        tuple(value.shape), tuple(value.stride()), str(value.dtype), str(value.device), offset
    )


def repro_script(definition: str, inputs: Sequence[Any] | None) -> str:
    """Runnable Python: the definition, and its execution if `inputs` (from input_spec) are
    given.
    """
    text = _HEAD + definition + _BODY
    if inputs is None:
        return text + "print(fd)\n"
    lines = "".join(f"    {input_text(value)},\n" for value in inputs)
    return f"{text}inputs = [\n{lines}]\nfor result in fd.execute(inputs):\n    print(result)\n"


def graph_script(graph: str, inputs: Sequence[Any]) -> str:
    """Runnable Python: a TorchScript graph as printed by torch, and its execution by fuser.
    `inputs` come from input_spec.
    """
    lines = "".join(f"    {input_text(value)},\n" for value in inputs)
    # A function created from a graph returns one value.
    head, _, results = graph.rstrip().rpartition("\n  return (")
    names = results.rstrip(")")
    if "," in names:
        types = ", ".join("Tensor" for _ in names.split(","))
        head += f"\n  %results : ({types}) = prim::TupleConstruct({names})"
        names = "%results"
    return _GRAPH.format(graph=f"{head}\n  return ({names})\n", inputs=lines)


_GRAPH = """\
import torch

import fuser
from fuser import _core

_core.set_option("FUSER_STRICT", "1")
fuser.enable_torchscript_fuser(cpu=True)
f = torch._C._create_function_from_graph("f", torch._C.parse_ir(\'\'\'{graph}\'\'\'))
inputs = [
{inputs}]
for _ in range(3):
    f(*inputs)
"""


def keep_repro(definition: str, inputs: Sequence[Any], error: BaseException) -> Path | None:
    """Writes the script of a failed run, adds a note with its path to the error, and returns the
    path. Ignores a file that cannot be written, because the original error matters more.
    """
    try:
        script = repro_script(definition, [input_spec(value) for value in inputs])
        path = keep_script(script, f"{type(error).__name__}: {error}")
    except Exception:
        return None
    error.add_note(said_where(path))
    return path


def keep_script(script: str, error: str) -> Path:
    """Writes a script below its error, as a comment. Returns its path."""
    raised = "".join(f"# {line}\n" for line in error.split("\n"))
    name = hashlib.sha256(script.encode()).hexdigest()[:12]
    path = _folder() / f"repro_{name}.py"
    path.write_text(raised + script, encoding="utf-8", errors="backslashreplace")
    return path


def said_where(path: Path) -> str:
    """Text for messages about a stored script."""
    command = f"python -m fuser repro {shlex.quote(str(path))}"
    return f"this run as a script: {path}\n  {command} runs and shrinks it"


@functools.cache
def _folder() -> Path:
    """Folder of this process; no other user can have created it."""
    return Path(tempfile.mkdtemp(prefix="fuser-repro-"))


def input_text(value: Any) -> str:
    """An expression that creates an input, from its input_spec."""
    if not isinstance(value, InputSpec):
        return _number_text(value)
    extent = 0
    if 0 not in value.sizes:
        extent = 1 + sum((n - 1) * s for n, s in zip(value.sizes, value.strides, strict=True))
    make = (
        f"torch.testing.make_tensor(({value.offset + extent},), dtype={value.dtype}, "
        f"device={value.device!r})"
    )
    return f"{make}.as_strided({value.sizes}, {value.strides}, {value.offset})"


def _number_text(value: Any) -> str:
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if isinstance(value, complex):
        return f"complex({_number_text(value.real)}, {_number_text(value.imag)})"
    return repr(value)
