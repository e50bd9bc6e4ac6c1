"""fuser/nvfuser/compat.py: defining, running and inspecting as in programs for nvFuser."""

from __future__ import annotations

import copy
import gc
import json
import operator
import pickle
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import packaging.version
import pytest
import torch

import fuser
from fuser import DataType, FusionCache, FusionDefinition, Unsupported, UserError

ROOT = Path(__file__).resolve().parents[2]
X = torch.tensor([[-1.0, 2.0, 0.5], [3.0, -0.25, 4.0]])


class Doubled(FusionDefinition):
    """2 * relu(x), defined by a subclass."""

    def __init__(self, example: torch.Tensor, factor: Any = 2.0) -> None:
        super().__init__()
        self.example, self.factor = example, factor

    def definition(self) -> None:
        x = self.from_pytorch(self.example)
        self.add_output(self.ops.relu(x) * self.factor)


def test_options_of_several_devices() -> None:
    """They are accepted: the mesh of the tensors says where a definition runs."""
    nccl = fuser.CommunicatorBackend.nccl
    fd = FusionDefinition(use_multidevice_executor=True, backend_type=nccl)
    fd.add_output(fd.from_pytorch(X) * 2.0)
    assert fd.execute([X])[0].equal(2 * X)


# ---- subclasses


@pytest.mark.parametrize(
    "use",
    [
        lambda fd: fd.execute([X]),
        lambda fd: fd.validate([X]),
        lambda fd: fd.fec.execute([X]),
        lambda fd: FusionDefinition(fd.id()).execute([X]),
    ],
    ids=["execute", "validate", "fec", "id"],
)
def test_a_subclass_defines_itself(use: Callable[[FusionDefinition], list[torch.Tensor]]) -> None:
    assert use(Doubled(X))[0].equal(2 * X.relu())


def test_a_subclass_can_be_looked_at_before_it_runs() -> None:
    written = FusionDefinition()
    x = written.from_pytorch(X)
    written.add_output(written.ops.relu(x) * 2.0)
    assert repr(Doubled(X)) == repr(written) == Doubled(X).fusion_ir()
    assert Doubled(X).fusion == written.fusion
    assert [str(t) for t in Doubled(X).inputs()] == [str(x)]
    assert [str(n) for n in Doubled(X).extents()] == ["int64 size(t0, 0)", "int64 size(t0, 1)"]
    assert len(Doubled(X).outputs()) == 1
    Doubled(X).validate_definition()


def test_a_definition_that_raises_leaves_nothing_behind() -> None:
    fd = Doubled(X, factor="two")
    for _ in range(2):
        with pytest.raises(TypeError):
            fd.execute([X])
    fd.factor = 2
    assert fd.execute([X])[0].equal(2 * X.relu())


