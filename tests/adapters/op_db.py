"""torch's op suite compared with the op table. Every aten call of its samples, forward and
backward, becomes a definition, is evaluated, and is compared with torch's result. The exit status
is 1 if a result is wrong.

    python -m tests.adapters.op_db --share 1 --dtype float32      all samples; prints failures
    python -m tests.adapters.op_db --share 1 --left               counts calls with and without rows
    python -m tests.adapters.op_db --share 0.1 --kernels          compiled, not evaluated
    python -m tests.adapters.op_db --share 0.1 --device cuda      compiled for the GPU
    python -m tests.adapters.op_db --share 1 --device cuda --jobs 32    in 32 processes
    python -m tests.adapters.op_db --share 1 --part 3/8           every 8th op: each sample is in
                                                                  one of 0/8 to 7/8

Without --kernels no kernel is compiled (fuser.evaluate runs the definition), so thousands of
samples take a minute.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import fuser
from fuser import testing
from fuser.adapters import aten

# Relative and absolute, by dtype of the result.
TOLERANCES = {
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
    torch.float32: 3e-5,
    torch.float64: 1e-9,
}
# Ops that torch computes with constants of lower precision, e.g. 1 / 6 in float32.
ROUGH = {"aten.hardsigmoid_backward.default": 1e-8}
# Ops of the suite whose samples have undefined values, or need a GPU.
SKIPPED = ("empty", "new_empty", "jiterator", "linalg", "sparse", "to_sparse", "polar")


@dataclass
class Result:
    """Results of a sweep, by name of op."""

    right: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, set[str]] = field(default_factory=dict)
    left: Counter[str] = field(default_factory=Counter)
    waiting: list[Waiting] | None = None  # calls whose kernels are compiled together at the end


@dataclass
class Waiting:
    """A call as a definition that has not run yet, and torch's results."""

    name: str
    key: str
    fd: fuser.FusionDefinition
    inputs: list[torch.Tensor]
    results: list[tuple[int, Any, torch.Tensor]]  # position, fuser's tensor, torch's tensor
    in_float64: Callable[[], Any] | None = None


def chosen(name: str, share: float) -> bool:
    """Return True if a sample of this name is in the sweep; deterministic on every machine."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    return int(digest[:8], 16) < share * 2**32


class Check(TorchDispatchMode):
    """Compares each dispatched call."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = result
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = str(func), kwargs or {}
        if aten.row(name) is None:
            self.result.left[name] += 1
            return func(*args, **kwargs)
        bound, named = aten.bind(name, args, kwargs)
        key = name + str(tree_map(_described, (bound, named)))
        tensors = [t for t in tree_leaves((bound, named)) if isinstance(t, torch.Tensor)]
        if key in self.seen or any(not _plain(t) for t in tensors):
            return func(*args, **kwargs)
        self.seen.add(key)
        given, as_called = _copied((bound, named)), _copied((args, kwargs))
        expected = func(*args, **kwargs)
        try:
            reason = aten.refusal(name, *given)
        except Exception as error:
            count(self.result, name, key, f"raises {error!r}")
            return expected
        if reason is not None:
            self.result.refused.setdefault(name, set()).add(reason)
            return expected
        written = defined(name, *given, _copied(expected))
        if isinstance(written, Waiting):
            written.key = key
            written.in_float64 = partial(_in_float64, func, *as_called)
            if self.result.waiting is not None:
                self.result.waiting.append(written)
                return expected
        fault = written if isinstance(written, str | None) else evaluated(written)
        count(self.result, name, key, fault)
        return expected


def count(result: Result, name: str, key: str, fault: str | None) -> None:
    if fault:
        result.wrong.setdefault(name, []).append(f"{fault}: {key}"[:400])
    else:
        result.right[name] += 1


def _copied(values: Any) -> Any:
    """Copies of tensors, so that later in-place ops do not change them."""
    return tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, values)


def _in_float64(func: Any, args: Any, kwargs: Any) -> Any:
    """torch's result for the inputs in float64, or None if it does not support them. Computed on
    the CPU, because its GPU kernel of hardsigmoid multiplies by a sixth in float32."""

    def widened(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return torch.float64 if value.is_floating_point else value
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if not isinstance(value, torch.Tensor):
            return value
        return (value.double() if value.is_floating_point() else value).cpu()

    try:
        return func(*tree_map(widened, args), **tree_map(widened, kwargs))
    except (RuntimeError, NotImplementedError):
        return None


def _plain(t: torch.Tensor) -> bool:
    empty = t.numel() == 0
    return t.layout == torch.strided and not t.is_quantized and not t.is_complex() and not empty


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)}"
    return repr(value)


