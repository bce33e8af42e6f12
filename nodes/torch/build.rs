//! Compiles `native/` and says where libtorch lies.
//!
//! `native/shim.cpp` and `native/attend.cpp` go into the programs. `native/cuda/*.cpp` becomes `librlpipe_cuda.so` beside them, which is opened
//! at run time and only with CUDA: it is compiled on every Linux x86-64, card or none, from headers alone.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

const SHIM: &str = "native/shim.cpp";
const LOOPS: &str = "native/attend.cpp";
const CUDA: [&str; 2] = ["native/cuda/device.cpp", "native/cuda/kernel.cpp"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=native");
    if let Err(message) = build() {
        println!("cargo::error={message}");
    }
}

fn build() -> Result<(), String> {
    let libraries = env::var("DEP_TCH_LIBTORCH_LIB").map_err(|_| "torch-sys did not say where libtorch lies")?;
    // A RUNPATH: LD_LIBRARY_PATH still wins, which is how a GPU machine's own libtorch is used.
    println!("cargo:rustc-link-arg=-Wl,--enable-new-dtags,-rpath,{libraries}");
    println!("cargo:rustc-env=RLPIPE_TORCH_LIBRARIES={libraries}");

    let torch = Path::new(&libraries).with_file_name("include");
    compiler(&torch).file(SHIM).compile("rlpipe_native");
    // Loops over numbers, which are of no use slow, in a debug build either.
    compiler(&torch)
        .opt_level(3)
        .flag("-Wno-psabi")
        .file(LOOPS)
        .compile("rlpipe_loops");

    let of = |name: &str| env::var(name).unwrap_or_default();
    if of("CARGO_CFG_TARGET_OS") == "linux" && of("CARGO_CFG_TARGET_ARCH") == "x86_64" {
        cuda_object(&torch)?;
    }
    Ok(())
}

/// Links nothing: libtorch_cuda, libc10_cuda and libcudart are in the process by the time this is opened, and need not
/// exist here.
fn cuda_object(torch: &Path) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = [torch.with_file_name("cuda/include"), root.join("libtorch/cuda/include")];
    let is_there = |folder: &&PathBuf| folder.join("cuda_runtime_api.h").is_file();
    let headers = folders.iter().find(is_there).ok_or_else(|| {
        let [first, second] = folders.each_ref().map(|folder| folder.display());
        format!("there are no CUDA headers in `{first}` or `{second}`; run `make libtorch`, which fetches them (5 MB)")
    })?;
    let sources = digest(["native/guard.h"].iter().chain(&CUDA))?;
    println!("cargo:rustc-env=RLPIPE_CUDA_SOURCES={sources}");
    let objects = compiler(torch)
        .define("RLPIPE_SOURCES", format!("{sources}u").as_str())
        .flag("-isystem")
        .flag(headers)
        .files(CUDA)
        .compile_intermediates();
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    // OUT_DIR is TARGET/PROFILE/build/NAME/out.
    let profile = out.ancestors().nth(3).ok_or("OUT_DIR is not as cargo makes it")?;
    let library = profile.join("librlpipe_cuda.so");
    let mut link = compiler(torch).get_compiler().to_command();
    link.args(["-shared", "-Wl,-soname,librlpipe_cuda.so", "-o"])
        .arg(&library)
        .args(objects);
    match link.status() {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(format!("{link:?}: {status}")),
        Err(error) => return Err(format!("{link:?}: {error}")),
    }
    println!("cargo:rustc-env=RLPIPE_BUILT_CUDA_OBJECT={}", library.display());
    Ok(())
}

/// No `-fvisibility=hidden`: exceptions and torch's types must be one across libraries.
fn compiler(torch: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .pic(true)
        .std("c++17")
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        .flag("-isystem")
        .flag(torch)
        .flag("-Wno-unused-parameter");
    build
}

/// Tells an object of these sources from one that was left by others.
fn digest<'a>(files: impl Iterator<Item = &'a &'a str>) -> Result<u64, String> {
    let mut hasher = DefaultHasher::new();
    for file in files {
        let bytes = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
        bytes.hash(&mut hasher);
    }
    Ok(hasher.finish())
}
