//! Text to fill in: values with places to stop at, in YAML and TOML.

use std::fmt::Write as _;

use rlpipe_core::document::{Format, Segment, Tree, Value};
use rlpipe_core::kind::Kind;
use rlpipe_runtime::compile::kind_example;

use crate::candidates::candidates;
use crate::shapes::Shapes;

/// A snippet as the protocol has it, growing.
pub struct Snippet<'a> {
    shapes: &'a Shapes,
    /// The pipeline that names are taken from.
    tree: &'a Tree,
    format: Format,
    stops: usize,
    /// So far.
    pub text: String,
}

impl<'a> Snippet<'a> {
    /// An empty one.
    pub fn new(shapes: &'a Shapes, tree: &'a Tree, format: Format) -> Snippet<'a> {
        Snippet {
            shapes,
            tree,
            format,
            stops: 0,
            text: String::new(),
        }
    }

    /// A place to stop at, with what stands there until something is typed.
    pub fn stop(&mut self, placeholder: &str) {
        self.stops += 1;
        let _ = if placeholder.is_empty() {
            write!(self.text, "${}", self.stops)
        } else {
            write!(self.text, "${{{}:{}}}", self.stops, escaped(placeholder))
        };
    }

    /// Text that stays as it is.
    pub fn plain(&mut self, text: &str) {
        self.text.push_str(&text.replace('\\', "\\\\").replace('$', "\\$"));
    }

    /// Settings of a kind that a node lacks, a line each: those that must be given or that the kind's example gives
    /// because they have no default. Names are those of the pipeline, where it has fitting ones.
    pub fn kind_settings(&mut self, kind: &'static Kind, node: &str, indent: &str) {
        let settings = self.shapes.settings_of_kind(kind.name);
        let given = self.tree.get("nodes").and_then(|nodes| nodes.get(node));
        let Some(example) = kind_example(kind) else { return };
        for entry in example.entries() {
            let setting = settings.iter().find(|setting| setting.key == entry.key);
            let wanted = setting.is_some_and(|setting| setting.required || setting.default.is_none());
            let is_there = entry.key == "type" || given.is_some_and(|given| given.get(&entry.key).is_some());
            if !wanted || is_there {
                continue;
            }
            let _ = write!(self.text, "\n{indent}{}{}", entry.key, self.separator());
            let path = vec!["nodes".into(), node.into(), entry.key.as_str().into()];
            self.value(&entry.value, kind, path);
        }
    }

    fn separator(&self) -> &'static str {
        if self.format == Format::Toml { " = " } else { ": " }
    }

    fn value(&mut self, value: &Tree, kind: &'static Kind, path: Vec<Segment>) {
        match &value.value {
            Value::Map(entries) => {
                self.text.push_str("{ ");
                for (index, entry) in entries.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    let _ = write!(self.text, "{comma}{}{}", entry.key, self.separator());
                    let mut below = path.clone();
                    below.push(entry.key.as_str().into());
                    self.value(&entry.value, kind, below);
                }
                self.text.push_str(" }");
            }
            Value::List(elements) => {
                self.text.push('[');
                for (index, element) in elements.iter().enumerate() {
                    self.text.push_str(if index > 0 { ", " } else { "" });
                    let mut below = path.clone();
                    below.push(index.into());
                    self.value(element, kind, below);
                }
                self.text.push(']');
            }
            Value::Text(text) => {
                let node = path.get(1).and_then(crate::shapes::key_of).unwrap_or_default();
                let names = self.shapes.names_in(&path, Some(kind.name));
                let known = names
                    .map(|names| candidates(self.shapes, self.tree, names, node))
                    .unwrap_or_default();
                let fits = known.iter().any(|candidate| candidate.name == *text);
                let text = known
                    .first()
                    .filter(|_| !fits)
                    .map_or(text.as_str(), |candidate| &candidate.name);
                let quote = if self.format == Format::Toml { "\"" } else { "" };
                self.text.push_str(quote);
                self.stop(text);
                self.text.push_str(quote);
            }
            // Numbers as the example has them: `1e-6`.
            _ => {
                let written = kind.example.get(value.range.start as usize..value.range.end as usize);
                self.stop(written.unwrap_or_default());
            }
        }
    }
}

/// Text within a place to stop at, where a brace would end it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '$' | '}' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
