"""Stored results of the benchmark command: comparison with an older run, plots, the result
folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import compare, plots
from benchmarks import results as stored
from benchmarks.case import Case
from benchmarks.families import TABLES, pointwise

FILES = sorted(Path(stored.__file__).with_name("results").glob("*/results.json"))


def fake_results(us: dict[str, float], spread: float = 0.01) -> dict[str, Any]:
    """A family of cases with these times; a copy takes 100 us."""
    goal = vars(pointwise.scale((4, 32), torch.float32).goal)
    records = {
        name: {
            "case": name,
            "dtype": "float32",
            "shape": [n + 1, 4],
            "goal": goal,
            "kernels": [],
            "us": {"fuser": t, "eager": 150.0, "memcpy": 100.0},
            "copy_us": 100.0,
            "bytes": 10 ** (n + 4),
            "failed": {},
            "wrong": {},
            "inexact": {},
            "spread": {"fuser": spread, "memcpy": spread},
        }
        for n, (name, t) in enumerate(us.items())
    }
    return {"environment": {}, "families": {"pointwise": records}, "failures": {}}


def test_compare_names_what_got_slower() -> None:
    old = fake_results({"a": 100.0, "b": 100.0, "c": 100.0, "gone": 100.0})
    new = fake_results({"a": 120.0, "b": 102.0, "c": 50.0, "new": 100.0})
    found = compare.changes(old, new)
    assert [c.key for c in found] == ["a", "b", "c"]
    assert [c.key for c in compare.slower(found)] == ["a"]
    text = compare.comparison(found)
    assert text.startswith("1 slower, 1 faster, 1 the same within noise")
    assert "| pointwise | a | 100.0 | 120.0 | +20.0% | 3.0% |" in text
    assert not compare.slower(compare.changes(fake_results({"a": 100.0}, 0.2), new)), "noisy"


def test_compare_takes_times_beside_a_copy() -> None:
    """A slower clock lengthens all times including the copy's, so no case counts as slower."""
    old, new = fake_results({"a": 100.0}), fake_results({"a": 200.0})
    new["families"]["pointwise"]["a"]["copy_us"] = 200.0
    assert compare.changes(old, new)[0].ratio == 1.0


def test_plots(tmp_path: Path) -> None:
    paths = plots.write(fake_results({"a<b": 100.0, "b": 60.0}), tmp_path / "results")
    assert [p.name for p in paths] == ["bandwidth.svg", "copy_share.svg", "best_peer.svg"]
    for path in paths:
        root = ElementTree.parse(path).getroot()
        assert root.tag.endswith("svg")
    assert paths[0].read_text().count("<circle") == 2 + 1  # one per case, and the legend
    assert "2.50" in paths[2].read_text()
    assert plots.write(fake_results({}), tmp_path) == []


def test_command_writes_a_folder_resumes_and_compares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    arguments = ["--tiny", "--device", "cpu", "--samples", "2", "--contenders", "eager,fuser"]
    arguments += ["--families", "pointwise", "--case", "swiglu", "--results", str(folder)]
    assert command.main(arguments) == 0
    names = {p.name for p in folder.iterdir()}
    assert names >= {"results.json", "results.md", "bandwidth.svg", "best_peer.svg"}
    first = (folder / "results.json").read_text()
    assert "pointwise: 1 cases" in capsys.readouterr().err

    assert command.main([*arguments, "--compare", str(folder / "results.json")]) == 0
    assert "0 cases to run" in capsys.readouterr().err, "it goes on where it stopped"
    assert (folder / "results.json").read_text() == first
    assert "0 slower, 0 faster, 1 the same" in (folder / "results.md").read_text()

    # An older run, three times as fast: compared with it, everything is slower.
    old = json.loads(first)
    for record in old["families"]["pointwise"].values():
        record["us"]["fuser"] /= 3
        record["spread"] = {}
    results = json.loads(first)
    for record in results["families"]["pointwise"].values():
        record["spread"] = {}  # two samples on a CPU do not measure noise
    (folder / "results.json").write_text(json.dumps(results))
    (tmp_path / "old.json").write_text(json.dumps(old))
    capsys.readouterr()
    assert command.main([*arguments, "--compare", str(tmp_path / "old.json")]) == 1
    printed = capsys.readouterr().out
    assert "1 slower, 0 faster, 0 the same within noise" in printed
    assert "| pointwise | swiglu" in printed
    assert "| +200.0% | 3.0% |" in printed


def test_an_older_run_that_cannot_be_read_is_named_before_any_work(tmp_path: Path) -> None:
    broken = tmp_path / "old.json"
    broken.write_text("{}")
    for path in (broken, tmp_path / "absent.json"):
        with pytest.raises(SystemExit, match=path.name):
            command.main(["--families", "pointwise", "--compare", str(path)])


