"""Compilation of CPU kernels: instruction sets, batches, arguments, inspectable failures."""

import ctypes
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuser import _core
from fuser.errors import CompileError
from fuser.runtime import cpu, cxx
from tests.host.kernels import value

ISAS = ["generic", "avx2", "avx512"] if _core.native_device().isa != "neon" else ["generic", "neon"]

# y = a * x + b over 16 lanes a task, with the compiler's vectors.
AXPB = """
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
static void axpb(const float* x, float* y, float a, double b, long long begin, long long end) {
  for (long long t = begin; t < end; ++t) {
    const Lanes v = *(const Lanes*)(x + 16 * t);
    *(Lanes*)(y + 16 * t) = v * a + (float)b;
  }
}"""


def load(isa: str, *sources: tuple[str, str]) -> Any:
    return _core.load_host_bytes(cpu.build([cpu.CpuSource(*source) for source in sources], isa))


def own_isa() -> str:
    return str(_core.native_device().isa)


@pytest.mark.parametrize("isa", ISAS)
def test_kernels_for_every_instruction_set(isa: str) -> None:
    payload = cpu.build([cpu.CpuSource("axpb", AXPB)], isa)
    assert payload.startswith(b"\x7fELF")
    if not _core.can_run_isa(isa):
        pytest.skip(f"this CPU compiles for {isa} and cannot run it")
    kernel = _core.load_host_bytes(payload).find(0)
    assert (kernel.name, kernel.tasks, kernel.debug) == ("axpb", True, False)
    x = np.arange(160, dtype=np.float32)
    y = np.full(160, -1, np.float32)
    values = [value(x), value(y), value(2.0), struct.pack("d", 0.5)]
    _core.host_run_tasks(kernel, 9, values, threads=1)
    assert y.tolist() == [*(x[:144] * 2 + 0.5), *([-1] * 16)]


def test_wider_instruction_sets_have_wider_registers(tmp_path: Path) -> None:
    if own_isa() == "neon":
        pytest.skip("x86-64 has several widths")
    used = {}
    for isa in ISAS:
        path = tmp_path / f"{isa}.so"
        path.write_bytes(cpu.build([cpu.CpuSource("axpb", AXPB)], isa))
        command = ["objdump", "-d", "--no-show-raw-insn", str(path)]
        code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        used[isa] = [register for register in ("ymm", "zmm") if f"%{register}" in code]
    assert used == {"generic": [], "avx2": ["ymm"], "avx512": ["zmm"]}


def test_kernels_of_one_build_keep_their_blocks_apart() -> None:
    """Each text has its own copy of the blocks and macros that it uses."""
    text = """
    #define FACTOR 3
    inline int scaled(int x) {{ return x * FACTOR + {0}; }}
    static void k{0}(int* out, long long begin, long long end) {{ *out = scaled(7) + end; }}"""
    module = load(own_isa(), *((f"k{i}", text.format(i)) for i in range(20)))
    for i in range(20):
        kernel, out = module.find(i), np.zeros(1, np.int32)
        assert kernel.name == f"k{i}"
        _core.host_run_tasks(kernel, 1, [value(out)], threads=1)
        assert out[0] == 21 + i + 1


def test_arguments_of_all_kinds() -> None:
    text = """
    struct FastDiv { unsigned divisor, magic, shift; };
    static void all(double* out, int a, long long b, unsigned char c, FastDiv d, const float* e,
                    long long begin, long long end) {
      out[0] = a; out[1] = b; out[2] = c; out[3] = d.divisor + 10 * d.magic + 100 * d.shift;
      out[4] = *e; out[5] = begin; out[6] = end;
    }"""
    out, e = np.zeros(7), np.full(1, 2.5, np.float32)
    packed = [struct.pack(*p) for p in (("i", -3), ("q", 1 << 40), ("B", 200), ("III", 1, 2, 3))]
    kernel = load(own_isa(), ("all", text)).find(0)
    _core.host_run_tasks(kernel, 1, [value(out), *packed, value(e)], threads=1)
    assert out.tolist() == [-3, 1 << 40, 200, 321, 2.5, 0, 1]


def test_arithmetic_is_that_of_the_text() -> None:
    text = """static void exact(float* out, float a, float b, float c, float tiny, long long begin,
                                long long end) {
      out[0] = a * b + c; out[1] = (a + b) - a; out[2] = tiny * 0.5f; out[3] = -0.0f + c * 0.0f;
    }"""
    a, b, c = np.float32(1 + 2**-12), np.float32(1 - 2**-12), np.float32(-1)
    tiny, out = np.float32(2**-140), np.zeros(4, np.float32)
    kernel = load(own_isa(), ("exact", text)).find(0)
    _core.host_run_tasks(kernel, 1, [value(v) for v in (out, a, b, c, tiny)], threads=1)
    expected = np.array([a * b + c, (a + b) - a, tiny * np.float32(0.5), np.float32(-0.0)])
    assert out.view(np.uint32).tolist() == expected.astype(np.float32).view(np.uint32).tolist()


def test_refused_text_can_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    text = (
        "static void broken(int* out, long long begin, long long end) {\n  *out = no_such_name;\n}"
    )
    with pytest.raises(CompileError, match="no_such_name") as raised:
        load(own_isa(), ("broken", text))
    assert raised.value.rule == "host-compile"
    assert "broken.cpp:2" in raised.value.log
    assert "no_such_name" in Path(raised.value.source_path).read_text()


def test_the_fingerprint_depends_on_instruction_set_and_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prints = [cpu.fingerprint(isa) for isa in ("generic", "avx2", "avx512")]
    assert len(set(prints)) == 3
    assert cpu.fingerprint("avx2") == prints[1]
    other = cxx.Compiler(("c++",), "another compiler, Free Software Foundation")
    monkeypatch.setattr(cpu, "compiler", lambda: other)
    assert cpu.fingerprint("avx2") != prints[1]


def test_a_callback_is_an_argument_like_any_other() -> None:
    """Pointers of all kinds convert, also those to functions."""
    text = """static void call(void (*f)(long long), long long begin, long long end) {
      for (long long t = begin; t < end; ++t) f(t);
    }"""
    seen: list[int] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_int64)(seen.append)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    kernel = load(own_isa(), ("call", text)).find(0)
    _core.host_run_tasks(kernel, 5, [struct.pack("P", address)], threads=1)
    assert seen == list(range(5))
