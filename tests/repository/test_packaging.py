"""Contents of a source distribution: build, tests and documents find all their files."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("csrc", "fuser", "tests", "benchmarks", "examples")
# Outputs of a build or a run, and files that only a checkout needs.
OTHERS = ("*.so", "*.pyc", "__pycache__", "device", "results")


def test_a_source_distribution_is_the_checkout(tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    copy.mkdir()
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, copy)
    for folder in FOLDERS:
        # fuser/device is a copy of csrc/device made by the build.
        ignored = OTHERS if folder == "fuser" else tuple(o for o in OTHERS if o != "device")
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns(*ignored))
    wanted = {p.relative_to(copy).as_posix() for p in copy.rglob("*") if p.is_file()}
    subprocess.run([sys.executable, "setup.py", "-q", "sdist"], cwd=copy, check=True)
    (archive,) = (copy / "dist").iterdir()
    with tarfile.open(archive) as held:
        found = {name.partition("/")[2] for name in held.getnames()}
    assert wanted - found == set()
