//! `rlpipe init`: a new pipeline from a template, with the schema that its first line names and the files that it reads.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use rlpipe_core::diagnostic::{Diagnostics, nearest};
use rlpipe_core::document::{Format, Source, Sources, parse, to_toml};
use rlpipe_runtime::compile::pipeline_schema;
use rlpipe_stages::KINDS;
use serde_json::Value;

use crate::arguments::InitArguments;
use crate::{MISUSED, output};

/// What tells the format of a file.
const ENDINGS: [&str; 3] = ["yaml", "yml", "toml"];

const SCHEMA: &str = "pipeline.schema.json";

macro_rules! shipped {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../", $path))
    };
}

/// What a pipeline can begin as: one that this project comes with.
struct Template {
    name: &'static str,
    about: &'static str,
    /// In YAML; paths are seen from the project's `pipelines/`.
    text: &'static str,
    /// Files that it reads, written beside it.
    files: &'static [(&'static str, &'static str)],
    /// What it needs besides.
    needs: &'static str,
}

const GSM8K_NEEDS: &str = "a model folder as `model` (`MODEL_PATH` names another), and GSM8K's `train.jsonl` and `test.jsonl` \
                           in `data` (`DATA_PATH`, `EVAL_DATA_PATH`)";

const TEMPLATES: &[Template] = &[
    Template {
        name: "quickstart",
        about: "a model of a million parameters learns sums, on any machine in minutes; with its data",
        text: shipped!("pipelines/quickstart.yaml"),
        files: &[
            ("data/make_sums.py", shipped!("pipelines/data/make_sums.py")),
            ("data/sums.jsonl", shipped!("pipelines/data/sums.jsonl")),
            (
                "data/sums-held-out.jsonl",
                shipped!("pipelines/data/sums-held-out.jsonl"),
            ),
            ("data/sums-lessons.jsonl", shipped!("pipelines/data/sums-lessons.jsonl")),
        ],
        needs: "",
    },
    Template {
        name: "gsm8k",
        about: "GRPO on GSM8K as it is released, with the judge that is built in",
        text: shipped!("pipelines/gsm8k-smollm2.yaml"),
        files: &[],
        needs: GSM8K_NEEDS,
    },
    Template {
        name: "sft-then-grpo",
        about: "the same after fine-tuning on its solutions",
        text: shipped!("pipelines/sft-then-grpo.yaml"),
        files: &[],
        needs: GSM8K_NEEDS,
    },
    Template {
        name: "custom-reward",
        about: "GSM8K with a reward of one's own, a program in Python; with the program",
        text: shipped!("pipelines/custom-reward.yaml"),
        files: &[
            ("gsm8k_reward.py", shipped!("plugins/python/gsm8k_reward.py")),
            ("rlpipe_plugin.py", shipped!("plugins/python/rlpipe_plugin.py")),
        ],
        needs: GSM8K_NEEDS,
    },
    Template {
        name: "chain-sum",
        about: "GRPO on prompts whose answer is a number",
        text: shipped!("pipelines/chain-sum-smollm2.yaml"),
        files: &[],
        needs: "a model folder as `model` (`MODEL_PATH` names another), and rows in `data/train.jsonl` and \
                `data/test.jsonl` (`DATA_PATH`, `EVAL_DATA_PATH`)",
    },
];

/// From paths as `pipelines/` sees them to those of a folder of its own, and a default for each variable.
const CHANGES: &[(&str, &str)] = &[
    ("../schemas/pipeline.schema.json", SCHEMA),
    ("../runs", "runs"),
    ("../plugins/python/", "./"),
    ("plugins/python/", ""),
    (
        "MODEL_PATH:      { kind: dir,",
        "MODEL_PATH:      { kind: dir, default: model,",
    ),
    (
        "EVAL_DATA_PATH:  { kind: file,",
        "EVAL_DATA_PATH:  { kind: file, default: data/test.jsonl,",
    ),
    (
        " DATA_PATH:       { kind: file,",
        " DATA_PATH:       { kind: file, default: data/train.jsonl,",
    ),
];

