"""Every rule id of an error is violated on purpose by a test."""

import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ID = r'"([a-z][a-z0-9]*(?:-[a-z0-9]+)+)"'

# Patterns of rule ids in C++ and Python sources.
NAMED = re.compile(
    rf"""(?:FUSER_CHECK|check_cuda|Fault|refuse)\([^;]*?{ID}  # behind a condition or a kind
    |\brule\s*=\s*{ID}""",
    re.VERBOSE,
)

# Rules that no test violates, with the reason.
UNTESTED = {
    "grid-1": "a grid of 2^31 blocks takes more memory than there is",
    "interpreter-exit": "what it keeps from happening is a crash: tests/driver/test_background.py",
    "kernel-size-1": "the segmenter cuts what is too large before",
    "kernel-size-2": "the segmenter cuts what is too large before",
    "library-torch": "the torch releases that are tested lack none of them",
    "nvrtc-call": "NVRTC has no call that fails at will",
    "no-scheduler-1": "the list of schedulers ends in two that take everything",
    "script-argument": "the partition gives groups no such argument",
    "torch-cuda": "torch with CUDA has what is looked for",
    "rng-capture-1": "needs a torch whose generator was not told of the capture",
}
# Rule ids of scheduler rejections: they are no errors if another scheduler accepts the problem.
REJECTS = re.compile(r"(cpu-)?(inner|inner-outer|outer|transpose|broadcast|rows|pointwise)-\d")


def rules() -> list[str]:
    found: set[str] = set()
    for path in [*(ROOT / "csrc").rglob("*.cpp"), *(ROOT / "csrc").rglob("*.h")]:
        found.update(a or b for a, b in NAMED.findall(path.read_text()))
    for path in (ROOT / "fuser").rglob("*.py"):
        found.update(a or b for a, b in NAMED.findall(path.read_text()))
    return sorted(rule for rule in found if not REJECTS.fullmatch(rule))


@functools.cache
def named_by_tests() -> set[str]:
    """Rule ids in the texts of tests, and rule ids at the end of a test's name."""
    texts = [p.read_text() for p in (ROOT / "tests").rglob("*.py") if p.name != Path(__file__).name]
    words = set(re.findall(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)+", "".join(texts)))
    tests = " ".join(re.findall(r"def (test_\w+)", "".join(texts))) + " "
    return words | {rule for rule in rules() if f"_{rule.replace('-', '_')} " in tests}


@pytest.mark.parametrize("rule", rules())
def test_a_test_breaks_it(rule: str) -> None:
    if rule in UNTESTED:
        assert rule not in named_by_tests(), f"{rule} has a test now: take it off the list"
    else:
        assert rule in named_by_tests(), f"no test names {rule}"


def test_the_list_names_what_exists() -> None:
    assert UNTESTED.keys() <= set(rules())
