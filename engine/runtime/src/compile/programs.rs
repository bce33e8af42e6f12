//! RL1120 to RL1124: programs that judge. Whether they are there, and, with a row of the data, whether they work.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jsonschema::error::ValidationErrorKind;
use rlpipe_core::data::{FinishReason, Row};
use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::document::Range;
use rlpipe_core::kind::Role;
use rlpipe_core::plugin::{Ready, Sample, Tried};
use rlpipe_core::services::{JudgeCommand, Rows};

use super::data::Data;
use super::pipeline::{Node, Pipeline};
use super::read::quoted;

/// So many rows of a sampler are looked at for one of a certain source, and for the columns that a program reads.
const LOOKED_AT_ROWS: u64 = 1000;
/// Faults of a config that are shown one by one.
const SHOWN_FAULTS: usize = 5;

/// Calls a program of a node as a run would, with a sample or none.
pub type Call<'a> = dyn Fn(&str, &JudgeCommand, Option<Sample>) -> Tried + 'a;

/// A program, and the judger that it is of.
struct Used<'a> {
    index: usize,
    node: &'a Node,
    command: &'a JudgeCommand,
    errors_are_fatal: bool,
}

fn used(pipeline: &Pipeline) -> impl Iterator<Item = Used<'_>> {
    pipeline.live().flat_map(|(index, node, contract)| {
        let (commands, errors_are_fatal) = match &contract.role {
            Role::Judger {
                commands,
                errors_are_fatal,
                ..
            } => (commands.as_slice(), *errors_are_fatal),
            _ => (&[][..], false),
        };
        commands.iter().map(move |command| Used {
            index,
            node,
            command,
            errors_are_fatal,
        })
    })
}

impl Used<'_> {
    /// Where one of its settings stands.
    fn range(&self, keys: &[&str]) -> Range {
        let keys: Vec<&str> = self
            .command
            .keys
            .iter()
            .map(String::as_str)
            .chain(keys.iter().copied())
            .collect();
        self.node.range_of(&keys)
    }

    fn program(&self) -> &str {
        self.command.run.first().map_or("", String::as_str)
    }

    /// Where it is not there, why; with what to write instead, where that is known.
    fn missing(&self) -> Option<String> {
        let program = self.program();
        if program.contains('/') {
            return why_not(Path::new(program));
        }
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let found: Vec<PathBuf> = std::env::split_paths(&folders)
            .map(|folder| folder.join(program))
            .collect();
        if found.iter().any(|path| why_not(path).is_none()) {
            return None;
        }
        Some(format!("there is no program `{program}` in the folders of `PATH`"))
    }
}

/// Why a file cannot be executed; none where it can.
fn why_not(path: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    match std::fs::metadata(path) {
        Err(_) => Some(format!("there is no file `{}`", path.display())),
        Ok(found) if !found.is_file() => Some(format!("`{}` is not a file", path.display())),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => Some(format!("`{}` is not executable", path.display())),
        Ok(_) => None,
    }
}

