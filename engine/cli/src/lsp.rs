//! `rlpipe lsp`.

use std::process::ExitCode;

use anyhow::Result;
use rlpipe_stages::KINDS;

/// Serves an editor until it ends the conversation.
pub fn lsp() -> Result<ExitCode> {
    rlpipe_lsp::serve_stdio(KINDS)?;
    Ok(ExitCode::SUCCESS)
}
