//! Writing to the terminal. A reader that has gone away is no error: `rlpipe kinds | head` ends quietly.

use std::io::{IsTerminal, Write};

/// Writes to standard output.
pub fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Writes to standard error.
pub fn error(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Whether faults are shown in colour: on a terminal, unless `NO_COLOR` is set.
pub fn color() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
