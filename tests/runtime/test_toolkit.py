"""fuser/runtime/toolkit: NVRTC, its errors, and its absence."""

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fuser.errors import CompileError
from fuser.runtime import toolkit
from fuser.runtime.cubin import architecture, cubin_info
from tests.support.nvrtc12 import needs_nvrtc_12, run_under_nvrtc_12

# A helper without __device__; a sum that could be contracted; a 16-byte access.
TEXT = """
inline float twice_plus(float x, float y) { return x * y + y; }
struct alignas(16) Four { float at[4]; };
extern "C" __global__ __launch_bounds__(256) void k(const Four* __restrict__ a, Four* b, int n) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= n) return;
  Four x = a[i];
  for (int v = 0; v < 4; ++v) x.at[v] = twice_plus(x.at[v], 3.0f);
  b[i] = x;
}
"""
BAD = 'extern "C" __global__ void k(float* a) {\n  a[0] = 1.0f;\n  a[1] = missing;\n}\n'


@pytest.mark.parametrize("arch", toolkit.nvrtc().archs)
def test_machine_code_for_every_arch(arch: int) -> None:
    compiled = toolkit.compile("k", TEXT, arch)
    assert compiled.target == f"sm_{arch}"
    assert compiled.log == ""
    assert compiled.seconds > 0
    assert architecture(compiled.cubin) == arch
    resources = cubin_info(compiled.cubin)["k"]
    assert 0 < resources.registers <= 255
    assert resources.local_bytes == 0


def test_version() -> None:
    found = toolkit.nvrtc()
    assert found.version >= (12, 6)
    assert Path(found.path).name.startswith("libnvrtc.so")
    assert found.build
    assert list(found.archs) == sorted(found.archs)
    assert {75, 80, 90} <= set(found.archs)


def test_no_contraction_and_vector_access() -> None:
    text = toolkit.ptx(TEXT, 80)
    assert ".target sm_80" in text
    assert "fma" not in text
    assert "ld.global.nc.v4" in text
    assert "st.global.v4" in text
    assert "fma" in toolkit.ptx(TEXT, 80, ["--fmad=true"])


def test_flags_follow_the_version() -> None:
    def flags(*version: int) -> tuple[str, ...]:
        return toolkit.Toolkit((version[0], version[1]), "", "", ()).flags("sm_80")

    assert "--minimal" not in flags(12, 1)
    assert "--minimal" in flags(12, 6)
    assert "--no-cache" not in flags(12, 8)
    assert "--no-cache" in flags(12, 9)
    assert "--no-cache" in flags(13, 0)
    assert flags(13, 0)[0] == "--gpu-architecture=sm_80"


def test_target() -> None:
    some = toolkit.Toolkit((13, 0), "", "/lib/libnvrtc.so.13", (75, 80, 90, 100))
    assert some.target(90) == "sm_90"
    assert some.target(86) == "compute_80"
    assert some.target(120) == "compute_100"
    with pytest.raises(CompileError, match=r"cannot compile for sm_70; supported: 75, 80") as error:
        some.target(70)
    assert error.value.rule == "nvrtc-arch"
    assert "nvidia-cuda-nvrtc-cu12" in str(error.value)


def test_newer_gpu_gets_ptx_that_the_driver_can_read() -> None:
    newest = toolkit.nvrtc().archs[-1]
    compiled = toolkit.compile("k", TEXT, 999)
    assert compiled.target == f"compute_{newest}"
    assert compiled.cubin.endswith(b"\0")
    assert f".target sm_{newest}".encode() in compiled.cubin


def test_refused_text(set_option: Callable[[str, object], None], tmp_path: Path) -> None:
    set_option("FUSER_DUMP_DIR", tmp_path / "dumps")
    with pytest.raises(CompileError) as caught:
        toolkit.compile("broken", BAD, 90)
    error = caught.value
    assert error.rule == "nvrtc-compile"
    assert 'broken.cu(3): error: identifier "missing" is undefined' in error.log
    source = Path(error.source_path)
    assert source.parent == tmp_path / "dumps"
    assert source.read_text() == BAD
    assert "--fmad=false" in error.flags
    message = str(error)
    for part in (error.log.splitlines()[0], error.source_path, error.command, *error.flags):
        assert part in message
    # The message marks the faulty line and shows adjacent lines.
    assert ">    3 |   a[1] = missing;" in message
    assert "     2 |   a[0] = 1.0f;" in message


