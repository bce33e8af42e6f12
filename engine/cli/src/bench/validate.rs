//! `rlpipe bench validate`: the whole process, started again and again.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::arguments::ValidateArguments;
use super::child;
use super::report::{Measured, Program, Report};
use super::worker::timed;

/// Measures.
pub async fn validate(arguments: &ValidateArguments) -> Result<Report> {
    let mut seconds = Vec::new();
    for _ in 0..=arguments.runs {
        let mut command = child::command("validate", &arguments.pipeline)?;
        command.args(["--format", "concise"]).stdout(Stdio::null());
        let (ended, elapsed_s) =
            timed(async { command.output().await.context("cannot start this program again") }).await?;
        ensure!(
            ended.status.success(),
            "the pipeline has faults, so this would measure something else:\n{}",
            String::from_utf8_lossy(&ended.stderr).trim_end()
        );
        seconds.push(elapsed_s);
    }
    let measured = Measured::time("validate", &seconds[1..]).map(|measured| Measured {
        warm_up_s: seconds.first().copied(),
        ..measured
    });
    Ok(Report {
        settings: [("pipeline".to_owned(), json!(child::shown(&arguments.pipeline)))]
            .into_iter()
            .collect(),
        measured: measured.into_iter().collect(),
        ..Report::of_driver("validate", Program::this(), arguments.shown.date.as_ref())
    })
}
