//! Faults of decoding as diagnostics: what was meant, where it belongs, and what it is called here.

use rlpipe_core::diagnostic::{Diagnostic, codes, nearest};
use rlpipe_core::document::{Fault, Segment, Tree, Value, What, path_text};

use super::read::quoted;
use super::renamed::new_name;

/// Names that other systems use for our keys, and ours.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("prompt_repeat_k", "samples_per_prompt"),
    ("num_generations", "samples_per_prompt"),
    ("group_size", "samples_per_prompt"),
    ("rollout_n", "samples_per_prompt"),
    ("train_batch_size", "prompts_per_step"),
    ("rollout_batch_size", "prompts_per_step"),
    ("pack_max_length", "max_tokens_per_pack"),
    ("context_length", "max_context_tokens"),
    ("max_model_len", "max_context_tokens"),
    ("gpu_memory_utilization", "memory_fraction"),
    ("max_tokens", "max_new_tokens"),
    ("max_completion_length", "max_new_tokens"),
    ("min_tokens", "min_new_tokens"),
    ("max_prompt_length", "max_prompt_tokens"),
    ("learning_rate", "lr"),
    ("max_norm", "max_grad_norm"),
    ("clip_grad", "max_grad_norm"),
    ("cliprange_low", "low"),
    ("cliprange_high", "high"),
    ("clip_ratio_c", "dual"),
    ("kl_loss_coef", "coefficient"),
    ("beta", "coefficient"),
    ("sync_weights_interval", "every_steps"),
    ("evaluate_step", "every_steps"),
    ("enable_evaluate", "enabled"),
    ("enable_initial_evaluate", "at_start"),
    ("total_train_steps", "total_steps"),
    ("lr_min", "min_lr"),
    ("loss_chunk_size", "logprob_chunk_tokens"),
    ("chunk_size", "logprob_chunk_tokens"),
    ("num_workers", "workers_per_node"),
    ("num_cpus_per_worker", "cpus_per_worker"),
    ("cpu_memory_per_worker", "host_memory_per_worker"),
];
/// Faults without those that follow from another: a key that is missing because it is misspelt.
pub fn first_causes(faults: &[Fault]) -> impl Iterator<Item = &Fault> {
    let follows = |fault: &Fault| match &fault.what {
        What::Missing { key } => faults.iter().any(|other| stands_for(other, key, &fault.path)),
        _ => false,
    };
    faults.iter().filter(move |fault| !follows(fault))
}

/// Whether a fault is an unknown key in the mapping of that path which means `wanted`.
fn stands_for(fault: &Fault, wanted: &str, parent: &[Segment]) -> bool {
    let What::UnknownKey { key, expected } = &fault.what else {
        return false;
    };
    let here = fault.path.split_last().is_some_and(|(_, path)| path == parent);
    here && meant(key, expected) == Some(wanted)
}

/// The key that an unknown one means: another system's name for it, or the nearest.
fn meant<'a>(key: &str, expected: &'a [String]) -> Option<&'a str> {
    new_name(key, expected)
        .and_then(|new| expected.iter().find(|name| *name == new).map(String::as_str))
        .or_else(|| other_name(key, expected))
        .or_else(|| nearest(key, expected.iter().map(String::as_str)).first().copied())
}

/// What another system's name for a key is called here, where it is known.
fn other_name<'a>(key: &str, expected: &'a [String]) -> Option<&'a str> {
    let (_, ours) = OTHER_NAMES
        .iter()
        .find(|(theirs, ours)| *theirs == key && expected.iter().any(|name| name == ours))?;
    expected.iter().find(|name| name == ours).map(String::as_str)
}

/// Names of choices elsewhere that are near a name of another meaning here, in lower case, with ours.
const OTHER_CHOICES: &[(&str, &str)] = &[("gpu", "cuda"), ("nvidia", "cuda")];

/// What another system's name for a choice is called here, where it is known.
fn other_choice<'a>(found: &str, expected: &'a [String]) -> Option<&'a str> {
    let found = found.to_lowercase();
    let (_, ours) = OTHER_CHOICES.iter().find(|(theirs, _)| *theirs == found)?;
    expected.iter().find(|name| name == ours).map(String::as_str)
}

/// A fault as a diagnostic. `decode` tells whether a changed tree has faults: it finds where a misplaced key belongs.
pub fn report(
    fault: &Fault,
    section: &[&str],
    tree: &Tree,
    decode: &dyn Fn(&Tree) -> Option<Vec<Fault>>,
) -> Diagnostic {
    let place = section.join(".");
    let whole = match path_text(&fault.path) {
        path if path.is_empty() => place.clone(),
        path => format!("{place}.{path}"),
    };
    match &fault.what {
        What::UnknownKey { key, expected } => unknown_key(fault, key, expected, &place, tree, decode),
        What::UnknownVariant { found, expected } => {
            let near = match other_choice(found, expected) {
                Some(ours) => vec![ours],
                None => nearest(found, expected.iter().map(String::as_str)),
            };
            let diagnostic = Diagnostic::error(
                &codes::RL0202,
                fault.range,
                format!("`{found}` is not a choice for `{}`", choice_place(&whole, found)),
            )
            .label_text("unknown choice")
            .note(format!("this version has: {}", quoted(expected)));
            match near.first() {
                Some(best) => diagnostic.fix(format!("did you mean `{best}`?"), fault.range, *best),
                None => diagnostic,
            }
        }
        What::Missing { key } => Diagnostic::error(&codes::RL0203, fault.range, format!("`{whole}` has no `{key}`"))
            .label_text(format!("`{key}` is missing")),
        What::WrongType { found, expected } => Diagnostic::error(
            &codes::RL0204,
            fault.range,
            format!("`{whole}` must be {expected}, and is {found}"),
        )
        .label_text(format!("expected {expected}")),
        What::Invalid(message) => {
            Diagnostic::error(&codes::RL0205, fault.range, format!("`{whole}`: {message}")).label_text("this cannot be")
        }
    }
}

