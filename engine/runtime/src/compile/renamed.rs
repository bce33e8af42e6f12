//! Settings that had another name in an earlier version: they work, with a warning that says the new one.

use std::cmp::Ordering;

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::document::{Fault, Segment, Tree, Value, What};

/// A setting with another name.
pub struct Renamed {
    /// What it was called.
    pub old: &'static str,
    /// What it is called: the name of no other setting, so that it says which setting is meant.
    pub new: &'static str,
}

/// All of them, for ever: files of earlier versions go on working.
pub const RENAMED: &[Renamed] = &[
    Renamed {
        old: "batch_size",
        new: "examples_per_step",
    },
    Renamed {
        old: "batch_size",
        new: "samples_per_message",
    },
];

/// The new name of a key that is not known among `expected`.
pub fn new_name(key: &str, expected: &[String]) -> Option<&'static str> {
    let found = RENAMED
        .iter()
        .find(|renamed| renamed.old == key && expected.iter().any(|name| name == renamed.new));
    found.map(|renamed| renamed.new)
}

/// What a setting was called.
pub fn old_names(new: &str) -> impl Iterator<Item = &'static str> {
    RENAMED
        .iter()
        .filter(move |renamed| renamed.new == new)
        .map(|renamed| renamed.old)
}

/// The tree with new names in place of old ones, where faults speak of such; each is warned of. Where a mapping has both,
/// a later text, such as an overlay, counts; in one text, that is a fault.
pub fn accept(tree: &Tree, faults: &[Fault], place: &str, diagnostics: &mut Diagnostics) -> Option<Tree> {
    let mut accepted: Option<Tree> = None;
    for fault in faults {
        let What::UnknownKey { key, expected } = &fault.what else {
            continue;
        };
        let (Some(new), Some((_, parent))) = (new_name(key, expected), fault.path.split_last()) else {
            continue;
        };
        let tree = accepted.get_or_insert_with(|| tree.clone());
        if rename(tree, parent, key, new) {
            diagnostics.push(warning(fault, key, new, place));
        }
    }
    accepted
}

fn rename(tree: &mut Tree, parent: &[Segment], old: &str, new: &str) -> bool {
    let Some(Tree {
        value: Value::Map(entries),
        ..
    }) = tree.at_mut(parent)
    else {
        return false;
    };
    let at = |name: &str| entries.iter().position(|entry| entry.key == name);
    let Some(old_at) = at(old) else { return false };
    if let Some(new_at) = at(new) {
        let source = |index: usize| entries[index].value.range.source;
        match source(old_at).cmp(&source(new_at)) {
            Ordering::Less => {
                entries.remove(old_at);
                return true;
            }
            Ordering::Equal => return false,
            Ordering::Greater => entries[new_at].value = entries[old_at].value.clone(),
        }
        entries.remove(old_at);
        return true;
    }
    entries[old_at].key = new.to_owned();
    true
}

fn warning(fault: &Fault, old: &str, new: &str, place: &str) -> Diagnostic {
    let range = fault.key_range.unwrap_or(fault.range);
    Diagnostic::warning(
        &codes::RL0212,
        range,
        format!("`{old}` in `{place}` is called `{new}` now"),
    )
    .label_text("the old name")
    .note("it works as before; `rlpipe validate --fix` writes the new name")
    .fix(format!("write `{new}`"), range, new)
}
