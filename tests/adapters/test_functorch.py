"""fuser/adapters/functorch.py: the tutorial's functions through memory_efficient_fusion."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import ts_compile
from torch.autograd import forward_ad

import fuser
from fuser import UserError, _core
from fuser.adapters import compile_graph, dynamo, report


def composite(input1, input2, weight, bias1, bias2, p: float = 0.0, axis: int = 2):
    res = F.dropout(input1 + bias1, p, training=True) + input2
    return F.layer_norm(res, (input1.size(axis),), weight, bias2)


def primitive(input1, input2, weight, bias1, bias2):
    res = F.dropout(input1 + bias1, 0.0, training=True) + input2
    mean = res.mean(2, keepdim=True)
    diff = res - mean
    var = (diff * diff).mean(2, keepdim=True)
    return weight * (diff / torch.sqrt(var + 1e-12)) + bias2


def rms(input1, input2, weight, bias1, bias2):
    res = F.dropout(input1 + bias1, 0.0) + input2
    var = res.mul(res).mean(2, keepdim=True)
    return weight * (res / torch.sqrt(var + 1e-12)) + 0 * bias2


def arguments(batch: int = 4) -> list[torch.Tensor]:
    shapes = [(batch, 8, 16), (batch, 8, 16), (16,), (16,), (16,)]
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def compare(compiled, function, inputs: list[torch.Tensor]) -> None:
    """Compare float32 result and gradients with float64: error at most 1e-5 of the largest
    element."""
    wide = [t.detach().double().requires_grad_() for t in inputs]
    expected, result = function(*wide), compiled(*inputs)
    gradient = torch.rand(result.shape, device=result.device)
    found = (result, *torch.autograd.grad(result, inputs, gradient))
    wanted = (expected, *torch.autograd.grad(expected, wide, gradient.double()))
    for a, b in zip(found, wanted, strict=True):
        assert (a.double() - b).abs().max() <= 1e-5 * b.abs().max().clamp(min=1.0)


@pytest.mark.parametrize("function", [composite, primitive, rms], ids=lambda f: f.__name__)
def test_the_tutorial(function) -> None:
    with report.recording() as seen:
        compare(fuser.memory_efficient_fusion(function), function, arguments())
    assert [len(graph.regions) for graph in seen.graphs] == [1, 1]
    assert not any(graph.left or graph.fallbacks for graph in seen.graphs)


def test_layer_norm_is_one_kernel_forward_and_at_most_two_backward() -> None:
    with report.recording(keeps_runs=True) as seen:
        compare(fuser.memory_efficient_fusion(composite), composite, arguments())
    kernels = [len(run.fd.fec.executor.kernels()) for run in seen.runs]
    assert kernels[0] == 1
    assert kernels[1] <= 2


def test_dynamic_shapes_are_traced_once() -> None:
    compiled = fuser.memory_efficient_fusion(composite, dynamic=True)
    with report.recording() as seen:
        for batch in (4, 6, 3):
            compare(compiled, composite, arguments(batch))
    assert len(seen.graphs) == 2


def test_a_module() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
    x = torch.randn(3, 8)
    torch.testing.assert_close(
        fuser.memory_efficient_fusion(module)(x), module(x), rtol=1e-4, atol=1e-5
    )


def test_layouts_have_traces_of_their_own() -> None:
    """Sizes, ranks, strides and requires_grad of inputs may change between calls."""
    f = fuser.memory_efficient_fusion(mean_of_squares)
    shapes = [(4, 6), (2, 3), (2, 4, 6)]
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    inputs += [torch.randn(6, 4).t().requires_grad_(), torch.randn(4, 6)]
    for x in inputs:
        y = torch.randn(x.shape[-1:], requires_grad=True)
        found, wanted = f(x, y), mean_of_squares(x, y)
        torch.testing.assert_close(found, wanted)
        wanting = [t for t in (x, y) if t.requires_grad]
        for a, b in zip(
            torch.autograd.grad(found, wanting), torch.autograd.grad(wanted, wanting), strict=True
        ):
            torch.testing.assert_close(a, b)


def mean_of_squares(x, y):
    return ((x * y).reshape(-1).sin() ** 2).sum() / x.numel()


def test_the_first_call_may_be_without_gradients() -> None:
    f = fuser.memory_efficient_fusion(lambda x: x.sin() * 2)
    x = torch.randn(4, requires_grad=True)
    with torch.no_grad():
        assert not f(x).requires_grad
    f(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.cos())


def test_results_keep_their_types() -> None:
    f = fuser.memory_efficient_fusion(lambda x: (x.sin() * 2, None, {"n": x.shape[0]}, [x > 0]))
    x = torch.randn(4, requires_grad=True)
    result = f(x)
    assert isinstance(result, tuple)
    assert result[1:3] == (None, {"n": 4})
    assert isinstance(result[3], list)


@pytest.mark.parametrize("function", [lambda x: x**3, torch.exp, torch.sin, lambda x: x * 1.5])
def test_gradients_of_gradients_are_refused(function) -> None:
    """Double backward is rejected, also for autograd.grad, and for functions that do not save their
    inputs."""
    f = fuser.memory_efficient_fusion(lambda x: function(x).sum())
    x = torch.randn(4, requires_grad=True)
    for source in (x, x * 2):
        gradient = torch.autograd.grad(f(source), source, create_graph=True)[0]
        wanted = torch.autograd.grad(function(source).sum(), source, create_graph=True)[0]
        torch.testing.assert_close(gradient, wanted)
        for allowed in (False, True):
            with pytest.raises(RuntimeError, match="double backward"):
                torch.autograd.grad(gradient.sum(), source, allow_unused=allowed, retain_graph=True)


def test_gradients_are_not_differentiated_by_the_gradients_that_arrive() -> None:
    f = fuser.memory_efficient_fusion(lambda x: x.sin() * 2)
    x, v = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    gradient = torch.autograd.grad(f(x), x, v, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.grad(gradient.sum(), v)


def test_what_is_no_function_or_no_argument_is_named() -> None:
    with pytest.raises(UserError, match="expected a function or a module, got None") as caught:
        fuser.memory_efficient_fusion(None)
    assert caught.value.rule == "fusion-function"
    with pytest.raises(UserError, match="compile: expected a function or a module") as caught:
        fuser.compile(3)
    assert caught.value.rule == "fusion-function"
    with pytest.raises(UserError, match="no argument 'fw_compilr'; expected one of ") as caught:
        fuser.memory_efficient_fusion(torch.sin, fw_compilr=None)
    assert caught.value.rule == "fusion-argument"


def test_captured_parameters_get_gradients() -> None:
    weight = torch.nn.Parameter(torch.randn(4))
    f = fuser.memory_efficient_fusion(lambda x: x.sin() * weight)
    x = torch.randn(3, 4, requires_grad=True)
    f(x).sum().backward()
    torch.testing.assert_close(weight.grad, x.sin().sum(0))


def test_transforms_of_functorch_see_the_function() -> None:
    f = fuser.memory_efficient_fusion(lambda x: (x.sin() * x).sum())
    x = torch.randn(3, 4, requires_grad=True)
    f(x)
    wanted = x.cos() * x + x.sin()
    torch.testing.assert_close(torch.func.grad(f)(x), wanted)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(f))(x), wanted)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("compile", [fuser.compile, fuser.memory_efficient_fusion])
def test_forward_ad_sees_the_function(compile, requires_grad: bool) -> None:
    f = compile(lambda x: (x.sin() * x).sum(-1))
    x = torch.randn(3, 4, requires_grad=requires_grad)
    f(x)  # its kernels drop tangents
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(x, torch.ones_like(x)))).tangent
        torch.testing.assert_close(tangent, (x.cos() * x + x.sin()).sum(-1))


def test_arguments_of_functorchs_that_dynamo_finds() -> None:
    f = fuser.memory_efficient_fusion(
        lambda x, n: x * n, static_argnums=(1,), num_params_buffers=0, enable_log=False
    )
    x = torch.randn(4)
    torch.testing.assert_close(f(x, 3), x * 3)


def test_one_function_inside_of_another() -> None:
    inner = fuser.memory_efficient_fusion(lambda x: x.sin() * 2)
    outer = fuser.memory_efficient_fusion(lambda x: inner(x).exp() + x)
    x = torch.randn(4, requires_grad=True)
    for _ in range(2):
        torch.testing.assert_close(outer(x), (x.sin() * 2).exp() + x)
        inner(x)


def test_threads_trace_one_after_another() -> None:
    f = fuser.memory_efficient_fusion(lambda x: (x.sin() * 2).softmax(-1))
    xs = [torch.randn(n, 5, requires_grad=True) for n in (2, 3, 2, 3)]
    with ThreadPoolExecutor(len(xs)) as pool:
        for x, y in zip(xs, pool.map(f, xs), strict=True):
            torch.testing.assert_close(y, (x.sin() * 2).softmax(-1))


def test_tied_weights() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
    module[2].weight = module[0].weight
    x = torch.randn(3, 4)
    found, wanted = fuser.memory_efficient_fusion(module)(x), module(x)
    torch.testing.assert_close(found, wanted)


def test_compilers_may_be_given() -> None:
    """Custom compilers are accepted as in functorch, with and without gradients."""
    seen = []

    def keep(module, inputs):
        seen.append(module)
        return module

    f = fuser.memory_efficient_fusion(lambda x: x.sin() * 2, fw_compiler=keep, bw_compiler=keep)
    x = torch.randn(4, requires_grad=True)
    f(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.cos())
    f(x.detach())
    assert len(seen) == 3


def test_compilers_of_functorch() -> None:
    f = fuser.memory_efficient_fusion(
        lambda x: (x.sin() * 2).tanh(), fw_compiler=ts_compile, bw_compiler=ts_compile
    )
    x = torch.randn(4, requires_grad=True)
    wanted = (x.sin() * 2).tanh()
    torch.testing.assert_close(f(x), wanted)
    torch.testing.assert_close(
        torch.autograd.grad(f(x).sum(), x), torch.autograd.grad(wanted.sum(), x)
    )


def test_options_are_those_of_the_backend() -> None:
    """With min_nodes=3, an addition of two tensors is left to torch."""
    x = torch.randn(4)
    for nodes, regions in ((1, 1), (3, 0)):
        f = fuser.memory_efficient_fusion(lambda x: x + x.flip(0), options={"min_nodes": nodes})
        with report.recording() as seen:
            torch.testing.assert_close(f(x), x + x.flip(0))
        assert [len(graph.regions) for graph in seen.graphs] == [regions]
    with pytest.raises(UserError, match="no option 'min_node'; expected one of") as caught:
        fuser.memory_efficient_fusion(torch.sin, options={"min_node": 1})
    assert caught.value.rule == "compile-option"


def test_errors_name_memory_efficient_fusion() -> None:
    """Errors in arguments, and errors that torch wraps during compilation, name
    memory_efficient_fusion."""
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("compile-mode", {"mode": "fast"}),
        ("compile-option", {"options": {"fast": True}}),
        ("compile-option-type", {"options": {"min_nodes": "two"}}),
        ("compile-option-value", {"options": {"min_nodes": 0}}),
    ]
    for rule, arguments in wrong:
        with pytest.raises(UserError, match=r"^memory_efficient_fusion: ") as caught:
            fuser.memory_efficient_fusion(torch.sin, **arguments)
        assert caught.value.rule == rule

    def fails(module: Any, inputs: Any) -> Any:
        raise ValueError("no")

    module = torch.nn.Tanh()
    with pytest.raises(Exception, match="backend='memory_efficient_fusion' raised"):
        fuser.memory_efficient_fusion(module, fw_compiler=fails)(torch.randn(4))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compile_graph, "program", lambda *a, **k: fails(a, k))
        with pytest.raises(Exception, match="backend='memory_efficient_fusion' raised"):
            fuser.memory_efficient_fusion(module)(torch.randn(5))
        with pytest.raises(Exception, match="backend='fuser' raised"):
            fuser.compile(module)(torch.randn(6))


def test_a_mode_is_that_of_the_backend() -> None:
    x = torch.randn(4)
    for mode in dynamo.MODES:
        f = fuser.memory_efficient_fusion(lambda x: x.sin() * 2, mode=mode)
        torch.testing.assert_close(f(x), x.sin() * 2)


def test_compile_is_torch_compile() -> None:
    x = torch.randn(3, 8)
    torch.testing.assert_close(fuser.compile(lambda x: x.sin() * 2)(x), x.sin() * 2)

    @fuser.compile(dynamic=True)
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.cos() * 2

    torch.testing.assert_close(f(x), x.cos() * 2)


def test_flags_are_known() -> None:
    assert _core.get_option("FUSER_STRICT") == "0"
