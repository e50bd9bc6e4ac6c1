"""Normalizations, softmax and cross entropy, forward and backward: their definition in fd.ops,
their reference in torch, and their test shapes."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fuser import FusionDefinition
from fuser.ops import as_dtype
from tests.norms import definitions

aten = torch.ops.aten
Shape = tuple[int, ...]
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
EPS = 1e-5

# Rows x width, near warps, 16-byte vectors and blocks; one row, zero rows, tall and short.
ROWS: tuple[Shape, ...] = (
    *((3, 1), (2, 2), (5, 31), (4, 32), (3, 33), (2, 1000), (2, 1023), (3, 1024), (1, 1025)),
    *((2, 4096), (0, 7), (301, 3), (64, 5)),
)
WIDE: tuple[Shape, ...] = ((1, 50257), (2, 16384))
FULL_ROWS: tuple[Shape, ...] = (
    *((65536, 1), (65536, 2), (65536, 31), (65536, 33), (32768, 1000), (32768, 1023)),
    *((32768, 1024), (32768, 1025), (8192, 4096), (4000, 50257), (2000, 128256), (513, 262144)),
    *((1, 262144), (1, 1000003), (2000003, 8), (0, 4096)),
)
IMAGES: tuple[Shape, ...] = (
    *((2, 8, 3, 5), (2, 32, 4, 4), (1, 4, 1, 1), (3, 12, 7, 9), (2, 64, 16, 16), (1, 4, 33, 31)),
)
NO_IMAGES: Shape = (0, 8, 2, 2)
FULL_IMAGES: tuple[Shape, ...] = (
    *(
        (32, 256, 56, 56),
        (32, 64, 112, 112),
        (64, 512, 7, 7),
        (1, 32, 1023, 1025),
        (8192, 64, 1, 1),
    ),
)


@dataclass(frozen=True)
class Norm:
    """One computation.

    make       inputs of a shape: a function of a generator of normal numbers in the dtype
    define     definition in fd.ops, with results in the order of `torch`
    torch      reference in torch, on inputs in float64
    reduced    number of elements that a result is reduced from
    outputs    dtype of each result: the first input's ("x"), or float32 ("s")
    written    inputs that the run overwrites, compared after the results
    floor      additional magnitude of cancelling terms of result 0, a number or a function of the
               inputs; e.g. log probabilities are differences of numbers near 1
    """

    name: str
    make: Callable[[Shape, Normal], list[Tensor]]
    define: Callable[..., Any]
    torch: Callable[..., Any]
    reduced: Callable[[Shape], int]
    outputs: str
    small: tuple[Shape, ...] = ROWS
    full: tuple[Shape, ...] = FULL_ROWS
    written: tuple[int, ...] = ()
    floor: float | Callable[..., Tensor] = 0.0

    def definition(self, inputs: Sequence[Tensor]) -> FusionDefinition:
        """A definition for inputs of these ranks and dtypes, of any sizes and strides."""
        fd = FusionDefinition()
        tensors = [fd.define_tensor([-1] * t.dim(), dtype=as_dtype(t.dtype)) for t in inputs]
        results = self.define(fd.ops, *tensors)
        results = results if isinstance(results, tuple) else (results,)
        for kind, result in zip(self.outputs, results, strict=True):
            wanted = inputs[0].dtype
            if kind == "x" and result.dtype() != as_dtype(wanted):
                result = fd.ops.cast(result, wanted)
            fd.add_output(result)
        return fd

    def exact(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The results in float64, followed by the overwritten inputs."""
        wide = [widened(t) for t in inputs]
        results = self.torch(*wide)
        results = results if isinstance(results, tuple) else (results,)
        return [*results, *(wide[place] for place in self.written)]


@dataclass
class Normal:
    """Normal numbers of one dtype, determined by a name and a seed."""

    generator: torch.Generator
    dtype: torch.dtype
    device: torch.device

    def __call__(self, *shape: int, mean: float = 0.0, scale: float = 1.0) -> Tensor:
        values = torch.randn(shape, generator=self.generator, device=self.device)
        return (values * scale + mean).to(self.dtype)

    def statistic(self, values: Tensor) -> Tensor:
        """Dtype of saved statistics: float32, or float64 for float64."""
        return values.to(self.dtype if self.dtype == torch.float64 else torch.float32)

    def integers(self, high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=self.generator, device=self.device)


