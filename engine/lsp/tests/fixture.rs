//! Pipelines that are being written.

use std::path::Path;

use crate::client::{Client, Opened};

/// A pipeline of the project.
pub fn pipeline(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pipelines").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// A pipeline of the project with a part of it replaced; a `|` in the new part is the cursor.
pub fn marked(name: &str, from: &str, to: &str) -> (String, usize) {
    let text = pipeline(name);
    assert!(text.contains(from), "`{from}` is not in `{name}`");
    let at = text.find(from).unwrap();
    let cursor = at + to.find('|').unwrap_or(0);
    (text.replacen(from, &to.replacen('|', "", 1), 1), cursor)
}

/// Labels of what is offered in a pipeline of the project with a part replaced.
pub fn offered(client: &mut Client, name: &str, from: &str, to: &str) -> Vec<String> {
    let (opened, cursor) = open_marked(client, name, from, to);
    let items = client.at("textDocument/completion", &opened, cursor);
    labels(&items)
}

pub fn open_marked(client: &mut Client, name: &str, from: &str, to: &str) -> (Opened, usize) {
    let (text, cursor) = marked(name, from, to);
    (client.open(name, &text), cursor)
}

pub fn labels(items: &serde_json::Value) -> Vec<String> {
    let items = items.as_array().unwrap().iter();
    items.map(|item| item["label"].as_str().unwrap().to_owned()).collect()
}
