//! Writing to the terminal. A reader that has gone away is no error: `rlpipe kinds | head` ends quietly.

use std::io::{ErrorKind, IsTerminal, Write};

use anyhow::{Context, Result};

/// Writes to standard output.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write to standard output"),
        _ => Ok(()),
    }
}

/// Writes to standard error.
pub fn error(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// A word as a shell reads it back.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// "1 step", "2 steps".
pub fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Whether faults are shown in colour: on a terminal, unless `NO_COLOR` is set; elsewhere where `CLICOLOR_FORCE` is.
pub fn color() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_forced = std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0");
    let is_plain = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    !is_set("NO_COLOR") && (is_forced || (std::io::stderr().is_terminal() && !is_plain))
}

/// Characters in a line of the terminal: `COLUMNS`, or what the terminal says; elsewhere a wide page.
pub fn width() -> usize {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    said.or_else(terminal_width).unwrap_or(160)
}

fn terminal_width() -> Option<usize> {
    // SAFETY: an all-zero `winsize` is valid, and `ioctl` writes into nothing else.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) == 0).then_some(size)
    };
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_a_shell_needs_it() {
        assert_eq!(shell_word("a/b.yaml"), "a/b.yaml");
        assert_eq!(shell_word("nodes.x={ a: 1 }"), "'nodes.x={ a: 1 }'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
