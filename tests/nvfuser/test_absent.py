"""fuser/nvfuser/absent.py: names that can be imported, but raise when used."""

from __future__ import annotations

from enum import EnumType

import pytest

import fuser
from fuser import FusionDefinition, Unsupported
from fuser.nvfuser.absent import NAMES, Namespace


@pytest.mark.parametrize("name", NAMES)
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
    from fuser import idm, multidevice, schedule

    assert multidevice.DeviceMesh is fuser.DeviceMesh
    assert idm.IdMappingMode.exact is fuser.IdMappingMode.exact
    with pytest.raises(Unsupported, match=r"^schedule\.inline_most\(\): ") as caught:
        schedule.inline_most()
    assert caught.value.rule == "by-hand-1"


def test_schedules_of_tensors() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1])
    fd.add_output(x)
    for call, rule in [
        (lambda: x.split(0, 4), "by-hand-1"),  # type: ignore[attr-defined]
        (lambda: x.set_device_mesh(None), "devices-1"),  # type: ignore[attr-defined]
        (lambda: fd.fec.get_output_shardings(), "devices-1"),
    ]:
        with pytest.raises(Unsupported, match="hint: ") as caught:
            call()  # type: ignore[no-untyped-call]
        assert caught.value.rule == rule
