"""csrc/base/log: lines on stderr, and the selection and destination of FUSER_DUMP."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fuser import _core

SetOption = Callable[[str, object], None]


def test_log_line_always_prints(capfd: pytest.CaptureFixture[str]) -> None:
    _core.log_line("a warning")
    assert capfd.readouterr().err == "fuser: a warning\n"


def test_log_prints_under_the_option_only(
    set_option: SetOption, capfd: pytest.CaptureFixture[str]
) -> None:
    set_option("FUSER_LOG", 0)
    _core.log("not seen")
    set_option("FUSER_LOG", 1)
    _core.log("seen")
    assert capfd.readouterr().err == "fuser: seen\n"


@pytest.mark.parametrize(
    ("selection", "stage", "kernel", "expected"),
    [
        ("", "cuda", "pointwise_add", False),
        ("cuda", "cuda", "pointwise_add", True),
        ("cuda", "fusion", "pointwise_add", False),
        ("fusion,cuda", "cuda", "pointwise_add", True),
        ("cuda@add", "cuda", "pointwise_add", True),
        ("cuda@gelu", "cuda", "pointwise_add", False),
        ("cuda@gelu,cuda@add", "cuda", "pointwise_add", True),
        ("fusion@gelu,cuda", "fusion", "pointwise_add", False),
        ("all", "schedule", "pointwise_add", True),
        ("all@gelu", "schedule", "pointwise_add", False),
    ],
)
def test_dump_enabled(
    set_option: SetOption, selection: str, stage: str, kernel: str, expected: bool
) -> None:
    set_option("FUSER_DUMP", selection)
    assert _core.dump_enabled(stage, kernel) is expected


def test_dump_to_stderr(set_option: SetOption, capfd: pytest.CaptureFixture[str]) -> None:
    set_option("FUSER_DUMP_DIR", "")
    _core.dump("schedule", "k", "two\nlines")
    assert capfd.readouterr().err == "==== schedule of k ====\ntwo\nlines\n"


def test_dump_to_files_in_the_order_of_events(set_option: SetOption, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    set_option("FUSER_DUMP_DIR", folder)
    _core.dump("schedule", "k", "plan")
    _core.dump("cuda", "k", "text\n")
    _core.dump("cuda", "a/b", "other")
    files = sorted(folder.iterdir())
    assert [file.name.split(".", 1)[1] for file in files] == [
        "k.schedule.txt",
        "k.cuda.cu",
        "a_b.cuda.cu",
    ]
    assert [file.read_text() for file in files] == ["plan\n", "text\n", "other\n"]


def test_dump_to_a_folder_that_cannot_be_is_one_line(
    set_option: SetOption, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    set_option("FUSER_DUMP_DIR", tmp_path / "file")
    _core.dump("cuda", "k", "text")
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("fuser: cannot write ")
