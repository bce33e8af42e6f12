//! `rlpipe explain`.

use std::process::ExitCode;

use anyhow::Result;
use rlpipe_core::diagnostic::{CODES, code, nearest};

use crate::output;

/// Prints what a code means, why it is given, an example, and how to mend it.
pub fn explain(id: &str) -> Result<ExitCode> {
    let Some(code) = code(id) else {
        let known: Vec<&str> = CODES.iter().map(|code| code.id).collect();
        let near = nearest(id, known.iter().copied());
        let hint = if near.is_empty() {
            known.join(", ")
        } else {
            near.join(", ")
        };
        anyhow::bail!("there is no code `{id}`; there are {hint}");
    };
    let text = &code.explanation;
    output::print(&format!(
        "{}: {}\n\n{}\n\nWhy: {}\n\nExample:\n\n{}\n\nMend: {}\n",
        code.id,
        code.title,
        text.meaning,
        text.why,
        indented(text.example),
        text.fix
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn indented(text: &str) -> String {
    text.trim_end()
        .lines()
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}
