"""Compilation for the host executor: batches, inspectable failures, flags."""

import ctypes
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from fuser import _core
from fuser.errors import CompileError
from fuser.runtime import cxx, host
from tests.device.programs import COMPUTE, text_of
from tests.host.kernels import PRELUDE, build, value
from tests.ops.cases import edges
from tests.support.sampling import rotated

# Bias, a cubic and rounding to bfloat16 of 8 elements per thread, written like generated kernels.
POLYNOMIAL = """
struct bf16 { unsigned short bits; };
DEVICE f32 wide(bf16 x) { u32 b = (u32)x.bits << 16; f32 f; memcpy(&f, &b, 4); return f; }
DEVICE bf16 round(f32 x) {
  u32 b; memcpy(&b, &x, 4);
  const u32 nan = -(u32)((b & 0x7fffffffu) > 0x7f800000u);
  return {(unsigned short)((((b + 0x7fffu + ((b >> 16) & 1u)) >> 16) & ~nan) | (0x7fffu & nan))};
}
KERNEL(256) void polynomial(const bf16* g_x, bf16* g_y) {
  const i32 i = (block_x() * 256 + thread_x()) * 8;
  bf16 r_x[8], r_y[8];
  f32 r_a[8], r_b[8];
  memcpy(r_x, g_x + i, 16);
  UNROLL for (i32 v = 0; v < 8; ++v) { r_a[v] = wide(r_x[v]) + 0.5f; }
  UNROLL for (i32 v = 0; v < 8; ++v) { r_b[v] = r_a[v] * r_a[v] * r_a[v] + r_a[v]; }
  UNROLL for (i32 v = 0; v < 8; ++v) { r_y[v] = round(r_b[v]); }
  memcpy(g_y + i, r_y, 16);
}"""


def scale(number: int) -> str:
    """A kernel that writes three times its number."""
    return PRELUDE + f"KERNEL(1) void scale_{number}(i32* out) {{ *out = {number} * 3; }}"


@pytest.fixture
def scratch_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory for temporary files of builds."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("count", [1, 30, 100])
def test_many_kernels_in_one_build(count: int, scratch_directory: Path) -> None:
    sources = [host.HostSource(f"scale_{i}", scale(i), i % 7 == 0) for i in range(count)]
    module = _core.load_host_bytes(host.build(sources))
    out = np.zeros(1, np.int32)
    for i in range(count):
        kernel = module.find(i)
        assert (kernel.name, kernel.collectives) == (f"scale_{i}", i % 7 == 0)
        _core.host_launch(kernel, [1, 1, 1], [1, 1, 1], 0, [value(out)])
        assert out[0] == i * 3
    assert list(scratch_directory.iterdir()) == []


def test_split_batches_keep_their_numbers() -> None:
    padding = "// " + "x" * 4000
    sources = [host.HostSource(f"scale_{i}", scale(i) + "\n" + padding, False) for i in range(40)]
    module = _core.load_host_bytes(host.build(sources))
    assert [module.find(i).name for i in range(40)] == [f"scale_{i}" for i in range(40)]


def test_refused_text_can_be_looked_at_and_repeated(scratch_directory: Path) -> None:
    text = PRELUDE + "KERNEL(1) void broken(i32* out) {\n  *out = no_such_name;\n}"
    good = host.HostSource("scale_1", scale(1), False)
    with pytest.raises(CompileError, match="no_such_name") as raised:
        host.build([good, host.HostSource("broken", text, False)])
    error = raised.value
    assert error.rule == "host-compile"
    line = 1 + text[: text.index("no_such_name")].count("\n")
    assert f"broken.cu:{line}" in error.log
    assert "no_such_name" in Path(error.source_path).read_text()
    assert Path(error.source_path).is_relative_to(scratch_directory)
    assert Path(error.source_path).parent.stat().st_mode & 0o077 == 0
    assert "-ffp-contract=off" in error.flags
    again = subprocess.run(error.command, shell=True, capture_output=True, text=True)
    assert again.returncode != 0
    assert "no_such_name" in again.stderr


