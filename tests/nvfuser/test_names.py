"""fuser/nvfuser/names.py: names of nvFuser at the top of the package."""

import inspect
from types import ModuleType

import pytest

import fuser
from fuser.nvfuser import names


@pytest.mark.parametrize("name", names.NAMES)
def test_a_name_is_what_its_module_defines(name: str) -> None:
    found = getattr(fuser, name)
    assert found is names.find(name)
    if inspect.isclass(found) or inspect.isfunction(found):
        assert found.__module__ == names.MODULES[name]


def test_the_module_schedule() -> None:
    from fuser import schedule

    assert isinstance(schedule, ModuleType)
    assert schedule.inline_most is fuser.schedule.inline_most
    with pytest.raises(AttributeError, match="has no attribute 'schedules'"):
        fuser.schedules  # noqa: B018
