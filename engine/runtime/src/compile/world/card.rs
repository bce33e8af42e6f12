//! What the NVIDIA driver's management library says of the first card and of itself; it opens no context on the card.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

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
    managed(|library| {
        let handle = find(library, c"nvmlDeviceGetHandleByIndex_v2")?;
        let memory = find(library, c"nvmlDeviceGetMemoryInfo")?;
        // SAFETY: the signatures of nvml.h; what is pointed to outlives the calls.
        unsafe {
            let handle: unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int = std::mem::transmute(handle);
            let memory: unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int = std::mem::transmute(memory);
            let (mut card, mut found) = (std::ptr::null_mut(), Memory::default());
            let is_known = handle(index, &mut card) == 0 && memory(card, &mut found) == 0;
            is_known.then_some(found.total)
        }
    })
}

/// The version of the NVIDIA driver, such as 580.159.04; none where there is none.
pub fn driver_version() -> Option<String> {
    managed(|library| {
        let version = find(library, c"nvmlSystemGetDriverVersion")?;
        let mut text = [0 as c_char; 96];
        // SAFETY: the signature of nvml.h; the buffer's length is given, and what is written ends in a zero.
        unsafe {
            let version: unsafe extern "C" fn(*mut c_char, c_uint) -> c_int = std::mem::transmute(version);
            if version(text.as_mut_ptr(), text.len() as c_uint) != 0 {
                return None;
            }
            Some(CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
        }
    })
}

/// Asks something of the management library.
fn managed<T>(ask: impl FnOnce(*mut c_void) -> Option<T>) -> Option<T> {
    // SAFETY: a constant name; the library's initialisers are the driver's own.
    let library = unsafe { libc::dlopen(c"libnvidia-ml.so.1".as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return None;
    }
    let (init, shutdown) = (find(library, c"nvmlInit_v2")?, find(library, c"nvmlShutdown")?);
    // SAFETY: the signatures of nvml.h.
    let (init, shutdown) = unsafe {
        (
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(init),
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(shutdown),
        )
    };
    // SAFETY: no arguments, no state but the library's own.
    if unsafe { init() } != 0 {
        return None;
    }
    let answer = ask(library);
    // SAFETY: as above.
    unsafe { shutdown() };
    answer
}

fn find(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the library is open, and stays so.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}
