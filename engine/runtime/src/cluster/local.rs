//! Workers as child processes of the driver, on this machine.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::process::Stdio;

use async_trait::async_trait;
use rlpipe_process::{Exit, Process, Spawner};
use tokio::process::Command;

use super::{Cluster, ClusterError, WorkerProcess, WorkerSpec, report, worker_environment};

/// Of a log, what an error shows.
const TAIL_LINES: usize = 20;
/// Where lines are long, no more than this is shown.
const TAIL_BYTES: u64 = 8 << 10;

/// This machine.
#[derive(Debug)]
pub struct LocalCluster {
    spawner: Spawner,
}

impl LocalCluster {
    /// Starts the thread that starts workers.
    pub fn new() -> Result<Self, ClusterError> {
        let spawner = Spawner::new().map_err(ClusterError::Spawner)?;
        Ok(Self { spawner })
    }
}

#[async_trait]
impl Cluster for LocalCluster {
    async fn start(&self, spec: WorkerSpec) -> Result<Box<dyn WorkerProcess>, ClusterError> {
        let (log, log_start) = open_log(&spec)?;
        let command = command_of(&spec, log).map_err(|source| log_error(&spec, source))?;
        let process = self
            .spawner
            .spawn(command)
            .await
            .map_err(|source| ClusterError::Start {
                rank: spec.rank,
                pool: spec.pool.clone(),
                program: spec.program.clone(),
                source,
            })?;
        Ok(Box::new(LocalProcess {
            process,
            log: spec.log,
            log_start,
        }))
    }
}

fn open_log(spec: &WorkerSpec) -> Result<(File, u64), ClusterError> {
    let file = OpenOptions::new().create(true).append(true).open(&spec.log);
    let file = file.map_err(|source| log_error(spec, source))?;
    let length = file.metadata().map_err(|source| log_error(spec, source))?.len();
    Ok((file, length))
}

fn log_error(spec: &WorkerSpec, source: io::Error) -> ClusterError {
    ClusterError::Log {
        rank: spec.rank,
        pool: spec.pool.clone(),
        path: spec.log.clone(),
        source,
    }
}

