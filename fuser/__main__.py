"""python -m fuser: the options and the environment of fuser.

    python -m fuser --help    subcommands, every FUSER_* variable, the environment
    python -m fuser env       the environment alone, for bug reports
    python -m fuser manual    the API reference, made from the docstrings
    python -m fuser repro F   runs a repro script, and shrinks it while it raises the same error
    python -m fuser precompile F    fills the kernel cache by a run of a script

Reports never fail: a missing component is reported in its line.
"""

import argparse
import importlib
import importlib.metadata
import io
import platform
import shlex
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Report = Callable[[], str]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _core() -> Any:
    from fuser._native import load_core

    return load_core()


def _fuser() -> str:
    built = _core().torch_version
    against = f"built against torch {built}" if built else "built without torch"
    version = _version("fuser").replace("not installed", "checkout")
    return f"{version}, {against}, in {Path(__file__).parent}"


def _torch() -> str:
    from fuser._native import check_torch

    version = _version("torch")  # read the metadata, because importing torch takes seconds
    try:
        check_torch(_core().torch_version, version)
    except ImportError as error:
        return f"{version}; {error}"
    return version


def _nvrtc() -> str:
    found = importlib.import_module("fuser.runtime.toolkit").nvrtc()
    major, minor = found.version
    architectures = " ".join(f"sm_{arch}" for arch in found.archs)
    return f"{major}.{minor} for {architectures}, with cuda-bindings {_version('cuda-bindings')}"


def _driver() -> str:
    core = _core()
    version = core.cuda_driver_version()
    if not core.cuda_available():
        return str(core.cuda_unavailable_reason())
    return f"CUDA {version // 1000}.{version % 1000 // 10}"


def _gpus() -> str:
    core = _core()
    if not core.cuda_available():
        return "none; kernels run on the CPU"
    devices = [core.cuda_device(i) for i in range(core.cuda_device_count())]
    return "; ".join(f"{i}: {device}" for i, device in enumerate(devices))


def _compiler() -> str:
    found = importlib.import_module("fuser.runtime.cxx").compiler(_core().get_option("FUSER_CXX"))
    return f"{shlex.join(found.command)} ({found.version.splitlines()[0]})"


def _cpu() -> str:
    return str(_core().native_device(_core().get_option("FUSER_CPU_ISA")))


def _cache() -> str:
    core = _core()
    folder = core.store_directory(core.get_option("FUSER_CACHE_DIR"))
    if core.get_option("FUSER_CACHE") == "0":
        return f"{folder}, switched off by FUSER_CACHE=0"
    return f"{folder}, up to {core.get_option('FUSER_CACHE_MB')} MB"


def _changed_options() -> str:
    core = _core()
    values = {
        row[0]: core.get_option(row[0])
        for row in core.option_rows()
        if core.get_option(row[0]) != row[2]
    }
    return " ".join(f"{name}={value}" for name, value in values.items()) or "all at their defaults"


ENVIRONMENT: dict[str, Report] = {
    "fuser": _fuser,
    "python": lambda: f"{platform.python_version()}, {sys.executable}",
    "torch": _torch,
    "NVRTC": _nvrtc,
    "CUDA driver": _driver,
    "GPUs": _gpus,
    "CPU": _cpu,
    "C++ compiler": _compiler,
    "kernel cache": _cache,
    "options": _changed_options,
}


def environment() -> dict[str, str]:
    """Reports about this machine, by name; a failed report gives the text of its error."""
    found = {}
    for name, report in ENVIRONMENT.items():
        try:
            found[name] = report()
        except Exception as error:  # a bug report must not end in a traceback
            lines = str(error).splitlines() or [type(error).__name__]
            found[name] = f"not usable: {lines[0]}"
    return found


def environment_text() -> str:
    return "\n".join(f"  {name + ':':<15} {text}" for name, text in environment().items())


def options_text() -> str:
    """Every option with its default, and its value if it differs from the default."""
    lines = []
    core = _core()
    for variable, kind, default, text in core.option_rows():
        value = core.get_option(variable)
        present = f", now {value}" if value != default else ""
        lines.append(f"  {variable} ({kind.lower()}, default {default or 'empty'}{present})")
        lines += textwrap.wrap(text, 96, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)


def show_environment(_: argparse.Namespace) -> int:
    print(environment_text())
    return 0


def run_repro(arguments: argparse.Namespace) -> int:
    from fuser.debug import minify

    return minify.run(arguments.file)


def precompile(arguments: argparse.Namespace) -> int:
    from fuser.precompile import run

    return run(arguments.file, arguments.arguments, arguments.folder, arguments.check)


def _file(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"expected an existing file, got {name}")
    return path


def print_manual(_: argparse.Namespace) -> int:
    from fuser.inspect.manual import manual

    print(manual(), end="")
    return 0


class _Parser(argparse.ArgumentParser):
    """Adds options and environment to the help text, computed only when help is printed."""

    def format_help(self) -> str:
        return (
            f"{super().format_help()}\nEnvironment variables, read once when fuser is imported:\n"
            f"{options_text()}\n\nFound on this machine:\n{environment_text()}\n"
        )


def parser() -> argparse.ArgumentParser:
    """Parser with a subcommand per entry: `run` takes the parsed arguments and returns the exit
    code.
    """
    top = _Parser(
        prog="python -m fuser", description="A fusion compiler for PyTorch on NVIDIA GPUs."
    )
    commands = top.add_subparsers(
        title="subcommands", metavar="COMMAND", parser_class=argparse.ArgumentParser
    )
    env = commands.add_parser("env", help="print the environment, for bug reports")
    env.set_defaults(run=show_environment)
    pages = commands.add_parser("manual", help="print the API reference, made from the docstrings")
    pages.set_defaults(run=print_manual)
    repro = commands.add_parser(
        "repro",
        help="run a repro script and minimize it",
        description="Runs a repro script, prints its error, and writes the smallest script with an "
        "equal error to FILE.small.py. The exit status is 1 if the script raises no error.",
    )
    repro.add_argument(
        "file", type=_file, metavar="FILE", help="repro script, as named in the note of an error"
    )
    repro.set_defaults(run=run_repro)
    fill = commands.add_parser(
        "precompile",
        help="fill the kernel cache by a run of a script",
        description="Runs a script and stores its kernels in the cache folder, for processes of "
        "later jobs and of other hosts with equal processors. Prints the numbers of kernels that "
        "were compiled and loaded. The exit status is that of the script.",
    )
    fill.add_argument("--folder", metavar="DIR", help="cache folder instead of FUSER_CACHE_DIR")
    fill.add_argument(
        "--check", action="store_true", help="exit status 1 if a kernel was not in the folder"
    )
    fill.add_argument("file", type=_file, metavar="SCRIPT", help="Python program")
    fill.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the program"
    )
    fill.set_defaults(run=precompile)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # paths that the locale cannot encode
    top = parser()
    parsed = top.parse_args(arguments)
    if "run" not in parsed:
        top.print_help()
        return 0
    return int(parsed.run(parsed))


if __name__ == "__main__":
    sys.exit(main())