def defined(name: str, args: Any, kwargs: Any, expected: Any) -> Waiting | str | None:
    """An op's row on these arguments as a definition; its fault; or None if there is no result to
    compare. Half of the definitions have static sizes, half symbolic ones."""
    fd = fuser.FusionDefinition()
    inputs: list[torch.Tensor] = []
    known = chosen(name + str(tree_map(_described, (args, kwargs))), 0.5) or aten.moves(name)

    def input_of(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(input_of(v) for v in value)
        if not isinstance(value, torch.Tensor):
            return value
        inputs.append(value)
        shape = [n if known or n < 2 else -1 for n in value.shape]
        return fd.define_tensor(shape=shape, dtype=value.dtype)

    try:
        given = input_of(list(args))
        named = {k: input_of(v) for k, v in kwargs.items()}
        written = aten.emit(fd, name, given, named, any(t.is_cuda for t in inputs))
    except fuser.Unsupported as error:
        return str(error)
    results = [
        (i, t, e)
        for i, (t, e) in enumerate(zip(_listed(written), _listed(expected), strict=False))
        if isinstance(t, fuser.Tensor) and e is not None and _is_written(name, args, i)
    ]
    if not results or aten.rows()[name].kind == "random":
        return None
    for _, t, _ in results:
        fd.add_output(fd.ops.stride_order(t, list(range(t.ndim - 1, -1, -1))))
    return Waiting(name, "", fd, inputs, results)


def _is_written(name: str, args: Sequence[Any], place: int) -> bool:
    """torch's GPU kernel of nll_loss2d leaves the total weight unwritten if the loss is not divided
    by it."""
    return not (name == "aten.nll_loss2d_forward.default" and place == 1 and args[3] == 0)


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]


def evaluated(call: Waiting) -> str | None:
    """The fault of a definition evaluated in float64, or None."""
    return compared(call, fuser.evaluate(call.fd, call.inputs))


def compared(call: Waiting, given: list[torch.Tensor]) -> str | None:
    true: list[Any] | None = None
    for got, (i, t, want) in zip(given, call.results, strict=True):
        # Without inputs, results are on the GPU if there is one, independent of the call.
        device = got.device if call.inputs else want.device
        got = got.to(device, getattr(torch, t.dtype().torch_name))
        fault = _differs(call.name, i, got, want)
        if not fault:
            continue
        if true is None:
            true = _listed(call.in_float64() if call.in_float64 else None)
        if i >= len(true) or not _is_nearer(got, want, true[i]):
            return f"result {i}: {fault}"
    return None


def _is_nearer(got: torch.Tensor, want: torch.Tensor, true: torch.Tensor | None) -> bool:
    """Return True if the error from float64 is at most torch's own, which rounds intermediate
    values."""
    if true is None or not got.shape == want.shape == true.shape or got.dtype != want.dtype:
        return False
    if not got.is_floating_point() or not true.is_floating_point():
        return False
    a, b, c = (t.double().cpu() for t in (got, want, true))
    exact = torch.finfo(got.dtype).eps * c.abs().nan_to_num()
    off, theirs = ((t - c).abs().nan_to_num() for t in (a, b))
    return torch.equal(a.isfinite(), c.isfinite()) and bool((off <= exact + theirs).all())


def run_kernels(result: Result, together: int = 256) -> None:
    """Compile and run the waiting calls, many per batch."""
    calls = result.waiting or []
    for start in range(0, len(calls), together):
        ready = []
        for call in calls[start : start + together]:
            try:
                call.fd.plan(call.inputs)
                ready.append(call)
            except fuser.Unsupported as error:
                reason = str(error).split("\n")[0]
                result.refused.setdefault(call.name, set()).add(reason)
        testing.compile_batch((call.fd, call.inputs) for call in ready)
        for call in ready:
            count(result, call.name, call.key, compared(call, call.fd.execute(call.inputs)))


