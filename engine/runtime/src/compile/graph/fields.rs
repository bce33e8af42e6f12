//! What reaches a node that acts, and which fields arrive where.

use std::collections::BTreeSet;

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::kind::{Arity, Contract, Field, PortType, Role};

use crate::compile::pipeline::{Endpoint, Node, Pipeline};
use crate::compile::read::quoted;

/// Decides which nodes are live: those that a trainer, a weight sync or an enabled evaluator needs.
pub fn prune(pipeline: &mut Pipeline, edges_are_known: bool, diagnostics: &mut Diagnostics) {
    let mut live = vec![false; pipeline.nodes.len()];
    let mut excused = vec![!edges_are_known; pipeline.nodes.len()];
    for (index, node) in pipeline.nodes.iter().enumerate() {
        match node.contract.as_ref().map(|contract| &contract.role) {
            Some(Role::Evaluator { enabled: false, .. }) => mark(pipeline, index, &mut excused),
            Some(Role::Trainer { .. } | Role::WeightSync { .. } | Role::Evaluator { .. }) => {
                mark(pipeline, index, &mut live);
            }
            // What a node that was not understood needs is not known: nothing may be called useless.
            None => {
                mark(pipeline, index, &mut live);
                excused.fill(true);
            }
            Some(_) => {}
        }
    }
    for (index, node) in pipeline.nodes.iter_mut().enumerate() {
        node.live = live[index];
        if !node.live && !excused[index] {
            diagnostics.push(
                Diagnostic::warning(&codes::RL0309, node.key_range, format!("nothing needs `{}`", node.name))
                    .label_text("reaches no trainer, weight sync or evaluator")
                    .note("it does not run; connect it or take it out"),
            );
        }
    }
}

/// Marks a node and all that it takes from, directly or not.
fn mark(pipeline: &Pipeline, start: usize, marks: &mut [bool]) {
    let mut waiting = vec![start];
    while let Some(index) = waiting.pop() {
        if !std::mem::replace(&mut marks[index], true) {
            waiting.extend(
                pipeline.nodes[index]
                    .inputs
                    .values()
                    .flatten()
                    .map(|endpoint| endpoint.node),
            );
        }
    }
}

/// What is known of what a node gives.
#[derive(Default)]
struct Carried {
    fields: BTreeSet<Field>,
    /// Whether all that it comes from was understood; if not, fields may only seem to be missing.
    whole: bool,
}

/// Follows fields along edges, in the order in which things flow.
pub fn check(pipeline: &mut Pipeline, diagnostics: &mut Diagnostics) {
    let mut known: Vec<Option<Carried>> = pipeline.nodes.iter().map(|_| None).collect();
    for index in 0..pipeline.nodes.len() {
        carry(pipeline, index, &mut known);
    }
    let known: Vec<Carried> = known.into_iter().map(Option::unwrap_or_default).collect();
    for node in &mut pipeline.nodes {
        for endpoint in node.inputs.values_mut().flatten() {
            endpoint.fields = known[endpoint.node].fields.iter().copied().collect();
        }
    }
    for (_, node, contract) in pipeline.live() {
        for input in &contract.inputs {
            for endpoint in node
                .inputs
                .get(input.name)
                .into_iter()
                .flatten()
                .filter(|from| known[from.node].whole)
            {
                for field in input.needs.iter().filter(|field| !endpoint.fields.contains(field)) {
                    diagnostics.push(missing_field(pipeline, node, endpoint, *field));
                }
            }
        }
    }
}

/// Finds out what a node gives, and all before it.
fn carry(pipeline: &Pipeline, start: usize, known: &mut [Option<Carried>]) {
    let mut stack = vec![start];
    while let Some(&index) = stack.last() {
        let node = &pipeline.nodes[index];
        let before = node.inputs.values().flatten().map(|endpoint| endpoint.node);
        let height = stack.len();
        stack.extend(before.filter(|node| known[*node].is_none()));
        if stack.len() > height {
            continue;
        }
        stack.pop();
        if known[index].is_some() {
            continue;
        }
        // Of several streams, only what all of them have can be relied on.
        let mut common: Option<BTreeSet<Field>> = None;
        let mut whole = node
            .contract
            .as_ref()
            .is_some_and(|contract| is_connected(node, contract));
        for endpoint in node.inputs.values().flatten() {
            let Some(before) = &known[endpoint.node] else { continue };
            whole &= before.whole;
            if matches!(endpoint.port_type, PortType::Groups | PortType::Batch) {
                common = Some(match common {
                    Some(common) => common.intersection(&before.fields).copied().collect(),
                    None => before.fields.clone(),
                });
            }
        }
        let mut fields = common.unwrap_or_default();
        for output in node.contract.iter().flat_map(|contract| &contract.outputs) {
            fields.extend(output.adds.iter().copied());
        }
        known[index] = Some(Carried { fields, whole });
    }
}

/// Whether each input that a node must have was understood.
fn is_connected(node: &Node, contract: &Contract) -> bool {
    let needed = contract.inputs.iter().filter(|input| input.arity != Arity::Optional);
    needed.into_iter().all(|input| {
        node.inputs
            .get(input.name)
            .is_some_and(|endpoints| !endpoints.is_empty())
    })
}

fn missing_field(pipeline: &Pipeline, node: &Node, endpoint: &Endpoint, field: Field) -> Diagnostic {
    let giver = &pipeline.nodes[endpoint.node];
    let given: Vec<String> = endpoint.fields.iter().map(Field::to_string).collect();
    let given = if given.is_empty() {
        "none of the fields".to_owned()
    } else {
        quoted(&given)
    };
    let diagnostic = Diagnostic::error(
        &codes::RL0307,
        endpoint.range,
        format!("`{}` needs `{field}`, which nothing before it adds", node.name),
    )
    .label_text(format!("no `{field}` from here"))
    .label(giver.key_range, format!("gives {given}"))
    .note(format!("a node of kind `{}` between them adds it", field.made_by()));
    match (field, node.written(&["loss", "kl"])) {
        (Field::ReferenceLogprobs, Some(kl)) => diagnostic
            .label(kl, "needs it")
            .note("or leave the term out: `kl: none`"),
        _ => diagnostic,
    }
}
