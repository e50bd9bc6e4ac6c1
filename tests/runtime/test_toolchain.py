"""fuser/runtime/toolchain: compilers with the driver's interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fuser import CompileError, FusionDefinition, _core
from fuser.runtime import cubin, host, toolkit
from fuser.runtime.toolchain import Toolchain, fewer_blocks, machine_code
from tests.support.definitions import scaled


@dataclass(frozen=True)
class Target:
    """Fields of _core.Target."""

    host: bool = False
    arch: int = 0
    debug: bool = False
    isa: str = ""


HOST, DEBUG, HOPPER = Target(host=True), Target(host=True, debug=True), Target(arch=90)


def built(target: Target, wanted: list[Text]) -> list[Any]:
    """The outcome of each text, in the order of the texts."""
    outcomes = dict(Toolchain().build(target, wanted))
    return [outcomes[i] for i in range(len(wanted))]


def texts(*factors: float) -> list[Text]:
    """Kernels that multiply by these factors, for equal inputs."""
    found = []
    for factor in factors:
        (kernel,) = scaled(factor).fec.executor.kernels([torch.ones(8)])
        found.append(Text(kernel.name, kernel.text))
    return found


@dataclass(frozen=True)
class Text:
    """Fields of _core.KernelText."""

    name: str
    text: str
    collectives: bool = False
    threads: int = 128
    cooperative: bool = False


def test_fingerprints_tell_targets_apart() -> None:
    tools = Toolchain()
    targets = [HOST, DEBUG, HOPPER, Target(arch=80)]
    prints = [tools.fingerprint(target) for target in targets]
    assert all(type(p) is bytes and p for p in prints)
    assert len(set(prints)) == len(targets)
    assert [tools.fingerprint(target) for target in targets] == prints


def test_the_fingerprint_of_a_gpu_names_compiler_and_flags() -> None:
    text = Toolchain().fingerprint(HOPPER).decode()
    found = toolkit.nvrtc()
    assert text.split("\0") == [
        *map(str, found.version),
        found.build,
        *found.flags("sm_90"),
    ]


def test_the_fingerprint_of_the_host_needs_its_compiler(
    set_option: Callable[[str, object], None],
) -> None:
    set_option("FUSER_CXX", "/nonexistent/c++")
    with pytest.raises(CompileError) as caught:
        Toolchain().fingerprint(HOST)
    assert caught.value.rule == "host-compiler"


def test_kernels_of_one_host_build_share_their_payload() -> None:
    wanted = texts(2.0, 3.0)
    first, second = built(HOST, wanted)
    assert first == second
    payload, *resources = first
    assert payload[:4] == b"\x7fELF"
    assert resources == [0, 0, 0]
    for text in wanted:
        assert text.name.encode() in payload


def test_a_debug_build_is_another_one() -> None:
    (text,) = texts(2.0)
    assert built(HOST, [text]) != built(DEBUG, [text])


def test_kernels_for_a_gpu_have_cubins_of_their_own() -> None:
    wanted = texts(2.0, 3.0, 4.0)
    outcomes = built(HOPPER, wanted)
    for text, (payload, registers, local_bytes, shared_bytes) in zip(wanted, outcomes, strict=True):
        used = cubin.cubin_info(payload)
        assert used.keys() == {text.name}
        assert used[text.name].registers == registers > 0
        assert (local_bytes, shared_bytes) == (0, 0)
        assert cubin.architecture(payload) == 90


# Spills if the launch bounds leave too few registers, as may happen for one more block.
SPILLING = """
#ifdef FUSER_BLOCKS
#define KERNEL(threads) extern "C" __global__ __launch_bounds__(threads, ALONE)
#define KERNEL2(threads, blocks) extern "C" __global__ __launch_bounds__(threads, ALONE)
#else
#define KERNEL(threads) extern "C" __global__ __launch_bounds__(threads, 8)
#define KERNEL2(threads, blocks) extern "C" __global__ __launch_bounds__(threads, blocks)
#endif
KERNEL(256) void spilling(const float* a, float* b, int n) {
  float t[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) t[i] = a[i * n + threadIdx.x];
  __syncthreads();
  float s = 0;
#pragma unroll
  for (int i = 0; i < 96; ++i) b[i * n + threadIdx.x] = s = s * t[i] + t[i * 37 % 96];
}
"""
STATED = SPILLING.replace("ALONE", "FUSER_BLOCKS").replace("KERNEL(256)", "KERNEL2(256, 8)")


def test_what_spills_of_itself_is_built_with_all_registers() -> None:
    (mended,) = built(HOPPER, [Text("spilling", SPILLING.replace("ALONE", "1"))])
    assert mended[2] == 0, "bytes spilled"
    # The second compilation is no better, so the first one is used.
    (worse,) = built(HOPPER, [Text("spilling", SPILLING.replace("ALONE", "8"))])
    assert worse[2] > 0


def test_what_spills_for_many_blocks_has_fewer() -> None:
    (mended,) = built(HOPPER, [Text("spilling", STATED)])
    _, registers, local_bytes, _ = mended
    assert local_bytes == 0
    assert registers >= 96
    # Cooperative kernels keep their number of resident blocks.
    (kept,) = built(HOPPER, [Text("spilling", STATED, cooperative=True)])
    assert kept[1] <= 65536 // (8 * 256)
    assert kept[2] > 0


@pytest.mark.parametrize(
    ("bounds", "registers", "local_bytes", "resident", "tried"),
    [
        ("(256)", 64, 0, False, []),
        ("(256)", 64, 8, False, [1]),
        ("(256)", 64, 8, True, [1]),
        ("2(256, 4)", 64, 0, False, []),
        ("2(256, 4)", 64, 8, False, [3, 1]),
        ("2(256, 4)", 64, 64, False, [3, 1]),  # 80 of 85 registers
        ("2(256, 4)", 64, 68, False, [2, 1]),  # 81, rounded up to 88
        ("2(512, 2)", 64, 8, False, [1]),
        ("2(128, 8)", 64, 1000, False, [1]),
        ("2(128, 8)", 64, 8, True, []),
        ("2(512, 1)", 128, 8, False, []),
    ],
)
def test_as_many_blocks_are_tried_as_registers_are_enough_for(
    bounds: str, registers: int, local_bytes: int, resident: bool, tried: list[int]
) -> None:
    text = f"// before\nKERNEL{bounds} void k() {{}}"
    assert fewer_blocks(text, registers, local_bytes, resident) == tried


@pytest.mark.parametrize(
    ("spilled", "fewer", "alone", "compilations", "kept"),
    [
        (0, 0, 0, 1, "4"),
        (8, 0, 0, 2, "3"),
        (8, 8, 0, 3, "1"),
        (8, 4, 4, 3, "3"),
        (8, 8, 16, 3, "4"),
    ],
)
def test_what_spills_as_much_alone_keeps_its_blocks(
    monkeypatch: pytest.MonkeyPatch,
    spilled: int,
    fewer: int,
    alone: int,
    compilations: int,
    kept: str,
) -> None:
    made = []

    def compiled(name: str, text: str, arch: int, flags: Sequence[str] = ()) -> Any:
        made.append(flags)
        blocks = flags[0].split("=")[1] if flags else "4"
        return SimpleNamespace(target="sm_90", cubin=blocks.encode())

    def info(payload: bytes) -> Any:
        local = {b"4": spilled, b"3": fewer, b"1": alone}[payload]
        return {"k": SimpleNamespace(registers=64, local_bytes=local, shared_bytes=0)}

    monkeypatch.setattr(toolkit, "compile", compiled)
    monkeypatch.setattr(cubin, "cubin_info", info)
    assert machine_code("k", "\nKERNEL2(256, 4) void k() {}", 90)[0].decode() == kept
    assert len(made) == compilations


def test_a_gpu_newer_than_nvrtc_gets_ptx() -> None:
    (text,) = texts(2.0)
    newest = toolkit.nvrtc().archs[-1]
    ((payload, *resources),) = built(Target(arch=newest + 1), [text])
    assert f".target sm_{newest}" in payload.decode()
    assert resources == [0, 0, 0]


def broken(text: Text) -> Text:
    return Text(text.name, text.text + "\n#error no\n")


def test_a_text_that_the_gpu_s_compiler_refuses_is_an_outcome() -> None:
    good, bad = texts(2.0, 3.0)
    (payload, *_), error = built(HOPPER, [good, broken(bad)])
    assert cubin.architecture(payload) == 90, "the other one is built"
    assert isinstance(error, CompileError)
    assert error.rule == "nvrtc-compile"
    assert "#error" in error.log


def test_a_text_that_the_host_s_compiler_refuses() -> None:
    good, bad = texts(2.0, 3.0)
    (error,) = built(HOST, [broken(bad)])
    assert isinstance(error, CompileError)
    assert error.rule == "host-compile"
    assert "#error" in error.log
    with pytest.raises(CompileError, match="#error"):  # one file per batch, so no kernel name
        built(HOST, [good, broken(bad)])


def test_the_driver_s_own_objects_fit() -> None:
    """Objects passed by C++ have the fields used in these tests."""
    seen = []

    class Watching(Toolchain):
        def build(self, target: Any, texts: Any) -> Any:
            seen.append((target, list(texts)))
            return super().build(target, texts)

    _core.set_toolchain(Watching())
    try:
        with FusionDefinition() as fd:
            fd.add_output(fd.define_tensor([-1]) * 77.125)
        assert fd.execute([torch.ones(3)])[0].tolist() == [77.125] * 3
    finally:
        _core.set_toolchain(Toolchain())
    ((target, given),) = seen
    assert type(target) is _core.Target
    assert (target.host, target.debug) == (True, False)
    (text,) = given
    assert text.name.startswith("mul_")
    assert text.name in text.text
    assert not text.collectives
    assert text.threads % 32 == 0
    assert host.HostSource(text.name, text.text, text.collectives).name == text.name
