"""fuser/cache.py: executors shared by equal definitions, counters, options of a call."""

import pytest
import torch

import fuser
from fuser import (
    DataType,
    FusionDefinition,
    FusionExecutorCache,
    LRUCache,
    LruFusionCache,
    UserError,
)
from fuser.cache import kernel_text


def scaled(factor: float, rank: int = 1) -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1] * rank, dtype=DataType.Double) * factor)
    return fd


def test_equal_definitions_share_one_executor() -> None:
    cache = LRUCache(max_fusions=4)
    first = cache.cache_compile(scaled(2.0).fusion)
    assert cache.cache_compile(scaled(2.0).fusion) is first
    assert cache.cache_compile(scaled(3.0).fusion) is not first
    assert cache.num_fusions() == 2
    assert cache.stats() == "2 of at most 4 fusions, 1 hits, 2 misses, 0 evicted"


def test_the_one_used_last_stays() -> None:
    cache = LRUCache(max_fusions=2)
    first = cache.cache_compile(scaled(1.0).fusion)
    second = cache.cache_compile(scaled(2.0).fusion)
    cache.cache_compile(scaled(1.0).fusion)
    cache.cache_compile(scaled(3.0).fusion)
    assert cache.num_fusions() == 2
    assert cache.cache_compile(scaled(1.0).fusion) is first
    assert cache.cache_compile(scaled(2.0).fusion) is not second
    assert cache.stats() == "2 of at most 2 fusions, 2 hits, 4 misses, 2 evicted"


def test_lru_1() -> None:
    with pytest.raises(UserError) as caught:
        LRUCache(0)
    assert caught.value.rule == "lru-1"
    assert str(caught.value) == "LRUCache(): max_fusions: expected at least 1, got 0"


def test_decorator() -> None:
    calls = []

    @LruFusionCache(max_fusions=8)
    def make(factor: float) -> FusionDefinition:
        """Creates the definition on a cache miss."""
        calls.append(factor)
        return scaled(factor)

    one, two, other = make(2.0), make(2.0), make(5.0)
    assert calls == [2.0, 2.0, 5.0]
    assert make.__doc__ == "Creates the definition on a cache miss."
    assert one.fec is two.fec
    assert one.fec is not other.fec
    assert make.num_fusions() == 2  # type: ignore[attr-defined]
    assert make.stats().startswith("2 of at most 8 fusions, 1 hits")  # type: ignore[attr-defined]
    given = torch.arange(3.0, dtype=torch.float64)
    assert two.execute([given])[0].equal(given * 2)
    assert one.fec.is_compiled([given])
    assert other.execute([given])[0].equal(given * 5)


def test_fec_1() -> None:
    with pytest.raises(UserError) as caught:
        FusionExecutorCache(scaled(1.0).fusion, auto_schedule=False)
    assert caught.value.rule == "fec-1"


def test_definitions_that_give_nothing() -> None:
    fd = FusionDefinition()
    for rule in ("definition-empty", "definition-no-output"):
        with pytest.raises(UserError) as caught:
            FusionExecutorCache(fd.fusion)
        assert caught.value.rule == rule
        fd = FusionDefinition()
        fd.define_tensor([2])


def test_executor_cache_has_the_known_interface() -> None:
    executors = FusionExecutorCache(scaled(2.0).fusion)
    given = [torch.ones(4, dtype=torch.float64)]
    with pytest.raises(UserError, match="expected an earlier call of execute"):
        executors.get_most_recent_scheduled_ir()
    assert executors.execute(given)[0].tolist() == [2.0] * 4
    assert executors.is_compiled(given)
    assert executors.get_cuda_kernel(given).startswith("KERNEL(")
    assert executors.get_scheduled_ir(given) == executors.get_most_recent_scheduled_ir()
    assert "pointwise(" in executors.get_scheduled_ir(given, tensor_transforms=True)
    assert executors.fusion() == scaled(2.0).fusion


def test_cache_info_and_clear() -> None:
    fuser.clear_caches()
    start = fuser.cache_info()
    fd = scaled(7.25, rank=2)
    given = torch.ones(3, 5, dtype=torch.float64)
    for _ in range(3):
        fd.execute([given])
    after = fuser.cache_info()
    assert after._fields == (
        "definitions",
        "plans",
        "kernels_compiled",
        "kernels_from_disk",
        "hits",
        "misses",
        "compile_seconds",
        "kernels_specialized",
        "specializations_failed",
    )
    assert after.misses - start.misses == 1
    assert after.hits - start.hits == 2
    built = after.kernels_compiled + after.kernels_from_disk
    assert built - start.kernels_compiled - start.kernels_from_disk == 1
    fuser.clear_caches()
    assert not fd.fec.is_compiled([given])
    assert fd.execute([given])[0].equal(given * 7.25)


def test_kernel_text() -> None:
    text = "#define KERNEL(n) ...\nhelper\nKERNEL(128) void k() {\n}\n"
    assert kernel_text(text, True) == text
    assert kernel_text(text, False) == "KERNEL(128) void k() {\n}\n"
