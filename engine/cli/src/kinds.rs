//! `rlpipe kinds`.

use std::process::ExitCode;

use anyhow::Result;
use rlpipe_core::diagnostic::nearest;
use rlpipe_runtime::compile::describe_kind;
use rlpipe_stages::KINDS;

use crate::{MISUSED, output};

/// Lists the kinds, or describes one: its settings from the same source as the schema.
pub fn kinds(name: Option<&str>) -> Result<ExitCode> {
    let Some(name) = name else {
        let width = KINDS.iter().map(|kind| kind.name.len()).max().unwrap_or(0);
        let lines = KINDS
            .iter()
            .map(|kind| format!("{:width$}  {}\n", kind.name, kind.summary));
        output::print(&lines.collect::<String>())?;
        output::print("\n`rlpipe kinds NAME` describes one.\n")?;
        return Ok(ExitCode::SUCCESS);
    };
    let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else {
        let near = nearest(name, KINDS.iter().map(|kind| kind.name));
        let hint = match near.first() {
            Some(best) => format!("did you mean `{best}`?"),
            None => "`rlpipe kinds` lists them; sections such as `run` are in docs/reference/pipeline.md".to_owned(),
        };
        output::error(&format!("error: there is no kind `{name}`; {hint}\n"));
        return Ok(ExitCode::from(MISUSED));
    };
    output::print(&describe_kind(kind))?;
    Ok(ExitCode::SUCCESS)
}
