"""csrc/base/options: the table, its defaults, the environment, changes at run time."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

import fuser.errors
from fuser import _core

SetOption = Callable[[str, object], None]
ROWS = _core.option_rows()


def in_new_process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FUSER_")}
    command = [sys.executable, "-c", "from fuser import _core\n" + code]
    return subprocess.run(
        command, env=clean | environment, capture_output=True, text=True, check=True
    )


def test_rows_are_complete_and_unique() -> None:
    variables = [variable for variable, _, _, _ in ROWS]
    assert len(set(variables)) == len(variables)
    assert {"FUSER_DUMP", "FUSER_LOG", "FUSER_CACHE_DIR", "FUSER_CXX"} <= set(variables)
    for variable, kind, _, text in ROWS:
        assert variable.startswith("FUSER_")
        assert kind in {"Flag", "Int", "Text", "List"}
        assert text
        assert not text.endswith(".")


def test_defaults_without_environment() -> None:
    code = "for row in _core.option_rows(): assert _core.get_option(row[0]) == row[2], row"
    assert in_new_process(code).stderr == ""


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("FUSER_LOG", "1", "1"),
        ("FUSER_CACHE_MB", "77", "77"),
        ("FUSER_CACHE_DIR", "some where", "some where"),
        ("FUSER_DUMP", "fusion,,cuda@gelu,", "fusion,cuda@gelu"),
        ("FUSER_DUMP", "", ""),
    ],
)
def test_environment_is_read(variable: str, value: str, expected: str) -> None:
    done = in_new_process(f"print(_core.get_option({variable!r}))", **{variable: value})
    assert (done.stdout, done.stderr) == (expected + "\n", "")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("FUSER_LOG", "yes"),
        ("FUSER_CACHE_MB", "1G"),
        ("FUSER_CACHE_MB", "-1"),
        ("FUSER_HOST_ARCH", "75"),
        ("FUSER_CPU_ISA", "mmx"),
        ("FUSER_DUMP", "fusion,nonsense"),
    ],
)
def test_bad_environment_keeps_the_default_and_says_so(variable: str, value: str) -> None:
    default = next(row[2] for row in ROWS if row[0] == variable)
    done = in_new_process(f"print(_core.get_option({variable!r}))", **{variable: value})
    assert done.stdout == default + "\n"
    assert done.stderr.startswith(f"fuser: {variable}={value}: expected ")
    assert done.stderr.endswith(f"; using the default, {default or 'empty'}\n")


def test_unknown_variables_are_named_once_with_what_is_near() -> None:
    unknown = {"FUSER_CACHEDIR": "x", "FUSER_HOST_DEBUGG": "1", "FUSER_WHATEVER_ELSE": ""}
    done = in_new_process("import fuser", FUSER_LOG="0", FUSER_TEST_THOROUGH="0", **unknown)
    assert done.stderr == (
        "fuser: there is no option FUSER_CACHEDIR (did you mean FUSER_CACHE_DIR?), "
        "FUSER_HOST_DEBUGG (did you mean FUSER_HOST_DEBUG?), FUSER_WHATEVER_ELSE; "
        "`python -m fuser --help` lists them\n"
    )


def test_set_option(set_option: SetOption) -> None:
    set_option("FUSER_HOST_THREADS", 3)
    assert _core.get_option("FUSER_HOST_THREADS") == "3"
    set_option("FUSER_DUMP", "fusion,cuda")
    assert _core.get_option("FUSER_DUMP") == "fusion,cuda"


def test_option_name() -> None:
    for act in (_core.get_option, lambda name: _core.set_option(name, "1")):
        with pytest.raises(fuser.errors.UserError, match="there is no option FUSER_DMUP") as caught:
            act("FUSER_DMUP")
        assert caught.value.rule == "option-name"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("FUSER_CACHE", "2"),
        ("FUSER_CACHE_MB", ""),
        ("FUSER_CACHE_MB", "1 "),
        ("FUSER_CACHE_MB", "9" * 30),
        ("FUSER_HOST_ARCH", "75"),
        ("FUSER_CPU_ISA", "AVX2"),
        ("FUSER_DUMP", "cud"),
        ("FUSER_DUMP", "cuda,cud@gelu"),
        ("FUSER_DUMP", "@gelu"),
    ],
)
def test_option_value(variable: str, value: str) -> None:
    before = _core.get_option(variable)
    with pytest.raises(fuser.errors.UserError, match="expected") as caught:
        _core.set_option(variable, value)
    assert caught.value.rule == "option-value"
    assert _core.get_option(variable) == before


def test_option_value_names_what_is_allowed() -> None:
    with pytest.raises(fuser.errors.UserError, match="expected entries from") as caught:
        _core.set_option("FUSER_DUMP", "cuda,passes@gelu")
    assert str(caught.value).endswith("cse, canonicalize, cuda, all, got passes")
    with pytest.raises(fuser.errors.UserError, match="=75: expected one of 0, 70, 80, 90"):
        _core.set_option("FUSER_HOST_ARCH", "75")
