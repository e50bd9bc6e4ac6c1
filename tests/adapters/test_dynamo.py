"""fuser/adapters/dynamo.py: torch.compile(backend="fuser") on CPU tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

import fuser
from fuser import UserError
from fuser.adapters import compile_graph, dynamo, report
from fuser.adapters.autograd.aot_metadata import Facts
from fuser.adapters.wrapper_codegen import program
from tests.adapters.training import Attention, ConvNet, agree, tokens

BACKEND = "fuser"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(function, **kwargs):
    return torch.compile(function, backend=BACKEND, **kwargs)


def test_the_name_is_known_without_importing_fuser() -> None:
    assert "fuser" in torch._dynamo.list_backends()


def test_a_convolutional_net() -> None:
    x = torch.randn(4, 3, 6, 6).to(memory_format=torch.channels_last)
    with report.recording() as seen:
        agree(
            ConvNet().to(memory_format=torch.channels_last),
            (x, torch.tensor([0, 1, 2, 3])),
            backend=BACKEND,
        )
    assert not any(graph.fallbacks for graph in seen.graphs)
    assert sum(graph.fused for graph in seen.graphs) > 60


def test_a_transformer() -> None:
    with report.recording() as seen:
        agree(Attention(), tokens(), backend=BACKEND)
    assert not any(graph.fallbacks for graph in seen.graphs)


def test_new_lengths_compile_once() -> None:
    """The second length makes sizes symbolic; later lengths compile no graph."""
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8))
    step = compiled(model)
    with report.recording() as seen, torch.no_grad():
        for length in (5, 7, 9, 12, 4):
            x = torch.randn(2, length, 8)
            torch.testing.assert_close(step(x), model(x), rtol=1e-5, atol=1e-5)
    assert len(seen.graphs) == 2


def test_autocast() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 8))
    x = torch.randn(4, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result, expected = compiled(model)(x), model(x)
    assert result.dtype == expected.dtype
    torch.testing.assert_close(result, expected, rtol=0.05, atol=0.05)
    result.float().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_aliases_and_mutation() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.add_(1.0)
        z = (x * 2 + y).relu()
        y.mul_(z.sum(1, keepdim=True))
        return z, x.view(-1), x[1:], z.t()

    mine = [torch.randn(4, 8), torch.randn(4, 8)]
    theirs = [t.clone() for t in mine]
    results, expected = compiled(f)(*mine), f(*theirs)
    for a, b in zip((*results, *mine), (*expected, *theirs), strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()
    assert results[1].data_ptr() == mine[0].data_ptr()


def test_graph_breaks() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() * 2 + 1
        torch._dynamo.graph_break()
        return (y.cos() * y).sum()

    x, y = (torch.linspace(0, 1, 6).requires_grad_() for _ in range(2))
    compiled(f)(x).backward()
    f(y).backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_a_graph_that_went_backward_once_may_be_kept_for_two_passes() -> None:
    model = nn.Sequential(nn.Embedding(5, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU())
    f, i = compiled(model), torch.tensor([0, 3, 3])
    with torch.autograd.graph.save_on_cpu():
        f(i).sum().backward()
    model.zero_grad()
    loss = f(i).square().sum()
    loss.backward(retain_graph=True)
    once = model[2].weight.grad.clone()
    loss.backward()
    torch.testing.assert_close(model[2].weight.grad, 2 * once)


def test_a_size_that_is_read_from_a_tensor() -> None:
    """A size read from a tensor is used only by a factory op of a region."""
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        f = compiled(lambda x, n: torch.zeros(n.item()) + x.sum())
        x = torch.randn(3)
        for n in (5, 7):
            torch.testing.assert_close(f(x, torch.tensor(n)), x.sum().expand(n))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=lambda m: m.__name__)
def test_inference(mode) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.5)).eval()
    x = torch.randn(3, 8)
    with mode():
        torch.testing.assert_close(compiled(model)(x), model(x), rtol=1e-5, atol=1e-5)


def test_dropout_repeats_with_its_seed() -> None:
    """fuser draws its own numbers, but seeds them from torch's generator and advances it."""
    f = compiled(lambda x: F.dropout(x, 0.25) * 2)
    x = torch.ones(64, 128, requires_grad=True)
    torch.manual_seed(3)
    first, second = f(x), f(x)
    torch.manual_seed(3)
    assert torch.equal(first, f(x))
    assert not torch.equal(first, second)
    assert abs(float((first == 0).float().mean()) - 0.25) < 0.02
    first.sum().backward()
    assert torch.equal(x.grad == 0, first == 0)