/// Writes a pipeline and what goes with it; never over anything.
pub fn init(arguments: &InitArguments) -> Result<ExitCode> {
    if arguments.list {
        output::print(&list())?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = arguments.template.as_str();
    let Some(template) = TEMPLATES.iter().find(|template| template.name == name) else {
        let near = nearest(name, TEMPLATES.iter().map(|template| template.name));
        let hint = near.first().map(|best| format!("did you mean `{best}`? "));
        output::error(&format!(
            "error: there is no template `{name}`; {}`rlpipe init --list` says what there is\n",
            hint.unwrap_or_default()
        ));
        return Ok(ExitCode::from(MISUSED));
    };
    let default = || PathBuf::from(format!("{name}.yaml"));
    let path = arguments.output.clone().unwrap_or_else(default);
    if !path
        .extension()
        .is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known))
    {
        let path = path.display();
        output::error(&format!(
            "error: `{path}` does not end in `.yaml`, `.yml` or `.toml`: name the file to write\n"
        ));
        return Ok(ExitCode::from(MISUSED));
    }
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let schema = format!("{}\n", serde_json::to_string_pretty(&pipeline_schema(KINDS))?);
    let beside = [(SCHEMA, schema.as_str())]
        .into_iter()
        .chain(template.files.iter().copied());
    let mut files: Vec<(PathBuf, String)> = vec![(path.clone(), pipeline(template, &path)?)];
    for (name, text) in beside {
        let path = folder.join(name);
        // What is there as it should be need not be written.
        if std::fs::read(&path).is_ok_and(|found| found == text.as_bytes()) {
            continue;
        }
        files.push((path, text.to_owned()));
    }
    if let Some((taken, _)) = files.iter().find(|(path, _)| path.symlink_metadata().is_ok()) {
        bail!(
            "`{}` is there already, and nothing is overwritten: move it away, or give another folder, as in \
             `rlpipe init {name} --output FOLDER/{name}.yaml`",
            taken.display()
        );
    }
    for (path, text) in &files {
        write_new(path, text)?;
        output::print(&format!("wrote {}\n", path.display()))?;
    }
    let shown = path.display();
    let needs = match template.needs {
        "" => String::new(),
        needs => format!("it needs {needs}\n"),
    };
    output::print(&format!(
        "{needs}`rlpipe validate {shown}` checks it, `rlpipe run {shown}` runs it\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn list() -> String {
    let width = TEMPLATES.iter().map(|template| template.name.len()).max().unwrap_or(0);
    let lines = TEMPLATES
        .iter()
        .map(|template| format!("{:width$}  {}\n", template.name, template.about));
    lines.collect()
}

fn write_new(path: &Path, text: &str) -> Result<()> {
    let cannot = || format!("cannot write `{}`", path.display());
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(cannot)?;
    }
    match File::create_new(path) {
        Ok(mut file) => file.write_all(text.as_bytes()).with_context(cannot),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("`{}` is there already, and nothing is overwritten", path.display())
        }
        Err(error) => Err(error).with_context(cannot),
    }
}

/// The text of the pipeline: named like its file, in the format of that.
fn pipeline(template: &Template, path: &Path) -> Result<String> {
    let changed = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
    let file = path.file_name().map(|file| file.to_string_lossy()).unwrap_or_default();
    let shipped = format!("pipelines/{}.yaml", template.name);
    let text = CHANGES.iter().fold(template.text.replace(&shipped, &file), changed);
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().replace('-', "_"));
    let is_plain = |name: &String| {
        let plain = |character: char| character.is_ascii_alphanumeric() || character == '_';
        !name.is_empty() && name.chars().all(plain)
    };
    let name = stem.filter(is_plain);
    let named = text.lines().map(|line| match (&name, line.starts_with("name: ")) {
        (Some(name), true) => format!("name: {name}\n"),
        _ => format!("{line}\n"),
    });
    let text: String = named.collect();
    match Format::of_file(path) {
        Format::Toml => toml(&text),
        _ => Ok(text),
    }
}

/// A YAML text in TOML; of its comments, those at its head stay.
fn toml(yaml: &str) -> Result<String> {
    let mut sources = Sources::default();
    let id = sources.add(Source {
        name: "template".to_owned(),
        text: yaml.into(),
        format: Format::BuiltIn,
        folder: None,
    });
    let tree = parse(&sources, id, &mut Diagnostics::default()).context("the template cannot be read")?;
    let mut value = tree.to_json();
    null_to_false(&mut value);
    let text = to_toml(&value).context("the template has no form in TOML")?;
    let head = yaml.lines().take_while(|line| line.starts_with('#')).skip(1);
    let head: String = head.map(|line| format!("{line}\n")).collect();
    Ok(format!("#:schema {SCHEMA}\n{head}{text}"))
}

/// Nothing, in the lists of `tests`, is `false` where there is no null.
fn null_to_false(value: &mut Value) {
    match value {
        Value::Array(elements) => {
            for element in elements {
                if element.is_null() {
                    *element = Value::Bool(false);
                }
                null_to_false(element);
            }
        }
        Value::Object(entries) => entries.values_mut().for_each(null_to_false),
        _ => {}
    }
}
