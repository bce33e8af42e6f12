//! One process that judges, from its start to its end.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rlpipe_core::plugin::{PROTOCOL, Ready, Sample, ScoreRequest, Start, ToPlugin};
use rlpipe_core::services::JudgeCommand;
use rlpipe_process::{Exit, Process, Spawner, piped};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::answer::{self, Scored, Wrong};
use super::log::{Ear, Log};

/// Longer lines are no answers.
const LINE_LIMIT_BYTES: usize = 64 << 20;
/// A process that has closed its output, or whose input was closed, has this long to end by itself.
const END_WITHIN: Duration = Duration::from_secs(2);

/// Variables that every program gets; others only where `environment` names them.
const ENVIRONMENT: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONPATH",
    "PYTHONHOME",
];

/// Why a process is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It cannot be started.
    #[error("it cannot be started: {0}")]
    Start(io::Error),
    /// It was not ready in time.
    #[error("it was not ready within {0:?} (`start_timeout`)")]
    SlowStart(Duration),
    /// It did not answer in time.
    #[error("it did not answer within {0:?} (`timeout`)")]
    Hang(Duration),
    /// It broke the protocol.
    #[error("{0}")]
    Stream(String),
    /// Its output has ended. How it ended itself is found out by `Program::fail`.
    #[error("it closed its standard output, and its process runs on")]
    Closed,
    /// Its process has ended.
    #[error("its process {0}")]
    Ended(Exit),
}

/// A fault, with the end of what the process wrote to standard error.
#[derive(Debug, thiserror::Error)]
#[error("{fault}{tail}")]
pub struct Failure {
    pub fault: Fault,
    tail: String,
}

/// A process that is ready to judge.
#[derive(Debug)]
pub struct Program {
    process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    errors: Ear,
    line: Vec<u8>,
    last_id: u64,
    timeout: Duration,
}

impl Program {
    /// Starts a process and waits until it is ready.
    pub async fn start(
        command: &JudgeCommand,
        start: &Start,
        spawner: &Spawner,
        log: &Arc<Mutex<Log>>,
    ) -> Result<(Self, Ready), Failure> {
        let cannot = |error| Failure {
            fault: Fault::Start(error),
            tail: String::new(),
        };
        let mut process = spawner.spawn(command_of(command)).await.map_err(cannot)?;
        let (Some(input), Some(output), Some(errors)) = process.pipes() else {
            return Err(cannot(io::Error::other("it has no pipes")));
        };
        let mut program = Self {
            process,
            input,
            output: BufReader::new(output),
            errors: Ear::open(errors, log.clone()),
            line: Vec::new(),
            last_id: 0,
            timeout: command.timeout,
        };
        let fault = match program
            .ask(&ToPlugin::Start(start.clone()), command.start_timeout)
            .await
        {
            Ok(()) => match answer::ready(&program.line) {
                Ok(ready) => return Ok((program, ready)),
                Err(error) => Fault::Stream(error),
            },
            Err(Asked::Fault(fault)) => fault,
            Err(Asked::Late) => Fault::SlowStart(command.start_timeout),
        };
        Err(program.fail(fault).await)
    }

    /// What it says of samples. After a fault the process is of no use; `Program::fail` ends it.
    pub async fn score(&mut self, samples: Vec<Sample>) -> Result<Scored, Fault> {
        self.last_id += 1;
        let count = samples.len();
        let request = ToPlugin::Score(ScoreRequest {
            id: self.last_id,
            samples,
        });
        match self.ask(&request, self.timeout).await {
            Ok(()) => {}
            Err(Asked::Fault(fault)) => return Err(fault),
            Err(Asked::Late) => return Err(Fault::Hang(self.timeout)),
        }
        match answer::scores(&self.line, self.last_id, count) {
            Ok(scored) => Ok(scored),
            Err(Wrong::Answer(error)) => Ok(vec![Err(error); count]),
            Err(Wrong::Stream(error)) => Err(Fault::Stream(error)),
        }
    }

