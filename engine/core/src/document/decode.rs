//! A tree to a typed value, with every fault in one go.
//!
//! serde stops at the first fault. So the faulty value is marked unresolved in a copy, a missing key is put in
//! unresolved, and the copy is decoded again until nothing new comes up. What only follows from an earlier fault is
//! dropped: when an unresolved value does not satisfy its type it is taken out, and when its parent misses it, the
//! parent is taken out in turn.

use std::collections::HashSet;

use serde::de::DeserializeOwned;

use super::deserializer::TreeDeserializer;
use super::fault::{Fault, What};
use super::tree::{Entry, Segment, Tree, Value};

/// More faults than this in one tree are not looked for.
const MAXIMUM_FAULTS: usize = 100;

/// Decodes `tree`; the keys `skip_keys` at its top are left out.
///
/// All faults are found, in the order of the type's reading. The list is empty when the value only could not be
/// decoded because of unresolved values, which were reported when they came up.
pub fn decode<T: DeserializeOwned>(tree: &Tree, skip_keys: &[&str]) -> Result<T, Vec<Fault>> {
    let mut rest = Remainder::new(tree, skip_keys);
    let mut faults = Vec::new();
    // Each round takes out, marks or adds one value, and values are only added next to ones that were written.
    for _ in 0..10 * MAXIMUM_FAULTS {
        let error = match T::deserialize(TreeDeserializer(&rest.tree)) {
            Ok(value) if faults.is_empty() && rest.holes.is_empty() && rest.omitted.is_empty() => return Ok(value),
            Ok(_) => break,
            Err(error) => error,
        };
        let (path, what) = error.into_parts();
        let follows = rest.follows_from_earlier(&path, &what);
        if !follows {
            faults.push(located(tree, path.clone(), what.clone()));
        }
        if faults.len() >= MAXIMUM_FAULTS || !rest.step(path, &what, follows) {
            break;
        }
    }
    Err(faults)
}

/// What is left to decode.
struct Remainder {
    tree: Tree,
    /// Paths of values that are unresolved.
    holes: HashSet<Vec<Segment>>,
    /// Paths of values that are taken out.
    omitted: HashSet<Vec<Segment>>,
}

impl Remainder {
    fn new(tree: &Tree, skip_keys: &[&str]) -> Remainder {
        let mut tree = tree.clone();
        if let Value::Map(entries) = &mut tree.value {
            entries.retain(|entry| !skip_keys.contains(&entry.key.as_str()));
        }
        let mut holes = HashSet::new();
        collect_unresolved(&tree, &mut Vec::new(), &mut holes);
        Remainder {
            tree,
            holes,
            omitted: HashSet::new(),
        }
    }

    fn follows_from_earlier(&self, path: &[Segment], what: &What) -> bool {
        let within_hole = (0..=path.len()).any(|length| self.holes.contains(&path[..length]));
        let missing_one = match what {
            What::Missing { key } => {
                let missing = with_key(path, key);
                self.omitted.contains(&missing) || self.holes.contains(&missing)
            }
            // A check of a whole value says nothing when a part of it is made up.
            What::Invalid(_) => self
                .holes
                .iter()
                .chain(&self.omitted)
                .any(|hole| hole.len() > path.len() && hole.starts_with(path)),
            _ => false,
        };
        within_hole || missing_one
    }

    /// Makes the next round get past this error; false when nothing can.
    fn step(&mut self, path: Vec<Segment>, what: &What, follows: bool) -> bool {
        match what {
            _ if follows => {
                let hole = (0..=path.len())
                    .map(|length| &path[..length])
                    .find(|prefix| self.holes.contains(*prefix));
                let target = hole.map_or(path.clone(), <[Segment]>::to_vec);
                self.omit(target)
            }
            What::UnknownKey { .. } => self.omit(path),
            What::Missing { key } => self.add_hole(path, key),
            What::UnknownVariant { found, .. } => {
                // The path of a choice with settings ends with its name; the value is the mapping around it.
                let bare = self.tree.at(&path).tree.as_text() == Some(found.as_str());
                let mut path = path;
                if !bare {
                    path.pop();
                }
                self.mark(path)
            }
            What::WrongType { .. } | What::Invalid(_) => self.mark(path),
        }
    }

    fn mark(&mut self, path: Vec<Segment>) -> bool {
        if path.is_empty() {
            return false;
        }
        match self.tree.at_mut(&path) {
            Some(value) => {
                value.value = Value::Unresolved;
                self.holes.retain(|hole| !hole.starts_with(&path));
                self.holes.insert(path);
                true
            }
            None => false,
        }
    }

    fn add_hole(&mut self, path: Vec<Segment>, key: &str) -> bool {
        let hole = with_key(&path, key);
        let Some(parent) = self.tree.at_mut(&path) else {
            return false;
        };
        let (range, origin) = (parent.range, parent.origin.clone());
        match &mut parent.value {
            Value::Map(entries) => {
                let value = Tree::new(range, Value::Unresolved, origin);
                entries.push(Entry {
                    key: key.to_owned(),
                    key_range: range,
                    value,
                });
                self.holes.insert(hole);
                true
            }
            // A bare name has no place for a key.
            _ => self.mark(path),
        }
    }

    /// Takes out the entry that `path` ends in, or lies in.
    fn omit(&mut self, mut path: Vec<Segment>) -> bool {
        while matches!(path.last(), Some(Segment::Index(_))) {
            path.pop();
        }
        if path.is_empty() {
            return false;
        }
        if self.tree.remove(&path).is_none() {
            path.pop();
            return self.omit(path);
        }
        self.holes.retain(|hole| !hole.starts_with(&path));
        self.omitted.insert(path);
        true
    }
}

fn with_key(path: &[Segment], key: &str) -> Vec<Segment> {
    path.iter().cloned().chain([Segment::Key(key.to_owned())]).collect()
}

fn collect_unresolved(tree: &Tree, path: &mut Vec<Segment>, holes: &mut HashSet<Vec<Segment>>) {
    match &tree.value {
        Value::Unresolved => {
            holes.insert(path.clone());
        }
        Value::List(elements) => {
            for (index, element) in elements.iter().enumerate() {
                path.push(Segment::Index(index));
                collect_unresolved(element, path, holes);
                path.pop();
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                path.push(Segment::Key(entry.key.clone()));
                collect_unresolved(&entry.value, path, holes);
                path.pop();
            }
        }
        _ => {}
    }
}

fn located(tree: &Tree, path: Vec<Segment>, what: What) -> Fault {
    let found = tree.at(&path);
    let range = match &what {
        What::UnknownKey { .. } => found.key_range.unwrap_or(found.tree.range),
        What::UnknownVariant { found: name, .. } if found.tree.as_text() != Some(name) => {
            found.key_range.unwrap_or(found.tree.range)
        }
        What::Missing { .. } => found.head(),
        What::WrongType { .. } | What::Invalid(_) | What::UnknownVariant { .. } => found.head(),
    };
    Fault {
        path,
        key_range: found.key_range,
        range,
        what,
    }
}
