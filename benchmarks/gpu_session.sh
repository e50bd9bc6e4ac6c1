#!/usr/bin/env bash
# All steps that need a GPU: builds, tests, memcheck, racecheck, benchmarks.
#   benchmarks/gpu_session.sh OUT [PYTHON [FAMILY ...]]
# Steps that run only by name: op_suite_DTYPE (float32, float64, float16, bfloat16) runs torch's op
# suite through fuser's kernels, a fraction of it with SHARE=0.2; networks trains all networks;
# lengths and growth monitor one network.
# FAMILY: families of `python -m benchmarks` to run (default: all), and options, e.g. --quick or
# --samples=20. STEPS="build benchmarks" in the environment runs only these steps.
# Logs and results are written to the folder OUT. A failing step does not stop the next one. The
# exit status is the number of failed steps.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:?usage: benchmarks/gpu_session.sh OUT [PYTHON [FAMILY ...]]}" && cd "$1" && pwd)
python=${2:-python3}
shift $(($# < 2 ? $# : 2))
families=() options=()
for argument in "$@"; do
  case $argument in
    -*) options+=("$argument") ;;
    *) families+=("$argument") ;;
  esac
done
if ((${#families[@]})); then
  options+=(--families "$(IFS=,; echo "${families[*]}")")
fi
export PYTHONPATH=$PWD FUSER_CACHE_DIR=${FUSER_CACHE_DIR:-$out/cache}
steps=" ${STEPS:-build environment gpu_tests benchmarks memcheck racecheck} "
failed=0

step() {
  local name=$1 start=$SECONDS
  shift
  [[ $steps == *" $name "* ]] || return 0
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
step benchmarks timeout 500 "$python" -m benchmarks --json "$out/benchmarks.json" \
  --markdown "$out/benchmarks.md" "${options[@]}"
for tool in memcheck racecheck; do
  step "$tool" timeout 200 "$python" -m benchmarks.sanitize --tools "$tool"
done
for dtype in float32 float64 float16 bfloat16; do
  step "op_suite_$dtype" timeout 900 "$python" -m tests.adapters.op_db --share "${SHARE:-1}" \
    --dtype "$dtype" --device cuda --jobs "$(nproc)"
done
step networks timeout 900 "$python" -m tests.adapters.networks
step lengths timeout 300 "$python" -m tests.adapters.networks bert4 gpt2 --lengths 40
step growth timeout 300 "$python" -m tests.adapters.networks bert4 --growth 2000
if [[ $steps == *" benchmarks "* ]]; then tail -n 60 "$out/benchmarks.log"; fi
exit "$failed"
