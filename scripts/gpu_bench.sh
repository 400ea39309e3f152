#!/usr/bin/env bash
# The paper's settings of time and memory at its model's size, with random weights, on one GPU of 80 GB: at most nine
# minutes. Needs torch with CUDA, transformers and this checkout. Rows that the file has are not measured again, so that
# a run that was stopped goes on: scripts/gpu_bench.sh [FILE.json [options of `flashtrace bench`, which replace these]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
file=${1:-data/results/gpu.json}
timeout 540 "${PYTHON:-python3}" -m flashtrace_lib bench --json "$file" --shape qwen3-8b --runs 3 \
    --sizes 5000+10 10+5000 10000+10 --methods flashtrace attnlrp ifr_one_by_one "${@:2}" \
    || { code=$?; [ $code != 124 ] || echo "nine minutes are over: run it again to go on" >&2; exit $code; }
