//! A document as a tree in which every key and value knows where it stands.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::source::Range;

/// What a relative path in a text leaf is relative to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Written in a file of this folder.
    File(Arc<Path>),
    /// Given by a variable or an argument, in this working folder.
    Working(Arc<Path>),
}

impl Origin {
    /// `path` as seen from this origin's folder; an absolute path stays as it is.
    pub fn resolve(&self, path: &str) -> PathBuf {
        let (Origin::File(folder) | Origin::Working(folder)) = self;
        // Collecting the components drops inner `.` parts; `..` stays, because links make it mean more than text.
        folder.join(path).components().collect()
    }
}

/// One value of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    /// The bytes of the value; of a block mapping or list, from its first key or element to its last.
    pub range: Range,
    /// The value.
    pub value: Value,
    /// What relative paths in it are relative to.
    pub origin: Origin,
    /// Whether a text came from a variable, so that it takes the type that is wanted where it stands.
    pub loose: bool,
}

/// The kinds of value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`, `~`, or nothing at all after a key. YAML only.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A finite number with a fraction or an exponent.
    Float(f64),
    /// Text. TOML dates and times are text too.
    Text(String),
    /// A list.
    List(Vec<Tree>),
    /// A mapping with distinct keys, in the order of the file.
    Map(Vec<Entry>),
    /// A value that could not be found out, and that was reported already: the reference had no value, or the number
    /// does not fit. Decoding it adds no further fault.
    Unresolved,
}

/// One key of a mapping with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The bytes of the key, quotes included.
    pub key_range: Range,
    /// The value.
    pub value: Tree,
}

/// One step of a path into a tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Segment {
    /// A key of a mapping.
    Key(String),
    /// An element of a list, from 0.
    Index(usize),
}

impl From<&str> for Segment {
    fn from(key: &str) -> Segment {
        Segment::Key(key.to_owned())
    }
}

impl From<usize> for Segment {
    fn from(index: usize) -> Segment {
        Segment::Index(index)
    }
}

/// A path as it is written in messages: `optim.betas[1]`.
pub fn path_text(path: &[Segment]) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Key(key) if text.is_empty() => text.push_str(key),
            Segment::Key(key) => {
                let _ = write!(text, ".{key}");
            }
            Segment::Index(index) => {
                let _ = write!(text, "[{index}]");
            }
        }
    }
    text
}

/// The deepest part of a tree that a path reaches.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The key of the reached value, if it is the value of a key.
    pub key_range: Option<Range>,
    /// The reached value.
    pub tree: &'a Tree,
    /// How many segments of the path were followed.
    pub depth: usize,
}

impl Found<'_> {
    /// Where to point for a fault of the whole value: the value where it is short, the key of a mapping or list, and
    /// the first key of a block mapping without one, since such a mapping may run over many lines.
    pub fn head(&self) -> Range {
        let range = self.tree.range;
        match (&self.tree.value, self.key_range) {
            (Value::Map(_) | Value::List(_), Some(key)) => key,
            (_, Some(key)) if range.is_empty() => key,
            (Value::Map(entries), None) => match entries.first() {
                Some(first) if first.key_range.start == range.start => first.key_range,
                _ => range,
            },
            _ => range,
        }
    }
}

impl Tree {
    /// A value that is not loose.
    pub fn new(range: Range, value: Value, origin: Origin) -> Tree {
        Tree {
            range,
            value,
            origin,
            loose: false,
        }
    }

    /// The value of a key; none when this is no mapping or lacks it.
    pub fn get(&self, key: &str) -> Option<&Tree> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The entry of a key.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The entries of a mapping; none when this is no mapping.
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The elements of a list; none when this is no list.
    pub fn elements(&self) -> &[Tree] {
        match &self.value {
            Value::List(elements) => elements,
            _ => &[],
        }
    }

    /// The text of a text leaf.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The deepest value that `path` reaches.
    pub fn at(&self, path: &[Segment]) -> Found<'_> {
        let mut found = Found {
            key_range: None,
            tree: self,
            depth: 0,
        };
        for segment in path {
            let next = match segment {
                Segment::Key(key) => found.tree.entry(key).map(|entry| (Some(entry.key_range), &entry.value)),
                Segment::Index(index) => found.tree.elements().get(*index).map(|element| (None, element)),
            };
            let Some((key_range, tree)) = next else { break };
            found = Found {
                key_range,
                tree,
                depth: found.depth + 1,
            };
        }
        found
    }

    /// The value at exactly `path`.
    pub fn at_mut(&mut self, path: &[Segment]) -> Option<&mut Tree> {
        let mut tree = self;
        for segment in path {
            tree = match (segment, &mut tree.value) {
                (Segment::Key(key), Value::Map(entries)) => {
                    &mut entries.iter_mut().find(|entry| entry.key == *key)?.value
                }
                (Segment::Index(index), Value::List(elements)) => elements.get_mut(*index)?,
                _ => return None,
            };
        }
        Some(tree)
    }

    /// Takes out the entry or element at exactly `path`; later elements of a list move up.
    pub fn remove(&mut self, path: &[Segment]) -> Option<Tree> {
        let (last, parent) = path.split_last()?;
        match (last, &mut self.at_mut(parent)?.value) {
            (Segment::Key(key), Value::Map(entries)) => {
                let index = entries.iter().position(|entry| entry.key == *key)?;
                Some(entries.remove(index).value)
            }
            (Segment::Index(index), Value::List(elements)) if *index < elements.len() => Some(elements.remove(*index)),
            _ => None,
        }
    }

    /// The tree as JSON, without ranges; an unresolved value is null.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null | Value::Unresolved => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::Text(value) => value.clone().into(),
            Value::List(elements) => elements.iter().map(Tree::to_json).collect(),
            Value::Map(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), entry.value.to_json()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }
}

/// Lays `overlay` over `base`: mappings merge key by key, `null` takes a key out that the base has, anything else replaces.
/// Every value keeps the range it was written at, and a key that both have takes the overlay's range.
pub fn merge(base: Tree, overlay: Tree) -> Tree {
    let Tree {
        value: Value::Map(mut entries),
        range,
        origin,
        loose,
    } = base
    else {
        return overlay;
    };
    let Tree {
        value: Value::Map(over),
        ..
    } = overlay
    else {
        return overlay;
    };
    // By key, so that laying one long mapping over another takes no longer than reading them.
    let places: HashMap<String, usize> = entries.iter().map(|entry| entry.key.clone()).zip(0..).collect();
    let mut removed = HashSet::new();
    for entry in over {
        match places.get(&entry.key).and_then(|place| entries.get_mut(*place)) {
            Some(existing) if entry.value.value == Value::Null => {
                removed.insert(existing.key.clone());
            }
            Some(existing) => {
                let below = std::mem::replace(
                    &mut existing.value,
                    Tree::new(entry.value.range, Value::Null, entry.value.origin.clone()),
                );
                existing.value = merge(below, entry.value);
                // A mapping that only gained keys is still the base's; its key stays where the user looks first.
                if !matches!(existing.value.value, Value::Map(_)) {
                    existing.key_range = entry.key_range;
                }
            }
            None => entries.push(entry),
        }
    }
    if !removed.is_empty() {
        entries.retain(|entry| !removed.contains(&entry.key));
    }
    Tree {
        value: Value::Map(entries),
        range,
        origin,
        loose,
    }
}
