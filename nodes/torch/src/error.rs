//! One error type: every fault ends as the message of a `Failed` event, so it is text that says what, where and why.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// What went wrong, for the user.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// Result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Leaves the function with an [`Error`] made by `format!`.
#[macro_export]
macro_rules! fail {
    ($($text:tt)*) => { return Err($crate::Error(format!($($text)*))) };
}

impl Error {
    /// A file or folder that could not be read or written.
    pub fn io(doing: &str, path: &Path, error: &io::Error) -> Self {
        let hint = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space",
            io::ErrorKind::FileTooLarge => {
                "; raise the limit (`ulimit -f`) or use a `run.work_dir` on another file system"
            }
            _ => "",
        };
        Self(format!("cannot {doing} `{}`: {error}{hint}", path.display()))
    }
}

impl From<tch::TchError> for Error {
    fn from(error: tch::TchError) -> Self {
        Self(first_line(&error.to_string()))
    }
}

impl From<Vec<rlpipe_model::Fault>> for Error {
    fn from(faults: Vec<rlpipe_model::Fault>) -> Self {
        Self(rlpipe_model::joined(&faults))
    }
}

/// Runs `work`; a panic, which is how tch reports a torch error, becomes an [`Error`].
pub fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Error(panic_message(panic.as_ref()))))
}

/// Panics on an error, as torch's own functions do, for those who stand beside them; [`caught`] gives it back.
pub fn unfailing<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| std::panic::panic_any(error.0))
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("a panic without a message");
    match text.split_once("Torch(\"") {
        Some((_, torch)) => format!("torch: {}", first_line(&torch.replace("\\n", "\n"))),
        None => text.to_owned(),
    }
}

/// Torch appends a C++ backtrace after the first line.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tch::{Device, Kind, Tensor};

    #[test]
    fn what_is_unfailing_fails_with_its_message() {
        let failed: Result<u32> = Err(Error("no card".to_owned()));
        assert_eq!(caught(|| Ok(unfailing(failed))), Err(Error("no card".to_owned())));
    }

    #[test]
    fn a_torch_error_is_a_message() {
        let error = caught(|| {
            let a = Tensor::zeros([2, 3], (Kind::Float, Device::Cpu));
            Ok(a.matmul(&a))
        })
        .unwrap_err();
        assert!(
            error
                .0
                .starts_with("torch: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"),
            "{error}"
        );
    }
}
