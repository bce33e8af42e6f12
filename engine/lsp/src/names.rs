//! Names in a pipeline: where they are declared, and where they are referred to.

use std::collections::HashSet;
use std::ops::Range;

use rlpipe_core::document::{Range as TextRange, Segment, Tree, Value};

use crate::scan::{Scan, unquoted};
use crate::shapes::{Names, Shapes};

/// A name where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Named {
    /// The bytes of the name: without quotes, port or `${ }`.
    pub range: Range<usize>,
    /// The path of what it stands for, such as `nodes.trainer`.
    pub target: Vec<Segment>,
    /// Whether it is the declaration.
    pub is_declaration: bool,
}

/// All names of a text, in the order of its tree.
pub fn names(scan: &Scan, text: &str, shapes: &Shapes) -> Vec<Named> {
    let tree = &scan.tree;
    let mut walk = Walk {
        tree,
        text,
        shapes,
        path: Vec::new(),
        found: Vec::new(),
    };
    walk.value(tree);
    for (path, written) in &scan.again {
        walk.key(path, written.clone(), false);
    }
    // A key that begins several assignments in a table is one name.
    let mut seen = HashSet::new();
    walk.found
        .retain(|named| seen.insert((named.range.clone(), named.is_declaration)));
    walk.found
}

/// Bytes of a range of the only text.
pub fn bytes(range: TextRange) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// The name that a byte is in.
pub fn name_at(names: &[Named], offset: usize) -> Option<&Named> {
    names
        .iter()
        .find(|named| named.range.start <= offset && offset <= named.range.end)
}

struct Walk<'a> {
    tree: &'a Tree,
    text: &'a str,
    shapes: &'a Shapes,
    path: Vec<Segment>,
    found: Vec<Named>,
}

impl Walk<'_> {
    fn value(&mut self, tree: &Tree) {
        match &tree.value {
            Value::Map(entries) => {
                for entry in entries {
                    self.path.push(Segment::Key(entry.key.clone()));
                    let path = self.path.clone();
                    self.key(&path, bytes(entry.key_range), true);
                    self.value(&entry.value);
                    self.path.pop();
                }
            }
            Value::List(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    self.path.push(Segment::Index(index));
                    self.value(element);
                    self.path.pop();
                }
            }
            Value::Text(_) => self.scalar(bytes(tree.range)),
            _ => {}
        }
    }

    /// A key that declares a name, or that is one.
    fn key(&mut self, path: &[Segment], written: Range<usize>, is_first: bool) {
        let (range, _) = unquoted(self.text, written);
        let (last, parent) = match path.split_last() {
            Some((Segment::Key(last), parent)) => (last, parent),
            _ => return,
        };
        if is_declared(path) {
            self.add(range, path.to_vec(), is_first);
        } else if Shapes::names_as_keys(parent).is_some() {
            self.add(range, vec!["nodes".into(), last.as_str().into()], false);
        }
    }

    fn scalar(&mut self, written: Range<usize>) {
        let (inside, _) = unquoted(self.text, written);
        let word = &self.text[inside.clone()];
        for (at, length) in variables(word) {
            let range = inside.start + at..inside.start + at + length;
            let name = self.text[range.clone()].to_owned();
            self.add(range, variable(&name), false);
        }
        let Some(names) = self
            .shapes
            .names(&self.path, self.tree)
            .filter(|_| !word.contains("${"))
        else {
            return;
        };
        let name = word.split('.').next().unwrap_or(word);
        let target = match names {
            Names::Nodes(_) => vec!["nodes".into(), name.into()],
            Names::Pools => vec!["pools".into(), name.into()],
            Names::Models => vec!["models".into(), name.into()],
            Names::Variables => variable(name),
        };
        self.add(inside.start..inside.start + name.len(), target, false);
    }

    fn add(&mut self, range: Range<usize>, target: Vec<Segment>, is_declaration: bool) {
        self.found.push(Named {
            range,
            target,
            is_declaration,
        });
    }
}

fn variable(name: &str) -> Vec<Segment> {
    vec!["env".into(), "vars".into(), name.into()]
}

/// Whether a key declares a name.
fn is_declared(path: &[Segment]) -> bool {
    match path {
        [Segment::Key(section), Segment::Key(_)] => matches!(section.as_str(), "nodes" | "pools" | "models"),
        [Segment::Key(env), Segment::Key(vars), Segment::Key(_)] => env == "env" && vars == "vars",
        _ => false,
    }
}

/// Where the names of `${NAME}` begin in a text, and how long they are. The brace may be missing still.
pub fn variables(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("${") {
        let start = at + 2;
        let rest = &text[start..];
        let length = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let escaped = text[..at].ends_with('$');
        if length > 0 && !escaped {
            found.push((start, length));
        }
    }
    found
}
