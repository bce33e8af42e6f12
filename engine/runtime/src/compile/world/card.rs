//! The memory of the first NVIDIA card, from the driver's management library, which opens no context on it.

use std::ffi::{CStr, c_int, c_uint, c_void};

use rlpipe_core::kind::ByteSize;

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// Of the card that `CUDA_VISIBLE_DEVICES` puts first; none where it cannot be found out.
pub fn memory() -> Option<ByteSize> {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let index = match visible.split(',').next().unwrap_or_default().trim() {
        "" => 0,
        // A name instead of a number: which of them it is, only CUDA knows.
        first => first.parse().ok()?,
    };
    total(index).map(ByteSize)
}

fn total(index: c_uint) -> Option<u64> {
    // SAFETY: a constant name; the library's initialisers are the driver's own.
    let library = unsafe { libc::dlopen(c"libnvidia-ml.so.1".as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return None;
    }
    let find = |name: &CStr| {
        // SAFETY: the library is open, and stays so.
        let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    };
    let (init, handle) = (find(c"nvmlInit_v2")?, find(c"nvmlDeviceGetHandleByIndex_v2")?);
    let (memory, shutdown) = (find(c"nvmlDeviceGetMemoryInfo")?, find(c"nvmlShutdown")?);
    // SAFETY: the signatures of nvml.h; what is pointed to outlives the calls.
    unsafe {
        let init: unsafe extern "C" fn() -> c_int = std::mem::transmute(init);
        let handle: unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int = std::mem::transmute(handle);
        let memory: unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int = std::mem::transmute(memory);
        let shutdown: unsafe extern "C" fn() -> c_int = std::mem::transmute(shutdown);
        if init() != 0 {
            return None;
        }
        let (mut card, mut found) = (std::ptr::null_mut(), Memory::default());
        let is_known = handle(index, &mut card) == 0 && memory(card, &mut found) == 0;
        shutdown();
        is_known.then_some(found.total)
    }
}
