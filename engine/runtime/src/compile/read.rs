//! RL01: files, overlays and arguments become one tree.

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes, nearest};
use rlpipe_core::document::{Format, Sources, Tree, Value, merge, parse, set_argument};

use super::{Request, overlays};

/// Top-level keys.
pub const TOP_LEVEL: [&str; 8] = ["version", "name", "env", "run", "pools", "models", "nodes", "tests"];

/// The version of the pipeline format.
pub const VERSION: i64 = 1;

/// Reads everything; none where no file could be read at all.
pub fn read(request: &Request<'_>, sources: &mut Sources, diagnostics: &mut Diagnostics) -> Option<Tree> {
    let mut whole: Option<Tree> = None;
    let mut failed = false;
    for path in &request.files {
        let text = match (request.read)(&request.working_folder.join(path)) {
            Ok(text) => text,
            Err(error) => {
                let place = sources.add_place(path.display().to_string(), Format::of_file(path));
                let mut diagnostic = Diagnostic::error(
                    &codes::RL0100,
                    place,
                    format!("cannot read `{}`: {error}", path.display()),
                );
                if error.kind() == std::io::ErrorKind::NotFound {
                    diagnostic = diagnostic.note("the path is taken from the folder that rlpipe was started in");
                }
                diagnostics.push(diagnostic);
                failed = true;
                continue;
            }
        };
        let id = sources.add_file(path, text);
        match parse(sources, id, diagnostics) {
            Some(mut tree) if matches!(tree.value, Value::Map(_)) => {
                whole = Some(match whole.take() {
                    Some(base) => {
                        overlays::check(&base, &mut tree, sources, diagnostics);
                        merge(base, tree)
                    }
                    None if request.files.len() == 1 && overlays::stands_alone(&tree, sources, diagnostics) => {
                        return None;
                    }
                    None => tree,
                });
            }
            Some(tree) => {
                failed = true;
                diagnostics.push(
                    Diagnostic::error(&codes::RL0108, tree.range, "a pipeline is a mapping of keys")
                        .label_text("no mapping")
                        .note("it has the keys `version`, `name`, `run`, `pools`, `models` and `nodes`"),
                );
            }
            None => failed = true,
        }
    }
    for argument in &request.overrides {
        match set_argument(sources, argument) {
            Ok(mut tree) => {
                whole = whole.map(|base| {
                    overlays::check(&base, &mut tree, sources, diagnostics);
                    merge(base, tree)
                });
            }
            Err(diagnostic) => diagnostics.push(diagnostic),
        }
    }
    // A file that cannot be read would make every name in it look missing.
    let whole = whole.filter(|_| !failed)?;
    top_level(&whole, sources, diagnostics);
    Some(whole)
}

fn top_level(tree: &Tree, sources: &Sources, diagnostics: &mut Diagnostics) {
    for entry in tree.entries() {
        if TOP_LEVEL.contains(&entry.key.as_str()) {
            continue;
        }
        let mut diagnostic = Diagnostic::error(
            &codes::RL0109,
            entry.key_range,
            format!("unknown top-level key `{}`", entry.key),
        )
        .label_text("unknown key")
        .note(format!("top-level keys are {}", quoted(&TOP_LEVEL)));
        let near = nearest(&entry.key, TOP_LEVEL);
        if let Some(best) = near.iter().find(|name| {
            let there = tree.entry(name);
            there.is_none_or(|there| there.key_range.source != entry.key_range.source)
        }) {
            diagnostic = diagnostic.fix(format!("did you mean `{best}`?"), entry.key_range, *best);
        }
        diagnostics.push(diagnostic);
    }
    // What is written in goes behind a byte order mark.
    let mark = if sources.get(tree.range.source).text.starts_with('\u{feff}') {
        3
    } else {
        0
    };
    let begin = tree.range.start.max(mark);
    let start = rlpipe_core::document::Range {
        start: begin,
        end: begin,
        ..tree.range
    };
    match tree.entry("version") {
        Some(entry) => match entry.value.value {
            Value::Int(VERSION) => {}
            _ => diagnostics.push(
                Diagnostic::error(
                    &codes::RL0107,
                    entry.value.range,
                    format!("this rlpipe reads version {VERSION} of the format"),
                )
                .label_text("another version")
                .fix(format!("write `{VERSION}`"), entry.value.range, VERSION.to_string()),
            ),
        },
        None => {
            let diagnostic = Diagnostic::error(&codes::RL0107, start, "the key `version` is missing");
            let is_line_start = sources.line_column(start.source, start.start).1 == 1;
            diagnostics.push(match sources.get(start.source).format {
                Format::Toml => diagnostic.fix("say which version it is", start, format!("version = {VERSION}\n")),
                Format::Yaml
                    if is_line_start && !sources.get(start.source).text[start.start as usize..].starts_with('{') =>
                {
                    diagnostic.fix("say which version it is", start, format!("version: {VERSION}\n"))
                }
                _ => diagnostic.note(format!("add `version: {VERSION}`")),
            });
        }
    }
}

/// Longer lists say how many more there are.
const MAXIMUM_NAMES: usize = 24;

/// Names in backticks, as a list.
pub fn quoted<T: AsRef<str>>(names: &[T]) -> String {
    let shown = names.iter().take(MAXIMUM_NAMES);
    let list = shown
        .map(|name| format!("`{}`", name.as_ref()))
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(MAXIMUM_NAMES) {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}
