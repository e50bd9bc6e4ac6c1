#!/usr/bin/env bash
# The table of all cases with all contenders on all GPUs of this machine, in minutes: first compile
# every peer in many processes (--warm), then time a fraction of the families on each GPU.
#   benchmarks/full_table.sh OUT [PYTHON [OPTION ...]]
# OPTION: an option of `python -m benchmarks`. Environment variables: PROCESSES, the number of
# compiling processes per GPU; COMPILE_LIMIT and TIME_LIMIT, seconds for compiling and for timing.
# A second run with the same OUT continues after the last finished case.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:?usage: benchmarks/full_table.sh OUT [PYTHON [OPTION ...]]}" && cd "$1" && pwd)
python=${2:-python3}
shift $(($# < 2 ? $# : 2))
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
caches=${CACHES:-$out/caches}
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$caches/inductor}
export TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$caches/triton}
export TORCHINDUCTOR_COMPILE_THREADS=1  # no pool of processes beside what is timed
export QUACK_CACHE_DIR=${QUACK_CACHE_DIR:-$caches/quack}

options=(--families tables --all --compiled "$out/compiled.json" "$@")
visible=${CUDA_VISIBLE_DEVICES-$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null |
  paste -sd,)}
IFS=, read -ra gpus <<<"${visible:-none}"  # none: the CPU, which only shows that all of it works

"$python" -m benchmarks "${options[@]}" --warm "${PROCESSES:-16}" \
  --limit "${COMPILE_LIMIT:-900}" 2>"$out/warm.log"
parts=() jobs=()
for i in "${!gpus[@]}"; do
  part=$((i + 1))
  parts+=("$out/part$part.json")
  CUDA_VISIBLE_DEVICES=${gpus[i]/none/} "$python" -m benchmarks "${options[@]}" \
    --part "$part/${#gpus[@]}" --limit "${TIME_LIMIT:-3600}" --json "$out/part$part.json" \
    >"$out/part$part.log" 2>&1 &
  jobs+=($!)
done
wait "${jobs[@]}"
exec "$python" -m benchmarks --merge "${parts[@]}" --results "$out"
