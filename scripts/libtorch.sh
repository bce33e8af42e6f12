#!/usr/bin/env bash
# Puts libtorch into ./libtorch (headers and CPU libraries of the PyPI wheels), or checks the libtorch that
# LIBTORCH or LIBTORCH_USE_PYTORCH names, and CUDA's headers into ./libtorch/cuda, which the CUDA object is compiled with.
# Prints what it does; nothing where all is in place.
# LIBTORCH_WHEELS=FOLDER takes the wheels from there and asks no network.
set -euo pipefail
cd "$(dirname "$0")/.."

version=2.11.0 # the one that the tch crate in Cargo.toml is made for
requirements=("torch==$version")
cuda_version=13.0.96 # the one that this torch is made with
cuda_libraries=("nvidia-cuda-runtime==$cuda_version" nvidia-cuda-cupti==13.0.85) # libtorch_cpu.so links them
cuda_headers=("nvidia-cuda-runtime==$cuda_version" nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85)
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

is_there() {
  [ "$(cat "$1/build-version" 2>/dev/null)" = "$2" ]
}

needs_torch= needs_cuda=
if [ -n "${LIBTORCH_USE_PYTORCH+set}" ]; then
  check_python
elif [ -n "${LIBTORCH-}" ] && [ "$(realpath -m "$LIBTORCH")" != "$(realpath -m "$here")" ]; then
  check_folder
  is_there "$LIBTORCH/cuda" "$cuda_version" && exit 0
else
  is_there libtorch "$version" || needs_torch=yes
fi
is_linux=
[ "$(uname -s) $(uname -m)" != "Linux x86_64" ] || is_linux=yes
# Written last, so what is there is whole.
[ -z "$is_linux" ] || is_there libtorch/cuda "$cuda_version" || needs_cuda=yes
[ -n "$needs_torch$needs_cuda" ] || exit 0

[ -n "$is_linux" ] ||
  fail "wheels are fetched for Linux on x86-64 only; set LIBTORCH to a libtorch $version for $(uname -s) on $(uname -m)"
command -v python3 >/dev/null || fail "there is no \`python3\`; install Python 3 with pip${needs_torch:+, or set LIBTORCH to a libtorch $version}"

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
      "fetch the wheels of ${needs_torch:+${requirements[*]} ${cuda_libraries[1]} }${cuda_headers[*]} elsewhere," \
      "for CPython 3.12 on Linux x86-64, and run \`LIBTORCH_WHEELS=FOLDER make build\`${needs_torch:+;}" \
      ${needs_torch:+"or set LIBTORCH to a libtorch $version"}
}
# Lays out the part $1, of version $2, as the folder $3. Another run may have been faster.
place() {
  "$python" scripts/unpack_libtorch.py "$1" "$2" "$wheels" "$partial/$1" || fail "unpacking failed; see above"
  is_there "$3" "$2" && return
  rm -rf "$3"
  mkdir -p "$(dirname "$3")"
  mv -T "$partial/$1" "$3"
}
if [ -z "${LIBTORCH_WHEELS-}" ]; then
  manylinux=(--platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux_2_25_x86_64)
  if [ -n "$needs_torch" ]; then
    echo "libtorch: fetching the wheels of torch $version (540 MB)"
    fetch --implementation cp --abi cp312 --platform manylinux_2_28_x86_64 "${requirements[@]}"
    fetch "${manylinux[@]}" "${cuda_libraries[@]}"
  fi
  echo "libtorch: fetching the headers of CUDA $cuda_version (5 MB)"
  fetch "${manylinux[@]}" "${cuda_headers[@]}"
fi

echo "libtorch: unpacking"
if [ -n "$needs_torch" ]; then
  place torch "$version" libtorch
  echo "libtorch: $version is in libtorch/"
fi
place cuda "$cuda_version" libtorch/cuda
echo "libtorch: the headers of CUDA $cuda_version are in libtorch/cuda/"
if [ -n "$needs_torch" ] && [ -e /dev/nvidia0 ]; then
  echo "libtorch: it runs on the CPU; this machine has a GPU: \`python3 -m pip install torch==$version\` brings the rest," \
    "and \`LIBTORCH_USE_PYTORCH=1 make build\` uses it"
fi