/// Looks for programs, for files among their arguments, and for the variables that they are to be given.
pub fn find(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    for used in used(pipeline) {
        let range = used.range(&["run"]);
        if let Some(why) = used.missing() {
            let mut diagnostic = Diagnostic::error(&codes::RL1120, range, why.clone()).label_text("cannot be started");
            if why.ends_with("is not executable") {
                diagnostic = diagnostic.note(format!(
                    "`chmod +x` makes it so; or name what runs it, such as `[python3, {}]`",
                    used.program()
                ));
            } else if !used.program().contains('/') {
                diagnostic = diagnostic.note("a program beside this file is written with `./` before its name");
            } else if why.starts_with("there is no file") {
                diagnostic =
                    diagnostic.note("a word that begins with `./` or `../` is a path from the folder of its file");
            }
            diagnostics.push(diagnostic);
        }
        for word in used.command.run.iter().skip(1) {
            let path = Path::new(word);
            // A word that began with `./` or `../` has become an absolute path.
            if path.is_absolute() && looks_like_a_script(word) && !path.exists() {
                let message = format!("there is no file `{word}`");
                diagnostics.push(Diagnostic::error(&codes::RL1120, range, message).label_text("among its arguments"));
            } else if !word.contains('/') && looks_like_a_script(word) && !path.exists() {
                diagnostics.push(
                    Diagnostic::error(
                        &codes::RL1120,
                        range,
                        format!("there is no file `{word}` in the folder that rlpipe was started in"),
                    )
                    .label_text("among its arguments")
                    .note(format!("a file beside this one is written `./{word}`")),
                );
            }
        }
        let unset: Vec<&str> = used
            .command
            .environment
            .iter()
            .map(String::as_str)
            .filter(|name| std::env::var_os(name).is_none())
            .collect();
        if !unset.is_empty() {
            let are = if unset.len() == 1 { "is" } else { "are" };
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL1121,
                    used.range(&["environment"]),
                    format!(
                        "`{}` is to be given {}, which {are} not set",
                        used.program(),
                        quoted(&unset)
                    ),
                )
                .label_text("not in rlpipe's environment"),
            );
        }
    }
}

/// Whether a word names a file by its ending.
fn looks_like_a_script(word: &str) -> bool {
    let extension = Path::new(word).extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| ["py", "sh", "js", "rb", "pl", "lua", "r", "jl", "ts"].contains(&extension))
}

/// Calls each program once, with a row that it would judge.
/// Returns what each calls itself, and its version, by `program of NODE`.
pub fn check_calls(
    pipeline: &Pipeline,
    data: &Data,
    call: &Call<'_>,
    diagnostics: &mut Diagnostics,
) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    for used in used(pipeline) {
        let range = used.range(&["run"]);
        let told = |found: &Diagnostic| found.code == &codes::RL1120 && found.primary.range == range;
        if diagnostics.iter().any(told) {
            continue;
        }
        let samplers: Vec<(&str, &dyn Rows)> = pipeline
            .upstream(used.index)
            .into_iter()
            .map(|index| pipeline.nodes[index].name.as_str())
            .filter_map(|name| Some((name, data.rows.get(name)?.as_ref())))
            .collect();
        let row = samplers.iter().find_map(|(_, rows)| row_for(used.command, *rows));
        let steps = pipeline
            .run
            .as_ref()
            .and_then(|run| run.total_steps)
            .map_or(0, |steps| u64::from(steps.get()));
        let tried = call(
            &used.node.name,
            used.command,
            row.as_deref().map(|row| sample(row, steps)),
        );
        let faults = tried
            .ready
            .as_ref()
            .map(|ready| config_faults(&used, ready))
            .unwrap_or_default();
        if let Some(ready) = &tried.ready {
            let inner = used
                .command
                .keys
                .iter()
                .filter(|key| !matches!(key.as_str(), "judge" | "command"));
            let place: Vec<&str> = std::iter::once(used.node.name.as_str())
                .chain(inner.map(String::as_str))
                .collect();
            let version = format!("{} {}", ready.name, ready.version);
            versions.insert(format!("program of {}", place.join(".")), version.trim().to_owned());
            columns(&used, ready, &samplers, diagnostics);
        }
        if !faults.is_empty() {
            // A program that does not take its config fails because of it.
            diagnostics.extend(faults);
            continue;
        }
        let (code, what, text) = match (&tried.failure, &tried.score) {
            (Some(failure), _) if tried.ready.is_none() => (&codes::RL1122, "does not start", failure),
            (Some(failure), _) => (&codes::RL1124, "cannot judge a row of the data", failure),
            (None, Some(Err(error))) => (&codes::RL1124, "cannot judge a row of the data", error),
            (None, _) => continue,
        };
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default().trim_end_matches(':');
        let message = format!("the program of `{}` {what}: {first}", used.node.name);
        let is_error = used.errors_are_fatal || tried.failure.is_some();
        let new = if is_error {
            Diagnostic::error
        } else {
            Diagnostic::warning
        };
        let mut diagnostic = new(code, range, message).label_text("called once to try it");
        let rest: Vec<&str> = lines.map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
        if !rest.is_empty() {
            diagnostic = diagnostic.note(rest.join("\n"));
        }
        if let Some(row) = row.filter(|_| code == &codes::RL1124) {
            diagnostic = diagnostic.note(format!(
                "it was given line {} of `{}`, with its ground truth as the response",
                row.line, row.dataset
            ));
        }
        diagnostics.push(diagnostic);
    }
    versions
}

