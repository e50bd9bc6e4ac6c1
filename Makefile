# make demo    set up, build, run examples/quickstart.py
# make test    set up, build, run the tests                 TESTS="tests/ir -k add"  JOBS=4
# make test-cpu  the part of them that runs on CPU kernels  CPU_TESTS="tests/ops"
# make build   set up, build into fuser/ of this checkout
# make lint    ruff, mypy, clang-format 14 where installed  make clean
# make docs    the documents and the API reference as a site in build/site
# make sanitize  the tests of the compiler core with AddressSanitizer and UndefinedBehaviorSanitizer
# make odr     link the compiler core with a comparison of types of one name (GCC)
#
# VENV    the virtual environment to create and use (default .venv). If empty, use PYTHON directly
#         and install no packages.
# PYTHON  the interpreter that creates the environment, 3.11 or newer (default python3)
VENV ?= .venv
PYTHON ?= python3
TORCH := 2.13.0
TESTS ?= tests
# Tests of values, which run on CPU kernels too.
CPU_TESTS ?= tests/ops tests/torch tests/test_definition.py tests/test_hard_fusions.py \
  tests/test_fuzz.py tests/test_examples.py
# Number of pytest-xdist workers, if it is installed. A file runs on one worker, which compiles its
# kernels in one batch; more than 8 workers gain little.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n > 8 ? 8 : n)))

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: build demo test test-cpu lint docs sanitize odr clean

ifeq ($(strip $(VENV)),)
py := $(PYTHON)
else
py := $(VENV)/bin/python
ready := $(VENV)/fuser-ready
linked := $(VENV)/fuser-linked
documented := $(VENV)/fuser-documented
# Print the requirements of pyproject.toml, one per line, without torch, which has its own step.
requirements := import tomllib; t = tomllib.load(open("pyproject.toml", "rb")); p = t["project"]; \
  o = p["optional-dependencies"]; \
  r = t["build-system"]["requires"] + p["dependencies"] + o["test"] + o["lint"]; \
  print("\n".join(x for x in r if not x.startswith("torch")))
endif

build: $(ready)
	@$(py) setup.py -q build_ext --inplace
ifdef linked
	@$(MAKE) -s $(linked)
endif

demo: build
	PYTHONPATH=$(CURDIR) $(py) examples/quickstart.py

# One torch thread per worker: more threads would compete for the cores.
parallel = $$($(py) -c 'import importlib.util as u; print("-n $(JOBS) --dist loadfile" if u.find_spec("xdist") else "")')
test: build
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(py) -m pytest $(TESTS) $(parallel)

test-cpu: build
	FUSER_HOST_ARCH=0 OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(py) -m pytest $(CPU_TESTS) $(parallel)

# Exclude kernel texts (csrc/device), which are formatted by hand. Require clang-format 14, because
# releases format differently.
lint: $(ready)
	$(py) -m ruff check .
	$(py) -m ruff format --check .
	$(py) -m mypy
	if clang-format --version 2>/dev/null | grep -q 'version 14\.'; then \
	  clang-format --dry-run --Werror \
	    $$(find csrc -path csrc/device -prune -o \( -name '*.cpp' -o -name '*.h' \) -print); \
	fi

# Require the extra `docs`. Strict: a link to a file or heading that does not exist is an error.
docs: build $(documented)
	PYTHONPATH=$(CURDIR) NO_MKDOCS_2_WARNING=1 $(py) -m mkdocs build --strict

# Build the compiler with sanitizers, in a folder of its own, and run tests with it, but no compilations
# by NVRTC, which are slow there and run no code of the compiler.
SANITIZED ?= tests/base tests/ir tests/fusion tests/schedule tests/schedulers tests/lower tests/codegen \
  --ignore-glob='*/test_nvrtc_*'
sanitize: build
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(py) -m tests.support.sanitize build/sanitize \
	  -q -n $(JOBS) --dist loadfile $(SANITIZED)

# Compare the definitions of types of one name across files, in a build of its own.
odr: $(ready)
	export PATH="$$($(py) -c 'import sysconfig; print(sysconfig.get_path("scripts"))'):$$PATH"; \
	  cmake -S . -B build/odr -G Ninja -DFUSER_ODR=ON -DPython_EXECUTABLE="$$($(py) -c 'import sys; print(sys.executable)')" \
	    -Dpybind11_DIR="$$($(py) -m pybind11 --cmakedir)"; \
	  cmake --build build/odr --target fuser --parallel $(JOBS)

clean:
	rm -rf build dist *.egg-info fuser/*.so fuser/device

ifdef ready
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else \
	  f"fuser: needs Python 3.11 or newer, {sys.executable} is {sys.version.split()[0]}; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

# Stamp file of the set-up, which is repeated when the requirements change.
$(ready): pyproject.toml | $(VENV)/bin/python
	@if ! $(py) -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)'; then \
	  echo "fuser: installing torch $(TORCH): a download of about 200 MB where the package index has the"; \
	  echo "       CPU build, up to 3 GB with its CUDA packages where it has not; a torch that you installed in"; \
	  echo "       $(VENV) before, or VENV= PYTHON=<interpreter with torch>, avoids it"; \
	  $(py) -m pip install -q "torch==$(TORCH)+cpu" 2>/dev/null || $(py) -m pip install "torch==$(TORCH)"; \
	fi
	@$(py) -c '$(requirements)' > $(VENV)/fuser-requirements.txt
	$(py) -m pip install -q -r $(VENV)/fuser-requirements.txt
	@touch $@

$(documented): pyproject.toml $(ready)
	@$(py) -c 'import tomllib; t = tomllib.load(open("pyproject.toml", "rb")); \
	  print("\n".join(t["project"]["optional-dependencies"]["docs"]))' > $(VENV)/fuser-docs.txt
	$(py) -m pip install -q -r $(VENV)/fuser-docs.txt
	@touch $@

# Register the built checkout in the environment, so that `import fuser` finds it from any folder.
$(linked): pyproject.toml setup.py
	@$(py) -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@
endif
