"""The repository's files: sizes, one test file per source, header comments, no leftovers."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("csrc", "fuser", "tests", "benchmarks", "examples", ".ci")
SUFFIXES = {".cpp", ".h", ".cuh", ".def", ".py", ".pyi", ".md", ".toml", ".txt", ".cu", ""}

SOFT, HARD = 600, 1000  # lines
# Files longer than SOFT state at the top why they are one file.
REASON = re.compile(r"one file because", re.IGNORECASE)

# Sources without a test of their own name, the test that covers them, and the reason.
COVERED = {
    "fuser/adapters/compile_graph.py": ("tests/adapters/test_dynamo.py", "one backend"),
    "fuser/adapters/graph/rematerialization.py": (
        "tests/adapters/test_dynamo.py",
        "saved values of compiled programs",
    ),
    "fuser/fusion.py": ("tests/test_definition.py", "the graph of a definition"),
    "fuser/inspect/explain_definition.py": ("tests/inspect/test_explain.py", "explain()"),
    **{
        f"fuser/multidevice/{name}.py": ("tests/multidevice/test_propagate.py", "its table of ops")
        for name in ("emit", "graph", "merge", "plan", "rules")
    },
    "fuser/nvfuser/serialization.py": ("tests/nvfuser/test_compat.py", "with clone()"),
    "fuser/nvfuser/tensor_methods.py": ("tests/nvfuser/schedule/test_views.py", "its methods"),
    **{
        f"fuser/nvfuser/schedule/{name}.py": (f"tests/nvfuser/schedule/test_{test}.py", "with it")
        for name, test in (
            *(("types", "views"), ("domains", "views"), ("tensor_view", "rewrite")),
            *(("params", "heuristics"), ("check", "run")),
        )
    },
    "fuser/pytorch_utils.py": ("tests/nvfuser/test_pytorch_utils.py", "its old path"),
    "csrc/bind": ("tests/base/test_errors.py", "no logic; every test goes through it"),
    "csrc/bind/testing": ("tests/base/test_errors.py", "bindings for tests alone"),
    "csrc/base/error.h": ("tests/base/test_errors.py", "the header's plural is the Python module"),
    "fuser/debug/error_bounds.py": (
        "tests/debug/test_validation.py",
        "the tolerances of validate()",
    ),
    "csrc/fusion/index/kernel_builder.cpp": (
        "tests/fusion/test_access.py",
        "what access.h promises",
    ),
    "csrc/fusion/movement": ("tests/fusion/test_movement.py", "one file per op, tested as one"),
    "csrc/fusion/index/movement_ops.cpp": (
        "tests/fusion/test_access.py",
        "where ops read, as access.h says",
    ),
    "csrc/lower/build/cpu_reduction.cpp": ("tests/lower/test_cpu.py", "a part of that builder"),
    "csrc/lower/build/cpu_columns.cpp": ("tests/lower/test_cpu.py", "a part of that builder"),
    "csrc/lower/build/cpu_rows_columns.cpp": (
        "tests/lower/test_cpu.py",
        "a part of that builder",
    ),
    "csrc/lower/build/cpu_tiles.cpp": ("tests/lower/test_cpu.py", "a part of that builder"),
    "csrc/codegen/cpp_expr.cpp": ("tests/codegen/test_cpp.py", "the expressions of its statements"),
    "csrc/schedulers/cpu/nest.cpp": ("tests/lower/test_cpu.py", "nests of all shapes"),
    **{
        f"csrc/lower/build/reduction_{part}.cpp": (
            "tests/lower/test_reduction.py",
            "a part of the builder of tiles",
        )
        for part in (
            *("index", "analysis", "loads", "values", "accumulation", "loops", "stores"),
            *("combine", "columns", "rows", "edges"),
        )
    },
    "csrc/lower/build/reduction_packed.cpp": (
        "tests/schedulers/test_packed_rows.py",
        "a part of the builder of tiles",
    ),
    "csrc/lower/build/reduction_staging.cpp": (
        "tests/fusion/test_transpose_operands.py",
        "a part of the builder of tiles",
    ),
    "csrc/lower/build/staged_mapping.cpp": (
        "tests/lower/test_staged.py",
        "a part of the builder of stages",
    ),
    "csrc/lower/build/staged_values.cpp": ("tests/lower/test_staged.py", "a part of that builder"),
    "csrc/driver/call.cpp": ("tests/driver/test_executor.py", "a part of the executor's way down"),
    "csrc/driver/explanation.cpp": ("tests/inspect/test_explain.py", "what fuser.explain shows"),
    "csrc/torch/executor.cpp": ("tests/torch/test_module.py", "what the module's executor runs"),
    "csrc/torch/python_executor.cpp": ("tests/torch/test_module.py", "the module's executor"),
    **{
        f"csrc/torch/script/{part}.cpp": ("tests/torch/test_torchscript.py", "one fuser")
        for part in ("copies", "partition", "pass", "region", "rewrite")
    },
    **{
        f"csrc/torch/script/{part}.cpp": ("tests/torch/test_group.py", "beside it")
        for part in ("numbers", "sizes")
    },
    "csrc/fusion/index/axis_sources.cpp": (
        "tests/fusion/test_segment.py",
        "what outputs have in common",
    ),
    "csrc/fusion/segment/materialize.cpp": (
        "tests/fusion/test_segment.py",
        "what segments hand over",
    ),
    "csrc/fusion/kernel/fission.cpp": ("tests/fusion/test_segment.py", "a kernel cut once more"),
    "csrc/program/in_place.cpp": ("tests/driver/test_compile.py", "outputs in place"),
    "csrc/program/views.cpp": ("tests/fusion/test_views.py", "views of outputs"),
    "csrc/schedulers/analysis/coalescing.cpp": (
        "tests/fusion/test_transpose_operands.py",
        "beside the copies",
    ),
    "csrc/schedulers/analysis/collapse.cpp": (
        "tests/schedulers/test_vectorize.py",
        "dims of vectors",
    ),
    "csrc/schedulers/analysis/reduction_shape.cpp": (
        "tests/schedulers/test_vectorize.py",
        "shapes of rows",
    ),
    "csrc/schedulers/analysis/staging_tile.cpp": (
        "tests/fusion/test_transpose_operands.py",
        "beside what is copied",
    ),
    "csrc/schedulers/analysis/placement.cpp": (
        "tests/schedulers/test_inner.py",
        "where rows stay on chip",
    ),
    "csrc/schedulers/analysis/layout_groups.cpp": (
        "tests/schedulers/test_transpose.py",
        "what transposes ask first",
    ),
    "fuser/inspect/report": ("tests/inspect/test_report.py", "one page"),
    "fuser/ops/elementwise.py": ("tests/ops/test_pointwise.py", "the rows of the op table"),
    "fuser/ops/methods.py": ("tests/test_arguments.py", "argument checks of every method"),
    "fuser/ops/op_table.py": ("tests/ops/test_ops.py", "names and documentation of the methods"),
    "fuser/ops/primitives.py": ("tests/ops/test_ops.py", "methods of fd.ops"),
    "fuser/adapters/torchscript_ops.py": ("tests/adapters/test_torchscript.py", "one adapter"),
    "fuser/adapters/aten": ("tests/adapters/test_aten.py", "the table is tested as one"),
    "fuser/__main__.py": ("tests/test_cli.py", "the command line"),
    "fuser/errors.py": ("tests/base/test_errors.py", "the classes mirror csrc/base/error.h"),
}


def project_files() -> list[Path]:
    # .git is a file in a linked worktree.
    others = (".so", ".log", ".git")
    found = [p for p in ROOT.iterdir() if p.is_file() and not p.name.endswith(others)]
    for folder in FOLDERS:
        found += [p for p in (ROOT / folder).rglob("*") if p.is_file()]
    generated = ("__pycache__", "fuser/device/")
    return sorted(
        p
        for p in found
        if p.suffix in SUFFIXES
        and not any(part in p.relative_to(ROOT).as_posix() for part in generated)
    )


def sources() -> list[Path]:
    cpp = [p for p in (ROOT / "csrc").rglob("*.cpp") if p.parent.name not in {"device"}]
    return sorted([*cpp, *(p for p in (ROOT / "fuser").rglob("*.py") if p.name != "__init__.py")])


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def mirror(source: Path) -> Path:
    """tests/x/test_y.py for csrc/x/y.cpp and for fuser/x/y.py."""
    top, *folders, _ = relative(source).split("/")
    if top == "csrc":
        folders = folders[:1]
    return ROOT.joinpath("tests", *folders, f"test_{source.stem.lstrip('_')}.py")


# One test for all files: thousands of tests take longer to start than to run.
def test_size() -> None:
    for path in project_files():
        if path.name == "LICENSE" or path.suffix == ".md":
            continue
        lines = path.read_text().splitlines()
        assert len(lines) <= HARD, relative(path)
        if len(lines) > SOFT:
            head = "\n".join(lines[:20])
            assert REASON.search(head), (
                f"{relative(path)} has {len(lines)} lines: say at the top why ('one file because "
                "...'), or split"
            )


def test_mirror() -> None:
    for source in sources():
        name = relative(source)
        covered = COVERED.get(name) or COVERED.get(str(Path(name).parent))
        if covered:
            test, reason = covered
            assert reason, name
            assert (ROOT / test).exists(), f"{name} is said to be tested in {test}"
        else:
            assert mirror(source).exists(), f"{name} has no {relative(mirror(source))}"


def test_covered_names_what_exists() -> None:
    for name in COVERED:
        assert (ROOT / name).exists(), f"COVERED lists {name}, which is gone"
        if (ROOT / name).suffix in {".cpp", ".py"}:
            assert not mirror(ROOT / name).exists(), (
                f"{name} has its own test now: take it off the list"
            )


def test_header_says_what_the_file_is_for() -> None:
    for path in project_files():
        text, name = path.read_text(), relative(path)
        if path.suffix in {".h", ".cuh", ".def"}:
            assert text.startswith("//"), f"{name}: the first line says what the file is for"
        if path.suffix == ".h":
            assert "#pragma once" in text, name
        if path.suffix == ".py" and path.name != "__init__.py":
            assert ast.get_docstring(ast.parse(text)), f"{name} opens with a docstring"


# Concatenated, so that this file passes its own test.
LEFTOVERS = [
    re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b"),
    re.compile(r"(?<![\w.])/(wo" + r"rk|ro" + r"ot)/"),
    re.compile(r"--(extra-)?index" + r"-url|py" + r"pi\.org|download\.pytorch" + r"\.org"),
]


def test_nothing_left_lying() -> None:
    for path in project_files():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for pattern in LEFTOVERS:
                found = pattern.search(line)
                assert not found, f"{relative(path)}, line {number}: {found.group()!r}"


def test_text_is_clean() -> None:
    for path in project_files():
        text, name = path.read_text(), relative(path)
        if not text:
            continue
        assert text.endswith("\n"), f"{name}: no newline at the end"
        assert "\r" not in text, name
        for number, line in enumerate(text.splitlines(), 1):
            assert line == line.rstrip(), f"{name}, line {number} ends in blanks"
            if path.suffix != "" and path.name != "Makefile":
                assert "\t" not in line, f"{name}, line {number} has a tab"
