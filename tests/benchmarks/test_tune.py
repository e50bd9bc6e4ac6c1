"""benchmarks.tune: the table of tuned constants as text, and the cases that depend on a row."""

from __future__ import annotations

import pytest

from benchmarks import tune
from benchmarks.families import TABLES


def test_the_table_lists_every_constant(capsys: pytest.CaptureFixture[str]) -> None:
    assert tune.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = tune.constants()
    assert [line.split()[0] for line in lines] == ["constant", *rows]
    for line, row in zip(lines[1:], rows.values(), strict=True):
        assert line.endswith(row.meaning)


def test_cases_with_other_kernels_are_found() -> None:
    """Blocks of pointwise kernels: chains of ops, no softmax. The value is restored."""
    row = tune.constants()["pointwise.block_threads"]
    assert tune.neighbours(row) == [64, 256]
    chains = [case.key for case in (row.case() for row in TABLES["chains"])]
    found = [case.key for case in tune.affected(row, [256], ["chains"])]
    assert found == [key for key in chains if "chain" in key]
    assert tune.affected(row, [256], ["softmax"]) == []
    assert tune.constants()["pointwise.block_threads"] == row


def test_constants_of_cpus_are_measured_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    """Lanes of pointwise kernels: every case of the family has other kernels, and a time."""
    size = ["--families", "pointwise", "--tensor-bytes", "4096", "--samples", "1"]
    assert tune.main(["cpu_pointwise.registers", "--values", "1", *size]) == 0
    title, header, *lines, last = capsys.readouterr().out.splitlines()
    assert "csrc/schedulers/cpu/pointwise.cpp" in title
    assert header.split() == ["case", "2", "1"]
    assert len(lines) > len(TABLES["pointwise"]) // 2
    assert all(float(us) > 0 for line in lines for us in line.split()[-2:])
    assert last.split()[0] == "speed"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["pointwise.block"], "expected a name of the table with one value"),
        (["model.launch_us"], "expected a name of the table with one value"),
        (["pointwise.block_threads", "--values", "48"], "48: expected Multiple from 32 to 1024"),
        (["rows.block_threads", "--values", "96"], "96: expected Power from 32 to 1024"),
    ],
)
def test_wrong_names_and_values_are_refused(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        tune.main(arguments)
    assert expected in capsys.readouterr().err
