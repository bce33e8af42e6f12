//! Kernels in CUDA C++, compiled for the card at run time.

use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::Arc;

use tch::Tensor;

use super::cache::Cache;
use super::cuda::{Handle, call, card};
use super::{Message, c_text};
use crate::{Error, Result};

/// Compiled source.
#[derive(Debug, Clone)]
pub struct Module {
    loaded: Arc<Loaded>,
    is_early: bool,
}

#[derive(Debug)]
struct Loaded(Handle);

// SAFETY: the driver lets several threads read a module at a time.
unsafe impl Sync for Loaded {}

/// A kernel of a module, which it keeps.
#[derive(Debug, Clone)]
pub struct Function {
    module: Module,
    pointer: *mut c_void,
}

// SAFETY: a function belongs to its module, and no thread.
unsafe impl Send for Function {}
// SAFETY: launching changes nothing of it.
unsafe impl Sync for Function {}

/// A value for a parameter of a kernel.
#[derive(Debug, Clone, Copy)]
pub enum Argument {
    /// An address on the card, or null.
    Pointer(*mut c_void),
    /// `int`
    I32(i32),
    /// `long long`
    I64(i64),
    /// `float`
    F32(f32),
}

impl From<&Tensor> for Argument {
    fn from(tensor: &Tensor) -> Self {
        Self::Pointer(tensor.data_ptr())
    }
}

impl From<Option<&Tensor>> for Argument {
    fn from(tensor: Option<&Tensor>) -> Self {
        Self::Pointer(tensor.map_or(ptr::null_mut(), Tensor::data_ptr))
    }
}

impl From<i32> for Argument {
    fn from(value: i32) -> Self {
        Self::I32(value)
    }
}

impl From<i64> for Argument {
    fn from(value: i64) -> Self {
        Self::I64(value)
    }
}

impl From<f32> for Argument {
    fn from(value: f32) -> Self {
        Self::F32(value)
    }
}

impl Argument {
    fn address(&self) -> *mut c_void {
        match self {
            Self::Pointer(value) => ptr::from_ref(value).cast_mut().cast(),
            Self::I32(value) => ptr::from_ref(value).cast_mut().cast(),
            Self::I64(value) => ptr::from_ref(value).cast_mut().cast(),
            Self::F32(value) => ptr::from_ref(value).cast_mut().cast(),
        }
    }
}

impl Module {
    /// Compiles `source` for the card, or finds it in the cache folder. It needs no headers and has none; kernels are
    /// `extern "C" __global__`. `options` are NVRTC's, such as `-DHEAD_DIM=64` and `--use_fast_math`. An error has the
    /// compiler's messages, which call the source `kernels.cu`.
    pub fn compile(source: &str, options: &[&str]) -> Result<Self> {
        Self::compile_with(&Cache::of_the_user(), source, options)
    }

    /// The same with a cache of one's own.
    pub fn compile_with(cache: &Cache, source: &str, options: &[&str]) -> Result<Self> {
        let (major, minor) = card()?.capability;
        // `a`: with what this very generation has and the next does not.
        let suffix = if major >= 9 { "a" } else { "" };
        let mut options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        options.push(format!("--gpu-architecture=sm_{major}{minor}{suffix}"));
        options.push("--std=c++17".to_owned());
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two numbers.
        call(|table| unsafe { (table.rlpipe_cuda_nvrtc_version)(&mut major, &mut minor) })?;
        let image = cache.get_or_make(&format!("nvrtc {major}.{minor}"), source, &options, || {
            compile(source, &options)
        })?;
        // SAFETY: the image is whole, as the compiler made it; the driver copies it.
        let make = |table: &super::cuda::Table, out| unsafe { (table.rlpipe_cuda_module_new)(image.as_ptr(), out) };
        let handle = Handle::new(make, |table| table.rlpipe_cuda_module_free)?;
        Ok(Self {
            loaded: Arc::new(Loaded(handle)),
            is_early: false,
        })
    }

    /// Lets its kernels be launched while the one ahead of them in the stream ends, on cards that can (compute capability
    /// 9.0): every one of them must wait for it by itself (`griddepcontrol.wait`; CUDA's programmatic dependent launch).
    pub fn early(self) -> Result<Self> {
        let is_early = card()?.capability.0 >= 9;
        Ok(Self { is_early, ..self })
    }

    /// The kernel of that name.
    pub fn function(&self, name: &str) -> Result<Function> {
        let (name, mut pointer) = (c_text(name)?, ptr::null_mut());
        // SAFETY: the module lives; writes one pointer.
        call(|table| unsafe {
            (table.rlpipe_cuda_module_function)(self.loaded.0.pointer, name.as_ptr(), &mut pointer)
        })?;
        Ok(Function {
            module: self.clone(),
            pointer,
        })
    }
}

impl Function {
    /// Launches on the current stream: `grid` blocks of `block` threads, each block with `shared_bytes` of dynamic shared
    /// memory, which may be all that the card has.
    ///
    /// # Safety
    /// The arguments are the kernel's, in number, order and type; every address holds what the kernel touches, for as long
    /// as it runs or a graph that recorded it is replayed.
    pub unsafe fn launch(
        &self,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        arguments: &[Argument],
    ) -> Result<()> {
        let mut addresses: Vec<*mut c_void> = arguments.iter().map(Argument::address).collect();
        // SAFETY: the caller's; the driver copies the values during the call.
        call(|table| unsafe {
            (table.rlpipe_cuda_launch)(
                self.pointer,
                grid.as_ptr(),
                block.as_ptr(),
                shared_bytes,
                self.module.is_early.into(),
                addresses.as_mut_ptr(),
            )
        })
    }
}

/// The machine code of `source`.
fn compile(source: &str, options: &[String]) -> Result<Vec<u8>> {
    let source = c_text(source)?;
    let options: Vec<CString> = options.iter().map(|option| c_text(option)).collect::<Result<_>>()?;
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let (mut image, mut size) = (ptr::null_mut(), 0);
    let table = super::cuda::table()?;
    // SAFETY: texts end and live through the call; `image` has `size` bytes when there is no message.
    unsafe {
        let make = |table: &super::cuda::Table| -> Message {
            (table.rlpipe_cuda_compile)(source.as_ptr(), options.as_ptr(), options.len(), &mut image, &mut size)
        };
        let made = call(make).map_err(|error| Error(format!("kernels do not compile: {}", error.0.trim_end())));
        let bytes = made.map(|()| std::slice::from_raw_parts(image.cast::<u8>(), size).to_vec());
        (table.rlpipe_cuda_free)(image.cast());
        bytes
    }
}
