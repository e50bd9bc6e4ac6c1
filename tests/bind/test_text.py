"""csrc/bind/text.h: paths and environment variables that are not UTF-8; as in Python, they contain
lone surrogates."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fuser import CompileError, FusionDefinition, UserError, _core

NAME = b"caf\xe9 \xff"  # invalid in UTF-8
LOCALES = {
    "utf-8": {"LC_ALL": "C.UTF-8"},
    "ascii": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
}

PROGRAM = """\
import os, sys, torch, fuser
from fuser import DataType, FusionDefinition, _core

here = os.path.dirname(__file__)
with FusionDefinition() as fd:
    x = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.Float)
    fd.add_output(fd.ops.exp(x))
data = torch.zeros(3)
assert fd.execute([data])[0].eq(1).all()
assert fuser.cache_info().kernels_compiled >= 1
fd.execute([torch.zeros(4, 1)[:, 0]], capture_debug_output=True)
str(x), repr(fd), x.location, fuser.explain(fd, data), fd.repro_script_for([data])
fuser.report(fd, data, path=os.path.join(here, "report.html"), measured=False)
for name in ("FUSER_CACHE_DIR", "FUSER_DUMP_DIR", "FUSER_CXX"):
    value = _core.get_option(name)
    assert value == os.environ[name], (value, os.environ[name])
    _core.set_option(name, value)
    assert _core.get_option(name) == value
assert os.listdir(os.environ["FUSER_CACHE_DIR"]) and os.listdir(os.environ["FUSER_DUMP_DIR"])

try:
    torch.zeros(2) + fd.define_tensor([1])
except fuser.UserError as error:
    str(error)
fuser.FusionCache.get().serialize()
print("done")
"""


@pytest.mark.parametrize("locale", LOCALES)
def test_every_path_may_be_no_utf8(locale: str, tmp_path: Path) -> None:
    """Paths that are not UTF-8 work for the script, the folders of cache, dumps and temporary
    files, and the compiler. One process per locale runs, reports, dumps and saves. (torch.compile
    itself cannot read a script of this name.)"""
    folder = os.path.join(os.fsencode(tmp_path), NAME)
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    places = {n: os.path.join(folder, n.lower().encode()) for n in ("CACHE_DIR", "DUMP_DIR", "TMP")}
    for place in (folder, *places.values()):
        os.mkdir(place)
    os.chmod(places["CACHE_DIR"], 0o700)
    script, cxx = os.path.join(folder, NAME + b".py"), os.path.join(folder, b"g++")
    with open(script, "w", encoding="utf-8") as file:
        file.write(PROGRAM)
    os.symlink(compiler, cxx)
    environment = {
        **{k: v for k, v in os.environb.items() if not k.startswith((b"FUSER_", b"LC_", b"LANG"))},
        **{k.encode(): v.encode() for k, v in LOCALES[locale].items()},
        **{b"FUSER_" + n.encode(): p for n, p in places.items() if n != "TMP"},
        b"FUSER_CXX": cxx,
        b"TMPDIR": places["TMP"],
        b"FUSER_DUMP": b"cuda",
        b"PYTHONPATH": os.fsencode(Path(__file__).parents[2]) + b":" + folder,
        b"TORCHINDUCTOR_CACHE_DIR": os.fsencode(tmp_path / "torch"),
    }
    done = subprocess.run(
        [os.fsencode(sys.executable), script], env=environment, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"done\n"), done.stderr.decode(errors="replace")


def test_messages_name_what_is_no_utf8(set_option: object) -> None:
    """Names that are not UTF-8 raise a fuser error that can be printed in any locale."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1])
    fd.add_output(x * 2)
    data = torch.zeros(3)
    for act in (
        lambda: fd.execute([data], device="caf\udce9"),
        lambda: fd.execute([data], plan=fd.plan([data]).replace(scheduler="caf\udce9")),
        lambda: fd.execute(["caf\udce9"]),
        lambda: _core.set_option("FUSER_LOG", "caf\udce9"),
    ):
        with pytest.raises(UserError) as caught:
            act()
        str(caught.value).encode()


def test_a_compiler_that_is_not_there(set_option) -> None:  # type: ignore[no-untyped-def]
    set_option("FUSER_CXX", "/caf\udce9/g++")
    from fuser.runtime import cxx

    with pytest.raises(CompileError, match="does not start") as caught:
        cxx.compiler()
    assert caught.value.rule == "host-compiler"


def test_a_folder_that_cannot_be_made_is_named_once(tmp_path: Path) -> None:
    """If the cache folder cannot be created, fuser runs without it and logs one line."""
    file = tmp_path / "caf\udce9"
    file.touch()
    program = (
        "import torch; from fuser import FusionDefinition\n"
        "fd = FusionDefinition(); fd.add_output(fd.define_tensor([-1]) * 2)\n"
        "print(fd.execute([torch.ones(2)])[0].tolist())"
    )
    environment = {**os.environ, "FUSER_CACHE_DIR": str(file / "below")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=True
    )
    assert done.stdout == b"[2.0, 2.0]\n"
    assert done.stderr.count(b"caf\xe9") == 1