def test_checkpointing_repeats_the_mask() -> None:
    from torch.utils.checkpoint import checkpoint

    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda t: F.dropout(t.sin() + 2, 0.5) * 3, x, use_reentrant=False)

    x = torch.randn(32, 32, requires_grad=True)
    result = compiled(f)(x)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    assert torch.equal(gradient == 0, result == 0)


def test_double_backward_is_refused() -> None:
    x = torch.randn(4, requires_grad=True)
    (g,) = torch.autograd.grad(compiled(lambda x: (x.sin() * x).sum())(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        g.sum().backward()


def test_options() -> None:
    x = torch.ones(3)
    with report.recording() as seen:
        compiled(lambda x: x.sin(), options={"min_nodes": 1})(x)
    assert seen.graphs[0].regions == [["aten.sin.default"]]
    with pytest.raises(Exception, match="no option 'fast'"):
        compiled(lambda x: x.sin(), options={"fast": True})(x)
    with pytest.raises(Exception, match="min_nodes: expected int, got 'two'"):
        compiled(lambda x: x.cos(), options={"min_nodes": "two"})(x)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("compile-option", {"options": {"fast": True}}),
        ("compile-option-type", {"options": {"min_nodes": "two"}}),
        ("compile-option-value", {"options": {"min_nodes": 0}}),
        ("compile-mode", {"mode": "fast"}),
    ]
    for rule, arguments in wrong:
        with pytest.raises(UserError) as caught:
            dynamo.backend(fx.symbolic_trace(nn.Identity()), [x], **arguments)
        assert caught.value.rule == rule


def test_modes_are_options_and_give_the_same_values() -> None:
    """torch's four modes on one function, with and without gradients, static and dynamic sizes."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x) * x.sum(-1, keepdim=True)

    for dynamic in (None, True):
        torch._dynamo.reset()
        for mode in (None, *dynamo.MODES):
            run = compiled(function, mode=mode, dynamic=dynamic, fullgraph=True)
            for rows in (3, 5, 3):
                x = torch.randn(rows, 4, requires_grad=True)
                torch.testing.assert_close(run(x), function(x))
                torch.testing.assert_close(
                    torch.autograd.grad(run(x).sum(), x), torch.autograd.grad(function(x).sum(), x)
                )


def test_an_option_takes_precedence_over_the_mode() -> None:
    assert dynamo.options_of(None, "max-autotune") == dynamo.Options(autotune=True, cudagraphs=True)
    given = dynamo.options_of({"cudagraphs": False, "min_nodes": 3}, "max-autotune")
    assert given == dynamo.Options(min_nodes=3, autotune=True)
    with pytest.raises(UserError) as caught:
        dynamo.options_of(None, "fast")
    assert all(f"{mode}" in str(caught.value) for mode in dynamo.MODES)
    assert "cudagraphs" in str(caught.value)
    with pytest.raises(Exception, match="max-autotune-no-cudagraphs"):
        compiled(lambda x: x.sin(), mode="fast")(torch.ones(3))


def test_equal_layers_share_their_kernels() -> None:
    blocks = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)) for _ in range(4)))
    x = torch.randn(3, 8)
    before = fuser.cache_info().definitions
    with torch.no_grad():
        compiled(blocks)(x)
    assert fuser.cache_info().definitions - before <= 1


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """dtypes of the [5, 17] results of the first forward graph: its outputs and saved
    activations."""
    found: list[str] = []

    def seen(module, parts, *options):
        results = [n for n in list(module.graph.nodes)[-1].args[0] if isinstance(n, torch.fx.Node)]
        types = [str(n.meta["val"].dtype) for n in results if n.meta["val"].shape == (5, 17)]
        found.extend([] if found else types)
        return program(module, parts, *options)

    monkeypatch.setattr(compile_graph, "program", seen)
    return found


def test_what_is_kept_for_the_backward_graph(kept: list[str]) -> None:
    """Only the input and the mask are saved; softmax, dropout and the transpose are
    rematerialized."""
    x = torch.randn(5, 17, requires_grad=True)
    torch.compile(
        lambda x: F.dropout(x.softmax(-1), 0.5).transpose(0, 1).sin(), backend=dynamo.backend
    )(x)
    assert sorted(kept) == ["torch.bool", "torch.float32"]


def test_of_a_relu_before_dropout_its_mask_is_kept(kept: list[str]) -> None:
    """A relu before dropout saves its mask instead of its operand, which is two to four times
    larger."""
    x, w = torch.randn(5, 17, requires_grad=True), torch.randn(17, 17, requires_grad=True)
    run = torch.compile(lambda x: F.dropout((x @ w).relu(), 0.5) @ w, backend=dynamo.backend)
    run(x)
    # In addition to the result; the operand of the second product is saved as its transpose.
    assert sorted(kept) == ["torch.bool", "torch.bool", "torch.float32"]


@pytest.mark.parametrize("function", [F.hardswish, F.mish, F.logsigmoid, F.leaky_relu, F.elu])
def test_activations_are_computed_again(kept: list[str], function) -> None:
    """The activation is rematerialized from the input, the only saved activation."""
    x, weight = torch.randn(5, 17, requires_grad=True), torch.randn(17, 17, requires_grad=True)
    run = torch.compile(lambda x: function(x.sin() * 2).sin() @ weight, backend=dynamo.backend)
    result = run(x)
    assert len(kept) == 2
    expected = function(x.sin() * 2).sin() @ weight
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    found, wanted = (torch.autograd.grad(t.sum(), x)[0] for t in (result, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_halves_are_kept_not_their_copies_in_float32(kept: list[str]) -> None:
    """The operand of a float32 norm is saved in half precision; under autocast on a GPU all norms
    are in float32."""
    x = torch.randn(5, 17, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(17, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm((x.sin() + x).float(), (17,), weight)

    torch.compile(f, backend=dynamo.backend)(x)
    assert kept.count("torch.bfloat16") == 1
    assert kept.count("torch.float32") == 1  # the result itself


def adaptive_norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (17,)) * scale


def response_norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The global response norm of ConvNeXtV2."""
    x = F.gelu(x)
    lengths = torch.norm(x, dim=0, keepdim=True)
    return x * (lengths / (lengths.mean(-1, keepdim=True) + 1e-6)) * scale + x


@pytest.mark.parametrize("function", [adaptive_norm, response_norm])
def test_scaled_norms_are_computed_again(kept: list[str], function) -> None:
    """The gradient of the scale reads the norm's result, which is rematerialized from the operand
    and statistics."""
    x, w = torch.randn(5, 17, requires_grad=True), torch.randn(17, 17, requires_grad=True)
    scale = torch.randn(17, requires_grad=True)
    run = torch.compile(lambda x, s: function(x @ w, s) @ w, backend=dynamo.backend)
    result = run(x, scale)
    assert len(kept) == 2  # the norm's operand, and its scaled result as operand of a product
    expected = function(x @ w, scale) @ w
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    found, wanted = (torch.autograd.grad(t.square().sum(), (x, scale)) for t in (result, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x.sin().amax(-1),
        lambda x, w: torch.exp(x.sin() - x.sin().amax(-1, keepdim=True)),
        lambda x, w: (x * w * (x * w) + x).amax(0) + (x * w * (x * w)).sum(),
        lambda x, w: (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w).amax(-1),
        lambda x, w: torch.linalg.vector_norm(x.sin() * w, torch.inf),
        lambda x, w: torch.where(x.sin() == x.sin().max(), x * w, x),
    ],
    ids=["amax", "exp", "twice", "rms", "norm", "where"],
)
def test_gradients_of_maxima(function, dtype: torch.dtype) -> None:
    """Gradients of maxima are correct, although a rematerialized value need not equal the saved
    maximum."""
    torch.manual_seed(1)
    x = torch.randn(16, 33).to(dtype).requires_grad_()
    w = torch.randn(33).to(dtype).requires_grad_()
    (found, wanted) = (f(x, w) for f in (compiled(function), function))
    gradients = [
        torch.autograd.grad(t.float().sum() + 0 * w.sum(), (x, w)) for t in (found, wanted)
    ]
    for a, b in zip(*gradients, strict=True):
        scale = float(b.abs().max()) * 40 * torch.finfo(dtype).eps
        torch.testing.assert_close(a, b, rtol=0, atol=scale)


def test_index_fill_of_permuted_images() -> None:
    x = torch.randn(2, 3, 4).permute(2, 0, 1)
    result = compiled(lambda x: x.sin().index_fill(0, torch.tensor([0, 2]), 2.0) * 2 + 1)(x)
    expected = x.sin().index_fill(0, torch.tensor([0, 2]), 2.0) * 2 + 1
    torch.testing.assert_close(result, expected)
    assert result.stride() == expected.stride()


def test_ops_with_effects_do_not_shift_what_is_kept() -> None:
    """The error check of torch.linalg.inv is an effect whose token is the first result; it must not
    shift the saved activations."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x @ x.t() + torch.eye(4)
        return torch.linalg.inv(y).sin() * 2, torch.linalg.det(y) + torch.linalg.norm(x)

    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    found, wanted = torch.compile(f, backend=dynamo.backend)(x), f(x)
    torch.testing.assert_close(found, wanted)
    for a, b in zip(found, wanted, strict=True):
        (ours,), (theirs,) = (torch.autograd.grad(t.sum(), x, retain_graph=True) for t in (a, b))
        torch.testing.assert_close(ours, theirs)


def test_a_factor_that_is_known_when_it_runs() -> None:
    """The alpha of add and sub may be a run-time number."""
    f = compiled(lambda x, y, n: (torch.add(x, y, alpha=n) * torch.sub(x, y, alpha=n + 1)).sin())
    with report.recording() as seen:
        for n in (2, 3, 5, 7):
            x, y = torch.randn(4, 6), torch.randn(6)
            torch.testing.assert_close(f(x, y, n), ((x + n * y) * (x - (n + 1) * y)).sin())
    assert not any(graph.fallbacks for graph in seen.graphs)


def rotated_pairs(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rotations_by_complex_numbers(dtype: torch.dtype) -> None:
    """Llama's original rotary embedding with complex numbers becomes one region forward and one
    backward."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 6, 3, 8, generator=generator, dtype=dtype)
    turns = torch.polar(*torch.rand(2, 6, 1, 4, generator=generator, dtype=dtype).unbind())
    grad = torch.randn(2, 6, 3, 8, generator=generator, dtype=dtype)

    def function(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        return rotated_pairs(2 * x, turns)

    found = []
    for call in (function, torch.compile(function, backend="fuser")):
        given = x.clone().requires_grad_()
        result = call(given, turns)
        found.append((result.detach(), *torch.autograd.grad(result, given, grad)))
    for expected, result in zip(*found, strict=True):
        torch.testing.assert_close(result, expected)
    report = fuser.explain(function, x.clone().requires_grad_(), turns)
    assert len(report.runs) == 2


@pytest.mark.parametrize("lazy", [False, True])
def test_conjugates(lazy: bool) -> None:
    """torch conjugates lazily: the memory then differs from the tensor's values."""
    z = torch.polar(torch.linspace(1, 2, 24), torch.linspace(-3, 3, 24)).view(4, 6)
    given = z.conj() if lazy else z

    def function(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        product = a * b * b
        return [product, product.conj(), a.conj() * b * a, torch.view_as_real(-product), a.t() * 2]

    results = torch.compile(function, backend="fuser")(given, 2 * given)
    for result, expected in zip(results, function(given, 2 * given), strict=True):
        assert result.is_conj() == expected.is_conj()
        torch.testing.assert_close(result, expected)


def test_complex_numbers_of_half_types_are_left_to_torch() -> None:
    x = torch.linspace(-2, 2, 48, dtype=torch.float16).view(2, 3, 8)
    turns = torch.polar(torch.ones(3, 4), torch.linspace(-3, 3, 12).view(3, 4))

    def function(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        return rotated_pairs(x + x, turns)

    result = torch.compile(function, backend="fuser")(x, turns)
    torch.testing.assert_close(result, function(x, turns))


def test_kept_sizes_that_are_numbers_have_no_memory() -> None:
    """With DTensors of uneven sizes, a size that was symbolic may be a constant in the graph; it
    counts no bytes."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(4, 3)
    y = graph.call_function(torch.ops.aten.sin.default, (x,))
    y.meta["val"] = torch.empty(4, 3)
    graph.output((x, y, 7))
    assert compile_graph._kept_bytes(graph, Facts(kept=1)) == 4 * 3 * 4


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 2e-4)], ids=str
)
def test_a_probit_loss_is_one_region_each_way(dtype: torch.dtype, tolerance: float) -> None:
    """log_ndtr is decomposed into erfcx. The gradient is an exponential of a difference of numbers
    up to 450, hence the tolerance.
    """

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (torch.special.erfcx(x / 4) - torch.special.log_ndtr(x)).sum()

    x = torch.linspace(-30, 30, 601, dtype=dtype)
    found, exact = x.clone().requires_grad_(), x.double().requires_grad_()
    with report.recording() as seen:
        result = compiled(loss)(found)
        result.backward()
    expected = loss(exact)
    expected.backward()
    assert [len(graph.regions) for graph in seen.graphs] == [1, 1]
    assert not any(graph.left or graph.fallbacks for graph in seen.graphs)
    torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=0)
    torch.testing.assert_close(found.grad.double(), exact.grad, rtol=tolerance, atol=1e-30)


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, d: x.log_softmax(d) + x.softmax(d, torch.float64),
        lambda x, d: x.sin().sum(d) * x.cos().mean(d, keepdim=True) + x.amax(d, keepdim=True),
        lambda x, d: torch.where(x.long() == torch.arange(1)[0], x, 0.0).sum(d) + 1,
        lambda x, d: (x * 2).var(d, correction=0) + torch.logsumexp(x, d) + x.norm(dim=d),
        lambda x, d: F.conv2d(x.expand(1, 8, 4, 4), torch.ones(8, 8, 3, 3)).exp() * x.sin().sum(d),
        lambda x, d: torch.aminmax(x * 2, dim=d, keepdim=True).max + x.cumsum(d) + x.argmax(d),
    ],
)  # fmt: skip
def test_reductions_of_a_tensor_of_rank_0(function, dim: int) -> None:
    torch._dynamo.reset()
    x = torch.tensor(0.5, requires_grad=True)
    expected, result = function(x, dim), torch.compile(function, backend="fuser")(x, dim)
    torch.testing.assert_close(result, expected)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    (true,) = torch.autograd.grad(expected.sum(), x)
    torch.testing.assert_close(gradient, true)


@pytest.mark.parametrize("dynamic", [None, True])
def test_copies_of_views_have_values_and_memory_of_their_own(dynamic: bool | None) -> None:
    """Square tensors, because a transposed copy has then the layout of its operand."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, c = x * 2, torch.ops.aten
        copies = [c.t_copy(x), c.permute_copy(x, (1, 0)), c.transpose_copy(x, 0, 1), c.t_copy(y)]
        copies += [c.expand_copy(x, (4, 4)), c.view_copy(x, (4, 4)), c.slice_copy(x, 0, 0, 4)]
        copies += [c.permute_copy(x, (0, 1)), c.alias_copy(y), *c.split_copy(x, 4)]
        copies += [c.diagonal_copy(y), *c.unbind_copy(x), c.squeeze_copy(x), c.unsqueeze_copy(x, 0)]
        return (y, *copies, *(-t for t in copies))

    torch._dynamo.reset()
    x = torch.randn(4, 4)
    results, expected = torch.compile(f, backend="fuser", dynamic=dynamic)(x), f(x)
    torch.testing.assert_close(results, expected, rtol=0, atol=0)
    assert [t.stride() for t in results] == [t.stride() for t in expected]
    memories = {t.untyped_storage().data_ptr() for t in (x, *results)}
    eager = {t.untyped_storage().data_ptr() for t in (x, *expected)}
    assert len(memories) == len(eager)


@pytest.mark.parametrize(
    ("x", "power"), [(torch.arange(1, 5), -1), (torch.arange(1, 5, dtype=torch.uint8), -3)]
)
def test_a_negative_power_of_integers_raises_as_in_torch(x: torch.Tensor, power: int) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x + 1) ** power * 2

    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match="negative integer powers"):
        torch.compile(f, backend="fuser")(x)
    floats = x.double()
    torch.testing.assert_close(torch.compile(f, backend="fuser")(floats), f(floats))
