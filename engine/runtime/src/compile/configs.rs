//! RL02: every section and every node, decoded on its own, so that no fault hides another.

use std::collections::BTreeMap;

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes, nearest};
use rlpipe_core::document::{Range, Tree, Value, What, decode};
use rlpipe_core::kind::Kind;
use serde::de::DeserializeOwned;

use super::config::{ModelConfig, PoolConfig, RunConfig};
use super::environment::Variables;
use super::faults::{first_causes, report};
use super::hub::HubCache;
use super::pipeline::{Node, Pipeline, Section};
use super::read::quoted;
use super::renamed::accept;

/// Larger pools are a slip of the finger.
const MAXIMUM_WORKERS: u64 = 1 << 16;

/// Decodes the whole tree.
pub fn decode_all(tree: Tree, variables: Variables, kinds: &'static [Kind], diagnostics: &mut Diagnostics) -> Pipeline {
    let run = match tree.get("run") {
        Some(section) => decode_section::<RunConfig>(section, &["run"], diagnostics),
        None => None,
    };
    for required in ["name", "run", "pools", "models", "nodes"] {
        if tree.get(required).is_none() {
            let start = Range {
                end: tree.range.start,
                ..tree.range
            };
            let what = match required {
                "name" => "it names the run and its folder: `name: my_run`",
                "run" => "it says where and how long to run: `run: { work_dir: runs, total_steps: 100 }`",
                "pools" => "it says what workers compute on: `pools: { local: { accelerator: auto } }`",
                "models" => "it says which models there are: `models: { policy: { path: a Hugging Face folder } }`",
                _ => "it holds the graph: a name, a `type` and settings for each node",
            };
            diagnostics
                .push(Diagnostic::error(&codes::RL0210, start, format!("the key `{required}` is missing")).note(what));
        }
    }
    if let (Some(run), Some(entry)) = (&run, tree.entry("run")) {
        run_length(run, entry, diagnostics);
    }
    let pools = sections::<PoolConfig>(&tree, "pools", diagnostics);
    for (name, pool) in &pools {
        let workers = pool.config.as_ref().map_or(0, PoolConfig::workers);
        if workers > MAXIMUM_WORKERS {
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL0205,
                    pool.key_range,
                    format!("the pool `{name}` has {workers} workers, and a pool may have {MAXIMUM_WORKERS}"),
                )
                .label_text("`nodes` times `workers_per_node` is too much"),
            );
        }
    }
    let models = sections::<ModelConfig>(&tree, "models", diagnostics);
    for (name, model) in &models {
        model_source(name, model, &tree, diagnostics);
    }
    let nodes: Vec<Node> = mapping(&tree, "nodes", diagnostics)
        .iter()
        .map(|entry| node(&entry.key, entry.key_range, &entry.value, kinds, diagnostics))
        .collect();
    let tests = super::trials::decode_all(&tree, diagnostics);
    let names = nodes.iter().map(|node| node.name.clone());
    let index = names.zip(0..).collect();
    Pipeline {
        name: name(&tree, diagnostics),
        env: variables.config.clone(),
        tree,
        variables,
        run,
        pools,
        models,
        hub: HubCache::default(),
        nodes,
        index,
        tests,
    }
}

fn name(tree: &Tree, diagnostics: &mut Diagnostics) -> Option<String> {
    let value = tree.get("name")?;
    let fault = match &value.value {
        Value::Unresolved => return None,
        Value::Text(name) => {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if !name.is_empty() && !name.starts_with('.') && name.chars().all(plain) {
                return Some(name.clone());
            }
            "`name` becomes a folder: letters, digits, `-`, `_` and `.` only, not starting with `.`"
        }
        _ => "`name` is a text",
    };
    diagnostics.push(Diagnostic::error(&codes::RL0205, value.range, fault).label_text("cannot be a folder's name"));
    None
}