@pytest.mark.parametrize(
    ("use", "rule"),
    [
        (lambda: Doubled(X).segment([X]), "by-hand-1"),
        (lambda: FusionDefinition().definition(), "subclass-1"),
        (lambda: FusionDefinition().schedule(), "subclass-1"),
        (lambda: FusionDefinition().multidevice_schedule(), "subclass-1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals(use: Callable[[], Any], rule: str) -> None:
    with pytest.raises(Unsupported) as caught:
        use()
    assert caught.value.rule == rule
    assert "hint: " in str(caught.value)


# ---- arguments of execute()


@pytest.mark.usefixtures("gpu_plans")
def test_debug_output(set_option: Callable[[str, str], None]) -> None:
    fd = Doubled(X, factor=2.125)  # a new kernel: a cached one would not be dumped
    with pytest.raises(UserError) as caught:
        fd.debug_output()
    assert caught.value.rule == "debug-output-1"
    set_option("FUSER_DUMP", "fusion,cuda")
    fd.execute([X], capture_debug_output=True)
    assert repr(fd) in fd.debug_output()
    assert "KERNEL(" in fd.debug_output()
    assert fuser._core.get_option("FUSER_DUMP_DIR") == ""


def test_print_repro(capsys: pytest.CaptureFixture[str]) -> None:
    fd = Doubled(X)
    fd.execute([X], print_repro=True)
    assert capsys.readouterr().out == fd.repro_script_for([X]) + "\n"


def test_profile() -> None:
    fd = Doubled(X)
    with pytest.raises(UserError) as caught:
        fd.profile()
    assert caught.value.rule == "profile-1"
    assert fd.execute([X], profile=True)[0].equal(2 * X.relu())
    (us,) = fd.profile().step_us
    assert fd.profile().kernel_time_ms == us / 1000
    assert fd.profile().host_time_ms == fd.profile().call_us / 1000


def test_arguments_that_there_are_not() -> None:
    for arguments in ({"schedule": 1}, {"Device": 0}):
        with pytest.raises(TypeError):
            Doubled(X).execute([X], **arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        FusionDefinition(name="x")  # type: ignore[call-arg]


@pytest.mark.usefixtures("gpu_plans")
def test_scheduled_ir() -> None:
    fd = Doubled(X)
    fd.execute([X])
    assert fd.last_scheduled_fusion_ir() == fd.scheduled_fusion_ir_for([X])
    text = fd.last_scheduled_fusion_ir(tensor_transforms=True, override_user_schedule=True)
    assert text.splitlines()[-1].startswith("pointwise(threads=")


# ---- operands


@pytest.mark.parametrize(
    "number", [np.float32(1.5), np.float16(2), np.int64(3), np.uint8(3), np.bool_(True), 2, 2.5]
)
def test_numbers_of_numpy_are_those_of_python(number: Any) -> None:
    fd, plain = FusionDefinition(), FusionDefinition()
    for target, value in ((fd, number), (plain, getattr(number, "item", lambda: number)())):
        x, s = target.define_tensor([-1]), target.define_scalar(DataType.Double)
        for result in (x + value, value - x, x / value, value**x, s * value + x, value * s + x):
            target.add_output(result)
        target.add_output(target.ops.where(x > value, value, x))
    assert fd.fusion == plain.fusion


def test_numpy_elsewhere() -> None:
    fd = FusionDefinition()
    x, flag = fd.define_tensor([-1, 4]), fd.define_scalar(DataType.Bool)
    y = fd.ops.reshape(x, [np.int64(2), np.int64(-1)])
    y = fd.ops.permute(
        fd.ops.select(fd.ops.unsqueeze(y, 0), np.int64(-1), 0), list(np.array([1, 0]))
    )
    fd.add_output(fd.ops.where(flag, y, np.float32(0)))
    given = torch.arange(8.0).view(2, 4)
    assert fd.execute([given, np.bool_(True)])[0].equal(given.t())
    with pytest.raises(TypeError):
        x + np.ones(3)  # type: ignore[operator]


def test_types_of_nvfuser() -> None:
    assert DataType.Index == DataType.Int
    for name in ("Float8_e8m0fnu", "Float4_e2m1fn"):
        with pytest.raises(Unsupported) as caught:
            FusionDefinition().define_tensor([2], dtype=getattr(DataType, name))
        assert caught.value.rule == "dtype-absent"


# ---- functions


def test_clone() -> None:
    fd, target = Doubled(X), FusionDefinition()
    fuser.clone(fd, target)
    assert target.fusion == fd.fusion
    with pytest.raises(UserError) as caught:
        fuser.clone(fd, target)
    assert caught.value.rule == "clone-1"
    with_an_input = FusionDefinition()
    with_an_input.define_tensor([2])
    with pytest.raises(UserError, match="expected an empty target definition"):
        fuser.clone(fd, with_an_input)
    assert fuser.translate_fusion(fd.fusion) == repr(fd)


@pytest.mark.parametrize(
    "again",
    [copy.copy, copy.deepcopy, lambda fd: pickle.loads(pickle.dumps(fd))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_are_equal_definitions_that_are_open(
    again: Callable[[FusionDefinition], FusionDefinition],
) -> None:
    fd = Doubled(X)
    fd.note = "of a user"
    expected = fd.execute([X])
    for source in (fd, again(fd)):  # before and after the first run of the copy
        made = again(source)
        assert type(made) is Doubled
        assert (made.fusion, repr(made), made.note) == (fd.fusion, repr(fd), "of a user")
        assert all(torch.equal(a, b) for a, b in zip(made.execute([X]), expected, strict=True))
    grown = again(fd)
    grown.add_output(grown.inputs()[0])
    assert len(grown.execute([X])) == len(expected) + 1
    assert len(fd.outputs()) == len(expected)
    assert repr(again(FusionDefinition())) == repr(FusionDefinition())


def test_small_functions() -> None:
    assert fuser.compute_contiguity([2, 3], [3, 1]) == [True, True]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert fuser.__version__ == project["version"]
    assert fuser.version().endswith("+fuser" + project["version"])
    for older in ("0.2.8", "0.0.20", "0.2.8+gitabc", "0.2"):
        assert fuser.version() >= older
        assert fuser.version() > older
        assert fuser.version() != older
    for same_or_newer in ("0.2.36", "0.2.36+git1"):
        assert fuser.version() == same_or_newer
        assert fuser.version() <= same_or_newer
    assert fuser.version() < "0.10.1"
    for text, compare in (("0.0.0", operator.gt), ("0.2.36", operator.eq), ("0.10", operator.lt)):
        assert compare(fuser.version(), packaging.version.Version(text))
        mirrored = {operator.gt: operator.lt, operator.lt: operator.gt}.get(compare, compare)
        assert mirrored(packaging.version.Version(text), fuser.version())
        assert compare(fuser.version(), text)
        assert mirrored(text, fuser.version())
    assert fuser.version() != packaging.version.Version("0.2.35")
    assert fuser.version() != 1
    assert isinstance(fuser.version(), str)
    with pytest.raises(TypeError):
        assert fuser.version() > 1  # type: ignore[operator]
    assert len({fuser.version(), "0.2.36"}) == 2
    fuser.enable_automatic_serialization()
    fuser.disable_automatic_serialization()


# ---- FusionCache


def test_fusion_cache(capsys: pytest.CaptureFixture[str]) -> None:
    cache = FusionCache.get(max_fusions=100)
    assert FusionCache.get() is cache
    before = cache.num_fusions()
    one, same, other = Doubled(X, 41.0), Doubled(X, 41.0), Doubled(X, 43.0)
    for fd in (one, same, other):
        fd.execute([X])
    assert cache.num_fusions() == before + 2
    assert one.id() == same.id() != other.id()
    again = FusionDefinition(other.id())
    assert again.fusion == other.fusion
    with pytest.raises(UserError) as caught:
        FusionDefinition(id=10**6)
    assert caught.value.rule == "fusion-id-1"
    cache.print_stats()
    assert capsys.readouterr().out.startswith(f"{before + 2} fusions; definitions ")
    FusionCache.reset()
    assert FusionCache.get() is cache  # reset() keeps the object
    assert cache.num_fusions() == 0
    assert one.execute([X])[0].equal(41 * X.relu())
    del fd, one, same, other, again
    gc.collect()
    assert cache.num_fusions() == 0  # freed fusions were created before the reset
    again = Doubled(X, 41.0)
    again.execute([X])
    assert (again.id(), cache.num_fusions()) == (0, 1)


def test_the_fusion_cache_can_be_written_and_read(
    tmp_path: Path, set_option: Callable[[str, object], None]
) -> None:
    set_option("FUSER_CACHE_DIR", tmp_path)
    FusionCache.reset()
    one, two = Doubled(X, 61.0), Doubled(X, 63.0)
    ids = [fd.id() for fd in (one, two)]
    for name in ("", str(tmp_path / "deeper" / "cache")):
        FusionCache.get().serialize(name)
    assert (tmp_path / "definitions.json").exists()
    FusionCache.reset()
    cache = FusionCache.get()
    assert Doubled(X, 62.0).id() == 0  # ids start at 0
    cache.deserialize(str(tmp_path / "deeper" / "cache"))
    assert cache.num_fusions() == 3
    assert FusionDefinition(ids[1]).execute([X])[0].equal(63 * X.relu())
    assert one.fusion == FusionDefinition(Doubled(X, 61.0).id()).fusion
    assert len({Doubled(X, factor).id() for factor in (61.0, 62.0, 63.0, 64.0)}) == 4
    cache.deserialize("")
    assert cache.num_fusions() == 4
    (tmp_path / "other").write_text("[1]")
    for wrong in ("none", "other"):
        with pytest.raises(UserError) as refused:
            cache.deserialize(str(tmp_path / wrong))
        assert refused.value.rule == "serialize-1"


@pytest.mark.parametrize(
    "line",
    [
        "__import__('os').system('true')",
        "fd.ops.relu.__globals__['torch'].load('x')",
        "fd.execute([])",
        "fd.ops.relu(fd.fusion)(1)",
        "[fd.ops.relu(t) for t in fd.inputs]",
        "fd.ops = fd.__init__.__globals__",
        "fd.ops.relu = fd.ops.add",
        "T1 = fd.__class__",
        "float = T0",
        "fd = T0",
    ],
)
def test_a_file_of_other_programs_is_refused(line: str, tmp_path: Path) -> None:
    text = repr(Doubled(X, 65.0).fusion)
    for body in (f"{text}    {line}\n", f"{line}\n{text}", text.replace("None:", f"{line}:")):
        (tmp_path / "cache").write_text(json.dumps({"7": body}))
        before = FusionCache.get().num_fusions()
        with pytest.raises(UserError, match="entry 7 is not a definition") as refused:
            FusionCache.get().deserialize(str(tmp_path / "cache"))
        assert refused.value.rule == "serialize-1"
        assert FusionCache.get().num_fusions() == before


@pytest.mark.parametrize(
    "around",
    ["{text}fd.ops.relu(T0)\n", "@fd.ops.relu\n{text}", "{text}{text}", "{with_argument}"],
    ids=["a statement behind it", "a decorator", "two of them", "an argument"],
)
def test_a_file_of_more_than_a_definition_is_refused(around: str, tmp_path: Path) -> None:
    """A file with more than one definition is rejected without being executed, even if all its
    calls are fd.ops."""
    text = repr(Doubled(X, 66.0).fusion)
    with_argument = text.replace("fd: FusionDefinition", "fd: FusionDefinition, float=None")
    text = around.format(text=text, with_argument=with_argument)
    (tmp_path / "cache").write_text(json.dumps({"7": text}))
    with pytest.raises(UserError, match="entry 7 is not a definition") as refused:
        FusionCache.get().deserialize(str(tmp_path / "cache"))
    assert refused.value.rule == "serialize-1"


def test_fusion_cache_digests_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    before = FusionCache.get().num_fusions()
    asked, structure = [], fuser.Fusion.structure

    def counted(fusion: fuser.Fusion) -> bytes:
        asked.append(fusion)
        return structure(fusion)

    monkeypatch.setattr(fuser.Fusion, "structure", counted)
    kept, gone = Doubled(X, 51.0), Doubled(X, 53.0)
    for fd in (kept, gone):
        fd.execute([X])
    assert not asked
    del fd, gone
    gc.collect()
    assert len(asked) == 1  # a freed fusion still counts
    assert FusionCache.get().num_fusions() == FusionCache.get().num_fusions() == before + 2
    assert len(asked) == 2


def test_older_names_of_arguments() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor(symbolic_sizes=[-1, -1], contiguous=[True, True], dtype=DataType.Float)
    total = fd.ops.sum(x, axes=[1], keepdim=False, dtype=DataType.Null)
    var, mean = fd.ops.var_mean(x, axes=[1], correction=0, keepdim=True)
    assert fd.ops.max(x, dim=1, keep_dim=True).ndim == 2
    wide = fd.ops.broadcast_in_dim(total, output_shape=x.shape(), broadcast_dims=[0])
    for result in (total, var, mean, wide):
        fd.add_output(result)
    got = fd.validate([X])
    wanted = (X.sum(1), *torch.var_mean(X, 1, correction=0, keepdim=True))
    for a, b in zip(got, (*wanted, X.sum(1)[:, None].expand(2, 3)), strict=True):
        torch.testing.assert_close(a, b)
    with pytest.raises(UserError, match="axes") as caught:
        fd.ops.sum(x, dims=[1], axes=[1])
    assert caught.value.rule == "argument-kind-1"
    with pytest.raises(UserError, match=r"^relu\(\): .*dims") as caught:
        fd.ops.relu(x, axes=[1])
    assert caught.value.rule == "argument-kind-1"
