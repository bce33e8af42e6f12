//! Edges: which node and port each input means.

use std::collections::BTreeMap;

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes, nearest};
use rlpipe_core::document::{Range, Tree, Value};
use rlpipe_core::kind::{Arity, Contract, Input, PortType};

use crate::compile::pipeline::{Endpoint, Node, Pipeline};
use crate::compile::read::quoted;

/// The edges into one node.
pub fn connect(
    pipeline: &Pipeline,
    index: usize,
    names: &BTreeMap<String, usize>,
    diagnostics: &mut Diagnostics,
) -> BTreeMap<&'static str, Vec<Endpoint>> {
    let node = &pipeline.nodes[index];
    let mut connected = BTreeMap::new();
    let Some(contract) = &node.contract else {
        return connected;
    };
    let given = node.tree.get("inputs");
    if let Some(tree) = given.filter(|tree| !matches!(tree.value, Value::Map(_) | Value::Unresolved)) {
        diagnostics.push(
            Diagnostic::error(
                &codes::RL0204,
                tree.range,
                format!("`nodes.{}.inputs` must be a mapping from inputs to nodes", node.name),
            )
            .label_text("expected a mapping")
            .note(input_help(contract)),
        );
        return connected;
    }
    let given = given.map(Tree::entries).unwrap_or_default();
    for entry in given {
        let Some(input) = contract.inputs.iter().find(|input| input.name == entry.key) else {
            let mut diagnostic = Diagnostic::error(
                &codes::RL0305,
                entry.key_range,
                format!("`{}` has no input `{}`", node.name, entry.key),
            )
            .label_text("unknown input")
            .note(input_help(contract));
            if let Some(best) = nearest(&entry.key, contract.inputs.iter().map(|input| input.name)).first() {
                diagnostic = diagnostic.fix(format!("did you mean `{best}`?"), entry.key_range, *best);
            }
            diagnostics.push(diagnostic);
            continue;
        };
        let listed = matches!(entry.value.value, Value::List(_));
        let values = if listed {
            entry.value.elements()
        } else {
            std::slice::from_ref(&entry.value)
        };
        if values.len() != 1 && input.arity != Arity::Many || values.is_empty() {
            let takes = if input.arity == Arity::Many {
                "one or more nodes"
            } else {
                "one node"
            };
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL0306,
                    entry.value.range,
                    format!(
                        "the input `{}` of `{}` takes {takes}, and is given {}",
                        input.name,
                        node.name,
                        values.len()
                    ),
                )
                .label_text(format!("expected {takes}")),
            );
        }
        let found = values
            .iter()
            .filter_map(|value| endpoint(pipeline, node, input, value, names, diagnostics));
        let mut endpoints: Vec<Endpoint> = found.collect();
        if input.arity != Arity::Many && endpoints.len() > 1 {
            // Which of them is meant is not known.
            endpoints.clear();
        }
        connected.insert(input.name, endpoints);
    }
    for input in &contract.inputs {
        // A name that is nearly the input's was reported with the one that it means.
        let known = |key: &str| contract.inputs.iter().any(|input| input.name == key);
        let means =
            |key: &str| nearest(key, contract.inputs.iter().map(|input| input.name)).first() == Some(&input.name);
        let is_given = |key: &str| key == input.name || !known(key) && means(key);
        if input.arity != Arity::Optional && !given.iter().any(|entry| is_given(&entry.key)) {
            diagnostics.push(missing_input(pipeline, node, input));
        }
    }
    connected
}

fn input_help(contract: &Contract) -> String {
    if contract.inputs.is_empty() {
        return "this kind has no inputs".to_owned();
    }
    let inputs: Vec<String> = contract
        .inputs
        .iter()
        .map(|input| format!("`{}` ({})", input.name, input.port_type))
        .collect();
    format!("its inputs are {}", inputs.join(", "))
}

fn missing_input(pipeline: &Pipeline, node: &Node, input: &Input) -> Diagnostic {
    let givers = givers(pipeline, node, input.port_type);
    let diagnostic = Diagnostic::error(
        &codes::RL0304,
        node.key_range,
        format!("the input `{}` of `{}` is not connected", input.name, node.name),
    )
    .label_text(format!("takes no `{}` from anywhere", input.port_type));
    match givers.first() {
        None => diagnostic.note(format!("no node of this pipeline gives `{}`", input.port_type)),
        Some(first) => diagnostic
            .note(give_words(&givers, input.port_type))
            .note(format!("add it to the `inputs`, as in `{}: {first}`", input.name)),
    }
}

/// "`buffer` gives `batch`".
fn give_words(givers: &[&str], port_type: PortType) -> String {
    format!(
        "{} {} `{port_type}`",
        quoted(givers),
        if givers.len() == 1 { "gives" } else { "give" }
    )
}