fn run_length(run: &RunConfig, entry: &rlpipe_core::document::Entry, diagnostics: &mut Diagnostics) {
    let at = |key: &str| entry.value.entry(key).map(|entry| entry.key_range);
    match (run.total_steps, run.total_epochs) {
        (Some(steps), Some(epochs)) => diagnostics.push(
            Diagnostic::error(
                &codes::RL0209,
                at("total_steps").unwrap_or(entry.key_range),
                format!("`total_steps: {steps}` and `total_epochs: {epochs}` both say how long the run is"),
            )
            .label_text("this says it")
            .label(at("total_epochs").unwrap_or(entry.key_range), "and so does this")
            .note("leave one of them out"),
        ),
        (None, None) => diagnostics.push(
            Diagnostic::error(&codes::RL0209, entry.key_range, "nothing says how long the run is")
                .note("add `total_steps` or `total_epochs` to `run`"),
        ),
        _ => {}
    }
}

fn model_source(name: &str, model: &Section<ModelConfig>, tree: &Tree, diagnostics: &mut Diagnostics) {
    let Some(config) = &model.config else { return };
    let written = |key: &str| {
        tree.at(&["models".into(), name.into(), key.into()])
            .key_range
            .unwrap_or(model.key_range)
    };
    let sources = [
        ("path", "a folder", config.path.is_some()),
        ("hub", "a model of a hub", config.hub.is_some()),
        ("init", "a model from nothing", config.init.is_some()),
    ];
    let written_at_all = |key: &str| tree.at(&["models".into(), name.into(), key.into()]).depth == 3;
    let given: Vec<_> = sources.iter().filter(|(_, _, given)| *given).collect();
    match given.as_slice() {
        [(first, what, _), (second, other, _), ..] => diagnostics.push(
            Diagnostic::error(
                &codes::RL0209,
                written(first),
                format!("the model `{name}` has both `{first}` and `{second}`"),
            )
            .label_text(*what)
            .label(written(second), format!("and {other}"))
            .note("leave one of them out"),
        ),
        // What a missing variable left open was reported.
        [] if !sources.iter().any(|(key, _, _)| written_at_all(key)) => diagnostics.push(
            Diagnostic::error(
                &codes::RL0209,
                model.key_range,
                format!("the model `{name}` has neither `path` nor `hub` nor `init`"),
            )
            .note(
                "`path` names a Hugging Face folder, `hub` a repository of the Hugging Face hub, `init` builds a small \
                 model from nothing",
            ),
        ),
        _ => {}
    }
    if let Some(init) = &config.init {
        let key_value_heads = init.key_value_heads.unwrap_or(init.heads);
        for (parts, whole, part_key, whole_key) in [
            (init.heads, init.hidden_size, "heads", "hidden_size"),
            (key_value_heads, init.heads, "key_value_heads", "heads"),
        ] {
            if whole.get() % parts.get() != 0 {
                let range = |key: &str| {
                    tree.at(&["models".into(), name.into(), "init".into(), key.into()])
                        .tree
                        .range
                };
                diagnostics.push(
                    Diagnostic::error(
                        &codes::RL0503,
                        range(part_key),
                        format!("`{part_key}: {parts}` does not divide `{whole_key}: {whole}`"),
                    )
                    .label_text(format!("does not divide {whole}"))
                    .label(range(whole_key), "to be divided")
                    .note(format!(
                        "divisors of {whole} near {parts}: {}",
                        near_divisors(whole.get(), parts.get())
                    )),
                );
            }
        }
    }
}

/// The divisors of `whole` nearest to `wanted`, as a list.
fn near_divisors(whole: u32, wanted: u32) -> String {
    let divisors = nearest_divisors(whole, wanted);
    divisors
        .iter()
        .map(|divisor| format!("`{divisor}`"))
        .collect::<Vec<_>>()
        .join(" or ")
}

/// The one or two divisors of `whole` nearest to `wanted`, nearest first.
fn nearest_divisors(whole: u32, wanted: u32) -> Vec<u32> {
    let root = whole.isqrt();
    let pairs = (1..=root)
        .filter(|part| whole.is_multiple_of(*part))
        .flat_map(|part| [part, whole / part]);
    let mut divisors: Vec<u32> = pairs.collect();
    divisors.sort_by_key(|divisor| (divisor.abs_diff(wanted), *divisor));
    divisors.dedup();
    divisors.truncate(2);
    divisors
}

