//! Bakes in where libtorch lies, as a RUNPATH: LD_LIBRARY_PATH still wins, which is how a GPU machine's own is used.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    match env::var("DEP_TCH_LIBTORCH_LIB") {
        Ok(folder) => println!("cargo:rustc-link-arg=-Wl,--enable-new-dtags,-rpath,{folder}"),
        Err(_) => println!("cargo:warning=torch-sys did not say where libtorch lies; set LD_LIBRARY_PATH to run"),
    }
}