fn choice_place<'a>(whole: &'a str, found: &str) -> &'a str {
    whole
        .strip_suffix(found)
        .map_or(whole, |parent| parent.trim_end_matches('.'))
}

fn unknown_key(
    fault: &Fault,
    key: &str,
    expected: &[String],
    place: &str,
    tree: &Tree,
    decode: &dyn Fn(&Tree) -> Option<Vec<Fault>>,
) -> Diagnostic {
    let range = fault.key_range.unwrap_or(fault.range);
    let parent = &fault.path[..fault.path.len().saturating_sub(1)];
    let parent_text = if parent.is_empty() {
        place.to_owned()
    } else {
        format!("{place}.{}", path_text(parent))
    };
    if let Some(new) = new_name(key, expected) {
        // The tree has both; one alone would have been accepted.
        let mut sibling = parent.to_vec();
        sibling.push(Segment::from(new));
        let diagnostic = Diagnostic::error(
            &codes::RL0209,
            range,
            format!("`{key}` is the old name of `{new}`, and `{parent_text}` has both"),
        )
        .label_text("the old name")
        .note("leave one of them out");
        return match tree.at(&sibling).key_range {
            Some(new_range) => diagnostic.label(new_range, "the new one"),
            None => diagnostic,
        };
    }
    let is_there = |name: &str| {
        let mut sibling = parent.to_vec();
        sibling.push(Segment::from(name));
        let found = tree.at(&sibling);
        // An overlay may say again what a base says.
        found.depth == sibling.len() && found.key_range.is_some_and(|key| key.source == range.source)
    };
    if let Some(ours) = other_name(key, expected).filter(|ours| !is_there(ours)) {
        return Diagnostic::error(&codes::RL0206, range, format!("`{key}` is called `{ours}` here"))
            .label_text(format!("unknown key in `{parent_text}`"))
            .fix(format!("write `{ours}`"), range, ours);
    }
    let diagnostic = Diagnostic::error(&codes::RL0201, range, format!("unknown key `{key}` in `{parent_text}`"));
    // A key that is there already is not what was meant by another one, and its name must not come twice.
    let near = nearest(key, expected.iter().map(String::as_str));
    if let Some(best) = near.iter().find(|name| !is_there(name)) {
        return diagnostic
            .label_text("unknown key")
            .note(format!("keys here are {}", quoted(expected)))
            .fix(format!("did you mean `{best}`?"), range, *best);
    }
    if let Some(home) = home_of(&fault.path, tree, decode) {
        let home = if home.is_empty() {
            place.to_owned()
        } else {
            format!("{place}.{}", path_text(&home))
        };
        return diagnostic
            .label_text("misplaced key")
            .note(format!("it belongs in `{home}`"));
    }
    diagnostic
        .label_text("unknown key")
        .note(format!("keys here are {}", quoted(expected)))
}

/// The mapping of the same tree in which the key would be known.
fn home_of(path: &[Segment], tree: &Tree, decode: &dyn Fn(&Tree) -> Option<Vec<Fault>>) -> Option<Vec<Segment>> {
    let (Segment::Key(key), parent) = path.split_last()? else {
        return None;
    };
    let mut moved = tree.clone();
    let value = moved.remove(path)?;
    let entry = rlpipe_core::document::Entry {
        key: key.clone(),
        key_range: value.range,
        value,
    };
    let mut homes = Vec::new();
    mappings(&moved, &mut Vec::new(), &mut homes);
    homes.into_iter().filter(|home| home != parent).find(|home| {
        let mut candidate = moved.clone();
        let Some(Tree {
            value: Value::Map(entries),
            ..
        }) = candidate.at_mut(home)
        else {
            return false;
        };
        if entries.iter().any(|existing| existing.key == *key) {
            return false;
        }
        entries.push(entry.clone());
        let mut at = home.clone();
        at.push(Segment::Key(key.clone()));
        let known = |fault: &Fault| match fault.what {
            What::UnknownKey { .. } | What::UnknownVariant { .. } => !at.starts_with(&fault.path),
            // A choice with two names is no home either.
            What::Invalid(_) => fault.path != *home,
            _ => true,
        };
        decode(&candidate).is_none_or(|faults| faults.iter().all(known))
    })
}

fn mappings(tree: &Tree, path: &mut Vec<Segment>, found: &mut Vec<Vec<Segment>>) {
    if !matches!(tree.value, Value::Map(_)) {
        return;
    }
    if path.first() != Some(&Segment::from("inputs")) {
        found.push(path.clone());
    }
    for entry in tree.entries() {
        path.push(Segment::Key(entry.key.clone()));
        mappings(&entry.value, path, found);
        path.pop();
    }
}
