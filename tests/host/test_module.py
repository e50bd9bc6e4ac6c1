"""Shared objects of kernels, loaded from bytes and from files."""

import numpy as np
import pytest

from fuser import _core
from fuser.errors import LaunchError
from fuser.runtime import host
from tests.host.kernels import PRELUDE, value


def constant(number: int) -> bytes:
    text = PRELUDE + f"KERNEL(1) void constant(i32* out) {{ *out = {number}; }}"
    return host.build([host.HostSource("constant", text, False)])


def run(kernel) -> int:
    out = np.zeros(1, np.int32)
    _core.host_launch(kernel, [1, 1, 1], [1, 1, 1], 0, [value(out)])
    return int(out[0])


def test_two_modules_with_equal_names_stay_apart() -> None:
    kernels = [_core.load_host_bytes(constant(n)).find(0) for n in (11, 22)]
    assert [run(kernel) for kernel in kernels] == [11, 22]


def test_many_loads_of_the_same_bytes() -> None:
    binary = constant(5)
    assert {run(_core.load_host_bytes(binary).find(0)) for _ in range(50)} == {5}


def test_a_file_loads(tmp_path) -> None:
    path = tmp_path / "kernels.so"
    path.write_bytes(constant(7))
    kernel = _core.load_host_file(str(path)).find(0)
    assert run(kernel) == 7
    assert (kernel.name, kernel.collectives, kernel.debug) == ("constant", False, False)


@pytest.mark.parametrize("binary", [b"", b"not an object", b"\x7fELF" + bytes(100)])
def test_bytes_that_are_no_module_are_refused(binary: bytes) -> None:
    with pytest.raises(LaunchError, match="does not load") as raised:
        _core.load_host_bytes(binary)
    assert raised.value.rule == "host-module"


def test_a_kernel_that_is_not_there() -> None:
    with pytest.raises(LaunchError, match="no kernel 1") as raised:
        _core.load_host_bytes(constant(1)).find(1)
    assert raised.value.rule == "host-module"


def test_a_module_of_another_interface_is_refused(tmp_path) -> None:
    source = tmp_path / "old.cpp"
    source.write_text(
        '#include "host_abi.h"\nextern "C" __attribute__((visibility("default"))) '
        'const fuser::HostEntry fuser_entry_0 = {fuser::kHostAbi + 1, 0, 0, "old", 0, 0};\n'
    )
    import subprocess

    from fuser.runtime import cxx

    binary = tmp_path / "old.so"
    command = [*cxx.compiler().command, *host.flags(False), "-shared", f"-I{cxx.headers()}"]
    subprocess.run([*command, str(source), "-o", str(binary)], check=True)
    with pytest.raises(LaunchError, match="clear the disk cache") as raised:
        _core.load_host_file(str(binary)).find(0)
    assert raised.value.rule == "host-module"
