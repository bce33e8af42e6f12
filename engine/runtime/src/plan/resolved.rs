//! The resolved file.

use rlpipe_core::kind::Arity;
use serde_json::{Value, json};

use super::{Edge, Plan, PlannedNode};
use crate::compile::{Node, Pipeline};

/// The resolved file: what was meant, with every default, absolute paths and no variables. It loads again, identically.
pub fn resolved(pipeline: &Pipeline) -> Option<Value> {
    let plan = Plan::of(pipeline)?;
    let mut nodes = serde_json::Map::new();
    for node in &plan.nodes {
        let source = &pipeline.nodes[pipeline.find(&node.name)?];
        let mut text = serde_json::Map::new();
        text.insert("type".to_owned(), node.kind.clone().into());
        if !node.inputs.is_empty() {
            text.insert("inputs".to_owned(), inputs(node, source));
        }
        if let Value::Object(config) = &node.config {
            text.extend(config.clone());
        }
        nodes.insert(node.name.clone(), Value::Object(text));
    }
    Some(json!({
        "version": 1,
        "name": plan.name,
        "run": plan.run,
        "pools": plan.pools,
        "models": plan.models,
        "nodes": nodes,
    }))
}

fn inputs(node: &PlannedNode, source: &Node) -> Value {
    let arity = |port: &str| {
        let inputs = source.contract.iter().flat_map(|contract| &contract.inputs);
        inputs
            .into_iter()
            .find(|input| input.name == port)
            .map(|input| input.arity)
    };
    let name = |edge: &Edge| Value::String(format!("{}.{}", edge.node, edge.port));
    node.inputs
        .iter()
        .map(|(port, edges)| {
            let value = match arity(port) {
                Some(Arity::Many) => edges.iter().map(name).collect(),
                _ => edges.first().map_or(Value::Null, name),
            };
            (port.clone(), value)
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}
