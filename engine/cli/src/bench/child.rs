//! This program, started again.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use rlpipe_process::{Exit, Spawner};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::arguments::PipelineArguments;
use crate::run::Interrupts;
use crate::{ExitError, FAILED};

/// For a run to stop at once; then it is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is left of a child.
pub struct Child {
    pub process: u32,
    pub exit: Exit,
    /// Its standard error.
    pub said: String,
}

impl Child {
    /// Whether it ended well; if not, this program ends as it did.
    pub fn ensure_well(&self, else_said: &str) -> Result<()> {
        match self.exit.code {
            Some(0) => Ok(()),
            code => Err(ExitError {
                code: code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED),
                text: format!("{else_said}:\n{}", self.said.trim_end()),
            }
            .into()),
        }
    }
}

/// Waits for its end; none where this program is interrupted, which ends it.
pub async fn ended(command: Command, interrupts: &mut Interrupts) -> Result<Option<Child>> {
    let started = Spawner::new()?.spawn(command).await;
    let mut process = started.context("cannot start this program again")?;
    let (_, _, errors) = process.pipes();
    // Read meanwhile, whatever is waited for: who says much must not wait for a reader.
    let reading = tokio::spawn(async move {
        let mut said = Vec::new();
        if let Some(mut errors) = errors {
            errors.read_to_end(&mut said).await?;
        }
        std::io::Result::Ok(said)
    });
    let exit = tokio::select! {
        exit = process.wait() => exit,
        () = interrupts.next() => {
            // To a run, a first and a second Ctrl-C: it stops at once. Two of the same may come as one.
            process.signal(libc::SIGTERM);
            process.signal(libc::SIGINT);
            if tokio::time::timeout(PATIENCE, process.wait()).await.is_err() {
                process.kill();
                process.wait().await;
            }
            return Ok(None);
        }
    };
    let said = reading.await?.context("cannot read what this program says")?;
    Ok(Some(Child {
        process: process.id(),
        exit,
        said: String::from_utf8_lossy(&said).into_owned(),
    }))
}

/// A verb of this program, with more options, for a pipeline.
pub fn command(verb: &str, more: &[&str], pipeline: &PipelineArguments) -> Result<Command> {
    let program = std::env::current_exe().context("this program's own path cannot be found out")?;
    let mut command = Command::new(program);
    command.arg(verb).args(more).args(options(pipeline));
    // A file's name may begin with a dash.
    command.arg("--").args(&pipeline.files);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    Ok(command)
}

fn options(pipeline: &PipelineArguments) -> Vec<String> {
    let PipelineArguments {
        overrides,
        work_dir,
        num_workers,
        backend,
        ..
    } = pipeline;
    let named = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("--{name}={value}"));
    overrides
        .iter()
        .map(|change| format!("--set={change}"))
        .chain(named("work-dir", work_dir))
        .chain(num_workers.map(|workers| format!("--num-workers={workers}")))
        .chain(named("backend", backend))
        .collect()
}

/// The pipeline's arguments, as they could be typed again. Where its run is kept is no part of what was measured.
pub fn shown(pipeline: &PipelineArguments) -> String {
    let pipeline = &PipelineArguments {
        work_dir: None,
        ..pipeline.clone()
    };
    let files = pipeline.files.iter().map(|file| file.display().to_string());
    let words = files
        .chain(options(pipeline))
        .map(|word| crate::output::shell_word(&word));
    words.collect::<Vec<_>>().join(" ")
}
