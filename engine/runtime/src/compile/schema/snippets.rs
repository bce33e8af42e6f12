//! What editors offer to fill in where there is nothing yet.

use rlpipe_core::kind::Kind;
use serde_json::{Map, Value, json};

use super::example;

/// One ready node for each kind. They are offered as long as the node has no `type`: beside one they would be in the way.
pub fn of_nodes(kinds: &[Kind]) -> Value {
    let snippets: Vec<Value> = kinds
        .iter()
        .filter_map(|kind| Some(snippet(kind.name, kind.summary, example(kind)?.to_json())))
        .collect();
    json!({ "defaultSnippets": snippets })
}

/// Ways to say where and how long to run.
pub fn of_run() -> Value {
    let steps = json!({
        "work_dir": "runs",
        "total_steps": 100,
        "checkpoint": { "every_steps": 10 },
        "hf_export": { "every_steps": 100 },
    });
    let epochs = json!({ "work_dir": "runs", "total_epochs": 1, "hf_export": { "every_steps": 100 } });
    json!([
        snippet("steps", "So many train steps, with checkpoints.", steps),
        snippet("epochs", "So many passes over the training prompts.", epochs),
    ])
}

/// Pools.
pub fn of_pool() -> Vec<Snippet> {
    vec![
        (
            "auto",
            "Whatever this machine has.",
            json!({ "accelerator": "auto", "cpus_per_worker": 2 }),
        ),
        (
            "cuda",
            "NVIDIA cards, a worker each.",
            json!({ "accelerator": "cuda", "workers_per_node": 1, "cpus_per_worker": 8 }),
        ),
        (
            "judges",
            "For judging only.",
            json!({ "accelerator": "none", "cpus_per_worker": 2 }),
        ),
    ]
}

/// Models.
pub fn of_model() -> Vec<Snippet> {
    let init = json!({
        "init": {
            "architecture": "llama",
            "hidden_size": 128,
            "layers": 4,
            "heads": 4,
            "intermediate_size": 384,
            "tokenizer": "bytes",
        },
    });
    vec![
        (
            "folder",
            "A Hugging Face model folder.",
            json!({ "path": "models/policy" }),
        ),
        (
            "hub",
            "A model of the Hugging Face hub.",
            json!({ "hub": { "repository": "HuggingFaceTB/SmolLM2-135M-Instruct" } }),
        ),
        ("from nothing", "A small model with random weights.", init),
    ]
}

/// Environment variables.
pub fn of_variable() -> Vec<Snippet> {
    vec![
        (
            "folder",
            "A folder that must be set.",
            json!({ "kind": "dir", "help": "a Hugging Face model folder" }),
        ),
        (
            "number",
            "A number that need not be set.",
            json!({ "kind": "int", "default": 1, "min": 1 }),
        ),
        (
            "choice",
            "One of several texts.",
            json!({ "kind": "choice", "of": ["small", "large"], "default": "small" }),
        ),
        ("flag", "On or off.", json!({ "kind": "flag", "optional": true })),
    ]
}

/// Label, description and body.
pub type Snippet = (&'static str, &'static str, Value);

/// Puts snippets of one entry into its definition.
pub fn put_into(definition: Option<&mut Value>, snippets: Vec<Snippet>) {
    if let Some(Value::Object(definition)) = definition {
        let list = snippets
            .into_iter()
            .map(|(label, what, body)| snippet(label, what, body));
        definition.insert("defaultSnippets".to_owned(), list.collect());
    }
}

/// The same snippets for the mapping that has such entries, below a name.
pub fn named(name: &str, snippets: Vec<Snippet>) -> Value {
    let entry = |body: Value| Value::Object(Map::from_iter([(name.to_owned(), body)]));
    let list = snippets
        .into_iter()
        .map(|(label, what, body)| snippet(label, what, entry(body)));
    list.collect()
}

fn snippet(label: &str, description: &str, body: Value) -> Value {
    json!({ "label": label, "description": description, "body": body })
}