def normal(name: str, dtype: torch.dtype, seed: int, device: str = "cpu") -> Normal:
    generator = torch.Generator(device).manual_seed(seed + zlib.crc32(name.encode()))
    return Normal(generator, dtype, torch.device(device))


def widened(t: Tensor) -> Tensor:
    """A copy in float64; integers are unchanged."""
    return t.double().clone() if t.is_floating_point() else t


# ---- the table


def width(shape: Shape) -> int:
    return shape[-1]


def affine(shape: Shape, n: Normal) -> list[Tensor]:
    """x[..., C], weight[C], bias[C]."""
    return [n(*shape, mean=0.5, scale=2.0), n(shape[-1], mean=1.0), n(shape[-1])]


def of_rows(shape: Shape, n: Normal) -> list[Tensor]:
    return [n(*shape, scale=3.0)]


def gradient_of_softmax(log: bool, dim: int) -> Callable[[Shape, Normal], list[Tensor]]:
    def make(shape: Shape, n: Normal) -> list[Tensor]:
        function = torch.log_softmax if log else torch.softmax
        return [n(*shape), function(n(*shape, scale=3.0).double(), dim).to(n.dtype)]

    return make


def projection(dy: Tensor, y: Tensor) -> Tensor:
    """Magnitude of the term of log_softmax's gradient that is subtracted from dy. For a probability
    near 1 the two cancel, and the rounding error of this term remains, although the condition of
    the result is small."""
    return y.exp() * dy.sum(1, keepdim=True).abs()


def saved(x: Tensor, dims: Any) -> tuple[Tensor, Tensor]:
    """Mean and rstd in float64, without kept dims; 0 and 1 for empty inputs."""
    wide = x.double()
    mean = wide.mean(dims).nan_to_num(0.0)
    return mean, torch.rsqrt(wide.var(dims, correction=0).nan_to_num(1.0) + EPS)


def terms_by_row(dy: Tensor, x: Tensor, *saved: Tensor) -> Tensor:
    """Largest magnitude of the cancelling terms of the gradient of x; saved: ..., rstd, weight."""
    gradient = (dy * saved[-1]).abs()
    return (gradient + gradient.mean(1, keepdim=True)) * saved[-2]


