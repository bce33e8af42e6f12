//! Workers as child processes of the driver, on this machine.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc;

use async_trait::async_trait;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{ACCELERATOR_VARIABLE, Cluster, ClusterError, Exit, WorkerProcess, WorkerSpec, report};

/// Of a log, what an error shows.
const TAIL_LINES: usize = 20;
/// Where lines are long, no more than this is shown.
const TAIL_BYTES: u64 = 8 << 10;

/// A command to start, and where its child goes.
type Order = (Command, Handle, oneshot::Sender<io::Result<Child>>);

/// This machine.
///
/// The kernel sends the parent-death signal when the *thread* that forked ends, so one thread starts all workers. It
/// lives as long as the cluster and every process that it started.
#[derive(Debug)]
pub struct LocalCluster {
    spawner: mpsc::Sender<Order>,
}

impl LocalCluster {
    /// Starts the thread that starts workers.
    pub fn new() -> Result<Self, ClusterError> {
        let (spawner, orders) = mpsc::channel::<Order>();
        let spawn = move || {
            for (mut command, runtime, reply) in orders {
                let _runtime = runtime.enter();
                // If nobody waits any more the child is dropped, and with it killed.
                let _ = reply.send(command.spawn());
            }
        };
        std::thread::Builder::new().name("spawner".to_owned()).spawn(spawn).map_err(ClusterError::Spawner)?;
        Ok(Self { spawner })
    }
}

#[async_trait]
impl Cluster for LocalCluster {
    async fn start(&self, spec: WorkerSpec) -> Result<Box<dyn WorkerProcess>, ClusterError> {
        let (log, log_start) = open_log(&spec)?;
        let command = command_of(&spec, log).map_err(|source| log_error(&spec, source))?;
        let (reply, child) = oneshot::channel();
        let gone = || io::Error::other("the thread that starts workers is gone");
        let sent = self.spawner.send((command, Handle::current(), reply)).map_err(|_| gone());
        let child = match sent {
            Ok(()) => child.await.unwrap_or_else(|_| Err(gone())),
            Err(error) => Err(error),
        };
        let started = child.and_then(|child| Ok((child.id().ok_or_else(gone)?, child)));
        let (id, child) = started.map_err(|source| ClusterError::Start {
            rank: spec.rank,
            pool: spec.pool.clone(),
            program: spec.program.clone(),
            source,
        })?;
        Ok(Box::new(LocalProcess { id, child, log: spec.log, log_start, _spawner: self.spawner.clone() }))
    }
}

fn open_log(spec: &WorkerSpec) -> Result<(File, u64), ClusterError> {
    let file = OpenOptions::new().create(true).append(true).open(&spec.log);
    let file = file.map_err(|source| log_error(spec, source))?;
    let length = file.metadata().map_err(|source| log_error(spec, source))?.len();
    Ok((file, length))
}

fn log_error(spec: &WorkerSpec, source: io::Error) -> ClusterError {
    ClusterError::Log { rank: spec.rank, pool: spec.pool.clone(), path: spec.log.clone(), source }
}

fn command_of(spec: &WorkerSpec, log: File) -> io::Result<Command> {
    let mut command = Command::new(&spec.program);
    command
        .args(["--endpoint", &spec.endpoint, "--rank", &spec.rank.to_string()])
        .env("OMP_NUM_THREADS", spec.cpus.to_string())
        .env("MKL_DYNAMIC", "FALSE")
        .env("GOMP_SPINCOUNT", "1000")
        .env(ACCELERATOR_VARIABLE, spec.accelerator.name())
        .envs(spec.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // The terminal's Ctrl-C goes to the driver's group; when workers end is the driver's decision.
        .process_group(0)
        .kill_on_drop(true);
    die_with_the_driver(&mut command);
    Ok(command)
}

/// Lets the kernel kill the child when the thread that started it ends, however that happens.
#[cfg(target_os = "linux")]
fn die_with_the_driver(command: &mut Command) {
    let driver = std::process::id();
    let ask = move || {
        // SAFETY: both calls only enter the kernel, which is allowed between fork and exec.
        let (asked, parent) = unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::getppid()) };
        if asked != 0 {
            return Err(io::Error::last_os_error());
        }
        // A driver that ended before the call sends no signal any more.
        if parent.unsigned_abs() != driver { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(()) }
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(ask) };
}

/// Elsewhere a worker ends at the end of its stream.
#[cfg(not(target_os = "linux"))]
fn die_with_the_driver(_command: &mut Command) {}

/// A child process and its log.
struct LocalProcess {
    id: u32,
    child: Child,
    log: PathBuf,
    /// Where its own output starts: a resumed run goes on in the same log.
    log_start: u64,
    /// Keeps the thread that forked the child.
    _spawner: mpsc::Sender<Order>,
}

#[async_trait]
impl WorkerProcess for LocalProcess {
    fn id(&self) -> u32 {
        self.id
    }

    async fn wait(&mut self) -> Exit {
        match self.child.wait().await {
            Ok(status) => exit_of(status),
            Err(error) => {
                tracing::error!(%error, process = self.id, "cannot wait for a worker");
                Exit { code: None, signal: None }
            }
        }
    }

    fn kill(&mut self) {
        // None once it was waited for: its id may be someone else's by now.
        if let Some(group) = self.child.id().and_then(|id| libc::pid_t::try_from(id).ok()) {
            // SAFETY: sends a signal; the child leads a group of its own.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
    }

    fn log_tail(&self) -> String {
        self.read_tail().unwrap_or_else(|error| format!("(the log cannot be read: {error})"))
    }

    fn report(&self, exit: Exit) -> String {
        report(self.id, exit, &self.log, &self.log_tail())
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

impl Drop for LocalProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    Exit { code: status.code(), signal: status.signal() }
}
