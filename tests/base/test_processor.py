"""csrc/base/processor: instruction set, caches and cores of this CPU, against Linux's report."""

import os
import platform
from pathlib import Path

import pytest

from fuser import _core
from fuser.errors import UserError

ISAS = ["generic", "neon", "avx2", "avx512"]


def flags() -> set[str]:
    """The CPU's features as Linux names them."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":")[1].split())
    return set()


def test_the_widest_instruction_set_is_found() -> None:
    found = flags()
    if platform.machine() == "aarch64":
        expected = "neon"
    elif {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "avx2", "fma"} <= found:
        expected = "avx512"
    elif {"avx2", "fma", "bmi2"} <= found:
        expected = "avx2"
    else:
        expected = "generic"
    assert _core.native_device().isa == expected


def test_a_cpu_runs_its_own_and_narrower_instruction_sets() -> None:
    own = _core.native_device().isa
    narrower = {"avx512": ["avx2"], "avx2": [], "neon": [], "generic": []}[own]
    assert {isa for isa in ISAS if _core.can_run_isa(isa)} == {"generic", own, *narrower}


def test_unknown_instruction_set() -> None:
    with pytest.raises(UserError, match="mmx; expected one of generic, neon") as caught:
        _core.native_device("mmx")
    assert caught.value.rule == "cpu-isa-1"


def test_cores_are_those_that_the_process_may_use() -> None:
    assert _core.native_device().cores == len(os.sched_getaffinity(0))


def test_caches_grow_with_their_level() -> None:
    cpu = _core.native_device()
    assert 8 << 10 <= cpu.l1_bytes <= cpu.l2_bytes <= cpu.l3_bytes
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    for index in folder.glob("index*"):
        if (index / "level").read_text().strip() == "2":
            assert cpu.l2_bytes == int((index / "size").read_text().strip().rstrip("K")) << 10