def test_refused_text_that_no_folder_takes(
    set_option: Callable[[str, object], None], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    set_option("FUSER_DUMP_DIR", tmp_path / "file")
    with pytest.raises(CompileError, match="source: not kept: ") as caught:
        toolkit.compile("broken", BAD, 90)
    assert 'broken.cu(3): error: identifier "missing" is undefined' in caught.value.log
    assert (caught.value.rule, caught.value.source_path) == ("nvrtc-compile", "")


def test_command_repeats_the_compilation(
    set_option: Callable[[str, object], None], tmp_path: Path
) -> None:
    set_option("FUSER_DUMP_DIR", tmp_path)
    with pytest.raises(CompileError) as caught:
        toolkit.compile("broken", BAD, 80)
    command = shlex.split(caught.value.command)
    environment = os.environ | {"FUSER_DUMP_DIR": str(tmp_path)}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 1
    assert 'identifier "missing" is undefined' in run.stderr
    assert "sm_80" in run.stderr

    Path(caught.value.source_path).write_text(TEXT)
    run = subprocess.run(
        [*command, "--output", str(tmp_path / "k.cubin")],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert "k: KernelResources(registers=" in run.stdout
    assert architecture((tmp_path / "k.cubin").read_bytes()) == 80


def test_unknown_flag() -> None:
    with pytest.raises(CompileError, match="--nonsense"):
        toolkit.compile("k", TEXT, 90, ["--nonsense"])


def test_compiles_in_threads() -> None:
    found: dict[int, bytes] = {}

    def work(arch: int) -> None:
        found[arch] = toolkit.compile("k", TEXT, arch).cubin

    threads = [threading.Thread(target=work, args=(arch,)) for arch in (75, 80, 90, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {arch: architecture(cubin) for arch, cubin in found.items()} == {
        75: 75,
        80: 80,
        90: 90,
        100: 100,
    }


def test_same_text_same_bytes() -> None:
    assert toolkit.compile("k", TEXT, 90).cubin == toolkit.compile("k", TEXT, 90).cubin


@needs_nvrtc_12
def test_nvrtc_12_compiles_for_volta() -> None:
    out = run_under_nvrtc_12(f"""
from fuser.runtime import toolkit
from fuser.runtime.cubin import architecture, cubin_info
compiled = toolkit.compile("k", {TEXT!r}, 70)
print(toolkit.nvrtc().version[0], compiled.target, architecture(compiled.cubin))
print(list(cubin_info(compiled.cubin)))
""")
    assert out.splitlines() == ["12 sm_70 70", "['k']"]


def test_import_is_lazy() -> None:
    code = (
        "import sys, fuser.runtime.toolkit\n"
        "print([m for m in sys.modules if m.split('.')[0] == 'cuda'])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


WITHOUT_PACKAGE = "sys.modules['cuda.bindings'] = None"
WITHOUT_LIBRARY = """
from cuda import pathfinder
def load(name):
    raise pathfinder.DynamicLibNotFoundError(f"{name}: searched /some/where")
pathfinder.load_nvidia_dynamic_lib = load
"""


@pytest.mark.parametrize(
    ("without", "reason"),
    [(WITHOUT_PACKAGE, "cuda.bindings"), (WITHOUT_LIBRARY, "searched /some/where")],
    ids=["package", "library"],
)
def test_missing_nvrtc(without: str, reason: str) -> None:
    code = f"""
import sys
from fuser.errors import CompileError
from fuser.runtime import toolkit
{without}
for attempt in range(2):
    try:
        toolkit.compile("k", "", 90)
    except CompileError as error:
        assert error.rule == "nvrtc-missing"
        print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.count('pip install "cuda-bindings" "nvidia-cuda-nvrtc"') == 2
    assert reason in run.stdout
    assert "CUDA_HOME" in run.stdout


def test_disassembly() -> None:
    text = toolkit.disassemble(toolkit.compile("k", TEXT, 80).cubin)
    if text is None:
        pytest.skip("neither nvdisasm nor cuobjdump is installed")
    assert "LDG.E.128" in text
    assert "STG.E.128" in text


def test_disassembly_without_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "_find_tool", lambda _: None)
    assert toolkit.disassemble(b"") is None


def test_disassembly_of_nonsense() -> None:
    assert toolkit.disassemble(b"nonsense") is None
