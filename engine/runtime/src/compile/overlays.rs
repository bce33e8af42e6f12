//! What can be wrong with a text as an overlay: it changes what is not there, or stands alone.

use std::collections::HashSet;

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes, nearest};
use rlpipe_core::document::{Sources, Tree, Value};

use super::read::{TOP_LEVEL, quoted};

/// Sections of named things, what one is called, and the keys of which a new one has at least one.
const NAMED: [(&str, &str, &[&str]); 3] = [
    ("nodes", "node", &["type"]),
    ("pools", "pool", &["accelerator"]),
    ("models", "model", &["path", "hub", "init"]),
];

/// Takes out of an overlay what changes a node, pool or model that the base does not have and is no new one either, and
/// reports it: a slip in a name would else be reported as all that the new thing lacks.
pub fn check(base: &Tree, overlay: &mut Tree, sources: &Sources, diagnostics: &mut Diagnostics) {
    let Value::Map(sections) = &mut overlay.value else {
        return;
    };
    for section in sections {
        let Some((_, what, makes_new)) = NAMED.iter().find(|(name, ..)| *name == section.key) else {
            continue;
        };
        let known = base.get(&section.key).map(Tree::entries).unwrap_or_default();
        let names: HashSet<&str> = known.iter().map(|entry| entry.key.as_str()).collect();
        let Value::Map(entries) = &mut section.value.value else {
            continue;
        };
        entries.retain(|entry| {
            let is_known = names.contains(entry.key.as_str());
            let is_new = makes_new.iter().any(|key| entry.value.get(key).is_some());
            let changes = is_known || is_new || !matches!(entry.value.value, Value::Map(_) | Value::Null);
            let name = &entry.key;
            if changes {
                return true;
            }
            let near = nearest(name, known.iter().map(|entry| entry.key.as_str()));
            // Nothing near is something new, and what that lacks is said as of any.
            let is_slip = entry.value.value == Value::Null || !near.is_empty();
            if is_slip {
                let file = &sources.get(base.range.source).name;
                let mut diagnostic = Diagnostic::error(
                    &codes::RL0113,
                    entry.key_range,
                    format!("there is no {what} `{name}` in `{file}`"),
                )
                .label_text("to be changed, and not there");
                if let Some(best) = near.first() {
                    diagnostic = diagnostic.fix(format!("did you mean `{best}`?"), entry.key_range, *best);
                } else {
                    let names: Vec<&str> = known.iter().map(|entry| entry.key.as_str()).collect();
                    diagnostic = diagnostic.note(format!("there are {}", quoted(&names)));
                }
                let needed = quoted(makes_new).replace(", ", " or ");
                diagnostics.push(diagnostic.note(format!("a new {what} has {needed}")));
            }
            !is_slip
        });
    }
}

/// Whether the only text is an overlay: without `version` and most sections. Reported as that, and not as all it lacks.
pub fn stands_alone(tree: &Tree, sources: &Sources, diagnostics: &mut Diagnostics) -> bool {
    let has = |key: &str| tree.get(key).is_some();
    let own = TOP_LEVEL
        .iter()
        .filter(|key| !["version", "env", "tests"].contains(key));
    let missing: Vec<&str> = own.copied().filter(|key| !has(key)).collect();
    let known: Vec<&str> = TOP_LEVEL.into_iter().filter(|key| has(key)).collect();
    if has("version") || missing.len() < 3 || known.is_empty() {
        return false;
    }
    let name = &sources.get(tree.range.source).name;
    let first = tree.entries().first().map_or(tree.range, |entry| entry.key_range);
    diagnostics.push(
        Diagnostic::error(
            &codes::RL0114,
            first,
            format!("`{name}` looks like an overlay: it has {} only", quoted(&known)),
        )
        .label_text("part of a pipeline")
        .note(format!(
            "name the pipeline that it changes before it: `rlpipe validate PIPELINE {name}`"
        ))
        .note(format!("a pipeline has `version` and {} too", quoted(&missing))),
    );
    true
}
