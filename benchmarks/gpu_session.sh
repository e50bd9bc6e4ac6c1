#!/usr/bin/env bash
# Everything that needs a GPU, in one go: builds, tests, memcheck, benchmarks.
#   benchmarks/gpu_session.sh OUT [PYTHON]
# Logs and results go into the folder OUT; a step that fails does not stop the next. The exit status
# is the number of steps that failed.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:?usage: benchmarks/gpu_session.sh OUT [PYTHON]}" && cd "$1" && pwd)
python=${2:-python3}
export PYTHONPATH=$PWD FUSER_CACHE_DIR=${FUSER_CACHE_DIR:-$out/cache}
failed=0

step() {
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$out/$name.log" 2>&1; then
    echo "$name: passed, $((SECONDS - start)) s"
  else
    echo "$name: FAILED ($?), $((SECONDS - start)) s; last lines of $out/$name.log:"
    tail -n 15 "$out/$name.log"
    failed=$((failed + 1))
  fi
}

step build make -s build VENV= PYTHON="$python"
step environment "$python" -m fuser env
step gpu_tests timeout 400 "$python" -m pytest -m gpu -q tests
step benchmarks timeout 500 "$python" -m benchmarks --json "$out/benchmarks.json" --markdown "$out/benchmarks.md"
if command -v compute-sanitizer >/dev/null; then
  step memcheck timeout 300 compute-sanitizer --tool memcheck --error-exitcode 9 \
    "$python" -m benchmarks --tiny --samples 2 --contenders fuser --families pointwise --quick
else
  echo "memcheck: skipped, no compute-sanitizer on PATH"
fi
tail -n 60 "$out/benchmarks.log"
exit "$failed"
