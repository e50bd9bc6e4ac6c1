"""fuser.autotune: times a handful of plans on given inputs, and keeps the fastest on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fuser import _core
from fuser.arguments import checked
from fuser.errors import CompileError, LaunchError, Unsupported, UserError
from fuser.measure import processor_of, timer
from fuser.plan import Plan, Plans
from fuser.runtime.remembered import disk_store

if TYPE_CHECKING:
    from fuser.definition import FusionDefinition

# A plan that one of these is raised for is no candidate.
_REFUSALS = (UserError, Unsupported, CompileError, LaunchError)
# What a plan must gain to be taken: less is noise, and the planned one was chosen for a reason.
_GAIN = 0.02


@checked
def autotune(
    fd: FusionDefinition, inputs: Sequence[Any], *, device: Any = None, candidates: int = 12
) -> Plans:
    """Makes fd run `inputs`, and whatever inputs share their kernels, by the fastest of some plans.

    Tried are the planned one and up to `candidates` for each kernel that differ from it in one
    number, doubled or halved. What is found holds for `fd` from now on and is kept in the cache
    folder: the same definition, inputs and GPU are timed once, by the first process. Results may
    change in their last bits, where a reduction's order does. Inputs that are written in place keep
    their values. Returns the plans, as fd.plan(inputs) would. Raises what fd.execute raises.
    """
    executor = fd.fec.executor
    store = disk_store()
    key = _key(fd, inputs, device)
    found = _read(store, key)
    if found is not None:
        try:
            executor.prefer(inputs, device, _fields(found))
        except UserError:
            found = None  # a plan that the schedulers of this version no longer take
    if found is None:
        found = _search(fd, inputs, device, candidates)
        executor.prefer(inputs, device, _fields(found))
        if store is not None:
            entry = _core.Binary(payload=json.dumps(_fields(found)))
            store.put(key, entry)
            store.put(_key(fd, inputs, device), entry)  # planned like this, it is tuned already
    return found[0] if len(found) == 1 else tuple(found)


def neighbours(plan: Plan) -> Iterator[Plan]:
    """Plans with one number doubled or halved, whether or not anybody takes them."""
    for name, value in plan.items():
        if type(value) is int and value > 0:
            yield plan.replace(**{name: 2 * value})
            if value % 2 == 0:
                yield plan.replace(**{name: value // 2})


def _search(fd: FusionDefinition, inputs: Sequence[Any], device: Any, most: int) -> list[Plan]:
    """Kernel by kernel, the others as they are best known."""
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
    """Of the definition, the layout and sizes of the inputs, how it is planned, and the GPU."""
    sizes = [list(value.shape) if hasattr(value, "shape") else None for value in inputs]
    signature = fd.fec.executor.signature(inputs, device)
    parts = ["autotune 1", processor_of(inputs), signature, str(sizes)]
    return hashlib.sha256("\0".join(parts).encode() + fd.fusion.structure()).digest()


def _fields(plans: list[Plan]) -> list[dict[str, Any]]:
    return [dict(plan) for plan in plans]


def _read(store: Any, key: bytes) -> list[Plan] | None:
    entry = store.get(key) if store is not None else None
    return None if entry is None else [Plan(**fields) for fields in json.loads(entry.payload)]
