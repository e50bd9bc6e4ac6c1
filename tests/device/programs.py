"""Hand-written kernels: for each compute dtype, one kernel with all rows of the op table.

The kernel takes (which, n, a, b, c, out): out[i] = op number `which` of a[i], b[i], c[i].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fuser import _core

# Compute dtypes of csrc/ir/dtypes.def: torch's name, name in kernel text.
COMPUTE = {
    torch.bool: "bool",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "c64",
    torch.complex128: "c128",
}


@dataclass(frozen=True)
class Program:
    """A kernel's name, its text with helpers, and the row for each value of `which`."""

    name: str
    text: str
    rows: list[Any]


def text_of(row: Any, dtype: torch.dtype) -> str | None:
    """The row's text in a compute dtype, or None."""
    kind = (
        "Bool"
        if dtype == torch.bool
        else "Complex"
        if dtype.is_complex
        else "Float"
        if dtype.is_floating_point
        else "Int"
    )
    if kind not in row.accepts:
        return None
    texts = {"Float": row.real_text, "Complex": row.complex_text}
    return texts.get(kind, row.int_text)


def result_dtype(row: Any, dtype: torch.dtype) -> torch.dtype:
    """The dtype of the row's result in a compute dtype."""
    if row.rule == "Predicate":
        return torch.bool
    if row.rule == "Real":
        return dtype.to_real() if dtype.is_complex else dtype
    if row.rule == "Complex":
        return dtype.to_complex()
    return dtype


def op_program(dtype: torch.dtype) -> Program:
    """The kernel of all ops in one compute dtype."""
    device = COMPUTE[dtype]
    name = f"ops_{device}"
    rows = [row for row in _core.op_rows() if text_of(row, dtype) is not None]
    lines = []
    for which, row in enumerate(rows):
        text = text_of(row, dtype)
        assert text is not None
        first = "load1((const bool*)a + i)" if row.rule == "Condition" else "load1(a + i)"
        for place, operand in enumerate((first, "load1(b + i)", "load1(c + i)")):
            text = text.replace(f"${place}", f"x{place}")
            if place < row.arity:
                lines.append(f"    {'case ' + str(which) + ': {' if place == 0 else ''}")
                lines[-1] += f" const auto x{place} = {operand};"
        result = COMPUTE[result_dtype(row, dtype)]
        lines.append(f"      const {result} r = {text};")
        lines.append(f"      store1(({result}*)out + i, r);  // {row.name}")
        lines.append("      break;\n    }")
    body = "\n".join(lines)
    kernel = f"""KERNEL(128) void {name}(i32 which, i32 n, const {device}* a, const {device}* b,
    const {device}* c, void* out) {{
  const i32 i = block_x() * 128 + thread_x();
  if (i >= n) return;
  switch (which) {{
{body}
  }}
}}
"""
    return Program(name, _core.device_text(kernel) + kernel, rows)


# Every element type: torch dtype, name in kernel text.
ELEMENT = COMPUTE | {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
}


def convert_program() -> Program:
    """One kernel that casts between all pairs of types: `which` is 14 * source + target."""
    names = list(ELEMENT.values())
    lines = [
        f"    case {len(names) * s + t}:\n"
        f"      store1(({target}*)out + i, to<{target}>(load1((const {source}*)a + i)));\n"
        "      break;"
        for s, source in enumerate(names)
        for t, target in enumerate(names)
    ]
    body = "\n".join(lines)
    kernel = f"""KERNEL(128) void convert(i32 which, i32 n, const void* a, void* out) {{
  const i32 i = block_x() * 128 + thread_x();
  if (i >= n) return;
  switch (which) {{
{body}
  }}
}}
"""
    return Program("convert", _core.device_text(kernel) + kernel, [])


def move_program() -> Program:
    """One kernel that copies 64 elements of each type by every legal vector width: `which` counts
    (type, width) pairs. Widths are 1, 2, 4, 8, 16, 32 elements up to 32 bytes."""
    lines = []
    moves = []
    for dtype, device in ELEMENT.items():
        for width in (1, 2, 4, 8, 16, 32):
            if width * dtype.itemsize > 32:
                continue
            lines.append(
                f"    case {len(moves)}: {{ {device} r[{width}]; "
                f"load<{width}>(r, (const {device}*)a + i * {width}); "
                f"store(({device}*)out + i * {width}, r); break; }}"
            )
            moves.append((dtype, width))
    body = "\n".join(lines)
    kernel = f"""KERNEL(128) void move(i32 which, i32 n, const void* a, void* out) {{
  const i32 i = block_x() * 128 + thread_x();
  if (i >= n) return;
  switch (which) {{
{body}
  }}
}}
"""
    return Program("move", _core.device_text(kernel) + kernel, moves)