pub fn mapping<'a>(tree: &'a Tree, key: &str, diagnostics: &mut Diagnostics) -> &'a [rlpipe_core::document::Entry] {
    let Some(section) = tree.get(key) else { return &[] };
    if !matches!(section.value, Value::Map(_) | Value::Unresolved) {
        diagnostics.push(Diagnostic::error(
            &codes::RL0204,
            section.range,
            format!("`{key}` is a mapping from names to settings"),
        ));
    }
    section.entries()
}

fn sections<T: DeserializeOwned>(
    tree: &Tree,
    key: &str,
    diagnostics: &mut Diagnostics,
) -> BTreeMap<String, Section<T>> {
    mapping(tree, key, diagnostics)
        .iter()
        .map(|entry| {
            let config = decode_section::<T>(&entry.value, &[key, &entry.key], diagnostics);
            (
                entry.key.clone(),
                Section {
                    key_range: entry.key_range,
                    config,
                },
            )
        })
        .collect()
}

pub fn decode_section<T: DeserializeOwned>(tree: &Tree, path: &[&str], diagnostics: &mut Diagnostics) -> Option<T> {
    let mut decoded = decode::<T>(tree, &[]);
    let renamed = decoded
        .as_ref()
        .err()
        .and_then(|faults| accept(tree, faults, &path.join("."), diagnostics));
    if let Some(renamed) = &renamed {
        decoded = decode::<T>(renamed, &[]);
    }
    let tree = renamed.as_ref().unwrap_or(tree);
    match decoded {
        Ok(config) => Some(config),
        Err(faults) => {
            for fault in first_causes(&faults) {
                diagnostics.push(report(fault, path, tree, &|tree| decode::<T>(tree, &[]).err()));
            }
            None
        }
    }
}

fn node(name: &str, key_range: Range, tree: &Tree, kinds: &'static [Kind], diagnostics: &mut Diagnostics) -> Node {
    let mut node = Node {
        name: name.to_owned(),
        key_range,
        tree: tree.clone(),
        kind: None,
        config: None,
        contract: None,
        inputs: BTreeMap::new(),
        live: true,
    };
    let names = || kinds.iter().map(|kind| kind.name);
    let Some(type_tree) = tree.get("type") else {
        diagnostics.push(
            Diagnostic::error(&codes::RL0208, key_range, format!("the node `{name}` has no `type`"))
                .label_text("what kind of node is this?")
                .note(format!("kinds are {}", quoted(&names().collect::<Vec<_>>()))),
        );
        return node;
    };
    let Some(found) = type_tree.as_text() else {
        if type_tree.value != Value::Unresolved {
            diagnostics.push(Diagnostic::error(
                &codes::RL0207,
                type_tree.range,
                "`type` is the name of a kind",
            ));
        }
        return node;
    };
    node.kind = kinds.iter().find(|kind| kind.name == found);
    let Some(kind) = node.kind else {
        let near = nearest(found, names());
        let mut diagnostic = Diagnostic::error(&codes::RL0207, type_tree.range, format!("there is no kind `{found}`"))
            .label_text("unknown kind")
            .note(format!("kinds are {}", quoted(&names().collect::<Vec<_>>())));
        if let Some(best) = near.first() {
            diagnostic = diagnostic.fix(format!("did you mean `{best}`?"), type_tree.range, *best);
        }
        diagnostics.push(diagnostic);
        return node;
    };
    let mut decoded = (kind.decode)(tree);
    let renamed = decoded
        .as_ref()
        .err()
        .and_then(|faults| accept(tree, faults, &format!("nodes.{name}"), diagnostics));
    if let Some(renamed) = renamed {
        decoded = (kind.decode)(&renamed);
        node.tree = renamed;
    }
    let tree = &node.tree;
    match decoded {
        Ok(config) => {
            node.contract = Some(config.contract());
            node.config = Some(config);
        }
        Err(faults) => {
            for fault in first_causes(&faults) {
                let mut diagnostic = report(fault, &["nodes", name], tree, &|tree| (kind.decode)(tree).err());
                if matches!(fault.what, What::Missing { .. }) {
                    diagnostic =
                        diagnostic.note(format!("`rlpipe kinds {}` shows the settings of this kind", kind.name));
                    if fault.path.is_empty() {
                        diagnostic.primary.range = key_range;
                    }
                }
                diagnostics.push(diagnostic);
            }
        }
    }
    node
}
