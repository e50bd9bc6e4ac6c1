"""The ops of scripts in batches, one script per batch, compared with eager on any device.

x and y have equal shapes, w and b the size of their last dim, i holds indices into that dim.
"""

from __future__ import annotations

from typing import Any

import torch

from fuser.adapters import torchscript
from tests.support.scripts import assert_same, groups, with_gradients

BATCHES = {
    "arithmetic": (
        "x + y; x - y * 2; x * y; x / y; torch.rsub(x, y); torch.rsub(x, 2.0); torch.atan2(x, y); "
        "torch.copysign(x, y); "
        "torch.max(x, y); torch.min(x, y); torch.pow(x, 2); torch.pow(x.abs() + 1, y); 2.0 ** x; "
        "torch.remainder(x, 2.0); torch.fmod(x, y); torch.lerp(x, y, 0.25); torch.lerp(x, y, x); "
        "torch.addcmul(x, y, x, value=0.5); torch.where(x > y, x, y); torch.clamp(x, -0.5, 0.5)"
    ),
    "exponents": (
        "x.abs(); x.ceil(); x.floor(); x.frac(); -x; x.round(); x.trunc(); x.exp(); x.expm1(); "
        "x.exp2(); x.abs().log(); (x.abs() + 1).log10(); x.abs().log1p(); x.abs().log2(); "
        "x.abs().sqrt(); (x.abs() + 1).rsqrt(); x.reciprocal(); x.erf(); x.erfc(); "
        "(x * 0.2).erfinv(); (x.abs() + 1).lgamma(); torch.sinc(x); torch.sgn(x); "
        "torch.deg2rad(x); torch.rad2deg(x); torch.positive(x) * 2; "
        "torch.round(x, decimals=1); torch.round(x * 40, decimals=-1)"
    ),
    "trigonometry": (
        "x.cos(); x.sin(); x.tan(); x.tanh(); x.sinh(); x.cosh(); x.atan(); torch.asin(x * 0.2); "
        "torch.acos(x * 0.2); torch.atanh(x * 0.2); torch.acosh(x.abs() + 1); torch.asinh(x)"
    ),
    "activations": (
        "x.relu(); x.sigmoid(); F.silu(x); F.gelu(x); F.gelu(x, approximate='tanh'); "
        "F.softplus(x, 1.0, 20.0); F.threshold(x, 0.1, 0.2); F.leaky_relu(x, 0.1); "
        "F.hardtanh(x); F.elu(x); F.relu6(x); F.hardswish(x); x.type_as(y) * 2; x.to(y.dtype) + 1"
    ),
    "comparisons": (
        "x == y; x != y; x > y; x >= y; x < y; x <= y; x == 1.0; x > 0.5; x.isfinite(); x.isinf(); "
        "x.isnan(); x.isneginf(); x.isposinf(); x.isreal(); (x > y) & (y > 0); (x > y) | (y > 0); "
        "(x > y) ^ (y > 0); ~(x > y)"
    ),
    "views": (
        "x.view(-1) + 1; x.reshape(-1) * 2; x.flatten(0, 1) + y.flatten(); "
        "(x + 1).permute(1, 0) * 2; x.transpose(0, 1) * 2; x.t() + 1; x.unsqueeze(0) * y; "
        "x.unsqueeze(1).squeeze(1) + y; b.expand(3, -1) * 2; b.expand_as(x) + x; "
        "(x + 1).mT * 2; (x + 1).T * 2"
    ),
    "reductions": (
        "x.sum([1]); x.mean([1], True); x.amax([1]); x.amin([1], True); x.var([1]); "
        "x.std([1], False); x.softmax(1); x.log_softmax(1)"
    ),
    "norms": "F.layer_norm(x, [x.size(1)], w, b, 1e-5); F.layer_norm(x, [x.size(1)]) * 2",
    "parts": "x.index_select(1, i) * 2; x.gather(1, i.expand(x.size(0), -1)) + 1",
    "rare": (
        "torch.fmax(x, y); torch.fmin(x, y); torch.logaddexp2(x, y); torch.special.entr(x); "
        "torch.special.ndtr(x); torch.angle(x.float()); torch.special.xlog1py(x, y.abs()); "
        "torch.float_power(x.abs(), 2.5); torch.float_power(2.0, x); torch.ldexp(x, y); "
        "torch.digamma(x * 3); torch.digamma(y.abs() * 9 + 1); x.take(i) * 2; "
        "torch.special.erfcx(x.float() * 3)"
    ),
    "compounds": (
        "F.pad(x, [1, 2]) + 1; F.pad(x, [-1, 0, 2, 0], 'constant', 0.5) * 2; x.tile([2]) + 1; "
        "x.repeat_interleave(2, 1) + 1; x.repeat_interleave(3) + 1; torch.hstack([x, y]) + 1; "
        "torch.vstack([x, w]) + 1; torch.dstack([x, y]) + 1; torch.outer(w, b) + 1; "
        "x.broadcast_to([2, x.size(0), x.size(1)]) + 1; x.ravel() + 1; x.adjoint() + 1"
    ),
    "distances": (
        "x.nanmean(1); x.nanmean(); torch.aminmax(x, dim=1)[0]; torch.linalg.norm(x); "
        "torch.dist(x, y); F.pairwise_distance(x, y); F.cosine_similarity(x, y); "
        "F.cosine_similarity(w, x, 0); "
        "F.kl_div(x, y.abs() + 0.5, reduction='none'); "
        "F.kl_div(x, y, reduction='sum', log_target=True); "
        "F.hinge_embedding_loss(x, torch.sign(y)); F.margin_ranking_loss(x, y, torch.sign(x)); "
        "F.poisson_nll_loss(x, y.abs()); F.poisson_nll_loss(x.abs(), y.abs(), False, True)"
    ),
}
# For each batch, the ops of a second script, which sums and differentiates them.
WITH_GRADIENTS = {
    "arithmetic": "x + y; x - y * 2; x * y; x / (y * y + 1); x ** 2; torch.where(x > y, x, y); "
    "torch.rsub(x, 2.0); torch.lerp(x, y, 0.25); torch.addcmul(x, y, x, value=0.5)",
    "functions": "x.exp(); (x.abs() + 1).log(); (x * x + 1).sqrt(); (x * x + 1).rsqrt(); x.erf(); "
    "x.sin(); x.cos(); x.tanh(); x.sigmoid(); x.relu(); F.gelu(x); F.silu(x); x.neg(); "
    "F.hardswish(x); F.leaky_relu(x, 0.1)",
    "reductions": "x - x.mean([1], True); x.softmax(1); x.log_softmax(1); "
    "x * x.var([1], True, True); "
    "F.layer_norm(x, [x.size(1)], w, b)",
    "views": "x.t().t() * y; x.view(-1).view(x.size(0), x.size(1)) * 2; b.expand_as(x) * x",
}


