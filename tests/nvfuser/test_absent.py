"""fuser/nvfuser/absent.py: names that can be imported, but raise when used."""

from __future__ import annotations

from enum import EnumType

import pytest

import fuser
from fuser import FusionDefinition, Unsupported
from fuser.nvfuser import names
from fuser.nvfuser.absent import Namespace

ABSENT = [name for name, module in names.MODULES.items() if module == "fuser.nvfuser.absent"]


@pytest.mark.parametrize("name", ABSENT)
def test_it_is_there_and_refused(name: str) -> None:
    found = getattr(fuser, name)
    if isinstance(found, EnumType):
        assert len(found) > 1
        return
    if isinstance(found, Namespace):
        name, found = f"{name}.anything", found.anything
    with pytest.raises(Unsupported) as caught:
        found()
    assert str(caught.value).startswith(f"{name}(): ")
    assert "hint: " in str(caught.value)
    assert caught.value.rule in ("by-hand-1", "devices-1", "profiler-1")


def test_modules_of_nvfuser() -> None:
    from fuser import idm, multidevice

    assert multidevice.DeviceMesh is fuser.DeviceMesh
    assert idm.IdMappingMode.exact is fuser.IdMappingMode.exact


def test_several_devices() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1])
    fd.add_output(x)
    for call in (lambda: x.set_device_mesh(None), lambda: fd.fec.get_output_shardings()):
        with pytest.raises(Unsupported, match="hint: ") as caught:
            call()  # type: ignore[no-untyped-call]
        assert caught.value.rule == "devices-1"
