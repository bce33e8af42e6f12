//! RL09: legal, but probably not what is meant.

use rlpipe_core::data::KlEstimator;
use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::document::Range;
use rlpipe_core::kind::{Role, Target};

use super::pipeline::{Node, Pipeline};

/// Looks for what is legal and odd.
pub fn check(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    for (index, node, contract) in pipeline.live() {
        if let Role::Trainer { kl, warmup_steps, .. } = contract.role {
            trainer(pipeline, node, kl, warmup_steps, diagnostics);
            sampling(pipeline, index, node, diagnostics);
        }
    }
    beyond_the_end(pipeline, diagnostics);
    not_kept(pipeline, diagnostics);
    unused(pipeline, diagnostics);
}

fn trainer(pipeline: &Pipeline, node: &Node, kl: Option<KlEstimator>, warmup: u32, diagnostics: &mut Diagnostics) {
    if kl == Some(KlEstimator::K1) {
        diagnostics.push(
            Diagnostic::warning(
                &codes::RL0901,
                node.range_of(&["loss", "kl"]),
                "the gradient of `k1` in a loss does not depend on the reference",
            )
            .label_text("ignores the reference")
            .note("it lowers the probability of whatever was sampled; `k2` or `k3` pull towards the reference"),
        );
    }
    let total = pipeline.run.as_ref().and_then(|run| run.total_steps);
    if let Some(total) = total.filter(|total| warmup >= total.get()) {
        diagnostics.push(
            Diagnostic::warning(
                &codes::RL0903,
                warm_up_range(node),
                format!("a warm-up of {warmup} steps never ends in a run of {total}"),
            )
            .label_text("the rate is still rising at the end")
            .label(
                pipeline.range_of(&["run", "total_steps"]).unwrap_or(node.key_range),
                "the whole run",
            ),
        );
    }
}

/// Where the steps of the warm-up stand, in whatever schedule it is.
fn warm_up_range(node: &Node) -> Range {
    let schedule = node
        .tree
        .get("lr_schedule")
        .and_then(|schedule| schedule.entries().first());
    node.range_of(&["lr_schedule", schedule.map_or("", |entry| &entry.key), "warmup_steps"])
}

/// How training rollouts are drawn.
fn sampling(pipeline: &Pipeline, index: usize, trainer: &Node, diagnostics: &mut Diagnostics) {
    for node in pipeline.upstream(index).into_iter().map(|up| &pipeline.nodes[up]) {
        let Some(Role::AgentLoop {
            temperature,
            top_p,
            top_k,
            ..
        }) = node.contract.as_ref().map(|contract| &contract.role)
        else {
            continue;
        };
        if *temperature == 0.0 || *top_k == 1 {
            diagnostics.push(
                Diagnostic::warning(
                    &codes::RL0904,
                    node.range_of(&["sampling", if *top_k == 1 { "top_k" } else { "temperature" }]),
                    format!(
                        "`{}` always takes the likeliest token: all samples of a prompt are the same",
                        node.name
                    ),
                )
                .label_text("nothing is drawn by chance")
                .label(trainer.key_range, "learns from differences between samples")
                .note("`temperature: 1.0` and `top_k: 0` draw from what the model thinks"),
            );
        } else if *top_p < 1.0 || *top_k > 0 {
            let (key, all) = if *top_p < 1.0 { ("top_p", "1.0") } else { ("top_k", "0") };
            let place = node.range_of(&["sampling", key]);
            diagnostics.push(
                Diagnostic::warning(
                    &codes::RL0902,
                    place,
                    "training on a cut distribution: the engine's log-probs are not the trainer's",
                )
                .label_text("cuts unlikely tokens off")
                .fix("draw from all tokens", place, all)
                .note("the trainer knows of the temperature, not of `top_p` and `top_k`; `parity/*` will show the difference"),
            );
        }
    }
}

/// A run that throws away what it has learnt.
fn not_kept(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    let Some(run) = &pipeline.run else { return };
    let (Some(range), None) = (pipeline.range_of(&["run"]), &run.hf_export) else {
        return;
    };
    let total = run.total_steps.map(std::num::NonZeroU32::get);
    let last_is_saved = |every: u32| total.is_none_or(|total| total.is_multiple_of(every));
    let message = match &run.checkpoint {
        Some(checkpoint) if last_is_saved(checkpoint.every_steps.get()) => return,
        Some(checkpoint) => format!(
            "the last step, {}, is in no checkpoint: they are written every {} steps, and there is no export",
            total.unwrap_or(0),
            checkpoint.every_steps
        ),
        None => "the trained model is kept nowhere: there is neither an export nor a checkpoint".to_owned(),
    };
    diagnostics.push(
        Diagnostic::warning(&codes::RL0908, range, message)
            .label_text("what is learnt is lost at the end")
            .note("add `hf_export: { every_steps: N }` to `run`; the last step is always exported then"),
    );
}

/// What would happen only after the run is over.
fn beyond_the_end(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    let Some((run, total)) = pipeline
        .run
        .as_ref()
        .and_then(|run| Some((run, run.total_steps?.get())))
    else {
        return;
    };
    let Some(total_range) = pipeline.range_of(&["run", "total_steps"]) else {
        return;
    };
    let mut late = Vec::new();
    if let Some(checkpoint) = &run.checkpoint {
        late.extend(
            pipeline
                .range_of(&["run", "checkpoint", "every_steps"])
                .map(|range| ("`run.checkpoint`".to_owned(), checkpoint.every_steps.get(), range)),
        );
    }
    for (_, node, contract) in pipeline.live() {
        match contract.role {
            Role::WeightSync { every_steps, .. } => {
                late.push((format!("`{}`", node.name), every_steps, node.range_of(&["every_steps"])))
            }
            Role::Evaluator {
                every_steps: Some(every),
                ..
            } => late.push((format!("`{}`", node.name), every, node.range_of(&["every_steps"]))),
            _ => {}
        }
    }
    for (name, every, range) in late.into_iter().filter(|(_, every, _)| *every > total) {
        diagnostics.push(
            Diagnostic::warning(
                &codes::RL0905,
                range,
                format!("{name} fires every {every} steps, but the run has {total}"),
            )
            .label_text("beyond the end")
            .label(total_range, "the whole run"),
        );
    }
}

fn unused(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    if pipeline.nodes.iter().any(|node| node.contract.is_none()) {
        return;
    }
    let used = |target: Target, name: &str| {
        let uses = pipeline
            .nodes
            .iter()
            .flat_map(|node| &node.contract)
            .flat_map(|contract| &contract.uses);
        uses.into_iter().any(|used| used.target == target && used.name == name)
    };
    for (what, name, range, target) in pipeline
        .pools
        .iter()
        .map(|(name, pool)| ("pool", name, pool.key_range, Target::Pool))
        .chain(
            pipeline
                .models
                .iter()
                .map(|(name, model)| ("model", name, model.key_range, Target::Model)),
        )
    {
        if !used(target, name) {
            diagnostics.push(
                Diagnostic::warning(&codes::RL0906, range, format!("no node uses the {what} `{name}`"))
                    .label_text("not used")
                    .note("take it out, or name it in a node"),
            );
        }
    }
}
