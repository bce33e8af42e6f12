//! What tch lacks, over a C interface whose C++ side is `native/`.
//!
//! [`operators`] is linked into the program and runs on any device. [`cuda`] and [`kernel`] are in `librlpipe_cuda.so`,
//! opened only with CUDA. A tensor crosses as a pointer to an `at::Tensor`, as in tch; every call that can fail returns
//! null or a message, so that no C++ exception meets a Rust frame.

pub mod cache;
pub mod cuda;
pub mod kernel;
pub mod operators;

use std::borrow::Borrow;
use std::ffi::{CStr, CString, c_char, c_void};

use tch::Tensor;
use torch_sys::C_tensor;

use crate::{Error, Result};

/// Null, or a message to be freed.
type Message = *mut c_char;

/// Takes the answer of a call; `free` is that of the library that gave it.
///
/// # Safety
/// `message` is null, or a text that nobody else frees.
unsafe fn answer(message: Message, free: unsafe extern "C" fn(*mut c_void)) -> Result<()> {
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    // SAFETY: the caller's; the text was copied.
    unsafe { free(message.cast()) };
    Err(Error(text))
}

/// A list of tensors as C++ takes it.
fn pointers(tensors: &[impl Borrow<Tensor>]) -> Vec<*const C_tensor> {
    tensors.iter().map(|tensor| tensor.borrow().as_ptr()).collect()
}

fn c_text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error(format!("`{}` has a zero byte", text.escape_debug())))
}
