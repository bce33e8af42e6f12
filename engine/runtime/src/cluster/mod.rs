//! Where worker processes run. A cluster starts them; how they end is said in words that name the way out.

mod local;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

pub use local::LocalCluster;
pub use rlpipe_process::Exit;

use crate::compile::Accelerator;

/// Environment variable that names the worker program.
pub const WORKER_VARIABLE: &str = "RLPIPE_WORKER";
/// Environment variable that tells a worker what it computes on.
pub const ACCELERATOR_VARIABLE: &str = "RLPIPE_ACCELERATOR";
/// Environment variable that tells a worker its rank.
pub const RANK_VARIABLE: &str = "RLPIPE_RANK";
/// The worker program, beside the driver's.
pub const WORKER_NAME: &str = "rlpipe-worker";

/// One worker to start, as `PROGRAM ENDPOINT`; the rest is in its environment.
///
/// Not `Debug`: the environment holds the token.
#[derive(Clone)]
pub struct WorkerSpec {
    /// Its place among the run's workers, from 0.
    pub rank: u32,
    /// The pool it belongs to.
    pub pool: String,
    /// What is executed; see `worker_program`.
    pub program: PathBuf,
    /// What it dials.
    pub endpoint: String,
    /// Added to what the driver itself has; the run's token among it.
    pub environment: Vec<(String, String)>,
    /// Takes its output, appended; the folder exists.
    pub log: PathBuf,
    /// Threads that it computes with.
    pub cpus: u32,
    /// What it computes on.
    pub accelerator: Accelerator,
}

/// What a worker's environment has beside the driver's own and `WorkerSpec::environment`.
pub fn worker_environment(rank: u32, accelerator: Accelerator, cpus: u32) -> [(&'static str, String); 5] {
    [
        ("OMP_NUM_THREADS", cpus.to_string()),
        ("MKL_DYNAMIC", "FALSE".to_owned()),
        ("GOMP_SPINCOUNT", "1000".to_owned()),
        (RANK_VARIABLE, rank.to_string()),
        (ACCELERATOR_VARIABLE, accelerator.name().to_owned()),
    ]
}

/// The log of a worker, in the run's folder of logs.
pub fn worker_log(rank: u32) -> String {
    format!("worker-{rank}.log")
}

/// A worker could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// `RLPIPE_WORKER` names no file.
    #[error("`{WORKER_VARIABLE}` names `{}`, which is not a file; correct or unset it", path.display())]
    NamedProgram {
        /// What it names.
        path: PathBuf,
    },
    /// There is no worker program where it should be.
    #[error(
        "there is no worker program `{}`; run `make build`, or set `{WORKER_VARIABLE}` to an `{WORKER_NAME}`",
        path.display()
    )]
    NoProgram {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The driver does not know where its own program is.
    #[error("cannot tell where this program lies: {0}; set `{WORKER_VARIABLE}` to an `{WORKER_NAME}`")]
    NoExecutable(io::Error),
    /// The log cannot be opened.
    #[error("cannot open the log `{}` of worker {rank} of pool `{pool}`: {source}", path.display())]
    Log {
        /// The worker's rank.
        rank: u32,
        /// Its pool.
        pool: String,
        /// The log.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The program cannot be executed.
    #[error("cannot start worker {rank} of pool `{pool}`, program `{}`: {source}", program.display())]
    Start {
        /// The worker's rank.
        rank: u32,
        /// Its pool.
        pool: String,
        /// The program.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The thread that starts processes cannot be had.
    #[error("cannot start the thread that starts workers: {0}")]
    Spawner(io::Error),
}

/// A place where workers can be started.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// Starts a worker; it has not reported yet.
    async fn start(&self, spec: WorkerSpec) -> Result<Box<dyn WorkerProcess>, ClusterError>;
}

/// A worker process. It is killed when this is dropped.
#[async_trait]
pub trait WorkerProcess: Send + Sync {
    /// Its process id.
    fn id(&self) -> u32;

    /// Waits for its end; again after that, says the same again. Dropping the future changes nothing.
    async fn wait(&mut self) -> Exit;

    /// Kills it and the processes that it started. Nothing if it has ended.
    fn kill(&mut self);

    /// The last lines that it wrote, or why they cannot be read.
    fn log_tail(&self) -> String;

    /// How it ended, in a clause that starts with "its process": exit, likely cause and the end of its log.
    fn report(&self, exit: Exit) -> String;
}

/// The worker program: what `RLPIPE_WORKER` names, else `rlpipe-worker` beside this program.
pub fn worker_program() -> Result<PathBuf, ClusterError> {
    let named = std::env::var_os(WORKER_VARIABLE);
    find_program(named, &std::env::current_exe().map_err(ClusterError::NoExecutable)?)
}

fn find_program(named: Option<OsString>, executable: &Path) -> Result<PathBuf, ClusterError> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        let path = PathBuf::from(named);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(ClusterError::NamedProgram { path })
        };
    }
    let path = executable.with_file_name(WORKER_NAME);
    if path.is_file() {
        Ok(path)
    } else {
        Err(ClusterError::NoProgram { path })
    }
}