/// Names of the other nodes with an output of a type.
pub fn givers<'a>(pipeline: &'a Pipeline, but: &Node, port_type: PortType) -> Vec<&'a str> {
    pipeline
        .nodes
        .iter()
        .filter(|node| node.name != but.name)
        .filter(|node| {
            let outputs = node.contract.iter().flat_map(|contract| &contract.outputs);
            outputs.into_iter().any(|output| output.port_type == port_type)
        })
        .map(|node| node.name.as_str())
        .collect()
}

/// What one reference of an input means.
fn endpoint(
    pipeline: &Pipeline,
    node: &Node,
    input: &Input,
    value: &Tree,
    names: &BTreeMap<String, usize>,
    diagnostics: &mut Diagnostics,
) -> Option<Endpoint> {
    let Some(text) = value.as_text() else {
        if value.value != Value::Unresolved {
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL0204,
                    value.range,
                    format!(
                        "the input `{}` of `{}` must be the name of a node",
                        input.name, node.name
                    ),
                )
                .label_text("expected a name"),
            );
        }
        return None;
    };
    let (giver, port) = text
        .split_once('.')
        .map_or((text, None), |(giver, port)| (giver, Some(port)));
    let Some(&giver_index) = names.get(giver) else {
        let mut diagnostic = Diagnostic::error(&codes::RL0301, value.range, format!("there is no node `{giver}`"))
            .label_text("unknown node");
        let candidates = givers(pipeline, node, input.port_type);
        let near = nearest(giver, names.keys().map(String::as_str));
        match near.first() {
            Some(best) => {
                let fixed = port.map_or((*best).to_owned(), |port| format!("{best}.{port}"));
                diagnostic = diagnostic.fix(format!("did you mean `{best}`?"), value.range, fixed);
            }
            None if !candidates.is_empty() => {
                diagnostic = diagnostic.note(give_words(&candidates, input.port_type));
            }
            None => {}
        }
        diagnostics.push(diagnostic);
        return None;
    };
    let giver = &pipeline.nodes[giver_index];
    let outputs = &giver.contract.as_ref()?.outputs;
    let output = match port {
        Some(port) => outputs.iter().find(|output| output.name == port),
        None => outputs
            .iter()
            .find(|output| output.port_type == input.port_type)
            .or(outputs.first()),
    };
    let Some(output) = output else {
        let ports: Vec<&str> = outputs.iter().map(|output| output.name).collect();
        let message = match port {
            Some(port) => format!("`{}` has no output `{port}`", giver.name),
            None => format!("`{}` gives nothing that `{}` could take", giver.name, node.name),
        };
        let note = match ports.as_slice() {
            [] => format!("a `{}` has no outputs", giver.kind.map_or("node", |kind| kind.name)),
            [only] => format!("its output is `{only}`"),
            _ => format!("its outputs are {}", quoted(&ports)),
        };
        let mut diagnostic = Diagnostic::error(&codes::RL0302, value.range, message)
            .label_text("no such output")
            .label(giver.key_range, note);
        if let Some(fitting) = outputs.iter().find(|output| output.port_type == input.port_type) {
            let fixed = format!("{}.{}", giver.name, fitting.name);
            diagnostic = diagnostic.fix(format!("take `{}`", fitting.name), value.range, fixed);
        }
        diagnostics.push(diagnostic);
        return None;
    };
    if output.port_type != input.port_type {
        diagnostics.push(type_mismatch(
            pipeline,
            node,
            input,
            giver,
            output.port_type,
            value.range,
        ));
        return None;
    }
    Some(Endpoint {
        node: giver_index,
        port: output.name,
        port_type: output.port_type,
        range: value.range,
        fields: Vec::new(),
    })
}

fn type_mismatch(
    pipeline: &Pipeline,
    node: &Node,
    input: &Input,
    giver: &Node,
    found: PortType,
    range: Range,
) -> Diagnostic {
    let mut diagnostic = Diagnostic::error(
        &codes::RL0303,
        range,
        format!(
            "`{}` gives `{found}`, but `{}.{}` takes `{}`",
            giver.name, node.name, input.name, input.port_type
        ),
    )
    .label_text(format!("`{found}`, not `{}`", input.port_type))
    .label(giver.key_range, format!("gives `{found}`"));
    diagnostic = match (found, input.port_type) {
        (PortType::Groups, PortType::Batch) => {
            diagnostic.note("a `replay_buffer` between them makes steps of a stream of groups")
        }
        (PortType::Batch, PortType::Groups) => diagnostic.note(
            "a step is complete once it leaves the buffer: what changes its groups goes before the `replay_buffer`",
        ),
        (PortType::Prompts, PortType::Groups) => diagnostic.note("an `agent_loop` between them answers the prompts"),
        _ => diagnostic,
    };
    match givers(pipeline, node, input.port_type).as_slice() {
        [] => diagnostic,
        [only] => diagnostic.fix(
            format!("take `{only}`, which gives `{}`", input.port_type),
            range,
            *only,
        ),
        candidates => diagnostic.note(give_words(candidates, input.port_type)),
    }
}