def batch_source(ops: str) -> str:
    arguments = ", ".join(f"{name}: Tensor" for name in "xywbi")
    lines = [f"r{n} = {op.strip()}" for n, op in enumerate(ops.split(";"))]
    names = ", ".join(f"r{n}" for n in range(len(lines)))
    body = "\n    ".join([*lines, f"return [{names}]"])
    return f"def f({arguments}) -> List[Tensor]:\n    {body}\n".replace(
        "F.", "torch.nn.functional."
    )


def eager(source: str) -> Any:
    from typing import List, Optional  # noqa: UP035

    names = {"torch": torch, "Tensor": torch.Tensor, "List": List, "Optional": Optional}  # noqa: UP006
    exec(source, names)
    return names["f"]


def batch_inputs(shape: tuple[int, int], dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(shape[0])
    vectors = [torch.randn(shape[1], generator=generator, dtype=torch.float64) for _ in range(2)]
    tensors = [torch.rand(shape, generator=generator, dtype=torch.float64) * 4 - 2 for _ in "xy"]
    return [*(t.to(dtype) for t in [*tensors, *vectors]), torch.tensor([0, 2, 1])]


def check_batch(batch: str, dtype: torch.dtype, device: torch.device) -> None:
    """Compare a script with eager, also at shapes not seen during profiling."""
    source = batch_source(BATCHES[batch])
    expected = eager(source)
    f = torch.jit.CompilationUnit(source).f
    unfused = torchscript.counters()["fallbacks"]
    for run, shape in enumerate([(3, 8), (3, 8), (3, 8), (3, 6), (3, 12)]):
        on_cpu = batch_inputs(shape, dtype)
        inputs = [t.to(device) for t in on_cpu]
        # Torch's CUDA kernels have some constants (hardswish: 1 / 6) in float32 only, so compare
        # with the CPU. The first run is a profiling run by torch itself.
        by_cpu = dtype == torch.float64 and run > 0
        wanted = expected(*(on_cpu if by_cpu else inputs))
        for place, (a, b) in enumerate(zip(f(*inputs), wanted, strict=True)):
            assert a.dtype == b.dtype, place
            try:
                assert_same([a], [b.to(device)], 2)
            except AssertionError as error:
                raise AssertionError(BATCHES[batch].split(";")[place]) from error
    assert torchscript.counters()["fallbacks"] == unfused
    assert groups(f.graph_for(*inputs)) == 1


def check_gradients(batch: str, device: torch.device) -> None:
    """Compare the sum of the ops and its gradients with eager."""
    terms = " + ".join(f"({op.strip()})" for op in WITH_GRADIENTS[batch].split(";"))
    source = f"def f(x: Tensor, y: Tensor, w: Tensor, b: Tensor):\n    return {terms}\n"
    source = source.replace("F.", "torch.nn.functional.")
    expected, f = eager(source), torch.jit.CompilationUnit(source).f
    unfused = torchscript.counters()["fallbacks"]
    for shape in [(3, 8), (3, 8), (3, 8), (4, 6)]:
        tensors = batch_inputs(shape, torch.float32)[:4]
        inputs = [t.to(device).requires_grad_() for t in tensors]
        assert_same(with_gradients(f, inputs), with_gradients(expected, inputs), 32)
    assert torchscript.counters()["fallbacks"] == unfused
    assert groups(f.graph_for(*inputs)) == 1
