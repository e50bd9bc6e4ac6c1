"""The documents: ARCHITECTURE.md and docs/design name every source file, and each path and link in
a document exists.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DESIGN = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs" / "design").glob("*.md"))]
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / folder / "README.md" for folder in ("benchmarks", "examples")),
]
SOURCES = {".cpp", ".h", ".cuh", ".def", ".py"}
# The first path of a table is a folder; the first column of its rows names files without suffix.
TABLE = re.compile(r"^\| `((?:csrc|fuser)[\w/]*)` \| \|\n\|---\|---\|\n((?:\|.*\n)+)", re.MULTILINE)
PATH = re.compile(r"`((?:csrc|fuser|tests|benchmarks|examples|docs)/[\w./-]+)`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)|(?:src|srcset)=\"([^\"]+)\"")


def tables() -> dict[str, set[str]]:
    """Names of files by folder, from the tables of all design documents."""
    found: dict[str, set[str]] = {}
    for path in DESIGN:
        for folder, rows in TABLE.findall(path.read_text(encoding="utf-8") + "\n"):
            cells = (row.split("|")[1] for row in rows.splitlines())
            names = [name for cell in cells for name in re.findall(r"`(?:\w+/)*(\w+)`", cell)]
            assert len(names) == len(set(names)), f"{path.name}: {folder} names a file twice"
            assert folder not in found, f"{path.name}: a second table of {folder}"
            found[folder] = set(names)
    return found


def folders() -> dict[str, set[str]]:
    """Files without suffix, by folder of csrc and fuser that contains source files."""
    found: dict[str, set[str]] = {}
    for top in ("csrc", "fuser"):
        for path in (ROOT / top).rglob("*"):
            folder = path.parent.relative_to(ROOT).as_posix()
            is_source = path.suffix in SOURCES and path.name not in ("__init__.py", "embed.py")
            if is_source and "__pycache__" not in folder and not folder.startswith("fuser/device"):
                found.setdefault(folder, set()).add(path.stem)
    return found


def test_design_documents_name_every_file() -> None:
    named = tables()
    for folder, stems in folders().items():
        assert folder in named, f"no table of {folder} in ARCHITECTURE.md or docs/design"
        assert sorted(named[folder]) == sorted(stems), folder
    assert not named.keys() - folders().keys(), "tables of folders that do not exist"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_paths_and_links_exist(path: Path) -> None:
    """Placeholders are in capitals: csrc/lower/passes/NAME.cpp, benchmarks/results/NAME."""
    text = path.read_text(encoding="utf-8")
    for name in PATH.findall(text):
        if "NAME" not in name:
            assert (ROOT / name).exists(), f"{path.name} names {name}"
    for name in (a or b for a, b in LINK.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))):
        assert (path.parent / name).exists(), f"{path.name} links to {name}"


def test_the_site_has_every_document() -> None:
    """The navigation of the site names all documents; docs/api.md is made while the site is."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", text, re.MULTILINE)
    results = [*(ROOT / "benchmarks" / "results").rglob("*.md")]
    names = [path.relative_to(ROOT).as_posix() for path in (*DOCUMENTS, *results)]
    assert sorted(pages) == sorted([*names, "docs/api.md"])


def test_the_list_of_examples_is_complete() -> None:
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+\.py)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))


def test_documents_fit_their_limits() -> None:
    """Documents that people read first stay short."""
    limits = {"README.md": 200, "ARCHITECTURE.md": 250, "CHANGELOG.md": 80}
    for name, limit in limits.items():
        assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= limit, name
