"""The benchmark harness on tiny CPU tensors: its checks, counts and records, without times."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import fuser
from benchmarks import __main__ as command
from benchmarks import (
    compile_scaling,
    contenders,
    harness,
    host,
    probe,
    ranking,
    report,
    sanitize,
)
from benchmarks.case import Bound, Case, Data, Row, case_bytes, error, error_of_norm, moved_bytes
from benchmarks.families import (
    TABLES,
    elementwise_chains,
    pointwise,
    rows,
    sums,
    transposes,
)
from benchmarks.harness import Setting, measure, run_case
from fuser.runtime import cubin, toolkit

CPU = torch.device("cpu")
SETTING = Setting(device=CPU, samples=2, contenders=("eager", "fuser"))


ROWS = [row for table in TABLES.values() for row in table]
MAIN = {row.case().key: row for row in ROWS if row.main}


def small_cases(row: Row) -> list[Case]:
    return [row.small(), row.small(odd=True)]


def changed(case: Case, **fields: Any) -> Case:
    return Case(**{**case.__dict__, **fields})


def test_keys_are_distinct() -> None:
    keys = [row.case().key for row in ROWS]
    assert len(set(keys)) == len(keys)


def test_cases_fit_a_cache() -> None:
    """The leading dim alone shrinks, to one row at the least."""
    row = Row(lambda shape, dtype: changed(ROWS[0].case(), shape=shape), (1024, 4, 64), torch.half)
    shapes = [row.fitted(size).shape for size in (1 << 16, 1 << 9, 100, 1 << 30)]
    assert shapes == [(128, 4, 64), (1, 4, 64), (1, 4, 64), (1024, 4, 64)]


def test_main_covers_every_kind_of_case() -> None:
    light = {
        "axpy",
        "bias",
        "bias_add",
        "exp",
        "sigmoid",
    }  # similar to another case, which is a main one
    light |= {"max_outer", "var_mean_outer"}
    light |= {"ten_segments"}  # ten kernels: planned below
    for table in TABLES.values():
        names = {row.case().name for row in table}
        assert {row.case().name for row in table if row.main} | light >= names


def test_ten_segments_are_many_kernels() -> None:
    case = elementwise_chains.segments((4, 32), torch.float32)
    inputs = case.make(Data(CPU))
    assert len(fuser.explain(case.definition(inputs), inputs).steps) >= 10


@pytest.mark.parametrize(
    "make",
    [compile_scaling.chain, compile_scaling.mixed, compile_scaling.layers, compile_scaling.sums],
)
def test_steps_of_deep_graphs(make, gpu_plans) -> None:
    """Each step is timed, and there is one text per kernel of the definition."""
    took, texts = compile_scaling.steps(make, 240, arch=90)
    assert list(took) == ["define", "repr", "hash", "segment", "plan", "lower"]
    fd, inputs = make(240)
    assert len(texts) == len([s for s in fuser.explain(fd, inputs).steps if s.kind == "kernel"])


def test_normalized_rows_are_large() -> None:
    """Cases read and write 64 MB each, in bfloat16 and float32, at every length. Each odd length
    has its aligned counterpart; short odd rows are compared with a copy."""
    for family in ("softmax", "layer_norm", "rms_norm"):
        cases = {row.case().key: row.case() for row in TABLES[family]}
        found = {(c.dtype, c.shape[1]) for c in cases.values() if c.name == family}
        lengths = {256, 1024, 4096, 16384, 65536, 262144}
        for dtype in (torch.bfloat16, torch.float32):
            assert lengths <= {n for d, n in found if d == dtype}
            odd = {n for d, n in found if d == dtype and n % 2}
            assert odd >= {4097, 65537}
            for case in cases.values():
                if case.name == family and case.dtype == dtype:
                    assert math.prod(case.shape) * dtype.itemsize >= 64 << 20
                if case.shape[1] % 2 and case.name == family:
                    if case.shape[1] < 256:
                        assert case.goal.copy
                        continue
                    even = cases[case.goal.aligned or ""]
                    assert even.shape == (case.shape[0], case.shape[1] - 1)


@pytest.mark.parametrize("family", TABLES)
def test_goals_name_cases_that_are_there(family: str) -> None:
    keys = {row.case().key for row in TABLES[family]}
    goals = [row.case().goal for row in TABLES[family]]
    assert {g.aligned for g in goals} - {None} <= keys
    assert {g.beside[0] for g in goals if g.beside} <= keys


def test_goals() -> None:
    goals = {row.case().key: row.case().goal for row in ROWS}
    assert goals["softmax bfloat16 32768x1024"].copy == 0.94
    assert goals["softmax bfloat16 1024x262144"].copy == 0.85
    assert goals["layer_norm bfloat16 4096x65536"].copy == 0.90
    assert goals["rms_norm float32 2048x65536"].copy == 0.94
    assert goals["sum_full float32 268435456"].probe == 0.98
    assert goals["sum_full float32 16777216"].probe == 0.90
    assert goals["sum_outer bfloat16 524288x256"].probe == 0.90
    assert goals["cross_entropy bfloat16 8192x128256"].copy == 0.97
    assert goals["layer_norm_backward bfloat16 8192x16384"].copy == 0.80
    assert goals["rms_norm_backward bfloat16 8192x16384"].copy == 0.88
    assert goals["batch_norm_relu bfloat16 128x112x112x64"].copy == 0.58
    assert goals["group_norm_silu bfloat16 16x320x64x64"].copy == 0.80
    assert goals["softmax float32 8192x4097"].aligned == "softmax float32 8192x4096"


@pytest.mark.parametrize("key", MAIN)
def test_case_agrees_with_float64(key: str) -> None:
    """The functions for eager and torch.compile agree with float64 on small shapes; bytes count
    results and updates."""
    for case in small_cases(MAIN[key]):
        inputs = case.make(Data(CPU))
        expected = case.reference(inputs)
        assert all(t.dtype == torch.float64 for t in expected if t.is_floating_point())
        for way in filter(None, (case.eager, case.compiled)):
            results = case.results(way, inputs)
            # Pointwise chains round to half after each op. torch's log_softmax of halves on the CPU
            # rounds between the maximum and the logarithm, which cancel.
            right = error(results, expected, case.bounds)[1] <= 1.0
            chain = any(MAIN[key] in TABLES[f] for f in ("pointwise", "chains", "transposes"))
            chain |= case.name == "log_softmax"
            assert right or (chain and error_of_norm(results, expected) < 2)
        assert len(expected) == len(case.outputs) + len(case.updates)
        assert case_bytes(case, inputs, expected) > moved_bytes(inputs, [])


@pytest.mark.parametrize("key", MAIN)
def test_run_case(key: str) -> None:
    for case in small_cases(MAIN[key]):
        record = run_case(case, SETTING)
        assert "fuser" not in record["failed"], record["failed"]["fuser"]
        assert record["errors"]["fuser"]["of_tolerance"] <= 1.0
        yardsticks = {"memcpy", "copy kernel"} | ({"read torch"} if case.reads else set())
        assert set(record["us"]) == {*yardsticks, "eager", "fuser"}
        assert record["copy_us"] == min(record["us"]["memcpy"], record["us"]["copy kernel"])
        assert case.reads == ("probe_us" in record)
        assert record["bytes"] > 0
        json.dumps(record)


def test_a_wrong_definition_is_not_timed() -> None:
    right = pointwise.scale((4, 32), torch.float32)
    record = run_case(changed(right, define=lambda ops, x: x * 1.6), SETTING)
    assert record["failed"]["fuser"].startswith("off by")
    assert "fuser" not in record["us"]
    assert "eager" in record["us"]


def test_a_wrong_peer_is_timed_and_named() -> None:
    right = pointwise.scale((4, 32), torch.float32)
    inexact = changed(right, eager=lambda x: x * 1.500025, exact=lambda x: x * 1.5)
    record = run_case(inexact, SETTING)
    assert record["inexact"]["eager"] > 1.0
    assert ranking.best_peer(record) == "eager"
    assert " ~" in report.case_row(record, SETTING.contenders, {})[6]
    assert "(eager)" in report.not_timed({"": record})[0]
    wrong = changed(right, eager=lambda x: x * 1.5001, exact=lambda x: x * 1.5)
    record = run_case(wrong, SETTING)
    assert record["wrong"]["eager"] > 1.0
    assert "eager" in record["us"]
    assert ranking.best_peer(record) is None, "ours are no peers of each other"
    assert " wrong" in report.case_row(record, SETTING.contenders, {})[6]
    assert "eager is off by" in report.not_timed({"": record})[0]


def test_an_op_that_is_missing_is_named() -> None:
    case = changed(pointwise.scale((4, 32), torch.float32), define=lambda ops, x: ops.not_an_op(x))
    record = run_case(case, SETTING)
    assert "not_an_op" in record["failed"]["fuser"]
    assert "eager" in record["us"]


def test_a_contender_that_fails_is_left_out() -> None:
    def refuse(x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float32:
            raise NotImplementedError("not today")
        return x * 1.5

    right = pointwise.scale((4, 32), torch.float32)
    record = run_case(changed(right, eager=refuse), SETTING)
    assert "not today" in record["failed"]["eager"]
    assert "eager" not in record["us"]
    assert "fuser" in record["us"]
    assert report.case_row(record, SETTING.contenders, {})[6] == "failed"
    assert "eager: NotImplementedError: not today" in report.not_timed({"": record})[0]


def test_peers() -> None:
    """A peer may return fewer results, be uninstalled, or have no kernel for the case."""

    def prepare(x: torch.Tensor) -> Any:
        return lambda: [x * 1.5, None]

    def absent(x: torch.Tensor) -> Any:
        raise ModuleNotFoundError("No module named 'liger_kernel'")

    right = pointwise.scale((4, 32), torch.float32)
    case = changed(
        right,
        eager=lambda x: [x * 1.5, x.sum()],
        outputs=(torch.float32, torch.float32),
        define=lambda ops, x: ops.not_an_op(x),
        peers={"quack": prepare, "liger": absent},
    )
    contenders = ("eager", "quack", "liger", "fuser")
    record = run_case(case, Setting(device=CPU, samples=2, contenders=contenders))
    assert record["errors"]["quack"]["of_tolerance"] < 0.1
    assert record["lacking"] == {"quack": 1}
    assert "quack" in record["us"]
    assert "liger_kernel" in record["failed"]["liger"]
    missing = {"quack": "ModuleNotFoundError: quack"}
    record = run_case(case, Setting(device=CPU, samples=2, contenders=contenders, missing=missing))
    assert record["failed"]["quack"] == "not installed"
    assert report.case_row(record, contenders, {})[7] == "missing"
    record = run_case(right, Setting(device=CPU, samples=2, contenders=contenders))
    assert report.case_row(record, contenders, {})[7] == "-"


def test_available_peers_are_all_accounted_for() -> None:
    versions, missing = contenders.available()
    assert set(versions) | set(missing) == {"quack", "liger"}
    assert not set(versions) & set(missing)


def test_cases_update_copies_in_the_check() -> None:
    def eager(x: torch.Tensor, running: torch.Tensor) -> torch.Tensor:
        running.add_(x.sum())
        return x * 2

    case = changed(
        pointwise.scale((4,), torch.float32),
        make=lambda data: [torch.ones(4), torch.zeros(1)],
        eager=eager,
        updates=(1,),
    )
    inputs = case.make(Data(CPU))
    doubled, running = case.results(case.eager, inputs)
    assert doubled.tolist() == [2.0] * 4
    assert running.item() == 4.0
    assert inputs[1].item() == 0.0
    # 4 in, 4 out, the running sum in and out
    assert case_bytes(case, inputs, case.reference(inputs)) == (4 + 4 + 1 + 1) * 4


def test_in_place_cases_leave_the_inputs_of_the_check_alone() -> None:
    case = pointwise.adamw((64,), torch.float32)
    inputs = case.make(Data(CPU))
    before = [t.clone() for t in inputs]
    results = case.results(case.eager, inputs)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))
    assert not torch.equal(results[0], inputs[0])


def test_error() -> None:
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert error([torch.tensor([1.0, 2.0])], [exact]) == (0.0, 0.0)
    largest, share = error([torch.tensor([1.0, 2.5])], [exact])
    assert largest == 0.5
    assert share == pytest.approx(0.5 / 3e-5)  # rtol 1e-5 of 2, atol 1e-5
    assert error([torch.tensor([1.0, math.nan])], [exact]) == (math.inf, math.inf)
    assert error([torch.tensor([1, 3])], [torch.tensor([1, 2])]) == (1.0, math.inf)
    assert error([torch.ones(3)], [exact]) == (math.inf, math.inf)
    assert error([torch.tensor([[1.0], [2.0]])], [exact]) == (0.0, 0.0)  # an extra dim of size 1
    assert error([torch.tensor([1.0, 2.0]), None], [exact, exact]) == (0.0, 0.0)
    assert error([None], [exact]) == (math.inf, math.inf)


def test_error_of_norm() -> None:
    exact = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert error_of_norm([exact.float(), None], [exact, exact]) == 0.0
    # norm 5 of the reference, 5e-4 of the error, relative tolerance 1e-5
    assert error_of_norm([torch.tensor([3.0, 4.0005])], [exact]) == pytest.approx(10, 1e-2)
    assert error_of_norm([torch.tensor([3.0, math.nan])], [exact]) == math.inf
    assert error_of_norm([torch.tensor([3, 5])], [torch.tensor([3, 4])]) == math.inf
    assert error_of_norm([torch.ones(3)], [exact]) == math.inf


def test_bounds() -> None:
    """Bounds replace the absolute tolerance and leave the relative one unchanged."""
    exact, close = torch.zeros(1, dtype=torch.float64), torch.full((1,), 1e-3)
    assert error([close], [exact], [Bound(2e-3)])[1] == pytest.approx(0.5)
    assert error([close.bfloat16()], [exact], [Bound(1e-5, half=2e-3)])[1] == pytest.approx(
        0.5, 1e-2
    )
    assert error([close], [exact], [Bound(1e-5, half=2e-3)])[1] == pytest.approx(100)
    small = torch.full((1,), 1e-6, dtype=torch.float64)
    assert error([small.float() * 1.1], [small], [Bound(1e-5 / 1000)])[1] > 1.0
    assert sums.sum_full((10_000,), torch.float32).bounds == (Bound(1e-3),)


def test_moved_bytes() -> None:
    x = torch.zeros(8, 16)
    assert moved_bytes([x], [x.bfloat16()]) == 8 * 16 * (4 + 2)
    assert moved_bytes([x[:1].expand(8, 16)], []) == 16 * 4
    assert moved_bytes([x[:, :4]], []) == 8 * 4 * 4
    case = transposes.antisymmetric((8, 8), torch.float32)
    inputs = case.make(Data(CPU))
    assert case_bytes(case, inputs, case.reference(inputs)) == 3 * 8 * 8 * 4


@pytest.mark.parametrize("family", sanitize.ROWS)
def test_what_sanitizers_run(family: str) -> None:
    assert set(sanitize.ROWS) == set(TABLES)
    for row in sanitize.ROWS[family][:1]:
        sanitize.run_case(row.case())


def test_contenders_take_turns() -> None:
    order: list[str] = []
    calls = {name: (lambda name=name: order.append(name)) for name in "abc"}
    times = measure(calls, Setting(device=CPU, samples=4))
    assert "".join(order[-12:]) == "abccbaabccba"
    assert {name: len(values) for name, values in times.items()} == dict.fromkeys("abc", 4)


def fake_samples(
    monkeypatch: pytest.MonkeyPatch, milliseconds: dict[str, float], setting: Setting
) -> dict[str, int]:
    """Number of samples taken of contenders with these times."""
    clock = [0.0]

    def sample(calls: Any, device: torch.device, samples: int) -> dict[str, list[float]]:
        clock[0] += sum(milliseconds[name] for name in calls) * samples / 1e3
        return {name: [milliseconds[name] * 1e3] * samples for name in calls}

    monkeypatch.setattr(harness, "_sample_cpu", sample)
    monkeypatch.setattr(harness.time, "perf_counter", lambda: clock[0])
    calls = {name: (lambda: None) for name in milliseconds}
    return {name: len(values) for name, values in measure(calls, setting).items()}


def test_a_slow_contender_gets_no_more_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    took = {"memcpy": 1.0, "eager": 31.0, "compile": 10.0, "quack": 29.0, "fuser": 40.0}
    samples = fake_samples(monkeypatch, took, Setting(CPU, samples=7))
    assert samples == {"memcpy": 7, "eager": 5, "compile": 7, "quack": 7, "fuser": 7}


def test_the_budget_leaves_a_few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    for budget, samples in ((0.001, 5), (0.05, 25), (10.0, 100)):
        setting = Setting(CPU, samples=100, budget=budget)
        assert fake_samples(monkeypatch, {"fuser": 2.0}, setting) == {"fuser": samples}


def test_probe() -> None:
    """The CPU has torch's probe only; the CUDA kernels compile without spills."""
    assert set(probe.reads(1000, CPU)) == {"read torch"}
    assert set(probe.reads(1 << 20, CPU)) <= set(harness.YARDSTICKS)
    for name, (text, tile, _, _, oldest) in probe.KERNELS.items():
        assert name.replace("_", " ") in harness.YARDSTICKS
        assert probe.TILE % tile == 0
        arch = max(oldest, 75)
        used = cubin.cubin_info(toolkit.compile(name, text, arch).cubin)[name]
        assert used.local_bytes == 0


