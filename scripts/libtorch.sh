#!/usr/bin/env bash
# Puts libtorch into ./libtorch (headers and CPU libraries of the PyPI wheels), or checks the libtorch that
# LIBTORCH or LIBTORCH_USE_PYTORCH names. Prints what it does; nothing where all is in place.
# LIBTORCH_WHEELS=FOLDER takes the wheels from there and asks no network.
set -euo pipefail
cd "$(dirname "$0")/.."

version=2.11.0 # the one that the tch crate in Cargo.toml is made for
requirements=("torch==$version")
cuda_requirements=(nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85) # libtorch_cpu.so links them
here=$PWD/libtorch

fail() {
  printf 'libtorch: %s\n' "$@" >&2
  exit 1
}

# The version that the headers of a libtorch folder state.
header_version() {
  local header
  for header in "$1"/include/torch/headeronly/version.h "$1"/include/torch/csrc/api/include/torch/version.h; do
    [ -f "$header" ] || continue
    awk '/#define TORCH_VERSION_(MAJOR|MINOR|PATCH)/ { out = out sep $3; sep = "." } END { print out }' "$header"
    return
  done
}

check_python() {
  local python=python3 found
  [ -z "${VIRTUAL_ENV-}" ] || python=python
  command -v $python >/dev/null || fail "LIBTORCH_USE_PYTORCH is set, but there is no \`$python\`; install Python or unset it"
  found=$($python -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null) ||
    fail "LIBTORCH_USE_PYTORCH is set, but \`$python\` has no torch; run \`$python -m pip install torch==$version\`," \
      "or unset LIBTORCH_USE_PYTORCH to have libtorch fetched"
  [ "${found%%+*}" = "$version" ] ||
    fail "LIBTORCH_USE_PYTORCH is set, and \`$python\` has torch $found; this project needs $version:" \
      "run \`$python -m pip install torch==$version\`, or unset LIBTORCH_USE_PYTORCH to have libtorch fetched"
}

check_folder() {
  local found
  [ -f "$LIBTORCH/lib/libtorch_cpu.so" ] && [ -d "$LIBTORCH/include" ] ||
    fail "LIBTORCH is $LIBTORCH, which has no include/ and lib/libtorch_cpu.so;" \
      "point it at a libtorch $version (the \`torch\` folder of a Python installation is one), or unset it to have one fetched"
  found=$(header_version "$LIBTORCH")
  [ "$found" = "$version" ] ||
    fail "LIBTORCH is $LIBTORCH, version ${found:-unknown}; this project needs $version:" \
      "point it at that version, or unset it to have it fetched"
}

if [ -n "${LIBTORCH_USE_PYTORCH+set}" ]; then
  check_python
  exit 0
fi
if [ -n "${LIBTORCH-}" ] && [ "$(realpath -m "$LIBTORCH")" != "$(realpath -m "$here")" ]; then
  check_folder
  exit 0
fi
# Written last, so what is there is whole.
if [ "$(cat libtorch/build-version 2>/dev/null)" = "$version" ]; then
  exit 0
fi

[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] ||
  fail "wheels are fetched for Linux on x86-64 only; set LIBTORCH to a libtorch $version for $(uname -s) on $(uname -m)"
command -v python3 >/dev/null || fail "there is no \`python3\`; install Python 3 with pip, or set LIBTORCH to a libtorch $version"

partial=$(mktemp -d "$PWD/libtorch.partial.XXXXXX")
trap 'rm -rf "$partial"' EXIT
trap "exit 130" INT
trap 'exit 143' TERM

# pip before 23 does not know the wheels' platform tags.
python=python3
if ! python3 -c 'import pip, sys; sys.exit(int(pip.__version__.split(".")[0]) < 23)' 2>/dev/null && [ -z "${LIBTORCH_WHEELS-}" ]; then
  echo "libtorch: pip is missing or older than 23; using a newer one in a virtual environment"
  python3 -m venv "$partial/venv" || fail "\`python3 -m venv\` failed; install pip 23 or later (Debian: python3-pip, python3-venv)"
  python=$partial/venv/bin/python
  "$python" -m pip install --quiet --disable-pip-version-check --upgrade pip || fail "pip could not be upgraded; see above"
fi

wheels=${LIBTORCH_WHEELS:-$partial/wheels}
fetch() {
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --dest "$wheels" --python-version 312 "$@" ||
    fail "the download failed (see above); run the command again, or, without a network:" \
      "fetch the wheels of ${requirements[*]} and ${cuda_requirements[*]} elsewhere," \
      "for CPython 3.12 on Linux x86-64, and run \`LIBTORCH_WHEELS=FOLDER make build\`;" \
      "or set LIBTORCH to a libtorch $version"
}
if [ -z "${LIBTORCH_WHEELS-}" ]; then
  echo "libtorch: fetching the wheels of torch $version (540 MB)"
  fetch --implementation cp --abi cp312 --platform manylinux_2_28_x86_64 "${requirements[@]}"
  fetch --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux_2_25_x86_64 \
    "${cuda_requirements[@]}"
fi

echo "libtorch: unpacking"
"$python" scripts/unpack_libtorch.py "$version" "$wheels" "$partial/libtorch" || fail "unpacking failed; see above"

# Another run may have been faster.
if [ "$(cat libtorch/build-version 2>/dev/null)" != "$version" ]; then
  rm -rf libtorch
  mv -T "$partial/libtorch" libtorch
fi
echo "libtorch: $version is in libtorch/"
if [ -e /dev/nvidia0 ]; then
  echo "libtorch: it runs on the CPU; this machine has a GPU: \`python3 -m pip install torch==$version\` brings the rest," \
    "and \`LIBTORCH_USE_PYTORCH=1 make build\` uses it"
fi
