//! The one device that this process computes on.

use tch::kind::Element;
use tch::{Cuda, Device, Kind, Tensor};

use crate::native::cuda;
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

/// Opens what was asked for: `cpu`, `cuda`, or `auto` (CUDA if there is one). A card needs the CUDA object, beside this
/// program.
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
            name: cuda::open()?.name.clone(),
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
    let memory = device.is_cuda().then(|| cuda::memory().ok()).flatten()?;
    Some((memory.free, memory.total))
}

/// Vectors on the device, in one copy.
pub fn together<T: Element + Copy, const N: usize>(parts: [Vec<T>; N], device: Device) -> [Tensor; N] {
    let all = Tensor::from_slice(&parts.concat()).to_device(device);
    let mut start = 0;
    parts.map(|part| {
        let length = part.len() as i64;
        start += length;
        all.narrow(0, start - length, length)
    })
}

/// The compute type of a name in the protocol.
pub fn kind_of(dtype: &str) -> Result<Kind> {
    match dtype {
        "bfloat16" => Ok(Kind::BFloat16),
        "float16" => Ok(Kind::Half),
        "float32" => Ok(Kind::Float),
        "float64" => Ok(Kind::Double),
        other => fail!("dtype `{other}` is unknown; choose `bfloat16`, `float16`, `float32` or `float64`"),
    }
}

/// The name in the protocol of a compute type.
pub fn dtype_of(kind: Kind) -> &'static str {
    match kind {
        Kind::BFloat16 => "bfloat16",
        Kind::Half => "float16",
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
