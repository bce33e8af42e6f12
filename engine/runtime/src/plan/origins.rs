//! Where each value of a resolved pipeline comes from.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use rlpipe_core::document::{Format, Range, Reference, Segment, SourceId, Sources, Tree, path_text, to_annotated_yaml};
use serde::Serialize;
use serde_json::Value;

use crate::compile::{Pipeline, old_names};

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum Origin {
    /// It is written in a file: the pipeline's or an overlay.
    File {
        /// The file.
        file: String,
        /// Its line.
        line: u32,
        /// How it is written, where it was read as something else: a path from another folder, an input without its port.
        #[serde(skip_serializing_if = "Option::is_none")]
        written: Option<String>,
    },
    /// An argument of the command line sets it.
    Argument {
        /// The argument: `--set run.seed=3`.
        argument: String,
    },
    /// A variable gives it.
    Variable {
        /// Its name.
        name: String,
        /// Where that has its value from.
        value_from: ValueFrom,
        /// The file that refers to it, or the argument.
        file: String,
        /// The line that does; none for an argument.
        #[serde(skip_serializing_if = "Option::is_none")]
        line: Option<u32>,
    },
    /// Nothing says it.
    Default,
}

/// Where a variable has its value from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueFrom {
    /// The environment.
    Environment,
    /// The default of its declaration.
    Declaration,
    /// The default where it is referred to: `${NAME:-value}`.
    Reference,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line, written } => {
                write!(f, "{file}:{line}")?;
                match written {
                    Some(written) => write!(f, ", from {written}"),
                    None => Ok(()),
                }
            }
            Self::Argument { argument } => f.write_str(argument),
            Self::Variable {
                name,
                value_from,
                file,
                line,
            } => {
                let from = match value_from {
                    ValueFrom::Environment => "",
                    ValueFrom::Declaration => ", its default",
                    ValueFrom::Reference => ", the default there",
                };
                match line {
                    Some(line) => write!(f, "${name} in {file}:{line}{from}"),
                    None => write!(f, "${name} in {file}{from}"),
                }
            }
            Self::Default => f.write_str("default"),
        }
    }
}

/// The origin of each value of a resolved pipeline that has no values below it, by its path: `nodes.trainer.max_grad_norm`.
pub fn origins(pipeline: &Pipeline, sources: &Sources, resolved: &Value) -> BTreeMap<String, Origin> {
    let mut found = BTreeMap::new();
    let finder = Finder::new(pipeline, sources);
    finder.walk(resolved, &mut Vec::new(), &mut |path, origin| {
        found.insert(path_text(path), origin);
    });
    found
}

/// The resolved pipeline as YAML, the origin of each value in a comment. It loads again, identically.
pub fn annotated(pipeline: &Pipeline, sources: &Sources, resolved: &Value) -> String {
    let finder = Finder::new(pipeline, sources);
    to_annotated_yaml(resolved, &|path| {
        Some(finder.origin(path, value_at(resolved, path)?).to_string())
    })
}

fn value_at<'a>(value: &'a Value, path: &[Segment]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, segment| match segment {
        Segment::Key(key) => value.get(key),
        Segment::Index(index) => value.get(index),
    })
}

struct Finder<'a> {
    pipeline: &'a Pipeline,
    sources: &'a Sources,
    /// What is written of each node: looking through all nodes for each value would take the square of the time.
    nodes: HashMap<&'a str, &'a Tree>,
    /// References by where they begin.
    references: BTreeMap<(SourceId, u32), &'a Reference>,
    /// Where lines end, by source; counting them for each value would, too.
    lines: HashMap<SourceId, Vec<u32>>,
}

impl<'a> Finder<'a> {
    fn new(pipeline: &'a Pipeline, sources: &'a Sources) -> Self {
        let references = pipeline.variables.references.iter();
        let nodes = pipeline.tree.get("nodes").map(Tree::entries).unwrap_or_default();
        let lines = sources.iter().map(|(id, source)| {
            let newlines = source.text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
            (id, newlines.map(|(at, _)| at as u32).collect())
        });
        Self {
            pipeline,
            sources,
            nodes: nodes.iter().map(|entry| (entry.key.as_str(), &entry.value)).collect(),
            references: references
                .map(|reference| ((reference.range.source, reference.range.start), reference))
                .collect(),
            lines: lines.collect(),
        }
    }

