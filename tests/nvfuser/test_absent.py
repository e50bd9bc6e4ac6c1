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
    assert caught.value.rule in ("by-hand-1", "profiler-1")


def test_modules_of_nvfuser() -> None:
    from fuser import idm, multidevice

    assert multidevice.DeviceMesh is fuser.DeviceMesh
    assert multidevice.execute_with_dtensors is fuser.execute_with_dtensors
    with pytest.raises(AttributeError):
        _ = multidevice.DeviceMash
    assert idm.IdMappingMode.exact is fuser.IdMappingMode.exact


def test_shardings_of_no_call() -> None:
    """Placements follow from the inputs of a call."""
    fd = FusionDefinition()
    fd.add_output(fd.define_tensor([-1]))
    with pytest.raises(Unsupported, match="hint: ") as caught:
        fd.fec.get_output_shardings()
    assert caught.value.rule == "devices-1"