def test_watch_compilation() -> None:
    text = 'extern "C" __global__ void nothing() {}'
    before = toolkit.compile
    with harness.watch_compilation() as times:
        toolkit.compile("nothing", text, 90)
    assert list(times) == [text]
    assert times[text] > 0
    assert toolkit.compile is before


def test_compilations_are_timed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def fake(name: str, text: str, arch: int, extra: Any = ()) -> toolkit.Compiled:
        compiled.append((text, arch))
        return toolkit.Compiled(b"", f"sm_{arch}", "", len(compiled))

    monkeypatch.setattr(toolkit, "compile", fake)
    with harness.watch_compilation() as times:
        for text in "dabc":
            toolkit.compile("kernel", text, 90)
        harness.time_alone(times, 90)
    assert compiled[4:] == [("a", 90), ("d", 90)]
    assert times == {"a": 5e3, "d": 6e3}


def test_build_compiles_what_it_can() -> None:
    fuser.clear_caches()
    case = changed(pointwise.scale((4, 32), torch.float32), define=lambda ops, x: x * 1.53125)
    broken = changed(case, define=lambda ops, x: ops.not_an_op(x))
    assert harness.build([broken, case], SETTING) == 1
    assert harness.build([case], SETTING) == 0


def test_command_keeps_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.json"
    arguments = [
        *("--tiny", "--device", "cpu", "--samples", "2", "--contenders", "eager,fuser"),
        *("--families", "pointwise", "--case", "swiglu", "--json", str(path)),
        *("--markdown", str(tmp_path / "results.md")),
    ]
    assert command.main(arguments) == 0
    assert "swiglu" in capsys.readouterr().out
    first = json.loads(path.read_text())
    assert list(first["families"]["pointwise"]) == ["swiglu bfloat16 4x32"]
    monkeypatch.setattr(command, "run_case", lambda *_: pytest.fail("measured again"))
    assert command.main(arguments) == 0
    assert json.loads(path.read_text()) == first
    assert "| swiglu | bfloat16 | 4x32 |" in (tmp_path / "results.md").read_text()


