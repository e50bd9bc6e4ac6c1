"""fuser.autotune: times some plans on given inputs and stores the fastest on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fuser import _core
from fuser.arguments import checked
from fuser.errors import CompileError, LaunchError, Unsupported, UserError
from fuser.inspect.measure import processor_of, timer
from fuser.plan import Plan, Plans
from fuser.runtime.compiler_cache import disk_store

if TYPE_CHECKING:
    from fuser.definition import FusionDefinition

# Errors that exclude a plan from the candidates.
_REFUSALS = (UserError, Unsupported, CompileError, LaunchError)
# Minimum relative gain of a candidate: a smaller one may be noise, so the planned one is kept.
_GAIN = 0.02


@checked
def autotune(
    fd: FusionDefinition, inputs: Sequence[Any], *, device: Any = None, candidates: int = 12
) -> Plans:
    """Times some plans on `inputs` and makes fd use the fastest for all inputs that share their
    kernels.

    Candidates are the planned kernels and, for each kernel, up to `candidates` plans with one
    number doubled or halved. The result applies to `fd` from now on and is stored in the cache
    folder, by definition, inputs and GPU: only the first process measures. Results may change in
    their last bits if the order of a reduction changes. In-place inputs keep their values. Returns
    the plans, as fd.plan(inputs) would. Raises the errors of fd.execute.
    """
    executor = fd.fec.executor
    store = disk_store()
    key = _key(fd, inputs, device)
    found = _read(store, key)
    if found is not None:
        try:
            executor.prefer(inputs, device, _fields(found))
        except UserError:
            found = None  # a plan that the schedulers of this version reject
    if found is None:
        found = _search(fd, inputs, device, candidates)
        executor.prefer(inputs, device, _fields(found))
        if store is not None:
            entry = _core.Binary(payload=json.dumps(_fields(found)))
            store.put(key, entry)
            # the tuned plans are planned now, so store them under this key too
            store.put(_key(fd, inputs, device), entry)
    return found[0] if len(found) == 1 else tuple(found)


def neighbours(plan: Plan) -> Iterator[Plan]:
    """Plans with one number doubled or halved, whether or not a scheduler accepts them."""
    for name, value in plan.items():
        if type(value) is int and value > 0:
            yield plan.replace(**{name: 2 * value})
            if value % 2 == 0:
                yield plan.replace(**{name: value // 2})


def _search(fd: FusionDefinition, inputs: Sequence[Any], device: Any, most: int) -> list[Plan]:
    """Tunes kernel by kernel, with the other kernels at their best known plans."""
    executor = fd.fec.executor
    planned = [Plan(**fields) for fields in executor.plans(inputs, device)]
    run_time = timer(fd, inputs, device)
    best, best_time = list(planned), run_time(_fields(planned))
    for place, plan in enumerate(planned):
        tried = 0
        for candidate in neighbours(plan):
            if tried == most:
                break
            plans = [*best[:place], candidate, *best[place + 1 :]]
            try:
                executor.plans(inputs, device, _fields(plans))
                taken = run_time(_fields(plans))
            except _REFUSALS:
                continue
            tried += 1
            if taken < best_time * (1 - _GAIN):
                best, best_time = plans, taken
    return best


def _key(fd: FusionDefinition, inputs: Sequence[Any], device: Any) -> bytes:
    """Hash of definition, layout and sizes of the inputs, current plan, and GPU."""
    sizes = [list(value.shape) if hasattr(value, "shape") else None for value in inputs]
    signature = fd.fec.executor.signature(inputs, device)
    parts = ["autotune 2", processor_of(inputs), signature, str(sizes)]
    return hashlib.sha256("\0".join(parts).encode() + fd.fusion.structure()).digest()


def _fields(plans: list[Plan]) -> list[dict[str, Any]]:
    return [dict(plan) for plan in plans]


def _read(store: Any, key: bytes) -> list[Plan] | None:
    entry = store.get(key) if store is not None else None
    return None if entry is None else [Plan(**fields) for fields in json.loads(entry.payload)]
