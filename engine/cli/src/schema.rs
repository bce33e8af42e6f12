//! `rlpipe schema`.

use std::process::ExitCode;

use anyhow::Result;
use rlpipe_runtime::compile::pipeline_schema;
use rlpipe_stages::KINDS;

use crate::output;

/// Prints the schema of pipeline files, as it stands in `schemas/pipeline.schema.json`.
pub fn schema() -> Result<ExitCode> {
    output::print(&format!("{}\n", serde_json::to_string_pretty(&pipeline_schema(KINDS))?))?;
    Ok(ExitCode::SUCCESS)
}
