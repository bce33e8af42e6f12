#!/usr/bin/env bash
# Fuzzes a target for so many seconds with the stable compiler: tests/fuzz/run.sh parse|validate [SECONDS]
# More arguments go to libFuzzer, such as `-jobs=2`. What fails is kept in tests/fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")"

target=${1:?which target: parse or validate}
seconds=${2:-600}
corpus=corpus/$target
mkdir -p "$corpus" artifacts

# Seeds: every shipped pipeline and every case of tests/ui, the latter laid over their base.
seed() { cat >"$corpus/seed-$1"; }
for file in ../../pipelines/*.{yaml,toml} ../ui/*.{yaml,toml}; do
  name=$(basename "$file")
  {
    case $target-$file in validate-*/ui/*) printf '%s\0' "$(cat ../ui/base/base.yaml)" ;; esac
    case $file in *.toml) echo '#toml' ;; esac
    cat "$file"
    case $target in validate) printf '\0%s' 'run.seed=7' ;; esac
  } | seed "$name"
done
# Words: every key and name of the schema, and what else means something.
{
  grep -oE '"[A-Za-z0-9_]+"' ../../schemas/pipeline.schema.json
  printf '"%s"\n' '${' '}' ':-' '$${' '#toml' '<<: *a' '&a ' '*a' '!!str ' '---' '\x00' '\xc3\xa9' '[[' '\"\"\"' "'''" '1e999' '0x7f'
} | sort -u >words.dict

# What cargo-fuzz asks of a nightly compiler, asked of a stable one. With a target named, build scripts are left alone.
host=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=16"
cargo build --release --target "$host" --bin "$target"
exec "target/$host/release/$target" "$corpus" -dict=words.dict -artifact_prefix=artifacts/ \
  -max_total_time="$seconds" -timeout=5 -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 "${@:3}"
