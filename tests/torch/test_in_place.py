"""csrc/torch/script/in_place: in-place ops are part of differentiable graphs, and tensors with
other readers keep eager's values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuser.adapters import torchscript, torchscript_ops
from tests.adapters.script_ops import eager
from tests.support.scripts import compiled, counted, fallbacks, fused

# The types that releases of torch give an error which a script raises itself.
ERRORS = (RuntimeError, torch.jit.Error)


@pytest.fixture(autouse=True)
def _fused() -> Iterator[None]:
    with fused():
        yield


# ---- models, each with in-place and out-of-place activations

ACTIVATIONS: dict[str, Callable[[bool], nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "hardtanh": lambda inplace: nn.Hardtanh(-0.5, 0.75, inplace),
    "leaky_relu": lambda inplace: nn.LeakyReLU(0.25, inplace),
    "silu": nn.SiLU,
    "hardswish": nn.Hardswish,
    "mish": nn.Mish,
    "elu": lambda inplace: nn.ELU(0.5, inplace),
    "celu": lambda inplace: nn.CELU(0.5, inplace),
    "selu": nn.SELU,
    "threshold": lambda inplace: nn.Threshold(0.125, -0.5, inplace),
    "sigmoid": lambda inplace: SigmoidInPlace() if inplace else nn.Sigmoid(),
    "tanh": lambda inplace: TanhInPlace() if inplace else nn.Tanh(),
    "scale": lambda inplace: ScaleInPlace() if inplace else Scale(),
}


class SigmoidInPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sigmoid_()


class TanhInPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.tanh_()


class Scale(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 0.5 + 1).clamp(min=0.25)


class ScaleInPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x *= 0.5
        x += 1
        return x.clamp_(min=0.25)


def block(activation: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), activation)


class Sequential(nn.Module):
    def __init__(self, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.a, self.b = block(activation()), block(activation())

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


class Listed(Sequential):
    """Collects the results of several branches in a list."""

    def __init__(self, activation: Callable[[], nn.Module]) -> None:
        super().__init__(activation)
        self.parts = nn.ModuleList([block(activation()) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        found: list[Tensor] = []
        for part in self.parts:
            found.append(part(x))
        return torch.cat(found, 1)


class Stacked(Listed):
    def forward(self, x: Tensor) -> Tensor:
        found: list[Tensor] = []
        for part in self.parts:
            found.append(part(x))
        return torch.stack(found).sum(0)


class Branched(Sequential):
    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x) if x.size(0) > 1 else self.b(x)
        return y * 2


class Looped(Sequential):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(x.size(0)):
            x = self.a(x)
        return x


PLACES = [Sequential, Listed, Stacked, Branched, Looped]


class Residual(nn.Module):
    """A block of torchvision's ResNet."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.relu = nn.ReLU(in_place)
        self.in_place = in_place

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        if self.in_place:
            y += x
        else:
            y = y + x
        return self.relu(y)


# ---- comparison


