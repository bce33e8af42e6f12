//! `rlpipe bench validate`: the whole process, started again and again.

use std::process::Stdio;

use anyhow::Result;
use serde_json::json;

use super::arguments::ValidateArguments;
use super::child;
use super::report::{Measured, Program, Report};
use super::worker::timed;
use crate::run::Interrupts;

/// Measures; none where it is interrupted.
pub async fn validate(arguments: &ValidateArguments, interrupts: &mut Interrupts) -> Result<Option<Report>> {
    let mut seconds = Vec::new();
    for _ in 0..=arguments.runs {
        let mut command = child::command("validate", &["--format", "concise"], &arguments.pipeline)?;
        command.stdout(Stdio::null());
        let (ended, elapsed_s) = timed(child::ended(command, interrupts)).await?;
        let Some(ended) = ended else {
            return Ok(None);
        };
        ended.ensure_well("the pipeline has faults, so this would measure something else")?;
        seconds.push(elapsed_s);
    }
    let measured = Measured::time("validate", &seconds[1..]).map(|measured| Measured {
        warm_up_s: seconds.first().copied(),
        ..measured
    });
    Ok(Some(Report {
        settings: [("pipeline".to_owned(), json!(child::shown(&arguments.pipeline)))]
            .into_iter()
            .collect(),
        measured: measured.into_iter().collect(),
        ..Report::of_driver("validate", Program::this(), arguments.shown.date.as_ref())
    }))
}
