//! What makes the graph a training run.

use std::collections::HashSet;

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::kind::{Contract, Role, Target};

use crate::compile::pipeline::{Node, Pipeline};
use crate::compile::read::quoted;

/// One trainer, and engines that hear of what it learns.
pub fn check(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    if pipeline.nodes.iter().any(|node| node.contract.is_none()) {
        return;
    }
    let of_role = |test: &dyn Fn(&Role) -> bool| -> Vec<(usize, &Node, &Contract)> {
        pipeline
            .live()
            .filter(|(_, _, contract)| test(&contract.role))
            .collect()
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
                format!(
                    "`{}` and `{}` both train; this version has one trainer a pipeline",
                    trainer.name, other.name
                ),
            )
            .label_text("the second trainer")
            .label(trainer.key_range, "the first trainer")
            .note("take one of them out; two models are two pipelines"),
        );
    }
    let syncs = of_role(&|role| matches!(role, Role::WeightSync { .. }));
    for (_, engine, _) in of_role(&|role| matches!(role, Role::Engine { .. })) {
        let synced: Vec<_> = syncs
            .iter()
            .filter(|(_, _, contract)| matches!(&contract.role, Role::WeightSync { to, .. } if *to == engine.name))
            .collect();
        match synced.as_slice() {
            // A sync that names no engine was reported, and may mean this one.
            [] if syncs
                .iter()
                .any(|(_, _, contract)| !names_an_engine(pipeline, contract)) => {}
            [] => diagnostics.push(
                Diagnostic::error(
                    &codes::RL0312,
                    engine.key_range,
                    format!(
                        "no `weight_sync` brings `{}` what `{}` learns",
                        engine.name, trainer.name
                    ),
                )
                .label_text("would generate with its first weights for ever")
                .note(format!(
                    "add a node: `{{ type: weight_sync, inputs: {{ weights: {} }}, to: {} }}`",
                    trainer.name, engine.name
                )),
            ),
            [(_, first, _), (_, second, _), ..] => diagnostics.push(
                Diagnostic::error(
                    &codes::RL0701,
                    second.range_of(&["to"]),
                    format!(
                        "`{}` and `{}` both bring weights to `{}`",
                        first.name, second.name, engine.name
                    ),
                )
                .label_text("the second one")
                .label(first.range_of(&["to"]), "the first one")
                .note("an engine has one `weight_sync`: take the other out"),
            ),
            [(_, sync, _)] => same_model(pipeline, engine, trainer, sync, diagnostics),
        }
    }
    warm_ups(pipeline, trainer_index, diagnostics);
    mixes(pipeline, diagnostics);
}

fn names_an_engine(pipeline: &Pipeline, sync: &Contract) -> bool {
    let Role::WeightSync { to, .. } = &sync.role else {
        return false;
    };
    let engine = pipeline
        .find(to)
        .and_then(|index| pipeline.nodes[index].contract.as_ref());
    engine.is_some_and(|contract| matches!(contract.role, Role::Engine { .. }))
}

fn model_of(node: &Node) -> Option<&str> {
    node.contract.as_ref()?.used(Target::Model)
}

fn same_model(pipeline: &Pipeline, engine: &Node, trainer: &Node, sync: &Node, diagnostics: &mut Diagnostics) {
    let (Some(theirs), Some(ours)) = (model_of(engine), model_of(trainer)) else {
        return;
    };
    let declared = [theirs, ours].iter().all(|model| pipeline.models.contains_key(*model));
    if declared && theirs != ours {
        diagnostics.push(
            Diagnostic::error(
                &codes::RL0314,
                sync.key_range,
                format!(
                    "`{}` brings weights of `{ours}` to an engine that serves `{theirs}`",
                    sync.name
                ),
            )
            .label_text("joins two models")
            .label(engine.range_of(&["model"]), "the engine's model")
            .label(trainer.range_of(&["model"]), "the trainer's model")
            .note(format!("let both name the model that is trained: `{ours}`")),
        );
    }
}

/// A warm-up trains the trainer's model.
fn warm_ups(pipeline: &Pipeline, trainer: usize, diagnostics: &mut Diagnostics) {
    let trainer = &pipeline.nodes[trainer];
    let Some(endpoint) = trainer.input("initial_weights") else {
        return;
    };
    let warm_up = &pipeline.nodes[endpoint.node];
    let is_warm_up = matches!(
        warm_up.contract.as_ref().map(|contract| &contract.role),
        Some(Role::SftTrainer { .. })
    );
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
        && [theirs, ours].iter().all(|model| pipeline.models.contains_key(*model))
    {
        diagnostics.push(
            Diagnostic::error(
                &codes::RL0314,
                endpoint.range,
                format!(
                    "`{}` begins with what `{}` learnt, but they train different models",
                    trainer.name, warm_up.name
                ),
            )
            .label_text("another model's weights")
            .label(warm_up.range_of(&["model"]), format!("trains `{theirs}`"))
            .label(trainer.range_of(&["model"]), format!("trains `{ours}`"))
            .note("let both name the same model"),
        );
    }
}

fn mixes(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    for (_, node, contract) in pipeline.live() {
        let Role::Buffer { mix, .. } = &contract.role else {
            continue;
        };
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
        let known: HashSet<&str> = inputs.iter().copied().collect();
        let weighed: HashSet<&str> = mix.iter().map(|(name, _)| name.as_str()).collect();
        for (name, _) in mix.iter().filter(|(name, _)| !known.contains(name.as_str())) {
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL0315,
                    node.range_of(&["mix", name]),
                    format!("`mix` weighs `{name}`, which is no input of `{}`", node.name),
                )
                .label_text("weight of nothing")
                .note(format!("it takes `groups` from {}", quoted(&inputs))),
            );
        }
        for input in inputs.iter().filter(|input| !weighed.contains(*input)) {
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL0315,
                    node.range_of(&["mix"]),
                    format!("`mix` of `{}` has no weight for `{input}`", node.name),
                )
                .label_text(format!("no weight for `{input}`"))
                .note("give every input a weight, or leave `mix` out"),
            );
        }
    }
}
