//! Names of a pipeline that fit a place.

use rlpipe_core::document::Tree;

use crate::shapes::{Names, Shapes};

/// A name that fits.
pub struct Candidate {
    /// As it is written.
    pub name: String,
    /// What it is, in a few words.
    pub detail: String,
}

/// The names in a pipeline that stand for something, but not that of the node that asks.
pub fn candidates(shapes: &Shapes, tree: &Tree, names: Names, but: &str) -> Vec<Candidate> {
    let section = |section: &str, what: &str| {
        let entries = tree.get(section).map(Tree::entries).unwrap_or_default();
        let named = entries.iter().map(|entry| Candidate {
            name: entry.key.clone(),
            detail: what.to_owned(),
        });
        named.collect()
    };
    match names {
        Names::Pools => section("pools", "pool"),
        Names::Models => section("models", "model"),
        Names::Variables => variables_of(tree),
        Names::Nodes(port_type) => {
            let mut found = Vec::new();
            let nodes = tree.get("nodes").map(Tree::entries).unwrap_or_default();
            for node in nodes.iter().filter(|node| node.key != but) {
                let kind = node.value.get("type").and_then(Tree::as_text).unwrap_or_default();
                let outputs = shapes
                    .contract(kind)
                    .map(|contract| contract.outputs.as_slice())
                    .unwrap_or_default();
                let fitting: Vec<_> = outputs
                    .iter()
                    .filter(|output| port_type.is_none_or(|wanted| output.port_type == wanted))
                    .collect();
                let detail = match (fitting.first(), port_type) {
                    (Some(first), Some(port_type)) => {
                        let adds: Vec<String> = first.adds.iter().map(ToString::to_string).collect();
                        let fields = if adds.is_empty() {
                            String::new()
                        } else {
                            format!(", adds {}", adds.join(", "))
                        };
                        format!("{kind}: {port_type}{fields}")
                    }
                    (None, Some(_)) => continue,
                    (_, None) => kind.to_owned(),
                };
                found.push(Candidate {
                    name: node.key.clone(),
                    detail,
                });
                for output in fitting.iter().filter(|_| outputs.len() > 1 && port_type.is_some()) {
                    let name = format!("{}.{}", node.key, output.name);
                    found.push(Candidate {
                        name,
                        detail: format!("{kind}: output `{}`", output.name),
                    });
                }
            }
            found
        }
    }
}

/// Declared variables, with what they are for.
pub fn variables_of(tree: &Tree) -> Vec<Candidate> {
    let vars = tree
        .get("env")
        .and_then(|env| env.get("vars"))
        .map(Tree::entries)
        .unwrap_or_default();
    let described = vars.iter().map(|entry| {
        let text = |key: &str| entry.value.get(key).and_then(Tree::as_text);
        let help = text("help").map(|help| format!(": {help}")).unwrap_or_default();
        Candidate {
            name: entry.key.clone(),
            detail: format!("{}{help}", text("kind").unwrap_or("variable")),
        }
    });
    described.collect()
}
