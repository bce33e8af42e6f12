//! This program, started again.

use std::process::Stdio;

use anyhow::{Context, Result};
use tokio::process::Command;

use crate::arguments::PipelineArguments;

/// A verb of this program for a pipeline. It is killed where nobody waits for it any more.
pub fn command(verb: &str, pipeline: &PipelineArguments) -> Result<Command> {
    let program = std::env::current_exe().context("this program's own path cannot be found out")?;
    let mut command = Command::new(program);
    command.arg(verb).args(&pipeline.files).args(options(pipeline));
    command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
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
