"""csrc/fusion/segment/broadcasts.cpp: values over fewer axes than their kernel, materialized if
that costs less than computing them again.
"""

from __future__ import annotations

import math

import torch

from fuser import DataType, FusionDefinition, Tensor
from tests.support.groups import Grouped, check, values

BATCH, HEADS, LENGTH = 3, 2, 8


def random(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(0))


def distances(fd: FusionDefinition) -> Tensor:
    """Distance of each key from each query: [queries, keys]."""
    rows = fd.ops.broadcast_in_dim(fd.ops.iota(LENGTH), [LENGTH, LENGTH], [0])
    columns = fd.ops.broadcast_in_dim(fd.ops.iota(LENGTH), [LENGTH, LENGTH], [1])
    return columns - rows


def logarithm(fd: FusionDefinition) -> Tensor:
    return fd.ops.log(fd.ops.cast(fd.ops.abs(distances(fd)), DataType.Float) + 1.0)


def picked(fd: FusionDefinition, table: Tensor) -> Tensor:
    """Relative position bias of T5, from a table: [queries * keys, heads]."""
    bucket = fd.ops.cast(logarithm(fd) / math.log(16.0) * 5.0, DataType.Int)
    return fd.ops.index_select(table, fd.ops.reshape(bucket, [LENGTH * LENGTH]), 0)


def as_bias(fd: FusionDefinition, bias: Tensor) -> Tensor:
    """The bias as [1, heads, queries, keys]."""
    bias = fd.ops.permute(fd.ops.reshape(bias, [LENGTH, LENGTH, HEADS]), [2, 0, 1])
    return fd.ops.broadcast(bias, [True, False, False, False])


def scores(fd: FusionDefinition) -> Tensor:
    return fd.define_tensor([-1, HEADS, LENGTH, LENGTH])


def per_kernel(grouped: Grouped, op: str) -> list[int]:
    return [len(values(group, op)) for group in grouped.groups]


def test_a_position_bias_is_stored_once() -> None:
    fd = FusionDefinition()
    x, table = scores(fd), fd.define_tensor([8, HEADS])
    fd.add_output(fd.ops.softmax(x + as_bias(fd, picked(fd, table)), 3))
    inputs = [random(BATCH, HEADS, LENGTH, LENGTH), random(8, HEADS)]
    got = check(fd, inputs, tolerance=1e-6)
    assert per_kernel(got, "log") == [1, 0]
    assert per_kernel(got, "exp") == [0, 1]


def test_layers_read_the_bias_of_one_kernel() -> None:
    """The kernels of the layers read the rows of the table by one stored index."""
    fd = FusionDefinition()
    x, y, table = scores(fd), scores(fd), fd.define_tensor([8, HEADS])
    bias = picked(fd, table)
    for layer in (x, y):
        fd.add_output(fd.ops.softmax(layer + as_bias(fd, bias), 3))
    fd.add_output(bias)
    images = random(BATCH, HEADS, LENGTH, LENGTH)
    got = check(fd, [images, images, random(8, HEADS)], tolerance=1e-6)
    assert [n for n in per_kernel(got, "log") if n] == [1]
    assert len(got.temps) == 1


def test_one_image_stores_no_bias() -> None:
    """Scores of one image and one head have the axes of the bias: nothing is computed again."""
    fd = FusionDefinition()
    x = fd.define_tensor([1, LENGTH, LENGTH])
    fd.add_output(fd.ops.softmax(x + logarithm(fd), 2))
    got = check(fd, [random(1, LENGTH, LENGTH)], tolerance=1e-6)
    assert per_kernel(got, "log") == [1]


def test_a_cheap_mask_and_linear_biases_are_computed_again() -> None:
    """A causal mask and ALiBi cost less than their bytes."""
    fd = FusionDefinition()
    x, slopes = scores(fd), fd.define_tensor([HEADS, 1, 1])
    far = distances(fd)
    biased = x + slopes * fd.ops.cast(far, DataType.Float)
    fd.add_output(fd.ops.softmax(fd.ops.where(far > 0, -math.inf, biased), 3))
    got = check(fd, [random(BATCH, HEADS, LENGTH, LENGTH), random(HEADS, 1, 1)], tolerance=1e-6)
    assert len(got.groups) == 1


def rotated(depth: int) -> list[int]:
    """By kernel, the cosines of a rotary embedding of [batch, heads, tokens, dims]. The angles take
    `depth` further sines."""
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1, HEADS, LENGTH, 4]) for _ in range(2))
    place = fd.ops.broadcast(fd.ops.cast(fd.ops.iota(LENGTH), DataType.Float), [False, True])
    angle = place * fd.define_tensor([1, 4])
    for _ in range(depth):
        angle = fd.ops.sin(angle)
    fd.add_output(x * fd.ops.cos(angle) + y * fd.ops.sin(angle))
    images = random(BATCH, HEADS, LENGTH, 4)
    return per_kernel(check(fd, [images, images, random(1, 4)], tolerance=1e-5), "cos")


def test_rotary_tables_follow_the_bytes_beside_them() -> None:
    """Cosine and sine take as long as 12 bytes per element; with further sines they limit the
    kernel and are stored."""
    assert rotated(0) == [1]
    assert rotated(4) == [1, 0]


def test_values_of_rows_are_no_broadcasts() -> None:
    """A value per row is computed once per row, a value per column again in each row."""
    fd = FusionDefinition()
    x, rows, columns = fd.define_tensor([-1, -1]), fd.define_tensor([-1, 1]), fd.define_tensor([-1])

    def costly(t: Tensor) -> Tensor:
        for _ in range(4):
            t = fd.ops.sin(fd.ops.log(fd.ops.abs(t) + 1.0))
        return t

    fd.add_output(fd.ops.softmax(x * costly(rows), 1))
    fd.add_output(x + costly(columns))
    got = check(fd, [random(6, 8), random(6, 1), random(8)], tolerance=1e-5)
    assert len(got.temps) == 1
    (stored,) = [
        g for g in got.groups if len(g["stores"]) == 1 and got.outputs[g["stores"][0]["output"]][2]
    ]
    assert len(values(stored, "sin")) == 4


def test_position_embeddings_are_read() -> None:
    """A row of a table costs no more than its bytes."""
    fd = FusionDefinition()
    x, table = fd.define_tensor([-1, LENGTH, 4]), fd.define_tensor([16, 4])
    fd.add_output(x + fd.ops.index_select(table, fd.ops.iota(LENGTH), 0))
    got = check(fd, [random(BATCH, LENGTH, 4), random(16, 4)])
    assert len(got.groups) == 1


def test_many_broadcasts_are_found_in_linear_time() -> None:
    """Two hundred tables that meet more axes, each of the one before."""
    fd = FusionDefinition()
    x, t = fd.define_tensor([-1, -1]), fd.define_tensor([-1])
    for _ in range(200):
        t = fd.ops.sin(t * 1.5)
        x = x + t
    fd.add_output(x)
    got = check(fd, [random(6, 8), random(8)], tolerance=1e-4)
    assert max(len(group["values"]) for group in got.groups) <= 512