/// The clause of `WorkerProcess::report`.
fn report(id: u32, exit: Exit, log: &Path, tail: &str) -> String {
    let hint = if tail.contains("error while loading shared libraries") {
        "; a library that it needs is not found: run `make build`, or put libtorch's folder into `LD_LIBRARY_PATH`"
    } else if exit.signal == Some(libc::SIGKILL) {
        "; if nobody killed it, memory ran out: the kernel's log says so"
    } else {
        ""
    };
    if tail.is_empty() {
        return format!("its process {id} {exit}{hint}; its log `{}` is empty", log.display());
    }
    let tail = tail.replace('\n', "\n  ");
    format!(
        "its process {id} {exit}{hint}; the end of its log `{}`:\n  {tail}",
        log.display()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_program_is_the_named_one_or_lies_beside_the_driver() {
        let folder = tempfile::tempdir().unwrap();
        let (driver, beside, other) = (
            folder.path().join("rlpipe"),
            folder.path().join(WORKER_NAME),
            folder.path().join("other"),
        );
        let absent = find_program(None, &driver).unwrap_err().to_string();
        assert!(
            absent.contains("run `make build`") && absent.contains(WORKER_VARIABLE),
            "{absent}"
        );
        let named = find_program(Some(other.clone().into()), &driver)
            .unwrap_err()
            .to_string();
        assert!(named.contains("is not a file"), "{named}");

        std::fs::write(&beside, "").unwrap();
        std::fs::write(&other, "").unwrap();
        assert_eq!(find_program(None, &driver).unwrap(), beside);
        assert_eq!(find_program(Some("".into()), &driver).unwrap(), beside);
        assert_eq!(find_program(Some(other.clone().into()), &driver).unwrap(), other);
    }

    #[test]
    fn a_report_says_how_it_ended_and_what_to_do() {
        let killed = report(
            7,
            Exit {
                code: None,
                signal: Some(9),
            },
            Path::new("w.log"),
            "a\nb",
        );
        assert!(
            killed.starts_with("its process 7 was killed by signal 9 (SIGKILL); if nobody"),
            "{killed}"
        );
        assert!(killed.ends_with("the end of its log `w.log`:\n  a\n  b"), "{killed}");
        let tail = "rlpipe-worker: error while loading shared libraries: libtorch_cpu.so: cannot open";
        let unlinked = report(
            7,
            Exit {
                code: Some(127),
                signal: None,
            },
            Path::new("w.log"),
            tail,
        );
        assert!(
            unlinked.contains("exit code 127") && unlinked.contains("`make build`"),
            "{unlinked}"
        );
        let silent = report(
            7,
            Exit {
                code: Some(1),
                signal: None,
            },
            Path::new("w.log"),
            "",
        );
        assert_eq!(silent, "its process 7 ended with exit code 1; its log `w.log` is empty");
    }
}