    /// Resolves when it ends, or writes something, without having been asked.
    pub async fn idle(&mut self) -> Fault {
        let bytes = tokio::select! {
            biased;
            bytes = self.output.fill_buf() => bytes,
            exit = self.process.wait() => return Fault::Ended(exit),
        };
        match bytes {
            Ok([]) | Err(_) => Fault::Closed,
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
                Fault::Stream(format!(
                    "it wrote `{}` without having been asked; its standard output is for messages alone, other text goes \
                     to standard error",
                    text.trim_end()
                ))
            }
        }
    }

    /// Ends it, and says why.
    pub async fn fail(mut self, fault: Fault) -> Failure {
        let fault = match fault {
            Fault::Closed => match timeout(END_WITHIN, self.process.wait()).await {
                Ok(exit) => Fault::Ended(exit),
                Err(_) => Fault::Closed,
            },
            other => other,
        };
        let tail = finish(self.process, self.errors).await;
        Failure { fault, tail }
    }

    /// Lets it end by itself, but not for long.
    pub async fn end(self) {
        let Self {
            mut process,
            input,
            errors,
            output,
            ..
        } = self;
        // Closing its input is how it is asked.
        drop((input, output));
        // Whether it ends or not, what is left is killed.
        let _ = timeout(END_WITHIN, process.wait()).await;
        finish(process, errors).await;
    }

    /// Writes a message and reads one line, within a time. The line may also come from a process that ends after it; and a
    /// process that ends may leave something behind that holds its output open.
    async fn ask(&mut self, message: &ToPlugin, within: Duration) -> Result<(), Asked> {
        let mut bytes = serde_json::to_vec(message).map_err(|error| Asked::Fault(Fault::Stream(error.to_string())))?;
        bytes.push(b'\n');
        self.line.clear();
        let exchange = exchange(&mut self.input, &bytes, &mut self.output, &mut self.line);
        let process = &mut self.process;
        let asked = async {
            let mut exchange = std::pin::pin!(exchange);
            let exit = tokio::select! {
                biased;
                asked = &mut exchange => return asked,
                exit = process.wait() => exit,
            };
            timeout(END_WITHIN, exchange).await.unwrap_or(Err(Fault::Ended(exit)))
        };
        match timeout(within, asked).await {
            Ok(asked) => asked.map_err(Asked::Fault),
            Err(_) => Err(Asked::Late),
        }
    }
}

/// Why a message was not answered.
enum Asked {
    Late,
    Fault(Fault),
}

/// Writes and reads at once: a program that writes before it reads must not block.
async fn exchange(
    input: &mut ChildStdin,
    message: &[u8],
    output: &mut BufReader<ChildStdout>,
    line: &mut Vec<u8>,
) -> Result<(), Fault> {
    let write = async {
        // A process that takes nothing has ended, or is about to: what it says last explains more.
        let _ = input.write_all(message).await;
        Ok(())
    };
    tokio::try_join!(write, read_line(output, line)).map(drop)
}

/// Kills what is left of a process and returns the end of what it wrote to standard error.
async fn finish(mut process: Process, errors: Ear) -> String {
    process.kill();
    process.wait().await;
    process.kill_rest();
    errors.close().await
}

/// A line without its end.
async fn read_line(output: &mut BufReader<ChildStdout>, line: &mut Vec<u8>) -> Result<(), Fault> {
    loop {
        let bytes = match output.fill_buf().await {
            Ok([]) | Err(_) => return Err(Fault::Closed),
            Ok(bytes) => bytes,
        };
        let end = bytes.iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
        let used = end.map_or(bytes.len(), |end| end + 1);
        output.consume(used);
        if end.is_some() {
            return Ok(());
        }
        if line.len() > LINE_LIMIT_BYTES {
            let limit = LINE_LIMIT_BYTES >> 20;
            return Err(Fault::Stream(format!(
                "it wrote more than {limit} MiB without ending the line"
            )));
        }
    }
}

/// The variable by which a program knows that it is not started by hand, and its value.
pub fn sign() -> (&'static str, String) {
    ("RLPIPE_PLUGIN", PROTOCOL.to_string())
}

/// Names of the variables that a program is given as the driver has them, where they are set.
pub fn passed_on(command: &JudgeCommand) -> impl Iterator<Item = &str> {
    let named = command.environment.iter().map(String::as_str);
    ENVIRONMENT.iter().copied().chain(named)
}

fn command_of(command: &JudgeCommand) -> Command {
    let (program, arguments) = command
        .run
        .split_first()
        .map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    let mut process = Command::new(program);
    let (name, value) = sign();
    process.args(arguments).env_clear().env(name, value);
    for name in passed_on(command) {
        if let Some(value) = std::env::var_os(name) {
            process.env(name, value);
        }
    }
    piped(&mut process);
    process
}