def test_text_has_one_line_per_case() -> None:
    """The text is read back without a change of any number, and a case is one line."""
    results = fake_results({"a": 0.1 + 0.2, 'b "x"\n': 1e-300, "c": 5e-324})
    results["families"] |= {"sums": {}, "norms": {"d": {"us": {}}}}
    results["host"] = {"calls": [1.5, None]}
    written = stored.text(results)
    assert json.loads(written) == results
    lines = written.splitlines()
    assert [line[:3] for line in lines if line.startswith('"') and '{"' in line] == [
        *('"a"', '"b ', '"c"', '"d"', '"ho'),
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_stored_results_are_written_by_the_command(path: Path) -> None:
    results = stored.read(path, "--compare")
    assert path.read_text() == stored.text(results)
    cases = [record for family in results["families"].values() for record in family.values()]
    assert len(cases) == 231
    assert len(path.read_text().splitlines()) < len(cases) + 50
    found = compare.changes(results, results)
    assert found
    assert not compare.slower(found)


def write(path: Path, results: dict[str, Any], device: str = "a GPU") -> Path:
    results["environment"] = {"device": device, "contenders": "eager+fuser"}
    path.write_text(json.dumps(results))
    return path


def test_merge_puts_the_parts_of_a_run_together(tmp_path: Path) -> None:
    one, two = fake_results({"a": 100.0, "b": 100.0}), fake_results({"b": 50.0})
    one["failures"] = {"b": "out of memory", "c": "broken"}
    one["missing"], two["host"] = {"quack": "no module"}, {"calls": []}
    two["families"]["sums"] = {"s": two["families"]["pointwise"]["b"]}
    merged = stored.merge([write(tmp_path / "1", one), write(tmp_path / "2", two)])
    assert list(merged["families"]) == ["pointwise", "sums"]
    times = {k: r["us"]["fuser"] for k, r in merged["families"]["pointwise"].items()}
    assert times == {"a": 100.0, "b": 50.0}, "the later one counts"
    assert merged["failures"] == {"c": "broken"}, "it ran in the other part"
    assert (merged["missing"], merged["host"]) == ({"quack": "no module"}, {"calls": []})


def test_merge_refuses_parts_of_another_environment(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, fake_results({"a": 1.0}), name) for name in ("1", "2")]
    with pytest.raises(SystemExit, match="2: of another device"):
        stored.merge(paths)


def test_command_merges_reports_and_compares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Merged results are reported like a run, and serve as the older run of a comparison."""
    parts = [
        write(tmp_path / "1", fake_results({"a": 100.0})),
        write(tmp_path / "2", fake_results({"b": 60.0})),
    ]
    folder = tmp_path / "merged"
    arguments = ["--merge", *map(str, parts), "--results", str(folder)]
    assert command.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "| pointwise | 2 of 2 |" in printed
    assert "## What is asked of the table" in (folder / "results.md").read_text()
    assert {p.name for p in folder.iterdir()} >= {"results.json", "copy_share.svg"}

    write(parts[1], fake_results({"b": 80.0}))
    older = tmp_path / "older.json"
    (folder / "results.json").rename(older)
    assert command.main([*arguments, "--compare", str(older)]) == 1
    assert "| pointwise | b | 60.0 | 80.0 | +33.3% | 3.0% |" in capsys.readouterr().out


@pytest.mark.parametrize("count", [1, 2, 3])
def test_parts_are_all_families_about_evenly(count: int) -> None:
    parts = []
    for number in range(1, count + 1):
        options = ["--families", "tables", "--part", f"{number}/{count}"]
        parts.append(command._families(command._parser().parse_args(options)))
    assert sorted(family for part in parts for family in part) == sorted(TABLES)
    cases = [sum(len(TABLES[family]) for family in part) for part in parts]
    assert max(cases) < 1.5 * min(cases)


def test_part_is_one_of_so_many(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("0/2", "3/2", "1"):
        with pytest.raises(SystemExit):
            command._parser().parse_args(["--part", text])
        assert "argument --part" in capsys.readouterr().err


def keys(groups: list[tuple[str, list[Case]]]) -> list[str]:
    return [case.key for _, cases in groups for case in cases]


def test_main_cases_of_all_families_come_first_and_a_limit_ends_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--tiny", "--device", "cpu", "--families", "chains,moves"]
    options = command._parser().parse_args(arguments)
    groups = command._cases(options, command._families(options), {})
    assert [family for family, _ in groups] == ["chains", "moves", "chains", "moves"]
    main = command._parser().parse_args([*arguments, "--main"])
    first = command._cases(main, command._families(main), {})
    assert keys(first) == keys(groups[:2])

    path = tmp_path / "results.json"
    arguments += ["--contenders", "eager", "--json", str(path), "--limit", "0"]
    assert command.main(arguments) == 0
    assert "chains: 0 cases, 0.0 s" in capsys.readouterr().err
    assert not path.exists(), "nothing was measured"
