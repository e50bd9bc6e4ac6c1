"""Fixtures for all tests: a seeded generator, options restored after the test, a cache folder of
the run."""

import os
import random
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import settings

from tests.support.gpus import visible_devices
from tests.support.sampling import VARIABLE as THOROUGH_VARIABLE

# Options are read when the library is loaded, so set the cache folders before any import of fuser.
# Workers of pytest-xdist inherit the controller's folder. The user's own cache is neither used nor
# filled.
_IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
if not _IS_WORKER:
    os.environ["FUSER_CACHE_DIR"] = tempfile.mkdtemp(prefix="fuser-test-cache-")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="fuser-test-torch-")

# Most tests on CPU tensors are tests of plans for GPUs. `make test-cpu` repeats tests of
# values with FUSER_HOST_ARCH=0, the default, on CPU kernels.
os.environ.setdefault("FUSER_HOST_ARCH", "80")

# Set before importing torch, which reads it once.
if gpus := visible_devices(os.environ):
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus

# No deadline, because a first example may compile a kernel. A failure prints how to repeat it.
settings.register_profile("fuser", deadline=None, print_blob=True)
# CI draws equal examples in every run, so that a failure is caused by the change and not by a new
# seed.
IN_CI = bool(os.environ.get("CI"))
CI_SEED = 20260
settings.register_profile("ci", settings.get_profile("fuser"), derandomize=True)
settings.load_profile("ci" if IN_CI else "fuser")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed", type=int, help="seed of the random tests (default: a new one, but in CI)"
    )
    parser.addoption(
        "--fuzz",
        type=int,
        metavar="N",
        help="about so many random definitions in tests/test_fuzz.py, shared among its tests, and "
        "changed plans in tests/schedulers/test_legal.py",
    )
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew; read the diff"
    )
    parser.addoption(
        "--thorough", action="store_true", help="all of the tables and sweeps, not a part of each"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Distribute thousands of definitions over the processors, one thread each."""
    on_host = "gpu" not in (config.option.markexpr or "")
    if _IS_WORKER:  # a worker must not start workers
        return
    if config.option.fuzz and on_host and getattr(config.option, "numprocesses", 0) is None:
        config.option.numprocesses = max(1, len(os.sched_getaffinity(0)) * 3 // 4)
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.seed is None:
        config.option.seed = CI_SEED if IN_CI else random.randrange(2**31)
    if config.option.thorough:
        os.environ[THOROUGH_VARIABLE] = "1"


def pytest_report_header(config: pytest.Config) -> str:
    return f"fuser: seed {config.option.seed} (repeat with --seed={config.option.seed})"


def pytest_unconfigure() -> None:
    if not _IS_WORKER:
        for name in ("FUSER_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
            shutil.rmtree(os.environ[name], ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if needs_gpu and not _has_gpu():
        for item in needs_gpu:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator seeded by the run's seed and the test's name, independent of the order of
    tests."""
    seed = request.config.option.seed
    print(f"seed {seed}: repeat with --seed={seed}")
    return np.random.default_rng([seed, zlib.crc32(request.node.nodeid.encode())])


@pytest.fixture
def gpu_plans(set_option: Callable[[str, object], None]) -> None:
    """CPU tensors run emulated kernels of GPUs: the test reads plans, texts or counts of them."""
    set_option("FUSER_HOST_ARCH", 80)


@pytest.fixture
def set_option() -> Iterator[Callable[[str, object], None]]:
    """set_option(variable, value): change an option for the duration of the test."""
    from fuser import _core

    before: dict[str, str] = {}

    def change(variable: str, value: object) -> None:
        before.setdefault(variable, _core.get_option(variable))
        _core.set_option(variable, str(value))

    yield change
    for variable, value in before.items():
        _core.set_option(variable, value)
