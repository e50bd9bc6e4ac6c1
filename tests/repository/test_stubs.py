"""Types that users see: stubs agree with the compiled modules, and mypy checks calls of fd.ops."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

ROOT = Path(__file__).resolve().parents[2]
MODULES = ("fuser._core", "fuser._torch", "fuser.ops.elementwise")
# Torch and numpy are left untyped, because reading their types takes a minute.
CONFIG = f"""\
[mypy]
mypy_path = {ROOT}
strict = true
[mypy-torch.*,numpy.*]
follow_imports = skip
[mypy-cuda.*,functorch.*,sympy.*]
follow_imports = skip
ignore_missing_imports = true
"""

RIGHT = """\
from fuser import FusionDefinition, Scalar, Tensor

with FusionDefinition() as fd:
    x = fd.define_tensor([-1, -1])
    s: Scalar = fd.ops.add(x.size(0), 1)
    t: Tensor = fd.ops.add(1.0, fd.ops.tanh(x))
    mean: Tensor = fd.ops.layer_norm(t, [4])[1]
    chunks: list[Tensor] = fd.ops.chunk(mean, 2, dim=-1)
    fd.add_output(fd.ops.cast(fd.ops.softmax(fd.ops.gelu(x), dim=-1), x.dtype))
    fd.add_output(fd.ops.where(fd.ops.gt(x, s), round(x), 0.0))
    active: Tensor = fd.ops.addcmul(fd.ops.gelu(x, approximate="tanh"), t, mean, value=2.0)
    rate: Scalar = fd.ops.softplus(s, 2.0)
"""

# Wrong statements after RIGHT, and the beginning of mypy's report.
WRONG = {
    "fd.ops.tanhh(x)": '"Ops" has no attribute "tanhh"',
    "fd.ops.softmaxx(x, 0)": '"Ops" has no attribute "softmaxx"',
    'fd.ops.tanh("x")': 'No overload variant of "tanh"',
    "fd.ops.add(x)": 'No overload variant of "add"',
    'fd.ops.softmax(x, "0")': 'Argument 2 to "softmax" of "Reductions" has incompatible type "str"',
    "fd.ops.permute(x, 1)": 'Argument 2 to "permute" of "Primitives" has incompatible type "int"',
    "fd.ops.triu(x, diagonl=1)": 'Unexpected keyword argument "diagonl" for "triu" of "Shapes"',
    "scalar: Scalar = fd.ops.tanh(x)": "Incompatible types in assignment",
    "other: Scalar = fd.ops.gelu(x)": "Incompatible types in assignment",
    "third: Scalar = fd.ops.rsub(x, s)": "Incompatible types in assignment",
    'fd.ops.leaky_relu(x, "0.1")': 'No overload variant of "__call__" of "Unary"',
    'fd.ops.addcmul(x, t, "1")': 'No overload variant of "__call__" of "Nary"',
}


def mypy(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code that starts mypy with CONFIG and `arguments`."""
    config = folder / "mypy.ini"
    config.write_text(CONFIG)
    command = [sys.executable, "-c", code, *arguments, str(config)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_stubs_agree_with_the_modules(tmp_path: Path) -> None:
    # Import torch first: _torch needs its libraries.
    code = "import sys, torch; from mypy.stubtest import main; sys.exit(main())"
    allowed = ("--allowlist", "tests/repository/stubtest_allowlist.txt", "--ignore-missing-stub")
    done = mypy(tmp_path, code, *MODULES, *allowed, "--mypy-config-file")
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_reports_wrong_calls_of_ops_and_accepts_right_ones(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    wrong = "".join(f"    {statement}\n" for statement in WRONG)
    program.write_text(RIGHT + wrong)
    code = "from mypy.__main__ import console_entry; console_entry()"
    options = ("--hide-error-context", "--no-pretty", "--no-incremental", "--config-file")
    done = mypy(tmp_path, code, str(program), *options)
    errors = [
        line for line in done.stdout.splitlines() if "program.py" in line and "note" not in line
    ]
    first = len(RIGHT.splitlines()) + 1
    assert len(errors) == len(WRONG), done.stdout + done.stderr
    for line, (error, text) in enumerate(zip(errors, WRONG.values(), strict=True), first):
        assert f"program.py:{line}: error: {text}" in error
