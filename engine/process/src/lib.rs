//! Child processes that do not outlive the driver, whatever dies first.
//!
//! Each leads a process group of its own: the terminal's Ctrl-C goes to the driver alone, and what ends is the whole
//! group. When the driver is killed the kernel kills the child (the parent-death signal), and where asked for a guard
//! kills what the child has started itself.

mod exit;
mod guard;

use std::io;
use std::process::Stdio;
use std::sync::mpsc;

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub use exit::Exit;
pub use guard::GUARD_COMMAND;
use guard::Guard;

/// A command to start, and where its child goes.
type Order = (Command, Handle, oneshot::Sender<io::Result<Process>>);

/// Starts processes.
///
/// The kernel sends the parent-death signal when the *thread* that forked ends, so one thread starts all of them. It
/// lives as long as this, its clones, and every process that it started.
#[derive(Debug, Clone)]
pub struct Spawner {
    orders: mpsc::Sender<Order>,
    guard: Option<Guard>,
}

impl Spawner {
    /// Starts the thread that starts processes.
    pub fn new() -> io::Result<Self> {
        let (orders, received) = mpsc::channel::<Order>();
        let spawn = move || {
            for (mut command, runtime, reply) in received {
                let _runtime = runtime.enter();
                let child = command.spawn().and_then(Process::new);
                // If nobody waits any more the child is dropped, and with it killed.
                let _ = reply.send(child);
            }
        };
        std::thread::Builder::new().name("spawner".to_owned()).spawn(spawn)?;
        Ok(Self { orders, guard: None })
    }

    /// The same, for programs that may start others: those are killed too when the driver is.
    pub fn guarded() -> io::Result<Self> {
        Ok(Self {
            guard: Some(Guard::start()?),
            ..Self::new()?
        })
    }

    /// Starts a process in a group of its own. It is killed, with its group, when it is dropped.
    pub async fn spawn(&self, mut command: Command) -> io::Result<Process> {
        command.process_group(0).kill_on_drop(true);
        die_with_the_driver(&mut command);
        let (reply, child) = oneshot::channel();
        let gone = || io::Error::other("the thread that starts processes is gone");
        self.orders
            .send((command, Handle::current(), reply))
            .map_err(|_| gone())?;
        let mut process = child.await.map_err(|_| gone())??;
        if let Some(guard) = &self.guard {
            guard.watch(process.id);
        }
        process.spawner = Some(self.clone());
        Ok(process)
    }
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
        if parent.unsigned_abs() != driver {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        } else {
            Ok(())
        }
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(ask) };
}

/// Elsewhere a child ends at the end of its stream.
#[cfg(not(target_os = "linux"))]
fn die_with_the_driver(_command: &mut Command) {}

/// A child process, the leader of its group.
#[derive(Debug)]
pub struct Process {
    id: u32,
    child: Child,
    /// How it ended, once it was waited for.
    exit: Option<Exit>,
    /// Whether all of its group was killed after its end; the id may be someone else's since.
    is_rest_killed: bool,
    /// Keeps the thread that forked the child, and the guard that must forget it.
    spawner: Option<Spawner>,
}

impl Process {
    fn new(child: Child) -> io::Result<Self> {
        let id = child
            .id()
            .ok_or_else(|| io::Error::other("it has ended before it was started"))?;
        Ok(Self {
            id,
            child,
            exit: None,
            is_rest_killed: false,
            spawner: None,
        })
    }

    /// Its process id, and that of its group.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its pipes, where the command asked for them; none the second time.
    pub fn pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        (
            self.child.stdin.take(),
            self.child.stdout.take(),
            self.child.stderr.take(),
        )
    }

    /// Waits for its end; again after that, says the same again. Dropping the future changes nothing.
    pub async fn wait(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        let exit = match self.child.wait().await {
            Ok(status) => Exit::of(status),
            Err(error) => {
                tracing::error!(%error, process = self.id, "cannot wait for a process");
                Exit::UNKNOWN
            }
        };
        self.exit = Some(exit);
        exit
    }

    /// Sends it a signal, and not to what it started. Nothing if it has ended.
    pub fn signal(&self, signal: i32) {
        if let Some(process) = self.child.id().and_then(|id| libc::pid_t::try_from(id).ok()) {
            // SAFETY: sends a signal, to a child of this process that was not waited for.
            unsafe { libc::kill(process, signal) };
        }
    }

    /// Kills it and the processes that it started. Nothing if it has ended.
    pub fn kill(&mut self) {
        // None once it was waited for: its id may be someone else's by now.
        if self.child.id().is_some() {
            kill_group(self.id);
        }
    }

    /// Kills what it left behind in its group, right after it was waited for. Nothing the second time.
    pub fn kill_rest(&mut self) {
        if !self.is_rest_killed {
            kill_group(self.id);
            self.is_rest_killed = self.child.id().is_none();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Also where it has ended by itself: a group lives as long as one process in it, and keeps its id so long.
        self.kill_rest();
        if let Some(guard) = self.spawner.as_ref().and_then(|spawner| spawner.guard.as_ref()) {
            guard.forget(self.id);
        }
    }
}

fn kill_group(leader: u32) {
    if let Some(group) = libc::pid_t::try_from(leader).ok().filter(|group| *group > 1) {
        // SAFETY: sends a signal, to a group that a child of this process leads.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
}

/// Pipes at all three ends.
pub fn piped(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
}
