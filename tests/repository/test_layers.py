"""Allowed includes and imports. A change here is a change of the design."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"

# A folder may include itself and the rows above its own. Folders of one row may include each other,
# but not in a cycle.
LAYERS = [
    {"base"},
    {"ir", "cost"},
    {"fusion", "schedule", "codegen"},
    {"schedulers", "lower"},
    {"program"},
    {"driver"},
    {"torch", "bind"},
]
# The run time of the host executor includes base only; the driver may use it.
HOST_USERS = {"host", "driver", "torch", "bind"}
# Texts that are included in kernels. The only header shared with C++ is the table of functions that
# kernel text calls back.
DEVICE_HEADERS = {"device/host_abi.h"}
DEVICE_USERS = {"host", "driver"}

TORCH_HEADERS = re.compile(r"(torch|ATen|c10)/")
# Each of these costs half a minute and gigabytes of memory.
HEAVY_HEADERS = {"torch/extension.h", "torch/torch.h", "torch/all.h"}

# The version check, modules that compute with torch (evaluate(), validate(), repros), and modules
# named after torch.
TORCH_FILES = {
    f"fuser/{name}.py"
    for name in (
        *(
            "_native",
            "debug/deferred",
            "debug/error_bounds",
            "debug/interpreter",
            "ops/reference",
            "debug/validation",
            "debug/repro",
            "inspect/measure",
        ),
        "nvfuser/pytorch_utils",
    )
}
TORCH_FOLDERS = ("fuser/adapters/", "fuser/contrib/", "fuser/multidevice/", "fuser/testing/")
CUDA_FILES = {"fuser/runtime/toolkit.py"}
# Modules that name internal APIs of torch, and the reason.
INTERNAL_FILES = {"fuser/adapters/torch_compat.py": "the list of these APIs"}


def cpp_files() -> list[Path]:
    return sorted(
        p
        for p in CSRC.rglob("*")
        if p.suffix in {".h", ".cpp", ".def"} and CSRC / "device" not in p.parents
    )


def python_files() -> list[Path]:
    return sorted((ROOT / "fuser").rglob("*.py"))


def includes(path: Path) -> Iterator[tuple[str, str]]:
    """("project" or "system", header) of each include."""
    for quote, header in re.findall(
        r'^\s*#\s*include\s+(["<])([^">]+)', path.read_text(), re.MULTILINE
    ):
        yield ("project" if quote == '"' else "system"), header


def imports(path: Path) -> set[str]:
    """Top-level packages that a file imports anywhere except under TYPE_CHECKING."""
    tree = ast.parse(path.read_text())
    checking = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test).endswith("TYPE_CHECKING")
        for child in block.body
        for node in ast.walk(child)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in checking:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


def level(folder: str) -> int:
    return next(i for i, row in enumerate(LAYERS) if folder in row)


def folder_of(path: Path) -> str:
    return path.relative_to(CSRC).parts[0]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def may_include(user: str, used: str) -> bool:
    if user == "host":
        return used in {"host", "base"}
    if used == "host":
        return user in HOST_USERS
    return level(used) <= level(user)


@pytest.mark.parametrize("path", cpp_files(), ids=relative)
def test_includes_follow_the_layers(path: Path) -> None:
    user = folder_of(path)
    for where, header in includes(path):
        if where == "system":
            continue
        assert (CSRC / header).exists(), f'"{header}": project includes are relative to csrc'
        used = header.split("/")[0]
        if used == "device":
            assert header in DEVICE_HEADERS, (
                f"{header} is text for kernels; no C++ file includes it"
            )
            assert user in DEVICE_USERS, f"{user} may not include {header}"
        else:
            assert may_include(user, used), f"{user} may not include {header}"


def test_folders_include_each_other_without_a_circle() -> None:
    users: dict[str, set[str]] = {}
    for path in cpp_files():
        mine = folder_of(path)
        used = {header.split("/")[0] for where, header in includes(path) if where == "project"}
        users.setdefault(mine, set()).update(used - {mine, "device"})
    while free := {folder for folder, used in users.items() if not used & users.keys()}:
        for folder in free:
            del users[folder]
    assert not users, f"folders that include each other in a circle: {users}"


@pytest.mark.parametrize("path", cpp_files(), ids=relative)
def test_foreign_headers_stay_in_their_folders(path: Path) -> None:
    user = folder_of(path)
    for where, header in includes(path):
        if where == "project":
            continue
        assert header not in HEAVY_HEADERS, (
            f"{header} costs half a minute; include the header of the class"
        )
        if TORCH_HEADERS.match(header):
            assert user == "torch", f"{header}: torch is known in csrc/torch only"
        if header.startswith("pybind11/") or header == "Python.h":
            assert user in {"bind", "torch"}, (
                f"{header}: Python is known in csrc/bind and csrc/torch only"
            )
        assert not re.match(r"(cuda|nvrtc|cu[a-z]+\.h)", header), (
            f"{header}: no CUDA header is needed to build"
        )


# Namespaces below fuser that are not the name of their folder; "" is fuser itself, visible to all.
NAMESPACES = {"base": "", "device": "", "torch": "bridge", "torch/script": "script"}
# Files that define functions of another folder's header, and the namespace of that folder.
IMPLEMENTS = {"csrc/fusion/build/print.cpp": "ir"}


def namespace_of(path: Path) -> str:
    folders = path.relative_to(CSRC).parts[:-1]
    name = NAMESPACES.get("/".join(folders[:2]), NAMESPACES.get(folders[0], folders[0]))
    name = IMPLEMENTS.get(relative(path), name)
    return f"fuser::{name}" if name else "fuser"


@pytest.mark.parametrize("path", cpp_files(), ids=relative)
def test_a_folder_is_a_namespace(path: Path) -> None:
    mine = namespace_of(path)
    for found in re.findall(r"^namespace (fuser[\w:]*) \{", path.read_text(), re.MULTILINE):
        assert found == mine or (mine != "fuser" and found.startswith(f"{mine}::")), (
            f"expected namespace {mine}, or one inside"
        )
    if path.suffix == ".h":
        assert not re.search(r"^\s*using namespace", path.read_text(), re.MULTILINE), (
            "a header qualifies names: ir::Expr"
        )


# Comments, raw strings, strings and characters, whose braces do not open a scope.
NO_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL,
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
TYPE = re.compile(
    r"^(?:template\s*<.*>\s*)?(?:inline\s+)?(?:struct|class|union|enum(?:\s+(?:class|struct))?)\s+"
    r"(?:\[\[.*?\]\]\s*|alignas\s*\(.*?\)\s*)?(?P<name>[\w:]+(?:<.*>)?)\s*(?:final\b\s*)?(?::.*)?$",
    re.DOTALL,
)


def type_definitions(text: str) -> Iterator[str]:
    """Qualified names of the types that a C++ text defines at namespace scope, except in anonymous
    namespaces."""
    text = DIRECTIVE.sub("", NO_CODE.sub(" ", text))
    scopes: list[str | None] = []  # names of namespaces, or None for another kind of scope
    head = ""  # text before the next brace
    for token in re.findall(r"[{};]|[^{};]+", text):
        if token == "{":
            begin, space = (
                head.strip(),
                re.match(r"\s*(?:inline\s+)?namespace\b(.*)", head, re.DOTALL),
            )
            if space and None not in scopes:
                scopes.append(space[1].strip() or None)
            else:
                if None not in scopes and (found := TYPE.match(begin)):
                    yield "::".join([*(s for s in scopes if s), found["name"]])
                scopes.append(None)
            head = ""
        elif token == "}":
            scopes.pop()
            head = ""
        else:
            head = "" if token == ";" else head + token
    assert not scopes, "a brace is not closed"


@pytest.mark.parametrize(
    ("text", "types"),
    [
        (
            "namespace a { struct S { struct T {}; int x; }; enum class E : int { x }; }",
            ["a::S", "a::E"],
        ),
        ("namespace a { namespace { struct S {}; } class T : public S {}; }", ["a::T"]),
        (
            "namespace a::b { template <class T> struct S<T*> { void f() { struct U {}; } }; }",
            ["a::b::S<T*>"],
        ),
        ('struct S; using T = S; struct S f() { return {}; } extern "C" { }', []),
        ("struct S { const char* brace = \"{\"; char c = '{'; };  // {\nunion U {};", ["S", "U"]),
    ],
)
def test_types_are_found(text: str, types: list[str]) -> None:
    assert list(type_definitions(text)) == types


def test_one_name_is_one_type() -> None:
    """The One Definition Rule: two types of one name at namespace scope are undefined behaviour,
    which compilers diagnose only with link-time optimization (HACKING.md, -DFUSER_ODR=ON)."""
    places: dict[str, list[str]] = {}
    for path in [p for p in cpp_files() if p.suffix != ".def"]:
        for name in type_definitions(path.read_text()):
            places.setdefault(name, []).append(relative(path))
    assert len(places) > 200, "the scan finds the types"
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not twice, "rename one, or put what is of one file in an anonymous namespace"


DEVICE_TEXTS = [*(CSRC / "device").glob("*.cuh"), *(CSRC / "device" / "cpu").glob("*.h")]


@pytest.mark.parametrize("path", sorted(DEVICE_TEXTS), ids=relative)
def test_device_text_includes_nothing(path: Path) -> None:
    assert list(includes(path)) == []


def test_shims_of_the_host_include_plain_c_only() -> None:
    allowed = {"stdint.h", *DEVICE_HEADERS, "host_abi.h", "indices.h"}
    for shim in ("host_cuda.h", "cpu_entry.h"):
        assert {header for _, header in includes(CSRC / "device" / shim)} <= allowed


@pytest.mark.parametrize("path", python_files(), ids=relative)
def test_python_imports(path: Path) -> None:
    name, found = relative(path), imports(path)
    if "cuda" in found:
        assert name in CUDA_FILES, "cuda-python is known in fuser/runtime/toolkit.py only"
    if "torch" in found:
        assert name in TORCH_FILES or name.startswith(TORCH_FOLDERS), (
            "torch is known in the adapters only"
        )
    assert not found & {"tests", "examples", "benchmarks", "setup"}


def internals(tree: ast.Module) -> Iterator[str]:
    """Internal APIs of torch in a module: dotted names with a leading underscore in a component,
    except ops, which are named torch.ops.aten._softmax.
    """
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        for name in names:
            first, *rest = name.split(".")
            private = any(n.startswith("_") and not n.startswith("__") for n in rest)
            if first == "torch" and private and rest[0] != "ops":
                yield name


def test_internals_are_found() -> None:
    text = """
