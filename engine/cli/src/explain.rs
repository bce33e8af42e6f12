//! `rlpipe explain`.

use std::process::ExitCode;

use anyhow::Result;
use rlpipe_core::diagnostic::{CODES, code, nearest};

use crate::{MISUSED, output};

/// Prints what a code means, why it is given, an example, and how to mend it.
pub fn explain(id: &str) -> Result<ExitCode> {
    let wanted = id.to_uppercase();
    let number = wanted.trim_start_matches("RL");
    let Some(code) = code(&format!("RL{number:0>4}")) else {
        let near = nearest(&wanted, CODES.iter().map(|code| code.id));
        let hint = match near.first() {
            Some(best) => format!("did you mean `{best}`?"),
            None => "faults show their code in brackets, such as `error[RL0401]`".to_owned(),
        };
        output::error(&format!("error: there is no code `{id}`; {hint}\n"));
        return Ok(ExitCode::from(MISUSED));
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
