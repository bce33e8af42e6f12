//! What can go wrong with a run folder, with the way out.

use std::io;
use std::path::{Path, PathBuf};

/// A fault of the run folder. Each text says what failed, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The disk, or the user's share of it, is full.
    #[error(
        "could not {action} `{}`{}: the disk is full; free some space, then go on with `--resume`",
        path.display(), in_bytes(*wanted)
    )]
    DiskFull {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Bytes that were to be written, if known.
        wanted: Option<u64>,
        /// The system's own error.
        source: io::Error,
    },
    /// The file is larger than the file system or the process's limit allows.
    #[error(
        "could not {action} `{}`{}: the file would be larger than is allowed here; raise the limit (`ulimit -f`) or \
         use a `run.work_dir` on another file system, then go on with `--resume`",
        path.display(), in_bytes(*wanted)
    )]
    FileTooLarge {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Bytes that were to be written, if known.
        wanted: Option<u64>,
        /// The system's own error.
        source: io::Error,
    },
    /// The file system or the file's mode forbids it.
    #[error(
        "could not {action} `{}`: {source}; give this user the right to write there, or choose another `run.work_dir`",
        path.display()
    )]
    NotPermitted {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// Something else has that name.
    #[error(
        "could not {action} `{}`: {source}; move away what is there, or choose another `run.work_dir`", path.display()
    )]
    InTheWay {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// The system takes no such name.
    #[error("could not {action} `{}`: {source}; choose another `name` or `run.work_dir`", path.display())]
    InvalidName {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// Any other error of the system.
    #[error("could not {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// Another process works in this attempt.
    #[error(
        "the run folder `{}` is in use{}; wait until that run ends, stop it, or start a new attempt without `--resume`",
        folder.display(), holder.as_ref().map(|holder| format!(" by {holder}")).unwrap_or_default()
    )]
    InUse {
        /// The attempt's folder.
        folder: PathBuf,
        /// The process that holds it, such as "process 4711 on node3".
        holder: Option<String>,
    },
    /// The attempt to resume is not there.
    #[error("there is no attempt `{attempt}` in `{}`; it has: {}", folder.display(), list(there))]
    NoSuchAttempt {
        /// The folder of the pipeline's attempts.
        folder: PathBuf,
        /// What was asked for.
        attempt: String,
        /// What is there.
        there: Vec<String>,
    },
    /// The pipeline's name cannot be a folder.
    #[error(
        "`{name}` cannot be the name of a run folder; `name` must be one path component that does not start with `.`"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// A line that was written whole cannot be read.
    #[error(
        "line {line} of `{}` is damaged: {reason}; take the line out, or start a new attempt without `--resume`",
        path.display()
    )]
    DamagedLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The newest checkpoint is not what was written.
    #[error(
        "the checkpoint `{}` is damaged: `{file}` {reason}; delete that folder to resume from the checkpoint before it, \
         or, if there is none, from the start",
        folder.display()
    )]
    DamagedCheckpoint {
        /// The checkpoint's folder.
        folder: PathBuf,
        /// The file in it.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A checkpoint of this step was written before.
    #[error("the checkpoint `{}` is there already; delete that folder if it is to be written again", folder.display())]
    CheckpointExists {
        /// The checkpoint's folder.
        folder: PathBuf,
    },
    /// The files for a checkpoint are not what was reported, or the state cannot be written.
    #[error("could not write the checkpoint `{}`: `{file}` {reason}; the checkpoint before it is untouched", folder.display())]
    IncompleteCheckpoint {
        /// The checkpoint's folder.
        folder: PathBuf,
        /// The file in it.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The checkpoint belongs to another run.
    #[error(
        "cannot resume: {what} was {} at the checkpoint and is {} now; put it back, or start a new attempt without \
         `--resume` (what may change: `run.work_dir`, `run.checkpoint`, `run.hf_export` and `run.total_steps`)",
        before.as_deref().map_or("not there".to_owned(), |value| format!("`{value}`")),
        now.as_deref().map_or("not there".to_owned(), |value| format!("`{value}`"))
    )]
    Changed {
        /// What differs, such as "the plan's hash".
        what: String,
        /// Its value in the checkpoint.
        before: Option<String>,
        /// Its value now.
        now: Option<String>,
    },
}

impl RunError {
    /// Sorts an error of the system by what the user can do about it.
    pub(super) fn io(action: &'static str, path: &Path, wanted: Option<u64>, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull {
                action,
                path,
                wanted,
                source,
            },
            io::ErrorKind::FileTooLarge => Self::FileTooLarge {
                action,
                path,
                wanted,
                source,
            },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NotPermitted { action, path, source }
            }
            io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory | io::ErrorKind::AlreadyExists => {
                Self::InTheWay { action, path, source }
            }
            io::ErrorKind::InvalidFilename => Self::InvalidName { action, path, source },
            _ => Self::Io { action, path, source },
        }
    }
}

/// Names the file in an error of the system.
pub(super) trait Named<T> {
    /// `action` reads on from "could not".
    fn named(self, action: &'static str, path: &Path) -> Result<T, RunError>;
    /// The same, for a write of `bytes`.
    fn named_write(self, path: &Path, bytes: usize) -> Result<T, RunError>;
}

impl<T> Named<T> for io::Result<T> {
    fn named(self, action: &'static str, path: &Path) -> Result<T, RunError> {
        self.map_err(|source| RunError::io(action, path, None, source))
    }

    fn named_write(self, path: &Path, bytes: usize) -> Result<T, RunError> {
        self.map_err(|source| RunError::io("write", path, Some(bytes as u64), source))
    }
}

fn in_bytes(bytes: Option<u64>) -> String {
    bytes.map(|bytes| format!(" ({bytes} bytes)")).unwrap_or_default()
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(code: i32, wanted: Option<u64>) -> String {
        let source = io::Error::from_raw_os_error(code);
        RunError::io("write", Path::new("runs/a/0001/metrics.jsonl"), wanted, source).to_string()
    }

    #[test]
    fn each_fault_of_the_system_has_its_way_out() {
        assert_eq!(
            text(libc::ENOSPC, Some(120)),
            "could not write `runs/a/0001/metrics.jsonl` (120 bytes): the disk is full; free some space, then go on with \
             `--resume`"
        );
        assert!(text(libc::EDQUOT, None).contains("the disk is full"));
        assert!(text(libc::EFBIG, Some(7)).contains("(7 bytes): the file would be larger than is allowed here"));
        assert!(text(libc::EACCES, None).contains("choose another `run.work_dir`"));
        assert!(text(libc::EROFS, None).contains("choose another `run.work_dir`"));
        for code in [libc::ENOTDIR, libc::EISDIR, libc::EEXIST] {
            assert!(text(code, None).ends_with("; move away what is there, or choose another `run.work_dir`"));
        }
        assert!(text(libc::ENAMETOOLONG, None).ends_with("; choose another `name` or `run.work_dir`"));
        assert!(text(libc::EIO, None).starts_with("could not write `runs/a/0001/metrics.jsonl`: "));
    }

    #[test]
    fn a_change_names_both_values_and_what_may_change() {
        let error = RunError::Changed {
            what: "the plan's hash".into(),
            before: Some("a".into()),
            now: None,
        };
        assert_eq!(
            error.to_string(),
            "cannot resume: the plan's hash was `a` at the checkpoint and is not there now; put it back, or start a new \
             attempt without `--resume` (what may change: `run.work_dir`, `run.checkpoint`, `run.hf_export` and \
             `run.total_steps`)"
        );
    }
}
