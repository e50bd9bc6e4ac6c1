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