def _differs(name: str, place: int, got: torch.Tensor, want: torch.Tensor) -> str | None:
    if want.numel() == 0 and got.numel() == 0:
        return None
    if "log_sigmoid_forward" in name and place:
        return None  # scratch memory of torch's kernel
    if got.device != want.device:
        return f"on {got.device}, expected {want.device}"
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, expected {list(want.shape)}"
    if got.dtype != want.dtype and not ("norm" in name and place):
        return f"{got.dtype}, expected {want.dtype}"
    if "empty" in name:
        return None  # uninitialized memory
    tolerance = max(TOLERANCES.get(want.dtype, 0.0), ROUGH.get(name, 0.0))
    a, b = got.double(), want.double()
    if torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True):
        return None
    return f"differs by {float((a - b).abs().nan_to_num().max()):.2e}"


def sweep(
    share: float,
    dtype: torch.dtype,
    only: str = "",
    kernels: bool = False,
    device: str = "cpu",
    part: tuple[int, int] = (0, 1),
) -> Result:
    """Check the samples selected by `chosen` of all ops whose name contains `only`; with `kernels`
    compiled. `part` (i, n): every nth op from the ith on."""
    from torch.testing._internal.common_methods_invocations import op_db

    result = Result(waiting=[] if kernels else None)
    check = Check(result)
    for op in op_db[part[0] :: part[1]]:
        name = f"{op.name}.{op.variant_test_name}"
        if dtype not in op.dtypes or only not in op.name or op.name.startswith(SKIPPED):
            continue
        if not chosen(name, share**0.5):  # making samples costs more than checking them
            continue
        gradients = op.supports_autograd and dtype.is_floating_point
        torch.manual_seed(0)
        try:
            samples = list(op.sample_inputs(device, dtype, requires_grad=gradients))
        except Exception:  # raised by the suite if this build of torch lacks a library
            continue
        for i, sample in enumerate(samples):
            if not chosen(f"{name}.{i}", share**0.5):
                continue
            try:
                with check:
                    out = op(sample.input, *sample.args, **sample.kwargs)
                    roots = [t for t in tree_leaves(out) if getattr(t, "requires_grad", False)]
                    if roots:
                        torch.autograd.backward(roots, [torch.randn_like(t) for t in roots])
            except RuntimeError:  # torch rejects its own sample on this machine
                continue
    run_kernels(result)
    result.waiting = None
    return result


def _swept(task: tuple[Any, ...]) -> Result:
    torch.set_num_threads(1)
    return sweep(*task)


def swept_together(jobs: int, *task: Any, part: tuple[int, int] = (0, 1)) -> Iterator[Result]:
    """Results of a sweep split over processes, in order of completion."""
    first, step = part
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        parts = 4 * jobs  # some ops have a hundred times more samples
        tasks = [(*task, (first + step * i, step * parts)) for i in range(parts)]
        yield from pool.imap_unordered(_swept, tasks)


def part_of(text: str) -> tuple[int, int]:
    """Parse "3/8" as (3, 8)."""
    place, count = map(int, text.split("/"))
    if not 0 <= place < count:
        raise ValueError(text)
    return place, count


def add(total: Result, part: Result) -> None:
    total.right += part.right
    total.left += part.left
    for name, faults in part.wrong.items():
        total.wrong.setdefault(name, []).extend(faults)
    for name, reasons in part.refused.items():
        total.refused.setdefault(name, set()).update(reasons)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--only", default="")
    parser.add_argument("--left", action="store_true")
    parser.add_argument("--device", default="cpu", help="cuda: kernels run on the GPU")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--part", type=part_of, default=(0, 1), metavar="I/N", help="of all ops")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    kernels = options.kernels or options.device != "cpu"
    task = options.share, dtype, options.only, kernels, options.device
    result = Result()
    if options.jobs > 1:
        swept = swept_together(options.jobs, *task, part=options.part)
    else:
        swept = iter([sweep(*task, part=options.part)])
    for part in swept:
        add(result, part)
    print(f"{len(result.right)} ops right in {sum(result.right.values())} calls")
    for name, reasons in sorted(result.refused.items()):
        print(f"refused {name}: {'; '.join(sorted(reasons)[:3])}")
    for name, faults in sorted(result.wrong.items()):
        print(f"WRONG {name}: {len(faults)} calls, such as {faults[0]}")
    if options.left:
        for name, count in result.right.most_common():
            print(f"taken {name}: {count}")
        for name, count in result.left.most_common():
            print(f"left {name}: {count}")
    sys.exit(1 if result.wrong else 0)


if __name__ == "__main__":
    main()
