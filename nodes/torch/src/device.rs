//! The one device that this process computes on.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use tch::{Cuda, Device, Kind};

use crate::{Result, fail};

/// The only version that tch 0.24 builds against.
pub const TORCH_VERSION: &str = "2.11.0";

/// The device, and what to call it.
#[derive(Debug, Clone, PartialEq)]
pub struct Accelerator {
    /// Where tensors lie.
    pub device: Device,
    /// "cpu", or the name of the card.
    pub name: String,
}

/// Loads torch's CUDA half if this machine has it. Must be the first torch act of the process: after any other, torch
/// has settled for its hooks without CUDA.
pub fn load_cuda_library() {
    // SAFETY: a constant path; the library's initialisers are torch's own.
    unsafe { libc::dlopen(c"libtorch_cuda.so".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
}

/// Opens what was asked for: `cpu`, `cuda`, or `auto` (CUDA if there is one).
pub fn open(wanted: &str) -> Result<Accelerator> {
    let cpu = Accelerator {
        device: Device::Cpu,
        name: "cpu".to_owned(),
    };
    match wanted {
        "cpu" => Ok(cpu),
        "auto" if !Cuda::is_available() => Ok(cpu),
        "auto" | "cuda" if Cuda::is_available() => Ok(Accelerator {
            device: Device::Cuda(0),
            name: card_name().unwrap_or_else(|| "cuda".to_owned()),
        }),
        "cuda" => fail!(
            "no CUDA device: libtorch_cuda.so could not be opened or sees no card; \
             check `nvidia-smi`, CUDA_VISIBLE_DEVICES, and that LD_LIBRARY_PATH names a CUDA build of libtorch"
        ),
        other => fail!("accelerator `{other}` is unknown; choose `cpu`, `cuda` or `auto`"),
    }
}

/// Settles the threads of torch: `OMP_NUM_THREADS` inside an operator, one across operators.
pub fn settle_threads() {
    let threads = std::env::var("OMP_NUM_THREADS").ok().and_then(|text| text.parse().ok());
    if let Some(threads) = threads.filter(|threads| *threads > 0) {
        tch::set_num_threads(threads);
    }
    tch::set_num_interop_threads(1);
}

/// Memory of the device in bytes, free and in all; none for a CPU or when CUDA does not say.
pub fn memory_bytes(device: Device) -> Option<(u64, u64)> {
    if !device.is_cuda() {
        return None;
    }
    // SAFETY: looked up by name in what torch has loaded; the signature is that of the CUDA runtime.
    unsafe {
        let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"cudaMemGetInfo".as_ptr());
        if symbol.is_null() {
            return None;
        }
        let query: unsafe extern "C" fn(*mut usize, *mut usize) -> c_int = std::mem::transmute(symbol);
        let (mut free, mut total) = (0, 0);
        (query(&mut free, &mut total) == 0).then_some((free as u64, total as u64))
    }
}

/// Asks the driver library, which is loaded wherever CUDA works.
fn card_name() -> Option<String> {
    // SAFETY: signatures of the CUDA driver interface; the buffer's length is given.
    unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        let find = |name: &CStr| -> *mut c_void {
            if library.is_null() {
                ptr::null_mut()
            } else {
                libc::dlsym(library, name.as_ptr())
            }
        };
        let (init, get, name) = (find(c"cuInit"), find(c"cuDeviceGet"), find(c"cuDeviceGetName"));
        if init.is_null() || get.is_null() || name.is_null() {
            return None;
        }
        let init: unsafe extern "C" fn(u32) -> c_int = std::mem::transmute(init);
        let get: unsafe extern "C" fn(*mut c_int, c_int) -> c_int = std::mem::transmute(get);
        let name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int = std::mem::transmute(name);
        let (mut device, mut text) = (0, [0 as c_char; 256]);
        if init(0) != 0 || get(&mut device, 0) != 0 || name(text.as_mut_ptr(), 255, device) != 0 {
            return None;
        }
        Some(CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
    }
}

/// The compute type of a name in the protocol.
pub fn kind_of(dtype: &str) -> Result<Kind> {
    match dtype {
        "bfloat16" => Ok(Kind::BFloat16),
        "float32" => Ok(Kind::Float),
        "float64" => Ok(Kind::Double),
        other => fail!("dtype `{other}` is unknown; choose `bfloat16`, `float32` or `float64`"),
    }
}

/// The name in the protocol of a compute type.
pub fn dtype_of(kind: Kind) -> &'static str {
    match kind {
        Kind::BFloat16 => "bfloat16",
        Kind::Double => "float64",
        _ => "float32",
    }
}

/// The type in which sums, log-probs, gradients and master weights of a compute type are kept.
pub fn wide(kind: Kind) -> Kind {
    if kind == Kind::Double {
        Kind::Double
    } else {
        Kind::Float
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_absent_card_is_refused_and_auto_falls_back() {
        assert_eq!(open("cpu").unwrap().name, "cpu");
        assert!(open("tpu").unwrap_err().0.contains("choose `cpu`, `cuda` or `auto`"));
        if !Cuda::is_available() {
            assert!(open("cuda").unwrap_err().0.starts_with("no CUDA device"));
            assert_eq!(open("auto").unwrap().device, Device::Cpu);
        }
    }
}
