//! RL03: names, ports, fields, cycles, and what reaches something that acts.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;
use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes, nearest};
use rlpipe_core::document::{Range, Tree, Value};
use rlpipe_core::kind::{Arity, Contract, Field, Input, PortType, Role, Target};

use super::pipeline::{Endpoint, Node, Pipeline};
use super::read::quoted;

/// Connects the nodes and checks what connects them.
pub fn check(pipeline: &mut Pipeline, diagnostics: &mut Diagnostics) {
    names(pipeline, diagnostics);
    let names: BTreeMap<String, usize> =
        pipeline.nodes.iter().enumerate().map(|(index, node)| (node.name.clone(), index)).collect();
    for index in 0..pipeline.nodes.len() {
        let inputs = connect(pipeline, index, &names, diagnostics);
        pipeline.nodes[index].inputs = inputs;
    }
    let acyclic = cycles(pipeline, diagnostics);
    prune(pipeline, diagnostics);
    if acyclic {
        fields(pipeline, diagnostics);
    }
    references(pipeline, &names, diagnostics);
    training(pipeline, diagnostics);
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
                    .note("names are made of letters, digits, `_` and `-`: a dot would stand before a port"),
            );
        }
    }
}

/// The edges into one node.
fn connect(
    pipeline: &Pipeline,
    index: usize,
    names: &BTreeMap<String, usize>,
    diagnostics: &mut Diagnostics,
) -> BTreeMap<&'static str, Vec<Endpoint>> {
    let node = &pipeline.nodes[index];
    let mut connected = BTreeMap::new();
    let Some(contract) = &node.contract else { return connected };
    let given = node.tree.get("inputs");
    if let Some(tree) = given.filter(|tree| !matches!(tree.value, Value::Map(_) | Value::Unresolved)) {
        diagnostics.push(
            Diagnostic::error(&codes::RL0204, tree.range, format!("`inputs` of `{}` is a mapping", node.name))
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
            .note(input_help(contract));
            if let Some(best) = nearest(&entry.key, contract.inputs.iter().map(|input| input.name)).first() {
                diagnostic = diagnostic.fix(format!("did you mean `{best}`?"), entry.key_range, *best);
            }
            diagnostics.push(diagnostic);
            continue;
        };
        let listed = matches!(entry.value.value, Value::List(_));
        let values = if listed { entry.value.elements() } else { std::slice::from_ref(&entry.value) };
        if values.len() != 1 && input.arity != Arity::Many || values.is_empty() {
            let takes = if input.arity == Arity::Many { "one or more nodes" } else { "one node" };
            diagnostics.push(Diagnostic::error(
                &codes::RL0306,
                entry.value.range,
                format!("the input `{}` of `{}` takes {takes}, and is given {}", input.name, node.name, values.len()),
            ));
        }
        let endpoints: Vec<Endpoint> =
            values.iter().filter_map(|value| endpoint(pipeline, node, input, value, names, diagnostics)).collect();
        connected.insert(input.name, endpoints);
    }
    for input in &contract.inputs {
        if input.arity != Arity::Optional && !given.iter().any(|entry| entry.key == input.name) {
            diagnostics.push(missing_input(pipeline, node, input));
        }
    }
    connected
}

fn input_help(contract: &Contract) -> String {
    if contract.inputs.is_empty() {
        return "this kind has no inputs".to_owned();
    }
    let inputs: Vec<String> =
        contract.inputs.iter().map(|input| format!("`{}` ({})", input.name, input.port_type)).collect();
    format!("its inputs are {}", inputs.join(", "))
}

fn missing_input(pipeline: &Pipeline, node: &Node, input: &Input) -> Diagnostic {
    let givers = givers(pipeline, node, input.port_type);
    let diagnostic = Diagnostic::error(
        &codes::RL0304,
        node.key_range,
        format!("the input `{}` of `{}` is not connected", input.name, node.name),
    );
    match givers.as_slice() {
        [] => diagnostic.note(format!("no node of this pipeline gives {}", input.port_type)),
        _ => diagnostic.note(format!(
            "add `{}: {}` to its `inputs`; {} {} {}",
            input.name,
            givers[0],
            quoted(&givers),
            if givers.len() == 1 { "gives" } else { "give" },
            input.port_type
        )),
    }
}

