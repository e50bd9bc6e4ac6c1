"""csrc/fusion/build/define.cpp: in-place outputs, and the memory that they share with other
outputs.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch

from fuser import (
    DataType,
    FusionDefinition,
    Tensor,
    evaluate,
    testing,
)


@pytest.fixture
def fd() -> FusionDefinition:
    return FusionDefinition()


def tensor(fd: FusionDefinition, *shape: int, dtype: DataType = DataType.Float) -> Tensor:
    return fd.define_tensor(shape=list(shape), dtype=dtype)


def copied_twice(fd: FusionDefinition) -> None:
    """`y = x.add_(1); z = y.mul_(2); return y, z` in Thunder's form."""
    x = fd.define_tensor([-1])
    y = fd.ops.set(x + 1.0)
    fd.add_output(y, alias_input=x)
    z = fd.ops.set(y * 2.0)
    fd.add_output(z, alias_input=y)
    fd.add_output(y)
    fd.add_output(z)


@pytest.mark.parametrize("size", [0, 1, 5, 64])
def test_a_chain_of_copies_is_one_memory(size: int) -> None:
    with FusionDefinition() as fd:
        copied_twice(fd)
    for _ in range(3):  # the first run makes the record, later runs reuse it
        x = torch.arange(float(size))
        expected = (x + 1) * 2
        (exact,) = {tuple(t.tolist()) for t in evaluate(fd, [x])}
        assert exact == tuple(expected.tolist())
        results = fd.execute([x])
        assert len(results) == 2
        for result in (x, *results):
            assert result.equal(expected)
            assert result.data_ptr() == x.data_ptr()
    fd.validate([torch.arange(float(size))])


def test_a_result_in_an_input_tells_autograd() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        y = x + 1.0
        fd.add_output(y)  # added before the in-place output
        fd.add_output(y, alias_input=x)
    leaf = torch.ones(3, requires_grad=True)
    version = leaf._version
    (result,) = fd.execute([leaf])
    assert result.data_ptr() == leaf.data_ptr()
    assert leaf._version == result._version > version
    assert not result.requires_grad


def test_what_is_made_of_a_written_tensor_has_memory_of_its_own() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        y = x + 1.0
        fd.add_output(y, alias_input=x)
        others = [fd.ops.set(y), fd.ops.permute(y, [1, 0]), fd.ops.slice(y, [0, 0], [1, 2]), x]
        for t in others:
            fd.add_output(t)
        fd.add_output(y, stride_order=[0, 1])
    given = torch.arange(6.0).view(2, 3)
    old = given.clone()
    results = fd.execute([given])
    expected = [old + 1, (old + 1).t(), (old + 1)[:1, :2], old, old + 1]
    for result, want in zip(results, expected, strict=True):
        assert result.equal(want)
        assert result.untyped_storage().data_ptr() != given.untyped_storage().data_ptr()
    assert given.equal(old + 1)


def test_a_library_call_reads_what_the_input_held() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        y = fd.ops.permute(x, [1, 0])
        fd.add_output(y, alias_input=x)
        fd.add_output(y)
        fd.add_output(fd.ops.matmul(y, y))
    given = torch.randn(4, 4)
    old = given.clone()
    written, product = fd.execute([given])
    assert written.equal(old.t())
    assert written.data_ptr() == given.data_ptr()
    torch.testing.assert_close(product, old.t() @ old.t())


@pytest.mark.gpu
def test_a_chain_of_copies_in_a_cuda_graph() -> None:
    with FusionDefinition() as fd:
        copied_twice(fd)
    x = torch.arange(1000.0, device="cuda")
    fd.execute([x])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = fd.execute([x])
    for _ in range(2):
        expected = (x + 1) * 2
        graph.replay()
        assert all(t.equal(expected) for t in (x, *results))
        assert all(t.data_ptr() == x.data_ptr() for t in results)


class Program(NamedTuple):
    """A definition of three inputs, and the expected inputs and results after a run, by eager's
    rules."""

    fd: FusionDefinition
    values: Callable[[list[torch.Tensor]], list[torch.Tensor]]  # all tensors in double precision
    outputs: list[tuple[int, int]]  # tensor, input that it overwrites or -1