def test_a_collective_in_a_plain_kernel_does_not_compile(scratch_directory: Path) -> None:
    text = PRELUDE + "KERNEL(32) void plain(i32* out) { sync_block(); }"
    with pytest.raises(CompileError, match="sync_block"):
        host.build([host.HostSource("plain", text, False)])


def test_a_compiler_that_is_gone_or_makes_nothing(
    scratch_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = host.HostSource("scale_1", scale(1), False)
    for command in (str(scratch_directory / "gone"), "true"):
        gone = cxx.Compiler((command,), "")
        monkeypatch.setattr(host, "compiler", lambda gone=gone: gone)
        with pytest.raises(CompileError, match=r"cannot compile kernels: .*No such file") as raised:
            host.build([source])
        assert raised.value.rule == "host-compiler"
        assert list(scratch_directory.iterdir()) == []


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(CompileError, match="hint: TMPDIR") as raised:
        host.build([host.HostSource("scale_1", scale(1), False)])
    assert raised.value.rule == "host-compiler"


def test_the_fingerprint_depends_on_flags_and_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(host.fingerprint()) == 32
    assert host.fingerprint() == host.fingerprint()
    assert host.fingerprint() != host.fingerprint(debug=True)
    before = host.fingerprint()
    other = cxx.Compiler(("c++",), "another compiler, Free Software Foundation")
    monkeypatch.setattr(host, "compiler", lambda wanted="": other)
    assert host.fingerprint() != before


def test_arithmetic_is_that_of_the_text() -> None:
    text = """KERNEL(1) void exact(f32* out, f32 a, f32 b, f32 c, f32 tiny) {
      out[0] = a * b + c;
      out[1] = (a + b) - a;
      out[2] = tiny * 0.5f;
      out[3] = -0.0f + c * 0.0f;
    }"""
    a, b, c = np.float32(1 + 2**-12), np.float32(1 - 2**-12), np.float32(-1)
    tiny, out = np.float32(2**-140), np.zeros(4, np.float32)
    build(("exact", text, False))("exact", 1, 1, out, a, b, c, tiny)
    expected = np.array([a * b + c, (a + b) - a, tiny * np.float32(0.5), np.float32(-0.0)])
    assert out.view(np.uint32).tolist() == expected.astype(np.float32).view(np.uint32).tolist()


def test_element_loops_become_vector_code(tmp_path: Path) -> None:
    """GCC for x86-64 vectorizes all arithmetic of a loop over 8 elements."""
    chosen = cxx.compiler()
    if not chosen.is_gcc or os.uname().machine != "x86_64":
        pytest.skip("reads the machine code of GCC for x86-64")
    binary = tmp_path / "polynomial.so"
    binary.write_bytes(host.build([host.HostSource("polynomial", PRELUDE + POLYNOMIAL, False)]))
    code = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(binary)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    packed = re.findall(r"\bv?(?:add|mul)ps\b", code)
    scalar = re.findall(r"\bv?(?:add|mul)ss\b", code)
    assert len(packed) >= 4, code
    assert not scalar, code


# ---- Flags never change a value

# The real flags, reduced to the ones that affect semantics.
PLAIN = ("-std=c++17", "-march=native", "-fPIC", "-fvisibility=hidden", "-fno-builtin")
PLAIN += ("-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing", "-O0")
TOGETHER = 20  # compositions in one kernel


def calls_math(text: str) -> bool:
    """Return True if a float32 text is a single call of math.h: compilers fold pairs of these
    calls."""
    name = text.removesuffix("($0)")
    blocks = _core.device_text(f"KERNEL(1) void k(f32 x) {{ {name}(x); }}")
    return re.search(rf"f32 {re.escape(name)}\(f32 x\) {{ return \w+f\(x\); }}", blocks) is not None


def compositions(dtype: torch.dtype) -> list[str]:
    """f(g(x)), f(g(x, y)), f(g(x), y) and f(y, g(x)) for rows of the op table, as texts of x, y.

    For float32, all pairs of functions of math.h: constant folding does not depend on the type. A
    fixed fraction of other pairs; `--thorough` runs all.
    """
    rows = [
        (row.arity, text)
        for row in _core.op_rows()
        if row.rule in {"Same", "Common", "Float", "Real"}
        and (text := text_of(row, dtype)) is not None
    ]
    one = [text for arity, text in rows if arity == 1 and text != "$0"]
    two = [text for arity, text in rows if arity == 2]
    folded = [text for text in one if calls_math(text)] if dtype == torch.float32 else []
    found = []
    for place, f in enumerate(one):
        inner = [*(folded if f in folded else []), *rotated(one, place, 8)]
        inner = [*dict.fromkeys(inner), *(g.replace("$1", "y") for g in rotated(two, place, 2))]
        found += [f.replace("$0", f"({g.replace('$0', 'x')})") for g in inner]
    for place, f in enumerate(two):
        for g in rotated(one, place, 4):
            g = f"({g.replace('$0', 'x')})"
            found += [f.replace("$0", g).replace("$1", "y"), f.replace("$0", "y").replace("$1", g)]
    return found


def composed(name: str, dtype: torch.dtype, texts: list[str]) -> host.HostSource:
    """out[k * n + i] = composition k of a[k * n + i] and b[k * n + i], each element used once."""
    device = COMPUTE[dtype]
    lines = [
        f"  {{ const {device} x = a[{k} * n + i], y = b[{k} * n + i]; out[{k} * n + i] = {text}; }}"
        for k, text in enumerate(texts)
    ]
    arguments = f"i32 n, const {device}* a, const {device}* b, {device}* out"
    kernel = f"KERNEL(1) void {name}({arguments}) {{\n  const i32 i = block_x();\n"
    kernel += "\n".join(lines) + "\n}\n"
    return host.HostSource(name, _core.device_text(kernel) + kernel, collectives=False)


@pytest.mark.parametrize(
    ("dtype", "least"), [(torch.float32, 1200), (torch.float64, 550)], ids=["f32", "f64"]
)
def test_flags_change_no_value(
    dtype: torch.dtype, least: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compositions of two rows of the op table give equal results with the flags of kernels and
    without optimization. Operands are edge cases and random values; results are compared bit for
    bit, but all NaNs are equal."""
    texts = compositions(dtype)
    assert len(texts) >= least
    parts = [texts[i : i + TOGETHER] for i in range(0, len(texts), TOGETHER)]
    sources = [composed(f"composed_{i}", dtype, part) for i, part in enumerate(parts)]
    modules = [_core.load_host_bytes(host.build(sources))]
    monkeypatch.setattr(host, "flags", lambda *_: PLAIN)
    modules.append(_core.load_host_bytes(host.build(sources)))

    drawn = torch.from_numpy(rng.normal(size=24)).to(dtype)
    x = torch.cat([edges(dtype), drawn, drawn * 100, drawn.abs() / 8])
    y = x[torch.from_numpy(rng.permutation(len(x)))]
    bits = torch.int32 if dtype == torch.float32 else torch.int64
    wrong = []
    for number, part in enumerate(parts):
        operands = [x.repeat(len(part)), y.repeat(len(part))]
        results = []
        for module in modules:
            out = torch.full_like(operands[0], 7)
            values = [ctypes.c_int32(len(x))]
            values += [ctypes.c_void_p(t.data_ptr()) for t in (*operands, out)]
            _core.host_launch(
                module.find(number), [len(x), 1, 1], [1, 1, 1], 0, [bytes(v) for v in values]
            )
            results.append(out.view(len(part), -1))
        got, plain = results
        same = (got.view(bits) == plain.view(bits)) | (got.isnan() & plain.isnan())
        for k in (~same.all(1)).nonzero().flatten().tolist():
            i = int((~same[k]).nonzero()[0])
            wrong.append(f"{part[k]}: {got[k][i]} and not {plain[k][i]} of x {x[i]}, y {y[i]}")
    assert not wrong, "\n".join(wrong)
