"""Lays out wheels: unpack_libtorch.py torch|cuda VERSION WHEELS_FOLDER OUT.

`torch` takes the headers of libtorch and what a CPU needs to run, a fifth of the whole. `cuda` takes CUDA's headers.
"""

import pathlib
import shutil
import sys
import zipfile

TORCH_LIBRARIES = ["libtorch_cpu.so", "libc10.so", "libgomp.so.1"]
CUDA_LIBRARIES = {"nvidia_cuda_runtime": "libcudart.so.13", "nvidia_cuda_cupti": "libcupti.so.13"}
# What torch's CUDA headers include: the interfaces of runtime and driver, crt/, nv/target.
CUDA_HEADERS = ["nvidia_cuda_runtime", "nvidia_cuda_crt", "nvidia_cuda_cccl"]


def torch(version, wheels, out):
    (out / "lib").mkdir(parents=True)
    with open_wheel(wheels, f"torch-{version}-") as wheel:
        for entry in wheel.infolist():
            parts = pathlib.PurePosixPath(entry.filename).parts
            if parts[:2] == ("torch", "include") and not entry.is_dir():
                copy(wheel, entry.filename, out.joinpath(*parts[1:]))
        for name in TORCH_LIBRARIES:
            copy(wheel, f"torch/lib/{name}", out / "lib" / name)
    for package, name in CUDA_LIBRARIES.items():
        with open_wheel(wheels, f"{package}-") as wheel:
            copy(wheel, f"nvidia/cu13/lib/{name}", out / "lib" / name)
    # `-ltorch` finds this linker script; the wheel's own libtorch.so would ask for libtorch_cuda.so.
    (out / "lib" / "libtorch.so").write_text("INPUT(libtorch_cpu.so)\n")


def cuda(_version, wheels, out):
    for package in CUDA_HEADERS:
        with open_wheel(wheels, f"{package}-") as wheel:
            for entry in wheel.infolist():
                parts = pathlib.PurePosixPath(entry.filename).parts
                # cccl/ (cub, thrust) is for nvcc.
                if parts[:3] == ("nvidia", "cu13", "include") and parts[3:4] != ("cccl",) and not entry.is_dir():
                    copy(wheel, entry.filename, out.joinpath(*parts[2:]))


def open_wheel(folder, prefix):
    found = sorted(path for path in folder.glob("*.whl") if path.name.startswith(prefix))
    if len(found) != 1:
        sys.exit(f"expected one wheel `{prefix}*.whl` in `{folder}`, found {len(found)}")
    return zipfile.ZipFile(found[0])


def copy(wheel, name, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    with wheel.open(name) as source, open(target, "wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)


def main(what, version, wheels, out):
    out = pathlib.Path(out)
    {"torch": torch, "cuda": cuda}[what](version, pathlib.Path(wheels), out)
    (out / "build-version").write_text(f"{version}\n")


try:
    main(*sys.argv[1:])
except (OSError, KeyError, zipfile.BadZipFile) as error:
    sys.exit(f"{type(error).__name__}: {error}")
except KeyboardInterrupt:
    sys.exit(130)