def random_program(rng: np.random.Generator) -> Program:
    fd = FusionDefinition()
    made = [fd.define_tensor([-1, -1], dtype=DataType.Double) for _ in range(3)]
    steps: list[tuple[int, int, float]] = []
    outputs: list[tuple[int, int]] = []
    for _ in range(int(rng.integers(2, 7))):
        a, b = (int(n) for n in rng.integers(0, len(made), 2))
        factor = float(rng.integers(1, 4))
        steps.append((a, b, factor))
        made.append(made[a] + made[b] * factor)
    for _ in range(int(rng.integers(2, 7))):
        t = int(rng.integers(3, len(made))) if rng.integers(0, 5) else int(rng.integers(0, 3))
        alias = int(rng.integers(-2, 3))
        outputs.append((t, max(alias, -1)))
        if alias < 0:
            fd.add_output(made[t])
        else:
            # Name the input, or a tensor written into it earlier.
            earlier = [made[u] for u, i in outputs[:-1] if i >= 0 and u >= 3]
            unique = [u for u in earlier if sum(v is u for v in earlier) == 1]
            named = [u for u, i in outputs[:-1] if i == alias and any(made[u] is v for v in unique)]
            by_name = named and rng.integers(0, 2)
            fd.add_output(made[t], alias_input=made[named[-1] if by_name else alias])

    def values(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        found = [x.clone() for x in inputs]
        for a, b, factor in steps:
            found.append(found[a] + found[b] * factor)
        return found

    return Program(fd, values, outputs)


def random_inputs(rng: np.random.Generator) -> list[torch.Tensor]:
    """[4, 4] tensors: contiguous, transposed or strided; sometimes two that overlap partially."""
    layouts: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda t: t[:, :4].contiguous(),
        lambda t: t[:, :4].t(),
        lambda t: t[:, ::2],
    ]
    bases = [torch.from_numpy(rng.integers(0, 9, (4, 8))).double() for _ in range(3)]
    inputs = [layouts[int(rng.integers(0, 3))](t) for t in bases]
    if rng.integers(0, 3) == 0:
        inputs[1:] = [bases[0][:, 1:5], bases[0][:, 2:6]]
    return inputs


def test_programs_that_write_and_return(rng: np.random.Generator) -> None:
    """60 random programs, run twice: several writes into one input, one tensor into several inputs,
    outputs returned before and after being written, overlapping inputs."""
    programs = [random_program(rng) for _ in range(60)]
    given = [random_inputs(rng) for _ in programs]
    ran = [(p, i) for p, i in zip(programs, given, strict=True) if p.outputs]
    testing.compile_batch((p.fd, i) for p, i in ran)
    returned = 0
    for program, inputs in ran:
        for _ in range(2):
            values = program.values(inputs)
            last = {alias: t for t, alias in program.outputs if alias >= 0}
            home = {t: alias for t, alias in program.outputs if alias >= 0}
            exact = evaluate(program.fd, inputs)
            given_back = program.fd.execute(inputs)
            if not any(overlap(a, b) for a, b in itertools.combinations(inputs, 2)):
                assert all(a.equal(b) for a, b in zip(given_back, exact, strict=True)), program.fd
            results = iter(given_back)
            for t, alias in program.outputs:
                if alias >= 0:
                    continue
                result = next(results)
                if t in home:
                    returned += 1
                    memory = inputs[home[t]]
                    assert result.data_ptr() == memory.data_ptr(), program.fd
                    assert result.stride() == memory.stride()
                    assert result.equal(memory)
                else:
                    assert result.equal(values[t]), program.fd
            assert next(results, None) is None
            # If inputs overlap, only the last written one keeps its value.
            written = [alias for _, alias in program.outputs if alias >= 0]
            order = sorted(last, key=lambda i: max(k for k, a in enumerate(written) if a == i))
            for place, alias in enumerate(order):
                later = [inputs[i] for i in order[place + 1 :]]
                if not any(overlap(inputs[alias], other) for other in later):
                    assert inputs[alias].equal(values[last[alias]]), program.fd
    assert returned > 30


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