fn command_of(spec: &WorkerSpec, log: File) -> io::Result<Command> {
    let mut command = Command::new(&spec.program);
    command
        .arg(&spec.endpoint)
        .envs(worker_environment(spec.rank, spec.accelerator, spec.cpus))
        .envs(spec.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(command)
}

/// A worker and its log.
struct LocalProcess {
    process: Process,
    log: PathBuf,
    /// Where its own output starts: a resumed run goes on in the same log.
    log_start: u64,
}

#[async_trait]
impl WorkerProcess for LocalProcess {
    fn id(&self) -> u32 {
        self.process.id()
    }

    async fn wait(&mut self) -> Exit {
        self.process.wait().await
    }

    fn kill(&mut self) {
        self.process.kill();
    }

    fn log_tail(&self) -> String {
        self.read_tail()
            .unwrap_or_else(|error| format!("(the log cannot be read: {error})"))
    }

    fn report(&self, exit: Exit) -> String {
        report(self.process.id(), exit, &self.log, &self.log_tail())
    }
}

impl LocalProcess {
    fn read_tail(&self) -> io::Result<String> {
        let mut file = File::open(&self.log)?;
        let start = file.metadata()?.len().saturating_sub(TAIL_BYTES).max(self.log_start);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let mut lines: Vec<&str> = text.lines().rev().take(TAIL_LINES).collect();
        lines.reverse();
        Ok(lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::compile::Accelerator;

    const DRIVER_FOLDER: &str = "RLPIPE_TEST_DRIVER_FOLDER";

    /// A worker that is a shell script: the shell takes the endpoint for the script's path.
    fn script(folder: &Path, text: &str) -> WorkerSpec {
        let path = folder.join("script");
        std::fs::write(&path, text).unwrap();
        WorkerSpec {
            rank: 3,
            pool: "gpu".to_owned(),
            program: "/bin/sh".into(),
            endpoint: path.to_str().unwrap().to_owned(),
            environment: vec![("RLPIPE_TOKEN".to_owned(), "secret".to_owned())],
            log: folder.join("worker-3.log"),
            cpus: 2,
            accelerator: Accelerator::Auto,
        }
    }

    async fn start(folder: &Path, text: &str) -> Box<dyn WorkerProcess> {
        LocalCluster::new().unwrap().start(script(folder, text)).await.unwrap()
    }

    /// Waits until something is so; the test's time limit is the end of patience.
    async fn until<T>(mut probe: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(found) = probe() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn text_of(path: &Path) -> String {
        until(|| std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n')))
            .await
            .trim()
            .to_owned()
    }

    /// Running, and not a zombie that nobody has waited for.
    fn runs(process: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
    }

    #[tokio::test]
    async fn an_exit_code_and_a_signal_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = start(folder.path(), "exit 7").await;
        assert_eq!(
            process.wait().await,
            Exit {
                code: Some(7),
                signal: None
            }
        );
        assert_eq!(
            process.wait().await,
            Exit {
                code: Some(7),
                signal: None
            }
        );
        let mut process = start(folder.path(), "kill -SEGV $$").await;
        let exit = process.wait().await;
        assert_eq!(
            exit,
            Exit {
                code: None,
                signal: Some(libc::SIGSEGV)
            }
        );
        assert!(process.report(exit).contains("killed by signal 11 (SIGSEGV)"));
    }

    #[tokio::test]
    async fn the_worker_is_told_what_it_needs() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = start(folder.path(), "env; cat; echo here >&2").await;
        assert_eq!(process.wait().await.code, Some(0));
        let log = std::fs::read_to_string(folder.path().join("worker-3.log")).unwrap();
        let lines: BTreeSet<&str> = log.lines().collect();
        for line in [
            "OMP_NUM_THREADS=2",
            "MKL_DYNAMIC=FALSE",
            "GOMP_SPINCOUNT=1000",
            "RLPIPE_ACCELERATOR=auto",
            "RLPIPE_RANK=3",
            "RLPIPE_TOKEN=secret",
            "here",
        ] {
            assert!(lines.contains(line), "{line} in {log}");
        }
    }

    #[tokio::test]
    async fn the_tail_is_of_this_process_and_short() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("worker-3.log");
        std::fs::write(&log, "of an earlier process\n").unwrap();
        let mut process = start(folder.path(), "echo one; printf 'two \\377'").await;
        process.wait().await;
        assert_eq!(process.log_tail(), "one\ntwo \u{fffd}");

        let mut process = start(
            folder.path(),
            "i=0; while [ $i -lt 50 ]; do echo line $i; i=$((i+1)); done",
        )
        .await;
        process.wait().await;
        let lines: Vec<String> = process.log_tail().lines().map(str::to_owned).collect();
        assert_eq!(
            (lines.len(), lines[0].as_str(), lines[19].as_str()),
            (20, "line 30", "line 49")
        );

        std::fs::remove_file(&log).unwrap();
        assert!(process.log_tail().contains("cannot be read"));
    }

    #[tokio::test]
    async fn a_missing_library_is_in_the_report() {
        let folder = tempfile::tempdir().unwrap();
        let text = "echo 'w: error while loading shared libraries: libtorch_cpu.so: cannot open' >&2; exit 127";
        let mut process = start(folder.path(), text).await;
        let exit = process.wait().await;
        let report = process.report(exit);
        for part in [
            "exit code 127",
            "libtorch_cpu.so: cannot open",
            "run `make build`",
            "worker-3.log",
        ] {
            assert!(report.contains(part), "{report}");
        }
    }

    #[tokio::test]
    async fn what_cannot_start_says_which_worker_and_why() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = LocalCluster::new().unwrap();
        let mut spec = script(folder.path(), "");
        spec.program = folder.path().join("absent");
        let error = cluster.start(spec).await.err().unwrap().to_string();
        assert!(
            error.starts_with("cannot start worker 3 of pool `gpu`") && error.contains("absent"),
            "{error}"
        );
        let mut spec = script(folder.path(), "");
        spec.log = folder.path().join("no folder/worker.log");
        let error = cluster.start(spec).await.err().unwrap().to_string();
        assert!(
            error.contains("cannot open the log") && error.contains("no folder"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn killing_and_dropping_reach_the_processes_that_it_started() {
        for dropped in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let note = folder.path().join("child");
            let mut process = start(
                folder.path(),
                &format!("sleep 1000 & echo $! > {}; wait", note.display()),
            )
            .await;
            let (worker, child) = (process.id().to_string(), text_of(&note).await);
            assert!(runs(&worker) && runs(&child));
            if dropped {
                drop(process);
            } else {
                process.kill();
                assert_eq!(process.wait().await.signal, Some(libc::SIGKILL));
                process.kill();
            }
            until(|| (!runs(&worker) && !runs(&child)).then_some(())).await;
        }
    }

    /// Not a test by itself: the driver of the next one, in a process of its own.
    #[tokio::test]
    async fn a_driver_to_interrupt() {
        let Some(folder) = std::env::var_os(DRIVER_FOLDER).map(PathBuf::from) else {
            return;
        };
        let mut interrupts = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()).unwrap();
        let process = start(&folder, "while :; do sleep 0.01; done").await;
        std::fs::write(folder.join("worker"), format!("{}\n", process.id())).unwrap();
        interrupts.recv().await;
        std::fs::write(folder.join("interrupted"), "yes\n").unwrap();
        std::future::pending::<()>().await;
    }

    #[tokio::test]
    async fn an_interrupt_spares_the_worker_and_the_drivers_death_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut driver = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "cluster::local::tests::a_driver_to_interrupt"])
            .env(DRIVER_FOLDER, folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let worker = text_of(&folder.path().join("worker")).await;
        let group = libc::pid_t::try_from(driver.id().unwrap()).unwrap();
        // SAFETY: a signal to the group of the process just started.
        assert_eq!(unsafe { libc::kill(-group, libc::SIGINT) }, 0);
        assert_eq!(text_of(&folder.path().join("interrupted")).await, "yes");
        assert!(runs(&worker));
        driver.kill().await.unwrap();
        until(|| (!runs(&worker)).then_some(())).await;
    }
}
