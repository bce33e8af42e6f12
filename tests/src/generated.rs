//! Files that are made from code and committed: compared with what the code makes now, or written anew.

use std::path::Path;

use crate::project;

/// Set to `1`, it has such files written instead of compared.
pub const WRITE_VARIABLE: &str = "RLPIPE_WRITE";

/// Whether generated files are to be written.
pub fn is_writing() -> bool {
    std::env::var(WRITE_VARIABLE).is_ok_and(|value| value == "1")
}

/// Compares a file with what it should be, or writes it. The path is from the project's folder.
///
/// The error says what to do.
pub fn check_generated(path: impl AsRef<Path>, wanted: &str) -> Result<(), String> {
    let path = path.as_ref();
    let full = project().join(path);
    let found = std::fs::read_to_string(&full).unwrap_or_default();
    if found == wanted {
        return Ok(());
    }
    if !is_writing() {
        let line = found
            .lines()
            .zip(wanted.lines())
            .take_while(|(found, wanted)| found == wanted)
            .count();
        return Err(format!(
            "`{}` is out of date from line {} on: `make generate` writes it anew\n is: {}\nnow: {}",
            path.display(),
            line + 1,
            found.lines().nth(line).unwrap_or_default(),
            wanted.lines().nth(line).unwrap_or_default(),
        ));
    }
    if let Some(folder) = full.parent() {
        std::fs::create_dir_all(folder).map_err(|error| format!("cannot make `{}`: {error}", folder.display()))?;
    }
    std::fs::write(&full, wanted).map_err(|error| format!("cannot write `{}`: {error}", path.display()))
}