import torch._dynamo.config
from torch._guards import detect_fake_mode
from torch.utils import _pytree as pytree
torch._C._get_schema("aten::add", "")
torch.autograd.forward_ad._current_level
torch.ops.aten._softmax.default, torch.__version__, x._version, "torch._C"  # torch._C
"""
    assert sorted(internals(ast.parse(text))) == [
        "torch._C",
        "torch._C._get_schema",
        "torch._dynamo.config",
        "torch._guards.detect_fake_mode",
        "torch.autograd.forward_ad._current_level",
        "torch.utils._pytree",
    ]


@pytest.mark.parametrize("path", python_files(), ids=relative)
def test_internals_of_torch_are_in_one_module(path: Path) -> None:
    if relative(path) not in INTERNAL_FILES:
        found = list(internals(ast.parse(path.read_text())))
        assert not found, "import a name of fuser.adapters.torch_compat"


def test_modules_import_each_other_without_a_circle() -> None:
    """Imports inside functions count; imports for type checkers and of the package itself do
    not.
    """
    modules = {
        ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
        for p in python_files()
    }
    used: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        tree = ast.parse(path.read_text())
        checking = {
            id(node)
            for block in ast.walk(tree)
            if isinstance(block, ast.If) and ast.unparse(block.test).endswith("TYPE_CHECKING")
            for node in ast.walk(block)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and id(node) not in checking:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                used[name] |= inner & modules.keys() or {node.module} & modules.keys()
        used[name] -= {"fuser", name}
    assert sum(map(len, used.values())) > 300, "the scan finds the imports"
    TopologicalSorter(used).prepare()  # raises CycleError, which names the circle