def results(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The output, the gradients of the input and of all parameters, and the buffers."""
    model.zero_grad()
    given = x.clone().requires_grad_(model.training)
    y = model(given)
    if not model.training:
        return [y]
    y.backward(torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape))
    assert given.grad is not None
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return [y.detach(), given.grad, *gradients, *model.buffers()]


def check(make: Callable[[bool], nn.Module], trains: bool) -> tuple[int, int]:
    """Compare scripts in float64 with eager; return the number of groups per call with and without
    in-place ops."""
    counts = []
    for in_place in (True, False):
        torch.manual_seed(0)
        script, plain = (make(in_place).double().train(trains) for _ in range(2))
        plain.load_state_dict(script.state_dict())
        script = torch.jit.script(script)
        unfused = fallbacks()
        for _ in range(5):
            x = torch.randn(2, 4, 5, 6, dtype=torch.float64)
            before = torchscript.counters()
            with torch.set_grad_enabled(trains):
                got, expected = results(script, x), results(plain, x)
            assert len(got) == len(expected)
            for a, b in zip(got, expected, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
        counts.append(counted("runs", before))
        assert fallbacks() == unfused
    return counts[0], counts[1]


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("activation", ["relu", "silu", "scale"])
def test_activations_in_place_are_fused_as_others(
    activation: str, place: type[Sequential], trains: bool
) -> None:
    """In-place activations are fused into as many groups as out-of-place ones."""
    in_place, plain = check(lambda how: place(lambda: ACTIVATIONS[activation](how)), trains)
    assert in_place == plain
    assert plain > 0 or (place is Looped and not trains)


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS.keys() - {"relu", "silu", "scale"}))
def test_every_activation_in_place_is_fused_as_others(activation: str, trains: bool) -> None:
    in_place, plain = check(lambda how: Sequential(lambda: ACTIVATIONS[activation](how)), trains)
    assert in_place == plain
    # Out-of-place forms of these activations are not in a group here either.
    assert plain > 0 or activation in ("celu", "elu", "mish", "selu")


@pytest.mark.parametrize("trains", [True, False])
def test_a_residual_in_place_is_fused_as_others(trains: bool) -> None:
    in_place, plain = check(Residual, trains)
    assert in_place == plain > 0


def test_a_dropout_in_place_drops_its_share_and_scales_gradients_alike() -> None:
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.dropout = nn.LayerNorm(128), nn.Dropout(0.25, inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.dropout(self.norm(x)) * 2

    script = torch.jit.script(Dropped())
    for _ in range(4):
        before = torchscript.counters()
        x = torch.randn(64, 128, requires_grad=True)
        y = script(x)
        y.sum().backward()
    assert counted("runs", before) > 0
    dropped = y == 0
    assert abs(dropped.double().mean().item() - 0.25) < 0.03
    kept = x.detach().double().requires_grad_()
    expected = torch.where(dropped, 0.0, F.layer_norm(kept, (128,)) * (2 / 0.75))
    expected.sum().backward()
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    assert x.grad is not None
    torch.testing.assert_close(x.grad.double(), kept.grad, rtol=1e-4, atol=1e-5)


# ---- eager's treatment of tensors with other readers

SEEN = {
    "a view before": "v = y.view(-1)\n    y.relu_()\n    return v, y",
    "a view behind": "y.relu_()\n    v = y.view(-1)\n    v.mul_(2)\n    return v, y",
    "the result": "z = y.relu_()\n    z.mul_(2)\n    return z, y",
    "a list before": "l = [y]\n    y.relu_()\n    return l[0], y",
    "a list behind": "y.relu_()\n    l = [y]\n    l[0].mul_(2)\n    return l[0], y",
    "a read before": "z = y + 1\n    y.relu_()\n    return z, y",
    "a branch": "if y.size(0) > 1:\n        y.relu_()\n    return y, y + 1",
    "a branch that reads": "y.relu_()\n    z = y\n    if c:\n        z = y * 2\n    return z, y",
    "a loop": "for i in range(3):\n        y.mul_(0.5)\n    return y, y + 1",
    "a loop's own": "z = y\n    for i in range(3):\n        z = norm(z)\n        z.relu_()\n"
    "    return z, y",
    "without gradients": "with torch.no_grad():\n        y.relu_()\n    return y, y * 2",
    "switched off": "torch.set_grad_enabled(False)\n    y.relu_()\n"
    "    torch.set_grad_enabled(True)\n    return y, y * 2",
    "an operand": "y.add_(y)\n    return y, y * 2",
    "another's operand": "z = norm(x)\n    y.add_(z)\n    z.relu_()\n    return y, z",
    "an argument": "x.relu_()\n    return x, y",
    "a weight's view": "z = x.view(-1)\n    z.relu_()\n    return z, x",
    "detached": "z = y.detach()\n    y.relu_()\n    return z, y",
    "twice": "y.mul_(0.5)\n    y.relu_()\n    return y, y * 2",
    "kept by its maker": "z = y.sigmoid()\n    z.relu_()\n    return z, y",
    "kept by an op in place": "y.relu_()\n    y.mul_(2)\n    return y, y * 2",
    "kept by another op in place": "torch.celu_(y)\n    y.mul_(2)\n    return y, y * 2",
    "kept by its reader": "z = y * y\n    y.relu_()\n    return z, y",
    "kept behind": "y.relu_()\n    z = y * y\n    y.add_(1)\n    return z, y",
}


def outcome(function: Callable[..., Sequence[Tensor]], wants: Sequence[bool]) -> list[Tensor | str]:
    """Results, inputs after the call and gradients, or the error."""
    generator = torch.Generator().manual_seed(1)
    x, w = (torch.randn(s, generator=generator, dtype=torch.float64) for s in ((4, 8), (8,)))
    leaves = [t.requires_grad_(wanted) for t, wanted in zip((x, w), wants, strict=True)]
    try:
        found = list(function(*leaves, True))
        total = sum((t.square().sum() for t in found), torch.zeros(()))
        if total.requires_grad:
            total.backward()
    except RuntimeError as error:
        said = str(error)
        kinds = ("modified by an inplace operation", "leaf Variable", "broadcast", "can't be cast")
        return [next((kind for kind in kinds if kind in said), said)]
    gradients = [t.grad for t in leaves if t.grad is not None]
    return [t.detach() for t in (*found, *leaves, *gradients)]


def same(got: Sequence[Tensor | str], expected: Sequence[Tensor | str]) -> None:
    assert len(got) == len(expected), (got, expected)
    for a, b in zip(got, expected, strict=True):
        if isinstance(a, str) or isinstance(b, str):
            assert a == b
        else:
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("wants", [(True, True), (False, True), (True, False), (False, False)])
@pytest.mark.parametrize("how", SEEN)
def test_what_others_see_stays_as_in_eager(how: str, wants: tuple[bool, bool]) -> None:
    source = f"""\
def norm(x: Tensor):
    return torch.layer_norm(x, [8])


def f(x: Tensor, w: Tensor, c: bool):
    y = torch.layer_norm(x, [8], w)
    {SEEN[how]}
"""
    f, plain = compiled(source), eager(source)
    for _ in range(5):
        same(outcome(f, wants), outcome(plain, wants))


def test_a_slope_in_place_that_is_written_is_an_error_as_in_eager() -> None:
    """The error occurs although only the in-place form of the op saves its result."""

    class Sloped(nn.Module):
        def forward(self, x: Tensor, w: Tensor, c: bool) -> list[Tensor]:
            y = F.leaky_relu(F.layer_norm(x, [8], w), 0.25, True)
            part = y[0]
            part += 1
            return [y]

    f = torch.jit.script(Sloped())
    for _ in range(4):
        assert outcome(f, (True, True)) == ["modified by an inplace operation"]
        same(outcome(f, (False, False)), outcome(Sloped(), (False, False)))


def test_the_error_of_a_kept_result_is_one() -> None:
    """Checks that the comparison above detects errors."""
    f = compiled("""\
        def f(x: Tensor, w: Tensor, c: bool):
            z = x.sigmoid()
            z.relu_()
            return [z]
        """)
    assert outcome(f, (True, True)) == ["modified by an inplace operation"]


WITH_AN_OPERAND = """\
def f(x: Tensor, y: Tensor):
    z = torch.layer_norm(x, [8])
    z.{}
    return z
"""


@pytest.mark.parametrize(
    ("op", "dtypes"),
    [
        ("add_(y)", (torch.float32, torch.float64)),
        ("add_(y)", (torch.bfloat16, torch.float32)),
        ("mul_(y)", (torch.float32, torch.int64)),
        ("sub_(y, alpha=2)", (torch.float64, torch.float16)),
        ("div_(y)", (torch.float16, torch.float64)),
    ],
)
def test_an_operand_of_another_type_leaves_the_type(
    op: str, dtypes: tuple[torch.dtype, torch.dtype]
) -> None:
    source = WITH_AN_OPERAND.format(op)
    f, plain = compiled(source), eager(source)
    for _ in range(4):
        x = torch.randn(4, 8).to(dtypes[0]).requires_grad_()
        other = torch.randint(1, 4, (8,)).to(dtypes[1])
        got, expected = f(x, other), plain(x, other)
        assert got.dtype == expected.dtype == dtypes[0]
        eps = torch.finfo(dtypes[0]).eps
        torch.testing.assert_close(got, expected, rtol=8 * eps, atol=8 * eps)


def test_a_complex_operand_is_an_error() -> None:
    f, plain = compiled(WITH_AN_OPERAND.format("mul_(y)")), eager(WITH_AN_OPERAND.format("mul_(y)"))
    x = torch.randn(4, 8, requires_grad=True)
    for operand in (torch.randn(8), torch.randn(8), torch.randn(8, dtype=torch.complex64)):
        if operand.is_complex():
            for function in (f, plain):
                with pytest.raises(ERRORS, match="can't be cast to the desired output type"):
                    function(x, operand)
        else:
            assert f(x, operand).dtype == torch.float32


def test_a_larger_operand_is_an_error() -> None:
    f = compiled(WITH_AN_OPERAND.format("add_(y)"))
    x = torch.randn(4, 8, requires_grad=True)
    for _ in range(4):
        assert f(x, torch.randn(8)).shape == (4, 8)
    for larger in ((2, 4, 8), (3, 1, 8)):
        with pytest.raises(RuntimeError):
            f(x, torch.randn(larger))


# ---- the tables


def _attribute(name: str) -> Callable[..., Tensor]:
    return getattr(torch.ops.aten, name.removeprefix("aten::"))


ARGUMENTS = {"threshold": (0.1, 0.0), "dropout": (0.5, True)}
ANY_TYPE = sorted(name for name, (any_type, _) in torchscript_ops.OUT_OF_PLACE.items() if any_type)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.complex64])
@pytest.mark.parametrize("name", ANY_TYPE)
def test_a_plain_form_gives_the_type_that_it_is_given(name: str, dtype: torch.dtype) -> None:
    """The out-of-place form has the operand's type, or raises like the in-place form."""
    rest = ARGUMENTS.get(name.removeprefix("aten::"), ())
    found = []
    for form in (name, f"{name}_"):
        torch.manual_seed(0)
        try:
            found.append(_attribute(form)(torch.arange(4).to(dtype), *rest))
        except RuntimeError:
            found.append(None)
    if found[0] is None or found[1] is None:
        assert found == [None, None]
    else:
        assert found[0].dtype == dtype
        assert torch.equal(found[0], found[1])


X, W, IMAGE = torch.randn(4, 4), torch.randn(4, 4), torch.randn(2, 4, 6, 6)
MADE: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "aten::batch_norm": lambda x, w, i: F.batch_norm(i, None, None, w[0], training=True),
    "aten::group_norm": lambda x, w, i: F.group_norm(i, 2, w[0]),
    "aten::instance_norm": lambda x, w, i: F.instance_norm(i, None, None, w[0]),
    "aten::layer_norm": lambda x, w, i: F.layer_norm(x, (4,), w[0]),
    "aten::_convolution": lambda x, w, i: torch.convolution(
        i, w[:, :, None, None], w[0], [1, 1], [0, 0], [1, 1], False, [0, 0], 1
    ),
    "aten::adaptive_avg_pool2d": lambda x, w, i: F.adaptive_avg_pool2d(i, (2, 2)),
    "aten::add": lambda x, w, i: x + w,
    "aten::addmm": lambda x, w, i: torch.addmm(x, x, w),
    "aten::avg_pool2d": lambda x, w, i: F.avg_pool2d(i, 2),
    "aten::baddbmm": lambda x, w, i: torch.baddbmm(x[None], x[None], w[None]),
    "aten::bmm": lambda x, w, i: torch.bmm(x[None], w[None]),
    "aten::cat": lambda x, w, i: torch.cat([x, w]),
    "aten::conv1d": lambda x, w, i: F.conv1d(x[None], w[:, :, None]),
    "aten::conv2d": lambda x, w, i: F.conv2d(i, w[:, :, None, None], w[0]),
    "aten::conv3d": lambda x, w, i: F.conv3d(i[None], w[:2, :2, None, None, None]),
    "aten::conv_transpose1d": lambda x, w, i: F.conv_transpose1d(x[None], w[:, :, None]),
    "aten::conv_transpose2d": lambda x, w, i: F.conv_transpose2d(i, w[:, :, None, None]),
    "aten::conv_transpose3d": lambda x, w, i: F.conv_transpose3d(
        i[None], w[:2, :2, None, None, None]
    ),
    "aten::div": lambda x, w, i: x / w,
    "aten::linear": lambda x, w, i: F.linear(x, w, w[0]),
    "aten::matmul": lambda x, w, i: x @ w,
    "aten::max_pool2d": lambda x, w, i: F.max_pool2d(i, 2),
    "aten::mm": lambda x, w, i: torch.mm(x, w),
    "aten::mul": lambda x, w, i: x * w,
    "aten::stack": lambda x, w, i: torch.stack([x, w]),
    "aten::sub": lambda x, w, i: x - w,
}


