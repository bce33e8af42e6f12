//! Pipelines of the project, and compiling them in a known environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rlpipe_backends::try_command;
use rlpipe_core::diagnostic::Diagnostics;
use rlpipe_core::document::{Format, Source, Sources, Tree, parse};
use rlpipe_core::kind::ByteSize;
use rlpipe_core::plugin::{Sample, Tried};
use rlpipe_core::services::JudgeCommand;
use rlpipe_runtime::compile::{
    Machine, Outcome, Request, check_world_on, compile, load_data, load_feeds, read_file, try_programs,
};
use rlpipe_stages::KINDS;

/// The project's folder.
pub fn project() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}

/// The pipelines that the project comes with, by their path from its folder.
pub fn shipped_pipelines() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(project().join("pipelines"))
        .into_iter()
        .flatten()
        .flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| Path::new("pipelines").join(entry.file_name()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml" || extension == "toml")
        })
        .collect();
    found.sort();
    found
}

/// Values of the variables that shipped pipelines ask for.
fn shipped_environment(name: &str) -> Option<String> {
    let value = match name {
        "WORK_DIR" => "runs",
        "MODEL_PATH" => "models/policy",
        "DATA_PATH" => "data/train.jsonl",
        "EVAL_DATA_PATH" => "data/test.jsonl",
        _ => return None,
    };
    Some(value.to_owned())
}

/// Compiles files of the project, seen from its folder.
pub fn compile_files(files: &[PathBuf], overrides: &[&str]) -> Outcome {
    compile(&Request {
        files: files.to_vec(),
        overrides: overrides.iter().map(|argument| (*argument).to_owned()).collect(),
        environment: &shipped_environment,
        working_folder: project(),
        read: &read_file,
        kinds: KINDS,
    })
}

/// Compiles a text as a file of that name in a folder.
///
/// # Panics
/// Where the file cannot be written.
pub fn compile_text(folder: &Path, name: &str, text: &str) -> Outcome {
    let written = std::fs::write(folder.join(name), text);
    assert!(
        written.is_ok(),
        "cannot write `{name}` in `{}`: {written:?}",
        folder.display()
    );
    compile(&Request {
        files: vec![PathBuf::from(name)],
        overrides: Vec::new(),
        environment: &shipped_environment,
        working_folder: folder.to_owned(),
        read: &read_file,
        kinds: KINDS,
    })
}

/// Calls a program as `rlpipe` does.
fn dry_call(node: &str, command: &JudgeCommand, sample: Option<Sample>) -> Tried {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(try_command(command, node, 0, sample)),
        Err(error) => Tried {
            failure: Some(error.to_string()),
            ..Tried::default()
        },
    }
}

/// JSON as TOML; nulls are left out, since TOML has none. References in texts stay references.
pub fn to_toml(value: &serde_json::Value) -> String {
    fn without_nulls(value: &serde_json::Value) -> serde_json::Value {
        match value {
            serde_json::Value::Array(elements) => elements.iter().map(without_nulls).collect(),
            serde_json::Value::Object(entries) => {
                let kept = entries.iter().filter(|(_, value)| !value.is_null());
                kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
            }
            other => other.clone(),
        }
    }
    // Only nulls, and numbers that no pipeline holds, cannot be written.
    toml::to_string(&without_nulls(value)).unwrap_or_default()
}

/// The tree of a text, with what was found on the way.
pub fn tree_of(text: &str, format: Format) -> (Option<Tree>, Diagnostics) {
    let mut sources = Sources::default();
    let id = sources.add(Source {
        name: "text".to_owned(),
        text: text.into(),
        format,
        folder: None,
    });
    let mut diagnostics = Diagnostics::default();
    let tree = parse(&sources, id, &mut diagnostics);
    (tree, diagnostics)
}

/// A pipeline of `tests/ui`, with what its leading comments say of how it is checked:
///
/// - `# base: FILE`: it is an overlay of this file; `base/base.yaml` where nothing is said, `none` for none;
/// - `# with: FILE`: a further overlay;
/// - `# set: PATH=VALUE`: a `--set` argument;
/// - `# env: NAME=VALUE`: a variable of the environment;
/// - `# pass: data` and `# pass: world`: looks at these, too; `# pass: programs`, after the data, calls programs;
/// - `# pass: tests`: reads the files that tests are fed;
/// - `# machine: no worker`: where that looks, the worker program is missing; `# machine: full disk`: it has 1 MiB of disk
///   left;
/// - `# also: CODE`: it has a second fault, which cannot be without the first;
/// - `# gives: CODE CODE`: of a case in `field`, all that is found.
pub struct Case {
    /// The path of the file in `tests/ui`.
    pub name: String,
    /// Its text.
    pub text: String,
    directives: Vec<(String, String)>,
}