def terms_by_group(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor) -> Tensor:
    gradient = (dy * weight[:, None, None]).abs()
    grouped = gradient.reshape(x.shape[0], GROUPS, x.shape[1] // GROUPS, *x.shape[2:])
    grouped = grouped + grouped.mean((2, 3, 4), keepdim=True)
    return (grouped * rstd[:, :, None, None, None]).reshape(x.shape)


def terms_by_channel(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor) -> Tensor:
    gradient = dy.abs() + dy.abs().mean((0, 2, 3), keepdim=True)
    return gradient * (rstd * weight.abs())[:, None, None]


def centre_of_row(x: Tensor, w: Tensor, _: Tensor) -> Tensor:
    """Effect of rounding the mean before it is subtracted from all elements. In a row of two
    similar elements it exceeds the effect of rounding the elements."""
    rstd = torch.rsqrt(x.var(1, unbiased=False, keepdim=True) + EPS)
    return x.mean(1, keepdim=True).abs() * rstd * w.abs()


def gradient_of_layer_norm(shape: Shape, n: Normal) -> list[Tensor]:
    dy, (x, weight, _) = n(*shape), affine(shape, n)
    mean, rstd = (n.statistic(t.unsqueeze(1)) for t in saved(x, 1))
    return [dy, x, mean, rstd, weight]


def gradient_of_rms_norm(shape: Shape, n: Normal) -> list[Tensor]:
    dy, (x, weight, _) = n(*shape), affine(shape, n)
    rstd = torch.rsqrt((x.double() ** 2).mean(1, keepdim=True) + EPS)
    return [dy, x, n.statistic(rstd), weight]


def torch_rms_norm_backward(dy: Tensor, x: Tensor, rstd: Tensor, weight: Tensor) -> Any:
    slope = (dy * weight * x * rstd).mean(1, keepdim=True)
    return (dy * weight - x * rstd * slope) * rstd, (dy * x * rstd).sum(0)


def image(shape: Shape, n: Normal) -> list[Tensor]:
    """x[N, C, H, W], weight[C], bias[C]."""
    return [n(*shape, mean=0.5, scale=2.0), n(shape[1], mean=1.0), n(shape[1])]


GROUPS = 4


def gradient_of_group_norm(shape: Shape, n: Normal) -> list[Tensor]:
    dy, (x, weight, _) = n(*shape), image(shape, n)
    grouped = x.reshape(shape[0], GROUPS, -1) if x.numel() else x.new_zeros(0, GROUPS, 1)
    return [dy, x, *(n.statistic(t) for t in saved(grouped, 2)), weight]


def torch_group_norm_backward(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor) -> Any:
    size, channels, inner = x.shape[0], x.shape[1], math.prod(x.shape[2:])
    return aten.native_group_norm_backward(
        dy, x, mean, rstd, w, size, channels, inner, GROUPS, [True] * 3
    )


def torch_group_norm(x: Tensor, w: Tensor, b: Tensor) -> Any:
    """Group norm by its formula, for the reason given at torch_batch_norm."""
    grouped = x.reshape(x.shape[0], GROUPS, -1) if x.numel() else x.new_zeros(0, GROUPS, 1)
    mean, spread = grouped.mean(2), grouped.var(2, correction=0)
    rstd = torch.rsqrt(spread + EPS)
    y = ((grouped - mean[:, :, None]) * rstd[:, :, None]).reshape(x.shape)
    return y * w[:, None, None] + b[:, None, None], mean, rstd


def with_running(shape: Shape, n: Normal) -> list[Tensor]:
    statistics = [n.statistic(n(shape[1])), n.statistic(n(shape[1]).abs())]
    return [*image(shape, n), *statistics]


def in_nhwc(
    make: Callable[[Shape, Normal], list[Tensor]], count: int
) -> Callable[[Shape, Normal], list[Tensor]]:
    """The inputs of `make`, of which the first `count` are channels-last."""

    def made(shape: Shape, n: Normal) -> list[Tensor]:
        inputs = make(shape, n)
        return [
            t.contiguous(memory_format=torch.channels_last) if place < count else t
            for place, t in enumerate(inputs)
        ]

    return made


def with_last_dim(
    make: Callable[[Shape, Normal], list[Tensor]],
) -> Callable[[Shape, Normal], list[Tensor]]:
    """The inputs of `make` with x as [N, H, W, C]."""

    def made(shape: Shape, n: Normal) -> list[Tensor]:
        x, *rest = make(shape, n)
        return [x.permute(0, 2, 3, 1).contiguous(), *rest]

    return made


def torch_batch_norm(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Any:
    """Batch norm in training by its formula: torch's own kernel computes x * a + b, which
    cancels."""
    return torch_per_channel((0, 2, 3), x, w, b, mean, var)


def torch_instance_norm(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    y, _, _ = torch_per_channel((2, 3), x, w, b, mean, var)
    return y


def torch_per_channel(
    dims: tuple[int, ...], x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    average, spread = x.mean(dims, keepdim=True), x.var(dims, correction=0, keepdim=True)
    unbiased = ((x - average) ** 2).sum(dims) / (math.prod(x.shape[d] for d in dims) - 1)
    seen = average.flatten(2).squeeze(2)
    if 0 not in dims:
        unbiased = unbiased.mean(0)
    mean.mul_(0.9).add_(seen.mean(0), alpha=0.1)
    var.mul_(0.9).add_(unbiased, alpha=0.1)
    rstd = torch.rsqrt(spread + EPS)
    y = (x - average) * rstd * w[:, None, None] + b[:, None, None]
    return y, seen.squeeze(0), rstd.flatten(2).squeeze(2).squeeze(0)


def torch_batch_norm_inference(
    x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor
) -> Tensor:
    return torch.batch_norm(x, w, b, mean, var, False, 0.1, EPS, False)


def torch_channels_last(run: Callable[..., Any]) -> Callable[..., Any]:
    def last(x: Tensor, *rest: Tensor) -> Any:
        y, *others = run(x.permute(0, 3, 1, 2), *rest)
        return (y.permute(0, 2, 3, 1), *others)

    return last


def gradient_of_batch_norm(shape: Shape, n: Normal) -> list[Tensor]:
    dy, (x, weight, _) = n(*shape), image(shape, n)
    return [dy, x, *(n.statistic(t) for t in saved(x, [0, 2, 3])), weight]


def torch_batch_norm_backward(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor) -> Any:
    return aten.native_batch_norm_backward(dy, x, w, None, None, mean, rstd, True, EPS, [True] * 3)


def with_targets(shape: Shape, n: Normal) -> list[Tensor]:
    """Logits[N, C] and classes[N], one in eight ignored."""
    target = n.integers(shape[1], shape[0])
    return [n(*shape, scale=3.0), torch.where(n.integers(8, shape[0]) == 0, -100, target)]


def gradient_of_cross_entropy(shape: Shape, n: Normal) -> list[Tensor]:
    logits, target = with_targets(shape, n)
    log_total = n.statistic(logits.double().logsumexp(1))
    return [n(shape[0]), logits, target, log_total]


def torch_cross_entropy_backward(
    dloss: Tensor, logits: Tensor, target: Tensor, log_total: Tensor
) -> Tensor:
    kept = target != -100
    hot = F.one_hot(torch.where(kept, target, 0), logits.shape[1])
    return (torch.exp(logits - log_total[:, None]) - hot) * (dloss * kept)[:, None]


def channel_count(shape: Shape) -> int:
    return shape[0] * shape[2] * shape[3]


def group_count(shape: Shape) -> int:
    return shape[1] // GROUPS * shape[2] * shape[3]


def most(shape: Shape) -> int:
    """The larger of both sizes, because gradients of weights are sums over rows."""
    return max(shape)


def of_images(name: str, *rest: Any, empty: bool = True, **keywords: Any) -> Norm:
    """empty: also test without samples; torch's own batch norm backward divides by their number."""
    small = (*IMAGES, NO_IMAGES) if empty else IMAGES
    return Norm(name, *rest, small=small, full=FULL_IMAGES, **keywords)


FORWARD = (
    Norm("softmax", of_rows, lambda o, x: o.softmax(x, -1), lambda x: x.softmax(-1), width, "x"),
    Norm(
        "softmax over columns",
        lambda shape, n: [n(*shape, scale=3.0).t().contiguous()],
        lambda o, x: o.softmax(x, 0),
        lambda x: x.softmax(0),
        width,
        "x",
    ),
    Norm(
        "log_softmax",
        of_rows,
        lambda o, x: o.log_softmax(x, 1),
        lambda x: x.log_softmax(1),
        width,
        "x",
        floor=1.0,
    ),
    Norm(
        "logsumexp",
        of_rows,
        lambda o, x: o.logsumexp(x, 1),
        lambda x: x.logsumexp(1),
        width,
        "s",
        floor=1.0,
    ),
    Norm(
        "layer_norm",
        affine,
        lambda o, x, w, b: o.layer_norm(x, [w.size(0)], w, b, EPS),
        lambda x, w, b: torch.native_layer_norm(x, w.shape, w, b, EPS),
        width,
        "xss",
        floor=centre_of_row,
    ),
    Norm(
        "rms_norm",
        affine,
        lambda o, x, w, b: o.rms_norm(x, [w.size(0)], w, EPS)[0] + 0.0 * b,
        lambda x, w, b: F.rms_norm(x, w.shape, w, EPS) + 0.0 * b,
        width,
        "x",
    ),
    of_images(
        "group_norm",
        image,
        lambda o, x, w, b: o.group_norm(x, GROUPS, w, b, EPS),
        torch_group_norm,
        group_count,
        "xss",
    ),
    of_images(
        "group_norm in NHWC",
        in_nhwc(image, 1),
        lambda o, x, w, b: o.group_norm(x, GROUPS, w, b, EPS),
        lambda x, w, b: torch_group_norm(x.contiguous(), w, b),
        group_count,
        "xss",
    ),
    *(
        of_images(
            f"batch_norm{kind}",
            make,
            lambda o, *t, last=last: o.batch_norm(*t, 0.1, EPS, True, last),
            reference,
            channel_count,
            "xss",
            written=(3, 4),
            empty=False,
        )
        for kind, make, reference, last in (
            ("", with_running, torch_batch_norm, False),
            (" in NHWC", in_nhwc(with_running, 1), torch_batch_norm, False),
            (
                " channels_last",
                with_last_dim(with_running),
                torch_channels_last(torch_batch_norm),
                True,
            ),
        )
    ),
    of_images(
        "batch_norm for inference",
        with_running,
        lambda o, *t: o.batch_norm(*t, 0.1, EPS, False)[0],
        torch_batch_norm_inference,
        lambda shape: 1,
        "x",
    ),
    of_images(
        "instance_norm",
        with_running,
        lambda o, *t: o.instance_norm(*t, 0.1, EPS, True)[0],
        torch_instance_norm,
        lambda shape: max(shape[2] * shape[3], shape[0]),
        "x",
        written=(3, 4),
        empty=False,
    ),
    Norm(
        "cross_entropy by rows",
        with_targets,
        lambda o, x, t: o.cross_entropy(x, t, reduction="none"),
        lambda x, t: F.cross_entropy(x, t, reduction="none"),
        width,
        "s",
        floor=1.0,
    ),
    Norm(
        "cross_entropy",
        with_targets,
        lambda o, x, t: o.cross_entropy(x, t, label_smoothing=0.1),
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
        lambda shape: shape[0] * shape[1],
        "s",
        floor=1.0,
    ),
)

BACKWARD = (
    Norm(
        "softmax",
        gradient_of_softmax(False, -1),
        definitions.softmax_backward,
        lambda dy, y: aten._softmax_backward_data(dy, y, -1, y.dtype),
        width,
        "x",
    ),
    Norm(
        "log_softmax",
        gradient_of_softmax(True, -1),
        definitions.log_softmax_backward,
        lambda dy, y: aten._log_softmax_backward_data(dy, y, -1, y.dtype),
        width,
        "x",
        floor=projection,
    ),
    Norm(
        "layer_norm",
        gradient_of_layer_norm,
        definitions.layer_norm_backward,
        lambda dy, x, mean, rstd, w: aten.native_layer_norm_backward(
            dy, x, w.shape, mean, rstd, w, torch.zeros_like(w), [True] * 3
        ),
        most,
        "xxx",
        floor=terms_by_row,
    ),
    Norm(
        "rms_norm",
        gradient_of_rms_norm,
        definitions.rms_norm_backward,
        torch_rms_norm_backward,
        most,
        "xx",
        floor=terms_by_row,
    ),
    of_images(
        "group_norm",
        gradient_of_group_norm,
        lambda o, *t: definitions.group_norm_backward(o, *t, GROUPS),
        torch_group_norm_backward,
        lambda shape: max(group_count(shape), channel_count(shape)),
        "xxx",
        floor=terms_by_group,
    ),
    of_images(
        "batch_norm",
        gradient_of_batch_norm,
        definitions.batch_norm_backward,
        torch_batch_norm_backward,
        channel_count,
        "xxx",
        floor=terms_by_channel,
        empty=False,
    ),
    of_images(
        "batch_norm in NHWC",
        in_nhwc(gradient_of_batch_norm, 2),
        definitions.batch_norm_backward,
        torch_batch_norm_backward,
        channel_count,
        "xxx",
        floor=terms_by_channel,
        empty=False,
    ),
    Norm(
        "cross_entropy",
        gradient_of_cross_entropy,
        definitions.cross_entropy_backward,
        torch_cross_entropy_backward,
        lambda shape: 1,
        "x",
        floor=4.0,
    ),
)
