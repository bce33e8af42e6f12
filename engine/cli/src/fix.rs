//! `rlpipe validate --fix`: writes the fixes that faults come with into the files.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use rlpipe_core::diagnostic::{Fix, applicable, apply_fixes};
use rlpipe_core::document::{Format, Sources};
use rlpipe_runtime::compile::Outcome;

use crate::output;

/// A fix may bring up what could not be seen before it; more rounds than this are fixes that undo each other.
const MOST_ROUNDS: usize = 20;

/// Compiles and fixes until nothing more can be fixed, says what was changed and where, and returns what is left.
pub fn fix(compile: &dyn Fn() -> Result<Outcome>) -> Result<Outcome> {
    let mut changed = 0;
    for _ in 0..MOST_ROUNDS {
        let outcome = compile()?;
        let done = round(&outcome)?;
        if done == 0 {
            close(&outcome, changed);
            return Ok(outcome);
        }
        changed += done;
    }
    output::error(&format!(
        "{changed} fixes applied in {MOST_ROUNDS} rounds, and there are more: they may undo each other\n"
    ));
    compile()
}

/// Applies what can be applied together; how many fixes.
fn round(outcome: &Outcome) -> Result<usize> {
    let mut by_source: BTreeMap<_, Vec<&Fix>> = BTreeMap::new();
    // A fault's fix counts before a warning's where they overlap; the order of the list settles it otherwise.
    let mut sorted = outcome.diagnostics.sorted();
    sorted.sort_by_key(|diagnostic| diagnostic.severity);
    for fix in sorted.into_iter().filter_map(|diagnostic| diagnostic.fix.as_ref()) {
        by_source.entry(fix.range.source).or_default().push(fix);
    }
    let mut done = 0;
    for (id, fixes) in by_source {
        let source = outcome.sources.get(id);
        if !matches!(source.format, Format::Yaml | Format::Toml) {
            continue;
        }
        let applied = applicable(&source.text, &fixes);
        let text = apply_fixes(&source.text, &fixes);
        if text == *source.text {
            continue;
        }
        write(Path::new(&source.name), &text).with_context(|| format!("cannot write `{}`", source.name))?;
        for fix in &applied {
            output::error(&format!("{}\n", line(fix, &outcome.sources)));
        }
        done += applied.len();
    }
    Ok(done)
}

/// Where a fix is and what it changes.
fn line(fix: &Fix, sources: &Sources) -> String {
    let place = sources.place(fix.range);
    let (old, new) = (short(sources.text(fix.range)), short(&fix.replacement));
    let what = match (old.is_empty(), new.is_empty()) {
        (true, _) => format!("`{new}` put in"),
        (_, true) => format!("`{old}` taken out"),
        _ => format!("`{old}` is `{new}` now"),
    };
    format!("{}:{}:{}: {what}", place.file, place.line, place.column)
}

/// A text on a line.
fn short(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().map(str::trim).collect();
    lines.join(" ")
}

fn close(outcome: &Outcome, changed: usize) {
    match changed {
        0 => output::error("nothing to fix\n"),
        1 => output::error("1 fix applied\n"),
        _ => output::error(&format!("{changed} fixes applied\n")),
    }
    for fix in outcome
        .diagnostics
        .iter()
        .filter_map(|diagnostic| diagnostic.fix.as_ref())
    {
        let source = outcome.sources.get(fix.range.source);
        if source.format == Format::Argument {
            let fixed = apply_fixes(&source.text, &[fix]);
            output::error(&format!("`{}` is for you to change: `--set {fixed}`\n", source.name));
        }
    }
}

/// Replaces a file, or the one that a link leads to; its permissions stay. Whoever is interrupted leaves the old one.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let path = path.canonicalize()?;
    let parent = path.parent().unwrap_or(Path::new("/"));
    let mut beside = tempfile::NamedTempFile::new_in(parent)?;
    beside.write_all(text.as_bytes())?;
    beside.as_file().set_permissions(path.metadata()?.permissions())?;
    beside.as_file().sync_all()?;
    beside.persist(&path)?;
    Ok(())
}
