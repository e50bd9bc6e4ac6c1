"""python -m fuser repro FILE: runs a repro script and shrinks it while it raises the same error.
With fd.validate(inputs) in place of fd.execute(inputs), wrong results are an error too.

A script is shrunk as text, line by line. repr(fd) has one line per op, so dropping an output, or
replacing a result by an operand, changes single lines. An inconsistent script raises another error
and is discarded.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

# Error of a script: class and rule, e.g. "CompileError nvrtc-compile"; "" if it runs.
Probe = Callable[[str], str]

_OP = re.compile(r"^    (.+) = fd\.ops\.\w+\((.*)\)$")
_INPUT = re.compile(r"^    (\w+) = fd\.define_(tensor|scalar)\(")
_TENSOR = re.compile(r"\bT\d+\b")
_STICKY = "LaunchError"  # an error that leaves the GPU unusable for the process


def error_of(text: str) -> str:
    """Runs a script in this process and returns its error."""
    try:
        with redirect_stdout(StringIO()):
            exec(compile(text, "<repro>", "exec"), {"__name__": "__main__"})
    except Exception as error:
        return f"{type(error).__name__} {getattr(error, 'rule', '')}".strip()
    return ""


def error_in_a_process(text: str) -> str:
    """Runs a script in a child process, which may crash, and returns its error."""
    command = [sys.executable, "-c", _CHILD]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else f"exit status {done.returncode}"


_CHILD = "import sys; from fuser.debug.minify import error_of; print(error_of(sys.stdin.read()))"


def shrunk(text: str, wanted: str, probe: Probe = error_of) -> str:
    """The smallest script found that still raises `wanted`."""
    lines = text.splitlines()

    def holds(candidate: Sequence[str]) -> bool:
        return probe("\n".join(candidate) + "\n") == wanted

    changed = True
    while changed:
        before = len(lines)
        lines = _without_outputs(lines, holds)
        lines = _without_ops(lines, holds)
        lines = _without_dead(lines, holds)
        changed = len(lines) < before
    return "\n".join(lines) + "\n"


def _without_outputs(lines: list[str], holds: Callable[[Sequence[str]], bool]) -> list[str]:
    for line in [line for line in lines if "fd.add_output(" in line]:
        rest = [other for other in lines if other is not line]
        if any("fd.add_output(" in other for other in rest) and holds(rest):
            lines = rest
    return lines


def _without_ops(lines: list[str], holds: Callable[[Sequence[str]], bool]) -> list[str]:
    """Drops ops from the last to the first; their users read an operand instead."""
    for place in range(len(lines) - 1, -1, -1):
        match = _OP.match(lines[place])
        if not match or not _TENSOR.fullmatch(match.group(1)):
            continue
        result = re.compile(rf"\b{match.group(1)}\b")
        for operand in dict.fromkeys(_TENSOR.findall(match.group(2))):
            after = [result.sub(operand, line) for line in lines[place + 1 :]]
            candidate = [*lines[:place], *after]
            if holds(candidate):
                lines = candidate
                break
    return lines


def _without_dead(lines: list[str], holds: Callable[[Sequence[str]], bool]) -> list[str]:
    """Drops unused ops, and unused inputs with their values."""
    for place in range(len(lines) - 1, -1, -1):
        match = _OP.match(lines[place]) or _INPUT.match(lines[place])
        if not match:
            continue
        names = re.findall(r"\w+", match.group(1))
        later = "\n".join(lines[place + 1 :])
        if any(re.search(rf"\b{name}\b", later) for name in names):
            continue
        candidate = lines[:place] + lines[place + 1 :]
        if _INPUT.match(lines[place]):
            candidate = _without_value(lines, place)
        if holds(candidate):
            lines = candidate
    return lines


def _without_value(lines: list[str], place: int) -> list[str]:
    """Drops the input defined at `place` and its line in `inputs = [...]`. Constants have no line
    there; then the wrong line is dropped, and the script raises another error.
    """
    rest = lines[:place] + lines[place + 1 :]
    if "inputs = [" not in rest:
        return rest
    index = sum(1 for line in lines[:place] if _INPUT.match(line))
    value = rest.index("inputs = [") + 1 + index
    return rest[:value] + rest[value + 1 :]


def run(path: Path) -> int:
    """Runs the script, prints its error, and writes a smaller script next to it. Returns 1 if the
    script raises no error.
    """
    text = path.read_text(encoding="utf-8")
    wanted = error_in_a_process(text)
    if not wanted:
        print(
            f"{path}: raises no error\n"
            "  hint: if results are wrong, replace fd.execute(inputs) by fd.validate(inputs)"
        )
        return 1
    print(f"{path}: {wanted}")
    if not any(map(_OP.match, text.splitlines())):
        print("  the script has no definition, so it cannot be minimized")
        return 0
    dies = wanted.startswith((_STICKY, "exit status"))
    small = shrunk(text, wanted, error_in_a_process if dies else error_of)
    target = path.with_suffix(".small.py")
    target.write_text(small, encoding="utf-8")
    counts = [sum(bool(_OP.match(line)) for line in t.splitlines()) for t in (text, small)]
    print(f"{target}: the same error with {counts[1]} of {counts[0]} ops")
    return 0
