//! `rlpipe schema`.

use std::process::ExitCode;

use anyhow::Result;
use rlpipe_core::plugin;
use rlpipe_runtime::compile::{pipeline_schema, row_schema};
use rlpipe_stages::KINDS;

use crate::arguments::SchemaArguments;
use crate::output;

/// Prints a schema as it stands in `schemas/`: of pipeline files, of rows, or of messages of plugins.
pub fn schema(arguments: &SchemaArguments) -> Result<ExitCode> {
    let schema = match (arguments.row, arguments.plugin) {
        (true, _) => row_schema(),
        (_, true) => plugin::schema(),
        _ => pipeline_schema(KINDS),
    };
    output::print(&format!("{}\n", serde_json::to_string_pretty(&schema)?))?;
    Ok(ExitCode::SUCCESS)
}
