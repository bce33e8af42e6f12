#!/usr/bin/env bash
# The tests that need a card, for a machine that has one and no Rust:
#   scripts/gpu_tests.sh pack FOLDER   here: builds them, and packs them into FOLDER (a few MB)
#   scripts/gpu_tests.sh run FOLDER    there, in a copy of this repository with FOLDER, where `python3` has torch 2.11.0
# With Rust there too, `LIBTORCH_USE_PYTORCH=1 make test-gpu` runs them, and all others of the worker.
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,5s/^# \?//p' "$0" >&2; exit 2; }
folder=$(realpath -m "$2")
cd "$(dirname "$0")/.."

case $1 in
pack)
  mkdir -p "$folder"
  # What needs a card asks for one by `common::card`.
  mapfile -t tests < <(grep -l 'card()' nodes/torch/tests/*.rs | xargs -n 1 basename -s .rs)
  cargo test --release -p rlpipe-torch --no-run --message-format json "${tests[@]/#/--test=}" |
    python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["profile"]["test"]:
        print(message["target"]["name"], message["executable"])
' >"$folder/list"
  while read -r name path; do
    strip -o "$folder/$name" "$path"
    object=$(dirname "$path")/../librlpipe_cuda.so
  done <"$folder/list"
  rm "$folder/list"
  strip -o "$folder/librlpipe_cuda.so" "$object"
  tests+=(librlpipe_cuda.so)
  (cd "$folder" && xz -fT0 "${tests[@]}")
  du -sh "$folder"
  ;;
run)
  LD_LIBRARY_PATH=$(python3 -c 'import os, torch; print(os.path.join(os.path.dirname(torch.__file__), "lib"))')
  export LD_LIBRARY_PATH RLPIPE_TEST_CARD=1 CARGO_MANIFEST_DIR=$PWD/nodes/torch
  unpacked=$(mktemp -d)
  trap 'rm -rf "$unpacked"' EXIT
  status=0
  for file in "$folder"/*.xz; do
    name=$(basename "$file" .xz)
    xz -dc "$file" >"$unpacked/$name"
    chmod +x "$unpacked/$name"
  done
  for program in "$unpacked"/*; do
    [ "${program%.so}" = "$program" ] || continue
    echo "== $(basename "$program")"
    "$program" --nocapture || status=1
  done
  exit $status
  ;;
*) exit 2 ;;
esac