/// A row that the program would judge: one of its source, where it stands in a route.
fn row_for(command: &JudgeCommand, rows: &dyn Rows) -> Option<std::sync::Arc<Row>> {
    let source = command
        .keys
        .iter()
        .position(|key| key == "route")
        .and_then(|at| command.keys.get(at + 1));
    (0..rows.count().min(LOOKED_AT_ROWS))
        .filter_map(|index| rows.row(index).ok())
        .find(|row| source.is_none_or(|source| *source == row.data_source))
}

fn sample(row: &Row, total_steps: u64) -> Sample {
    Sample {
        prompt: row.prompt.clone(),
        response: row.ground_truth.clone().unwrap_or_default(),
        ground_truth: row.ground_truth.clone(),
        data_source: row.data_source.clone(),
        columns: row.columns.clone(),
        finish_reason: FinishReason::Stop,
        step: 0,
        total_steps,
        seed: 0,
    }
}

/// What the schema that a program declares says of its config, each at its place in the file.
fn config_faults(used: &Used<'_>, ready: &Ready) -> Vec<Diagnostic> {
    let Some(schema) = &ready.config_schema else {
        return Vec::new();
    };
    let validator = match jsonschema::validator_for(schema) {
        Ok(validator) => validator,
        Err(error) => {
            let message = format!(
                "the program of `{}` declares a `config_schema` that is none: {error}",
                used.node.name
            );
            return vec![Diagnostic::error(&codes::RL1123, used.range(&["run"]), message).label_text("its own fault")];
        }
    };
    let config = serde_json::Value::Object(used.command.config.clone());
    validator
        .iter_errors(&config)
        .take(SHOWN_FAULTS)
        .map(|error| {
            let pointer = error.instance_path().as_str().to_owned();
            let unexpected = match error.kind() {
                ValidationErrorKind::AdditionalProperties { unexpected } => unexpected.first(),
                _ => None,
            };
            let keys = pointer.split('/').skip(1).chain(unexpected.map(String::as_str));
            let path: Vec<&str> = std::iter::once("config").chain(keys).collect();
            let key = path.join(".");
            let message = format!("the program of `{}` does not take its `{key}`: {error}", used.node.name);
            Diagnostic::error(&codes::RL1123, used.range(&path), message).label_text("against its `config_schema`")
        })
        .collect()
}

/// Rows without a column that the program says it reads.
fn columns(used: &Used<'_>, ready: &Ready, samplers: &[(&str, &dyn Rows)], diagnostics: &mut Diagnostics) {
    for (sampler, rows) in samplers {
        let lacking = (0..rows.count().min(LOOKED_AT_ROWS)).find_map(|index| {
            let row = rows.row(index).ok()?;
            let missing: Vec<&str> = ready
                .reads
                .iter()
                .map(String::as_str)
                .filter(|column| !row.columns.contains_key(*column))
                .collect();
            (!missing.is_empty()).then(|| (row.line, quoted(&missing), missing.len()))
        });
        if let Some((line, missing, count)) = lacking {
            let columns = if count == 1 { "column" } else { "columns" };
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL1124,
                    used.range(&["run"]),
                    format!(
                        "line {line} of the data of `{sampler}` lacks the {columns} {missing}, which the program reads"
                    ),
                )
                .label_text(format!("`{}` judges by it", used.node.name)),
            );
        }
    }
}