    fn walk(&self, value: &Value, path: &mut Vec<Segment>, give: &mut dyn FnMut(&[Segment], Origin)) {
        match value {
            Value::Object(entries) if !entries.is_empty() => {
                for (key, below) in entries {
                    path.push(Segment::Key(key.clone()));
                    self.walk(below, path, give);
                    path.pop();
                }
            }
            Value::Array(elements) if !elements.is_empty() => {
                for (index, below) in elements.iter().enumerate() {
                    path.push(Segment::Index(index));
                    self.walk(below, path, give);
                    path.pop();
                }
            }
            leaf => give(path, self.origin(path, leaf)),
        }
    }

    fn origin(&self, path: &[Segment], value: &Value) -> Origin {
        let (found, rest) = self.written(path);
        // A list of one may be written as its element; a bare name is a choice, and its settings, if any, are defaults.
        let is_written = match rest {
            [] => true,
            [Segment::Index(_)] => found.entries().is_empty(),
            [Segment::Key(name)] => found.as_text() == Some(name),
            _ => false,
        };
        if !is_written {
            return Origin::Default;
        }
        let range = found.range;
        let within = (range.source, range.start)..(range.source, range.end);
        if let Some((_, reference)) = self.references.range(within).next() {
            return self.variable(reference);
        }
        let (source, written) = (self.sources.get(range.source), self.sources.text(range));
        match source.format {
            Format::Argument => Origin::Argument {
                argument: source.name.clone(),
            },
            Format::Yaml | Format::Toml => Origin::File {
                file: source.name.clone(),
                line: self.line(range),
                written: (rest.is_empty() && found.to_json() != *value && !written.contains('\n'))
                    .then(|| format!("`{}`", written.trim_matches(['"', '\'']))),
            },
            Format::Environment | Format::BuiltIn => Origin::Default,
        }
    }

    /// The deepest written value that the path reaches, and what is left of the path; earlier names of settings count.
    fn written<'p>(&self, path: &'p [Segment]) -> (&'a Tree, &'p [Segment]) {
        let (mut tree, mut rest) = (&self.pipeline.tree, path);
        if let [Segment::Key(section), Segment::Key(node), below @ ..] = path
            && section == "nodes"
            && let Some(&found) = self.nodes.get(node.as_str())
        {
            (tree, rest) = (found, below);
        }
        while let [segment, below @ ..] = rest {
            let next = match segment {
                // Where two texts use two names of a setting, the later text counts.
                Segment::Key(key) => old_names(key)
                    .filter_map(|old_name| tree.get(old_name))
                    .chain(tree.get(key))
                    .max_by_key(|value| value.range.source),
                Segment::Index(index) => tree.elements().get(*index),
            };
            let Some(next) = next else { break };
            (tree, rest) = (next, below);
        }
        (tree, rest)
    }

    fn variable(&self, reference: &Reference) -> Origin {
        let variable = self.pipeline.variables.by_name.get(&reference.name);
        let value_from = match variable {
            Some(variable) if variable.is_set => ValueFrom::Environment,
            Some(variable) if variable.value.is_some() => ValueFrom::Declaration,
            _ => ValueFrom::Reference,
        };
        let source = self.sources.get(reference.range.source);
        let in_file = matches!(source.format, Format::Yaml | Format::Toml);
        Origin::Variable {
            name: reference.name.clone(),
            value_from,
            file: source.name.clone(),
            line: in_file.then(|| self.line(reference.range)),
        }
    }

    fn line(&self, range: Range) -> u32 {
        let before = |lines: &Vec<u32>| lines.partition_point(|newline| *newline < range.start) as u32;
        self.lines.get(&range.source).map_or(0, before) + self.sources.first_line(range.source)
    }
}