def test_command_reports_failures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(case: Case, setting: Setting, compile_ms: object) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(command, "run_case", fail)
    arguments = ["--tiny", "--device", "cpu", "--families", "pointwise", "--case", "swiglu"]
    assert command.main(arguments) == 1
    assert "swiglu bfloat16 4x32: RuntimeError: broken" in capsys.readouterr().out


def test_command_goes_on_without_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If fuser cannot run a case and peers are not installed, the command names them and returns
    1."""

    def refuse(case: Case, inputs: object) -> Any:
        raise fuser.Unsupported("not today")

    original = sums.sum_full((4096,), torch.float32)
    monkeypatch.setattr(Case, "definition", refuse)
    monkeypatch.setattr(
        contenders, "available", lambda: ({}, {"quack": "no module", "liger": "no"})
    )
    path = tmp_path / "results.json"
    arguments = ["--tiny", "--device", "cpu", "--quick", "--families", "sums"]
    arguments += ["--case", "sum_full float32", "--json", str(path)]
    assert command.main([*arguments, "--contenders", "eager,quack,fuser"]) == 1
    output = capsys.readouterr()
    assert "quack could not be imported: no module" in output.out
    assert "liger" not in output.err
    assert f"{original.key}: fuser: Unsupported: not today" in output.out
    kept = json.loads(path.read_text())
    assert kept["families"]["sums"][original.key]["us"]["eager"] > 0
    assert kept["environment"]["samples"] == 20
    assert "| sums | 0 of 1 | 90% of read |" in output.out


def test_contenders_by_default() -> None:
    def chosen(*arguments: str) -> tuple[str, ...]:
        return command._setting(command._parser().parse_args(arguments), {}).contenders

    assert chosen() == ("eager", "compile", "quack", "liger", "fuser")
    assert chosen("--all") == harness.CONTENDERS
    assert chosen("--contenders", "fuser") == ("fuser",)
    with pytest.raises(SystemExit, match="unknown 'nobody'"):
        chosen("--contenders", "nobody")


def test_host_times() -> None:
    records = host.call_times(SETTING, repeats=2, calls=5)
    cases = ["1 input", "2 inputs", "8 inputs", "layer norm", "twelve kernels"]
    assert [r["case"] for r in records] == cases
    assert all(set(r["saturated_us"]) == {"eager", "fuser"} for r in records)
    new = host.new_shape_times(SETTING, shapes=5)
    assert new["kernels_compiled_on_the_way"] == 0
    first = host.first_call_times(SETTING, repeats=1)
    assert first["warm_compiled"] == 0
    together = host.thread_times(SETTING, threads=2, calls=10)
    many = host.tensor_times(SETTING, parameters=3, repeats=1)
    assert many["tensors"] == 21
    text = report.host_tables(
        {
            "calls": records,
            "new_shape": new,
            "first_call": first,
            "tensors": many,
            "threads": together,
        }
    )
    assert "| 8 inputs |" in text
    assert "us over 3 (" in text
    assert "| one thread | 2 threads |" in text
    ways = ("fuser", "fuser, results kept", "python", "python, tensor dropped", "eager")
    assert set(together["together"]) == set(ways)


def test_compile_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "TABLE", [r for r in pointwise.TABLE if r.build is pointwise.swiglu])
    for _ in range(2):  # a cache would make the second run differ
        times = host.compile_times(SETTING)
        assert [row["kernels"] for row in times["rows"]] == [1]
        assert times["median_kernel_ms"] > 0


def record(case: str, shape: list[int], us: dict[str, float], **fields: Any) -> dict[str, Any]:
    return {
        "case": case,
        "dtype": "float32",
        "shape": shape,
        "bytes": 2e6,
        "copy_us": 90.0,
        "us": us,
        "failed": {},
        "inexact": {},
        "wrong": {},
        "goal": {"copy": None, "probe": None, "aligned": None},
        "kernels": [{"registers": 40, "local_bytes": 0, "compile_ms": 100.0}],
        **fields,
    }


def test_summary() -> None:
    one = record("scale", [4, 4], {"memcpy": 90.0, "compile": 150.0, "fuser": 100.0})
    assert "90.0% of a copy" in report.summary({"": one})
    assert "1.50x" in report.summary({"": one})
    row = report.case_row(one, ("eager", "compile", "fuser"), {})
    cells = dict(zip(report.case_header(("eager", "compile", "fuser")), row, strict=True))
    assert row[6:9] == ["-", "150.0 (60%)", "100.0 (90%)"]
    assert (cells["of copy"], cells["of read"], cells["of best peer"]) == ("90%", "-", "150%")
    assert (cells["compile ms"], cells["registers"], cells["local bytes"]) == ("100", "40", "0")
    assert (cells["kernels"], cells["asked"], cells["missed"]) == ("1", "-", "-")


def test_misses() -> None:
    even_key = f"softmax float32 {rows.EVEN[torch.float32][2][0]}x4096"
    even = record("softmax", [8192, 4096], {"fuser": 100.0}, goal={"copy": 0.90})
    odd = record(
        "softmax",
        [8192, 4097],
        {"compile": 110.0, "eager": 90.0, "fuser": 120.0},
        goal={"aligned": even_key},
        wrong={"eager": 7.0},
    )
    records = {even_key: even, "odd": odd}
    assert ranking.misses(even, records) == []
    assert ranking.misses({**even, "copy_us": 89.0}, records) == ["89.0% of copy"]
    assert ranking.asked(odd["goal"]) == "85% of 4096 wide"
    assert ranking.misses(odd, records) == ["83.3% of aligned", "91.7% of compile"]
    assert ranking.misses(odd, {}) == ["91.7% of compile"]  # no aligned case to compare with
    spilling = {**even, "kernels": [{"registers": 255, "local_bytes": 24, "compile_ms": None}]}
    assert ranking.misses(spilling, records) == ["24 local bytes"]
    reading = record("sum", [4], {"fuser": 100.0}, probe_us=89.0, goal={"probe": 0.90})
    assert ranking.misses(reading, {}) == ["89.0% of read"]
    same = record("scale", [4], {"fuser": 110.0}, goal={"beside": [even_key, 0.95]})
    assert ranking.asked(same["goal"]) == f"95% of {even_key}"
    assert ranking.misses(same, records) == [f"90.9% of {even_key}"]
    assert ranking.misses({**same, "us": {"fuser": 105.0}}, records) == []
    line = report.family_row("softmax", records)
    assert line[:4] == ["softmax", "2 of 2", "85% of 4096 wide; 90% of copy", "1, MISSED 1"]
    assert line[-1] == "100"
    summary = report.summary(records)
    assert "MISSED softmax float32 8192x4097: 83.3% of aligned, 91.7%" in summary.replace(";", ",")
    slow = record("a", [4], {"fuser": 1.0}, kernels=[{"local_bytes": 0, "compile_ms": 300.0}])
    assert report.family_row("a", {"": slow})[-1] == "300 MISSED"


def test_ours_through_torch_compile() -> None:
    setting = Setting(device=CPU, samples=2, contenders=("fuser", "fuser_compile"))
    record = run_case(pointwise.scale((4, 32), torch.float32), setting)
    assert set(record["us"]) >= {"fuser", "fuser_compile"}
    assert ranking.best_peer(record) is None, "ours are no peers of each other"
