"""Kernels of every family and vector width compile with NVRTC for every GPU, without spills, and
with 16-byte accesses where aligned. Run with -s to print registers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fuser.runtime import toolkit
from fuser.runtime.cubin import cubin_info
from tests.codegen.families import FAMILIES, Kernel, kernels
from tests.support.nvrtc12 import needs_nvrtc_12, run_under_nvrtc_12

ARCHITECTURES = [75, 80, 90, 100]


def of(family: str) -> list[Kernel]:
    return [kernel for kernel in kernels() if kernel.family == family]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_compiles_and_spills_nothing(family: str, arch: int) -> None:
    for kernel in of(family):
        compiled = toolkit.compile(kernel.name, kernel.text, arch)
        used = cubin_info(compiled.cubin)[kernel.name]
        print(f"sm_{arch} {family} x {kernel.vector}: {used.registers} registers")
        assert used.local_bytes == 0, f"{family} x {kernel.vector}: {used}"
        assert 0 < used.registers <= 128


@needs_nvrtc_12
def test_volta(tmp_path: Path) -> None:
    texts = [(kernel.name, kernel.text) for kernel in kernels()]
    file = tmp_path / "kernels.json"
    file.write_text(json.dumps(texts))
    code = f"""
import json
from fuser.runtime import toolkit
from fuser.runtime.cubin import cubin_info
for name, text in json.load(open({str(file)!r})):
    print(cubin_info(toolkit.compile(name, text, 70).cubin)[name].local_bytes)
"""
    assert run_under_nvrtc_12(code).split() == ["0"] * len(texts)


@pytest.mark.parametrize("family", FAMILIES)
def test_aligned_accesses_move_16_bytes(family: str) -> None:
    kernel = of(family)[0]
    ptx = toolkit.ptx(kernel.text, 90)
    wide = re.findall(r"(?:ld|st)\.global\S*\.(?:v4\.\w32|v2\.\w64|v8\.\w16)", ptx)
    assert len(wide) >= kernel.wide, f"{len(wide)} wide accesses in\n{ptx}"


def test_loads_stand_before_stores() -> None:
    for kernel in kernels():
        own = kernel.text[kernel.text.rindex("\nKERNEL") :]
        if kernel.name.startswith("transpose"):  # a stage of several tiles stores each tile at once
            continue
        order = re.findall(r"\b(load|store)(?:1|_\w+)?\(", own)
        assert order == sorted(order), kernel.family


def test_read_only_inputs_go_through_the_read_only_path() -> None:
    ptx = toolkit.ptx(of("adamw_f32")[0].text, 90)
    assert len(re.findall(r"ld\.global\.nc\.v4", ptx)) == 4