/// Names of the other nodes with an output of a type.
fn givers<'a>(pipeline: &'a Pipeline, but: &Node, port_type: PortType) -> Vec<&'a str> {
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
            diagnostics.push(Diagnostic::error(
                &codes::RL0204,
                value.range,
                format!("the input `{}` of `{}` is the name of a node", input.name, node.name),
            ));
        }
        return None;
    };
    let (giver, port) = text.split_once('.').map_or((text, None), |(giver, port)| (giver, Some(port)));
    let Some(&giver_index) = names.get(giver) else {
        let mut diagnostic =
            Diagnostic::error(&codes::RL0301, value.range, format!("there is no node `{giver}`")).label_text("unknown node");
        let candidates = givers(pipeline, node, input.port_type);
        let near = nearest(giver, names.keys().map(String::as_str));
        match near.first() {
            Some(best) => {
                let fixed = port.map_or((*best).to_owned(), |port| format!("{best}.{port}"));
                diagnostic = diagnostic.fix(format!("did you mean `{best}`?"), value.range, fixed);
            }
            None if !candidates.is_empty() => {
                diagnostic = diagnostic.note(format!("nodes that give {} are {}", input.port_type, quoted(&candidates)));
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
        None => outputs.iter().find(|output| output.port_type == input.port_type).or(outputs.first()),
    };
    let Some(output) = output else {
        let ports: Vec<&str> = outputs.iter().map(|output| output.name).collect();
        let message = match port {
            Some(port) => format!("`{}` has no output `{port}`", giver.name),
            None => format!("`{}` gives nothing that `{}` could take", giver.name, node.name),
        };
        let note = match ports.as_slice() {
            [] => format!("a {} has no outputs", giver.kind.map_or("node", |kind| kind.name)),
            _ => format!("its outputs are {}", quoted(&ports)),
        };
        diagnostics.push(Diagnostic::error(&codes::RL0302, value.range, message).label(giver.key_range, note));
        return None;
    };
    if output.port_type != input.port_type {
        diagnostics.push(type_mismatch(pipeline, node, input, giver, output.port_type, value.range));
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
        format!("`{}` gives {found}, but `{}.{}` takes {}", giver.name, node.name, input.name, input.port_type),
    )
    .label_text(format!("{found}, not {}", input.port_type))
    .label(giver.key_range, format!("gives {found}"));
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
        candidates => diagnostic.note(format!("nodes that give {} are {}", input.port_type, quoted(candidates))),
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
    for component in tarjan_scc(&graph) {
        let members: BTreeSet<usize> = component.iter().map(|place| graph[*place]).collect();
        let itself = |index: usize| pipeline.nodes[index].inputs.values().flatten().any(|endpoint| endpoint.node == index);
        let Some(&start) = members.first().filter(|first| members.len() > 1 || itself(**first)) else { continue };
        acyclic = false;
        let chain = chain(pipeline, start, &members);
        let words: Vec<&str> = chain.iter().map(|(index, _)| pipeline.nodes[*index].name.as_str()).collect();
        let mut diagnostic = Diagnostic::error(
            &codes::RL0308,
            chain[0].1,
            format!("nodes wait for each other: {} -> {}", words.join(" -> "), words[0]),
        )
        .label_text(format!("`{}` takes from `{}`", words[0], words[words.len() - 1]));
        for pair in 1..chain.len() {
            diagnostic =
                diagnostic.label(chain[pair].1, format!("`{}` takes from `{}`", words[pair], words[pair - 1]));
        }
        diagnostics.push(diagnostic.note(
            "edges go one way; what comes back from training is state, as in `weight_sync` with `to: engine`",
        ));
    }
    acyclic
}

/// The members of a cycle in the order in which things flow, each with the reference to the one before.
fn chain(pipeline: &Pipeline, start: usize, members: &BTreeSet<usize>) -> Vec<(usize, Range)> {
    let mut backwards = Vec::new();
    let mut at = start;
    loop {
        let before = pipeline.nodes[at].inputs.values().flatten().find(|endpoint| members.contains(&endpoint.node));
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

/// Decides which nodes are live: those that a trainer, a weight sync or an enabled evaluator needs.
fn prune(pipeline: &mut Pipeline, diagnostics: &mut Diagnostics) {
    let mut live = vec![false; pipeline.nodes.len()];
    let mut excused = vec![false; pipeline.nodes.len()];
    for (index, node) in pipeline.nodes.iter().enumerate() {
        match node.contract.as_ref().map(|contract| &contract.role) {
            Some(Role::Evaluator { enabled: false, .. }) => mark(pipeline, index, &mut excused),
            Some(Role::Trainer { .. } | Role::WeightSync { .. } | Role::Evaluator { .. }) => {
                mark(pipeline, index, &mut live);
            }
            // What a node that was not understood needs is not known: nothing may be called useless.
            None => {
                mark(pipeline, index, &mut live);
                excused = vec![true; pipeline.nodes.len()];
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

fn mark(pipeline: &Pipeline, start: usize, marks: &mut [bool]) {
    for index in pipeline.upstream(start) {
        marks[index] = true;
    }
}

/// Follows fields along edges, in the order in which things flow.
fn fields(pipeline: &mut Pipeline, diagnostics: &mut Diagnostics) {
    let mut known: Vec<Option<BTreeSet<Field>>> = vec![None; pipeline.nodes.len()];
    for index in 0..pipeline.nodes.len() {
        carried(pipeline, index, &mut known);
    }
    for index in 0..pipeline.nodes.len() {
        for endpoints in pipeline.nodes[index].inputs.values_mut() {
            for endpoint in endpoints {
                endpoint.fields = known[endpoint.node].iter().flatten().copied().collect();
            }
        }
    }
    for (_, node, contract) in pipeline.live() {
        for input in &contract.inputs {
            for endpoint in node.inputs.get(input.name).into_iter().flatten() {
                // Upstream of a node that was not understood, nothing is known.
                let whole = pipeline.upstream(endpoint.node).iter().all(|up| pipeline.nodes[*up].contract.is_some());
                for field in input.needs.iter().filter(|field| whole && !endpoint.fields.contains(field)) {
                    diagnostics.push(missing_field(pipeline, node, endpoint, *field));
                }
            }
        }
    }
}

/// The fields of what a node gives.
fn carried(pipeline: &Pipeline, start: usize, known: &mut [Option<BTreeSet<Field>>]) {
    let mut stack = vec![start];
    while let Some(&index) = stack.last() {
        let node = &pipeline.nodes[index];
        let waiting = node.inputs.values().flatten().map(|endpoint| endpoint.node).find(|node| known[*node].is_none());
        if let Some(next) = waiting {
            stack.push(next);
            continue;
        }
        // Of several streams, only what all of them have can be relied on.
        let mut fields: Option<BTreeSet<Field>> = None;
        for endpoint in node.inputs.values().flatten() {
            if !matches!(endpoint.port_type, PortType::Groups | PortType::Batch) {
                continue;
            }
            let theirs = known[endpoint.node].clone().unwrap_or_default();
            fields = Some(match fields {
                Some(ours) => ours.intersection(&theirs).copied().collect(),
                None => theirs,
            });
        }
        let mut fields = fields.unwrap_or_default();
        for output in node.contract.iter().flat_map(|contract| &contract.outputs) {
            fields.extend(output.adds.iter().copied());
        }
        known[index] = Some(fields);
        stack.pop();
    }
}

fn missing_field(pipeline: &Pipeline, node: &Node, endpoint: &Endpoint, field: Field) -> Diagnostic {
    let giver = &pipeline.nodes[endpoint.node];
    Diagnostic::error(
        &codes::RL0307,
        endpoint.range,
        format!("`{}` needs `{field}`, which nothing before it adds", node.name),
    )
    .label_text(format!("no `{field}` from here"))
    .label(giver.key_range, format!("what `{}` gives has no `{field}`", giver.name))
    .note(format!("a node of kind `{}` between them adds it", field.made_by()))
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
                        let candidates: Vec<String> =
                            givers(pipeline, node, port_type).into_iter().map(str::to_owned).collect();
                        diagnostics.push(unknown("node", &used.name, range, candidates.iter()));
                    }
                    Some(other) => {
                        let fits = other.contract.as_ref().is_none_or(|contract| {
                            contract.outputs.iter().any(|output| output.port_type == port_type)
                        });
                        if !fits {
                            diagnostics.push(
                                Diagnostic::error(
                                    &codes::RL0303,
                                    range,
                                    format!("`{}` names `{}`, which is no {port_type}", used.key, used.name),
                                )
                                .label(other.key_range, format!("this is a {}", other.kind.map_or("node", |kind| kind.name))),
                            );
                        }
                    }
                },
                _ => {}
            }
        }
    }
}

fn unknown<'a>(what: &str, name: &str, range: Range, known: impl Iterator<Item = &'a String>) -> Diagnostic {
    let known: Vec<&str> = known.map(String::as_str).collect();
    let mut diagnostic = Diagnostic::error(&codes::RL0310, range, format!("there is no {what} `{name}`"));
    if let Some(best) = nearest(name, known.iter().copied()).first() {
        diagnostic = diagnostic.fix(format!("did you mean `{best}`?"), range, *best);
    } else if !known.is_empty() {
        diagnostic = diagnostic.note(format!("declared are {}", quoted(&known)));
    } else {
        diagnostic = diagnostic.note(format!("declare it in `{what}s`"));
    }
    diagnostic
}

/// What makes the graph a training run: one trainer, and engines that hear of what it learns.
fn training(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    if pipeline.nodes.iter().any(|node| node.contract.is_none()) {
        return;
    }
    let of_role = |test: &dyn Fn(&Role) -> bool| -> Vec<(usize, &Node, &Contract)> {
        pipeline.live().filter(|(_, _, contract)| test(&contract.role)).collect()
    };
    let trainers = of_role(&|role| matches!(role, Role::Trainer { .. }));
    let Some(&(trainer_index, trainer, _)) = trainers.first() else {
        if let Some(range) = pipeline.tree.entry("nodes").map(|entry| entry.key_range) {
            diagnostics.push(
                Diagnostic::error(&codes::RL0311, range, "no node of this pipeline trains")
                    .note("add a node of kind `trainer`"),
            );
        }
        return;
    };
    for (_, other, _) in trainers.iter().skip(1) {
        diagnostics.push(
            Diagnostic::error(
                &codes::RL0311,
                other.key_range,
                format!("`{}` and `{}` both train; this version has one trainer a pipeline", trainer.name, other.name),
            )
            .label(trainer.key_range, "the first trainer"),
        );
    }
    let syncs = of_role(&|role| matches!(role, Role::WeightSync { .. }));
    for (_, engine, _) in of_role(&|role| matches!(role, Role::Engine { .. })) {
        let synced: Vec<_> = syncs
            .iter()
            .filter(|(_, _, contract)| matches!(&contract.role, Role::WeightSync { to, .. } if *to == engine.name))
            .collect();
        match synced.as_slice() {
            [] => diagnostics.push(
                Diagnostic::error(
                    &codes::RL0312,
                    engine.key_range,
                    format!("no `weight_sync` brings `{}` what `{}` learns", engine.name, trainer.name),
                )
                .note(format!(
                    "add a node: `{{ type: weight_sync, inputs: {{ weights: {} }}, to: {} }}`",
                    trainer.name, engine.name
                )),
            ),
            [(_, first, _), (_, second, _), ..] => diagnostics.push(
                Diagnostic::error(
                    &codes::RL0701,
                    second.range_of(&["to"]),
                    format!("`{}` and `{}` both bring weights to `{}`", first.name, second.name, engine.name),
                )
                .label(first.range_of(&["to"]), "the other one"),
            ),
            [(_, sync, _)] => same_model(engine, trainer, sync, diagnostics),
        }
    }
    warm_ups(pipeline, trainer_index, diagnostics);
    mixes(pipeline, diagnostics);
}

fn model_of(node: &Node) -> Option<&str> {
    let uses = node.contract.iter().flat_map(|contract| &contract.uses);
    uses.into_iter().find(|used| used.target == Target::Model).map(|used| used.name.as_str())
}

fn same_model(engine: &Node, trainer: &Node, sync: &Node, diagnostics: &mut Diagnostics) {
    let (Some(theirs), Some(ours)) = (model_of(engine), model_of(trainer)) else { return };
    if theirs != ours {
        diagnostics.push(
            Diagnostic::error(
                &codes::RL0314,
                sync.key_range,
                format!("`{}` brings weights of `{ours}` to an engine that serves `{theirs}`", sync.name),
            )
            .label(engine.range_of(&["model"]), "the engine's model")
            .label(trainer.range_of(&["model"]), "the trainer's model"),
        );
    }
}

/// A warm-up trains the trainer's model.
fn warm_ups(pipeline: &Pipeline, trainer: usize, diagnostics: &mut Diagnostics) {
    let trainer = &pipeline.nodes[trainer];
    let Some(endpoint) = trainer.input("initial_weights") else { return };
    let warm_up = &pipeline.nodes[endpoint.node];
    let is_warm_up = matches!(warm_up.contract.as_ref().map(|contract| &contract.role), Some(Role::SftTrainer { .. }));
    if !is_warm_up {
        diagnostics.push(
            Diagnostic::error(
                &codes::RL0303,
                endpoint.range,
                format!("`initial_weights` of `{}` comes from an `sft_trainer`", trainer.name),
            )
            .label(warm_up.key_range, "this is none"),
        );
    } else if let (Some(theirs), Some(ours)) = (model_of(warm_up), model_of(trainer))
        && theirs != ours
    {
        diagnostics.push(
            Diagnostic::error(
                &codes::RL0314,
                endpoint.range,
                format!("`{}` begins with what `{}` learnt, but they train different models", trainer.name, warm_up.name),
            )
            .label(warm_up.range_of(&["model"]), format!("trains `{theirs}`"))
            .label(trainer.range_of(&["model"]), format!("trains `{ours}`")),
        );
    }
}

fn mixes(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    for (_, node, contract) in pipeline.live() {
        let Role::Buffer { mix, .. } = &contract.role else { continue };
        if mix.is_empty() {
            continue;
        }
        let inputs: Vec<&str> = node
            .inputs
            .get("groups")
            .into_iter()
            .flatten()
            .map(|endpoint| pipeline.nodes[endpoint.node].name.as_str())
            .collect();
        let weighed: Vec<&str> = mix.iter().map(|(name, _)| name.as_str()).collect();
        for (name, _) in mix.iter().filter(|(name, _)| !inputs.contains(&name.as_str())) {
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL0315,
                    node.range_of(&["mix", name]),
                    format!("`mix` weighs `{name}`, which is no input of `{}`", node.name),
                )
                .note(format!("its inputs are {}", quoted(&inputs))),
            );
        }
        for input in inputs.iter().filter(|input| !weighed.contains(input)) {
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL0315,
                    node.range_of(&["mix"]),
                    format!("`mix` of `{}` has no weight for `{input}`", node.name),
                )
                .note("give every input a weight, or leave `mix` out"),
            );
        }
    }
}