@pytest.mark.parametrize("name", sorted(torchscript_ops.MAKERS))
def test_a_maker_makes_a_tensor_that_its_gradient_does_not_keep(name: str) -> None:
    leaves = [t.clone().requires_grad_() for t in (X, W, IMAGE)]
    made = MADE[name](*leaves)
    memory = made.untyped_storage().data_ptr()
    assert all(t.untyped_storage().data_ptr() != memory for t in leaves)
    made.mul_(2)
    made.sum().backward()


WITH_A_NUMBER = ("add", "sub", "mul", "div", "clamp", "clamp_max", "clamp_min")
RESTS = {**ARGUMENTS, **dict.fromkeys(WITH_A_NUMBER, (0.5,))}


@pytest.mark.parametrize("name", sorted(torchscript_ops.OUT_OF_PLACE))
def test_the_plain_form_keeps_for_its_gradient_what_the_other_keeps(name: str) -> None:
    refused = []
    for form in (name, f"{name}_"):
        x = X.clone().requires_grad_()
        result = _attribute(form)(x * 1, *RESTS.get(name.removeprefix("aten::"), ()))
        result.mul_(2)
        try:
            result.sum().backward()
            refused.append(False)
        except RuntimeError as error:
            refused.append("modified by an inplace operation" in str(error))
    only_in_place = refused == [False, True]
    assert only_in_place == torchscript_ops.OUT_OF_PLACE[name][1]
    assert only_in_place or refused[0] == refused[1]