impl Case {
    /// All cases, by name, those of `field` too.
    ///
    /// # Panics
    /// Where `tests/ui` cannot be read.
    pub fn all() -> Vec<Case> {
        let mut cases = Self::in_folder("");
        cases.extend(Self::field());
        cases
    }

    /// Pipelines with faults that users of other systems reported, as they would make them here.
    ///
    /// # Panics
    /// Where `tests/ui/field` cannot be read.
    pub fn field() -> Vec<Case> {
        Self::in_folder("field/")
    }

    fn in_folder(below: &str) -> Vec<Case> {
        let folder = Self::folder().join(below);
        let mut names: Vec<String> = std::fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| format!("{below}{}", entry.file_name().to_string_lossy()))
            .filter(|name| name.ends_with(".yaml") || name.ends_with(".toml"))
            .collect();
        names.sort();
        assert!(!names.is_empty(), "there are no cases in `{}`", folder.display());
        names.into_iter().map(Self::read).collect()
    }

    /// Where cases lie, and what their relative paths start at.
    pub fn folder() -> PathBuf {
        project().join("tests/ui")
    }

    fn read(name: String) -> Case {
        let text = std::fs::read_to_string(Self::folder().join(&name));
        assert!(text.is_ok(), "`{name}` cannot be read");
        let text = text.unwrap_or_default();
        let comments = text.lines().map_while(|line| line.strip_prefix('#'));
        let directives = comments.filter_map(|line| line.trim().split_once(": "));
        let directives = directives
            .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
            .collect();
        Case { name, text, directives }
    }

    /// Values of a directive, in order.
    pub fn all_of<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.directives
            .iter()
            .filter(move |(found, _)| found == key)
            .map(|(_, value)| value.as_str())
    }

    /// The code that it is a case of, as its name begins: none for those with several faults.
    pub fn code(&self) -> Option<String> {
        let stem = self.name.split(['.', '-']).next()?;
        stem.starts_with("rl").then(|| stem.to_uppercase())
    }

    /// A small machine without a card, the same wherever the tests run.
    fn machine(&self) -> Machine {
        let worker = match self.all_of("machine").any(|machine| machine == "no worker") {
            true => Err("there is no program `rlpipe-worker` beside `rlpipe`".to_owned()),
            false => Ok(()),
        };
        Machine {
            nvidia_card: false,
            card_memory: None,
            cores: 4,
            memory: Some(ByteSize(16 << 30)),
            bfloat16: false,
            float16: false,
            free_disk: match self.all_of("machine").any(|machine| machine == "full disk") {
                true => |_| Some(1 << 20),
                false => |_| Some(100 << 30),
            },
            worker,
        }
    }

    /// Checks it.
    pub fn check(&self) -> Outcome {
        self.check_in(&Self::folder())
    }

    /// The same, in another folder.
    pub fn check_in(&self, folder: &Path) -> Outcome {
        let environment: BTreeMap<&str, &str> = self
            .all_of("env")
            .filter_map(|assignment| assignment.split_once('='))
            .collect();
        let base = self.all_of("base").next().unwrap_or("base/base.yaml");
        let files = [base]
            .into_iter()
            .filter(|base| *base != "none")
            .chain([self.name.as_str()])
            .chain(self.all_of("with"));
        let mut outcome = compile(&Request {
            files: files.map(PathBuf::from).collect(),
            overrides: self.all_of("set").map(str::to_owned).collect(),
            environment: &|name| environment.get(name).map(|value| (*value).to_owned()),
            working_folder: folder.to_owned(),
            read: &read_file,
            kinds: KINDS,
        });
        if let Some(pipeline) = &outcome.pipeline {
            if self.all_of("pass").any(|pass| pass == "world") {
                check_world_on(pipeline, &self.machine(), &mut outcome.diagnostics);
            }
            if self.all_of("pass").any(|pass| pass == "tests") {
                for test in &pipeline.tests {
                    load_feeds(pipeline, test, &mut outcome.sources, &mut outcome.diagnostics);
                }
            }
            if self.all_of("pass").any(|pass| pass == "data") {
                let data = load_data(pipeline, &mut outcome.sources, &mut outcome.diagnostics, &|_, _, _| {});
                if self.all_of("pass").any(|pass| pass == "programs") {
                    try_programs(pipeline, &data, &dry_call, &mut outcome.diagnostics);
                }
            }
        }
        outcome
    }
}
