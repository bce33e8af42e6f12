#!/usr/bin/env bash
# How long `rlpipe validate` takes, the whole process: medians for a shipped pipeline and for generated ones of 1,000 and
# 10,000 nodes, wide and deep. `make build` comes first. Numbers are of this machine, and of what else it does.
set -euo pipefail
cd "$(dirname "$0")/.."

rlpipe=${CARGO_TARGET_DIR:-target}/release/rlpipe
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export WORK_DIR=runs MODEL_PATH=model DATA_PATH=train.jsonl EVAL_DATA_PATH=test.jsonl

generate() { cargo run --quiet --package rlpipe-tests --example large_pipeline -- "$@"; }
generate 1000 1000 >"$folder/1000.yaml"
generate 10000 10000 >"$folder/10000.yaml"
generate 10000 10000 toml >"$folder/10000.toml"
generate 10000 1 >"$folder/10000-deep.yaml"

# Runs it so many times; milliseconds of each.
times() {
  local start run
  for ((run = 0; run < $2; run++)); do
    start=${EPOCHREALTIME/./}
    "$rlpipe" validate "$1" 2>/dev/null
    echo $((${EPOCHREALTIME/./} - start))
  done
}

measure() {
  times "$1" "$2" | sort -n | awk -v name="$(basename "$1")" \
    '{ at[NR] = $1 } END { printf "%-20s median %7.1f ms, fastest %7.1f ms, of %d\n", name, at[int((NR + 1) / 2)] / 1000, at[1] / 1000, NR }'
}

measure pipelines/gsm8k.yaml 51
measure "$folder/1000.yaml" 21
for file in 10000.yaml 10000.toml 10000-deep.yaml; do measure "$folder/$file" 11; done
