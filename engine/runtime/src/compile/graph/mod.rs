//! RL03: names, ports, fields, cycles, and what reaches something that acts.

mod connect;
mod fields;
mod training;

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::kosaraju_scc;
use petgraph::graph::DiGraph;
use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes, nearest};
use rlpipe_core::document::Range;
use rlpipe_core::kind::Target;

use self::connect::givers;
use super::pipeline::Pipeline;
use super::read::quoted;

/// Connects the nodes and checks what connects them.
pub fn check(pipeline: &mut Pipeline, diagnostics: &mut Diagnostics) {
    names(pipeline, diagnostics);
    let before = diagnostics.len();
    let names: BTreeMap<String, usize> = pipeline
        .nodes
        .iter()
        .enumerate()
        .map(|(index, node)| (node.name.clone(), index))
        .collect();
    for index in 0..pipeline.nodes.len() {
        let inputs = connect::connect(pipeline, index, &names, diagnostics);
        pipeline.nodes[index].inputs = inputs;
    }
    let acyclic = cycles(pipeline, diagnostics);
    // An edge that was not understood may be the one that a node lacks.
    fields::prune(pipeline, diagnostics.len() == before, diagnostics);
    if acyclic {
        fields::check(pipeline, diagnostics);
    }
    references(pipeline, &names, diagnostics);
    training::check(pipeline, diagnostics);
}

fn names(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    let nodes = pipeline.nodes.iter().map(|node| (&node.name, node.key_range));
    let pools = pipeline.pools.iter().map(|(name, pool)| (name, pool.key_range));
    let models = pipeline.models.iter().map(|(name, model)| (name, model.key_range));
    for (name, range) in nodes.chain(pools).chain(models) {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(plain) {
            diagnostics.push(
                Diagnostic::error(&codes::RL0313, range, format!("`{name}` cannot be a name"))
                    .label_text("has other characters")
                    .note("names are made of letters, digits, `_` and `-`: a dot would stand before a port"),
            );
        }
    }
}

/// Reports each cycle with its chain; whether there are none.
fn cycles(pipeline: &Pipeline, diagnostics: &mut Diagnostics) -> bool {
    let mut graph = DiGraph::<usize, ()>::new();
    let places: Vec<_> = (0..pipeline.nodes.len()).map(|index| graph.add_node(index)).collect();
    for (index, node) in pipeline.nodes.iter().enumerate() {
        for endpoint in node.inputs.values().flatten() {
            graph.add_edge(places[endpoint.node], places[index], ());
        }
    }
    let mut acyclic = true;
    for component in kosaraju_scc(&graph) {
        let members: BTreeSet<usize> = component.iter().map(|place| graph[*place]).collect();
        let itself = |index: usize| {
            pipeline.nodes[index]
                .inputs
                .values()
                .flatten()
                .any(|endpoint| endpoint.node == index)
        };
        let Some(&start) = members.first().filter(|first| members.len() > 1 || itself(**first)) else {
            continue;
        };
        acyclic = false;
        let chain = chain(pipeline, start, &members);
        let words: Vec<&str> = chain
            .iter()
            .map(|(index, _)| pipeline.nodes[*index].name.as_str())
            .collect();
        let mut diagnostic = Diagnostic::error(
            &codes::RL0308,
            chain[0].1,
            format!("nodes wait for each other: {} -> {}", words.join(" -> "), words[0]),
        )
        .label_text(format!("`{}` takes from `{}`", words[0], words[words.len() - 1]));
        for pair in 1..chain.len() {
            diagnostic = diagnostic.label(
                chain[pair].1,
                format!("`{}` takes from `{}`", words[pair], words[pair - 1]),
            );
        }
        diagnostics.push(
            diagnostic.note(
                "edges go one way; what comes back from training is state, as in `weight_sync` with `to: engine`",
            ),
        );
    }
    acyclic
}

/// The members of a cycle in the order in which things flow, each with the reference to the one before.
fn chain(pipeline: &Pipeline, start: usize, members: &BTreeSet<usize>) -> Vec<(usize, Range)> {
    let mut backwards = Vec::new();
    let mut at = start;
    loop {
        let before = pipeline.nodes[at]
            .inputs
            .values()
            .flatten()
            .find(|endpoint| members.contains(&endpoint.node));
        let Some(endpoint) = before else { break };
        backwards.push((at, endpoint.range));
        at = endpoint.node;
        if at == start || backwards.iter().any(|(seen, _)| *seen == at) {
            break;
        }
    }
    let mut chain: Vec<(usize, Range)> = backwards.into_iter().rev().collect();
    chain.rotate_right(1);
    chain
}

/// Pools, models and state that configs refer to.
fn references(pipeline: &Pipeline, names: &BTreeMap<String, usize>, diagnostics: &mut Diagnostics) {
    for node in &pipeline.nodes {
        for used in node.contract.iter().flat_map(|contract| &contract.uses) {
            let range = node.range_of(&[used.key]);
            match used.target {
                Target::Pool if !pipeline.pools.contains_key(&used.name) => {
                    diagnostics.push(unknown("pool", &used.name, range, pipeline.pools.keys()));
                }
                Target::Model if !pipeline.models.contains_key(&used.name) => {
                    diagnostics.push(unknown("model", &used.name, range, pipeline.models.keys()));
                }
                Target::State(port_type) => match names.get(&used.name).map(|index| &pipeline.nodes[*index]) {
                    None => {
                        let candidates: Vec<String> = givers(pipeline, node, port_type)
                            .into_iter()
                            .map(str::to_owned)
                            .collect();
                        diagnostics.push(unknown("node", &used.name, range, candidates.iter()));
                    }
                    Some(other) => {
                        let fits = other
                            .contract
                            .as_ref()
                            .is_none_or(|contract| contract.outputs.iter().any(|output| output.port_type == port_type));
                        if !fits {
                            diagnostics.push(
                                Diagnostic::error(
                                    &codes::RL0303,
                                    range,
                                    format!("`{}` names `{}`, which is no {port_type}", used.key, used.name),
                                )
                                .label_text(format!("expected a node that gives `{port_type}`"))
                                .label(
                                    other.key_range,
                                    format!("this is a {}", other.kind.map_or("node", |kind| kind.name)),
                                ),
                            );
                        }
                    }
                },
                _ => {}
            }
        }
    }
}

pub fn unknown<'a>(what: &str, name: &str, range: Range, known: impl Iterator<Item = &'a String>) -> Diagnostic {
    let known: Vec<&str> = known.map(String::as_str).collect();
    let mut diagnostic = Diagnostic::error(&codes::RL0310, range, format!("there is no {what} `{name}`"))
        .label_text(format!("unknown {what}"));
    if let Some(best) = nearest(name, known.iter().copied()).first() {
        diagnostic = diagnostic.fix(format!("did you mean `{best}`?"), range, *best);
    } else if !known.is_empty() {
        diagnostic = diagnostic.note(format!(
            "there {} {}",
            if known.len() == 1 { "is" } else { "are" },
            quoted(&known)
        ));
    } else {
        diagnostic = diagnostic.note(format!("declare it in `{what}s`"));
    }
    diagnostic
}
