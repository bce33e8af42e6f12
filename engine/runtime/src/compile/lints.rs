//! RL09: legal, but probably not what is meant.

use std::collections::BTreeSet;

use rlpipe_core::data::KlEstimator;
use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::document::Range;
use rlpipe_core::kind::{Role, Target};

use super::pipeline::{Node, Pipeline};

/// Looks for what is legal and odd.
pub fn check(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    let buffers = pipeline
        .live()
        .filter(|(_, _, contract)| matches!(contract.role, Role::Buffer { .. }));
    // Once for all evaluators: there may be thousands.
    let trained: BTreeSet<usize> = buffers.flat_map(|(buffer, _, _)| pipeline.upstream(buffer)).collect();
    for (index, node, contract) in pipeline.live() {
        match &contract.role {
            Role::Trainer {
                kl,
                learning_rate,
                clip,
                ..
            } => {
                let estimator = kl.map(|(estimator, _)| estimator);
                trainer(pipeline, node, estimator, learning_rate.warmup_steps, diagnostics);
                sampling(pipeline, index, node, diagnostics);
                clipping(node, *clip, diagnostics);
                reference(pipeline, index, node, *kl, diagnostics);
            }
            Role::Judger { weights, .. } => weighing(node, weights, diagnostics),
            Role::Evaluator { .. } => evaluation(pipeline, index, &trained, diagnostics),
            _ => {}
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
            min_p,
            min_new_tokens,
            max_new_tokens,
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
            continue;
        }
        // RL0402 speaks of one above the most.
        let holds_stops_back = (1..=*max_new_tokens).contains(min_new_tokens);
        let cuts = [
            ("top_p", *top_p < 1.0, "1.0", "cuts unlikely tokens off"),
            ("top_k", *top_k > 0, "0", "cuts unlikely tokens off"),
            ("min_p", *min_p > 0.0, "0.0", "cuts unlikely tokens off"),
            ("min_new_tokens", holds_stops_back, "0", "cuts stop tokens off"),
        ];
        let used: Vec<_> = cuts.into_iter().filter(|(_, is_used, ..)| *is_used).collect();
        let place = |key| node.range_of(&["sampling", key]);
        if let [(first, _, all, what), others @ ..] = used.as_slice() {
            let mut diagnostic = Diagnostic::warning(
                &codes::RL0902,
                place(first),
                "training on a cut distribution: the engine's log-probs are not the trainer's",
            )
            .label_text(*what)
            .note(
                "the trainer knows of the temperature, not of `top_p`, `top_k`, `min_p` and `min_new_tokens`; `parity/*` \
                 will show the difference",
            );
            for (key, _, _, what) in others {
                diagnostic = diagnostic.label(place(key), *what);
            }
            if others.is_empty() {
                diagnostic = diagnostic.fix("draw from all tokens", place(first), *all);
            }
            diagnostics.push(diagnostic);
        }
    }
}

/// Bounds of the ratio that were meant as the bounds themselves, or leave nothing to learn.
fn clipping(node: &Node, (low, high): (f64, f64), diagnostics: &mut Diagnostics) {
    let place = |key: &str| node.range_of(&["loss", "policy", "clip", key]);
    let mut warn = |key: &str, message: String, label: String, distance: f64| {
        let mut diagnostic = Diagnostic::warning(&codes::RL0911, place(key), message)
            .label_text(label)
            .note("`low` and `high` are distances from 1, such as `low: 0.2` and `high: 0.28`");
        // Bounds of the ratio itself, such as 0.8 and 1.28, have a distance.
        let distance = (distance * 1e6).round() / 1e6;
        if distance > 0.0 && distance < 0.5 && node.written(&["loss", "policy", "clip", key]).is_some() {
            diagnostic = diagnostic.fix(
                format!("write the distance, {distance}"),
                place(key),
                distance.to_string(),
            );
        }
        diagnostics.push(diagnostic);
    };
    if low >= 0.5 {
        let least = ((1.0 - low) * 1e6).round() / 1e6;
        let message = format!("`low: {low}` holds the ratio of new to old probability above {least} only");
        warn(
            "low",
            message,
            format!("a probability may fall to {least} of what it was"),
            1.0 - low,
        );
    }
    if high >= 1.0 {
        let most = ((1.0 + high) * 1e6).round() / 1e6;
        let message = format!("`high: {high}` holds the ratio of new to old probability below {most} only");
        warn(
            "high",
            message,
            format!("a probability may rise to {most} times what it was"),
            high - 1.0,
        );
    }
    if low == 0.0 && high == 0.0 {
        let message = "`low: 0` and `high: 0` hold the ratio of new to old probability at 1".to_owned();
        warn("low", message, "no token may change its probability".to_owned(), 0.0);
    }
}

/// A frozen copy whose log-probs no loss uses.
fn reference(
    pipeline: &Pipeline,
    index: usize,
    trainer: &Node,
    kl: Option<(KlEstimator, f64)>,
    diagnostics: &mut Diagnostics,
) {
    let why = match kl {
        None => "has no KL term",
        Some((_, 0.0)) => "counts its KL term 0 times",
        Some(_) => return,
    };
    for up in pipeline.upstream(index) {
        let node = &pipeline.nodes[up];
        if !matches!(
            node.contract.as_ref().map(|contract| &contract.role),
            Some(Role::Reference { .. })
        ) {
            continue;
        }
        diagnostics.push(
            Diagnostic::warning(
                &codes::RL0912,
                node.key_range,
                format!(
                    "`{}` computes log-probs for nothing: the loss of `{}` {why}",
                    node.name, trainer.name
                ),
            )
            .label_text("a copy of the model, and a pass over each step")
            .label(trainer.range_of(&["loss", "kl"]), why)
            .note(format!(
                "use it, such as by `kl: {{ k3: {{ coefficient: 0.001 }} }}`, or take `{}` out",
                node.name
            )),
        );
    }
}

/// Weights of sums that reward nothing.
fn weighing(node: &Node, weights: &[(Vec<String>, f64)], diagnostics: &mut Diagnostics) {
    let place = |keys: &[String]| node.range_of(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let name = |keys: &[String]| keys.iter().rev().nth(1).cloned().unwrap_or_default();
    for (keys, _) in weights.iter().filter(|(_, weight)| *weight == 0.0) {
        diagnostics.push(
            Diagnostic::warning(
                &codes::RL0913,
                place(keys),
                format!("`{}` asks the judge `{}`, and counts it 0 times", node.name, name(keys)),
            )
            .label_text("asked and not heard")
            .note("give it a weight, or take it out"),
        );
    }
    // Weights of one sum stand below the same keys.
    let sum = |keys: &[String]| keys[..keys.len().saturating_sub(2)].to_vec();
    let mut sums: Vec<Vec<String>> = weights.iter().map(|(keys, _)| sum(keys)).collect();
    sums.dedup();
    for of in sums {
        let parts: Vec<_> = weights.iter().filter(|(keys, _)| sum(keys) == of).collect();
        let Some((first, _)) = parts.first().filter(|_| parts.iter().all(|(_, weight)| *weight < 0.0)) else {
            continue;
        };
        let mut diagnostic = Diagnostic::warning(
            &codes::RL0913,
            place(first),
            format!("`{}` rewards nothing: no weight of its sum is above 0", node.name),
        )
        .label_text("a penalty for being right")
        .note("what is to be rewarded has a weight above 0; penalties stand beside it");
        for (keys, _) in &parts[1..] {
            diagnostic = diagnostic.label(place(keys), "another penalty");
        }
        diagnostics.push(diagnostic);
    }
}

/// Evaluations that measure something else than they seem to.
fn evaluation(pipeline: &Pipeline, index: usize, trained: &BTreeSet<usize>, diagnostics: &mut Diagnostics) {
    let node = &pipeline.nodes[index];
    let up = pipeline.upstream(index);
    let role = |node: &Node| node.contract.as_ref().map(|contract| contract.role.clone());
    let from = node.input("groups").map_or(node.key_range, |endpoint| endpoint.range);
    for filter in up.iter().map(|up| &pipeline.nodes[*up]) {
        if matches!(role(filter), Some(Role::Filter { .. })) {
            diagnostics.push(
                Diagnostic::warning(
                    &codes::RL0910,
                    from,
                    format!("`{}` measures only what `{}` keeps", node.name, filter.name),
                )
                .label_text("groups that are kept back are not in the accuracy")
                .label(filter.range_of(&["keep"]), "keeps groups back")
                .note("take from the judger before the filter"),
            );
        }
    }
    for sampler in up
        .iter()
        .filter(|up| trained.contains(up))
        .map(|up| &pipeline.nodes[*up])
    {
        if matches!(role(sampler), Some(Role::Sampler { .. })) {
            diagnostics.push(
                Diagnostic::warning(
                    &codes::RL0914,
                    from,
                    format!(
                        "`{}` measures on the prompts of `{}`, which are trained",
                        node.name, sampler.name
                    ),
                )
                .label_text("leads to prompts that are trained")
                .label(sampler.key_range, "feeds the trainer too")
                .note("give the evaluation a sampler of its own, with other rows"),
            );
        }
    }
}

/// A run that throws away what it has learnt, or the way back to it.
fn not_kept(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    let Some(run) = &pipeline.run else { return };
    let Some(checkpoint) = &run.checkpoint else {
        if let (Some(range), None) = (pipeline.range_of(&["run"]), &run.hf_export) {
            diagnostics.push(
                Diagnostic::warning(
                    &codes::RL0908,
                    range,
                    "the trained model is kept nowhere: there is neither an export nor a checkpoint",
                )
                .label_text("what is learnt is lost at the end")
                .note("add `hf_export: { every_steps: N }` to `run`; the last step is always exported then"),
            );
        }
        return;
    };
    let (every, Some(total)) = (checkpoint.every_steps.get(), run.total_steps) else {
        return;
    };
    let total = total.get();
    let place = ["run", "checkpoint", "every_steps"];
    let (Some(range), false) = (pipeline.range_of(&place), total.is_multiple_of(every)) else {
        return;
    };
    let lost = total - total % every;
    let mut diagnostic = Diagnostic::warning(
        &codes::RL0909,
        range,
        format!("a checkpoint is written every {every} steps, and the last step, {total}, is in none"),
    )
    .label_text(match lost {
        0 => "beyond the end".to_owned(),
        lost => format!("the last one is of step {lost}"),
    });
    if let Some(end) = pipeline.range_of(&["run", "total_steps"]) {
        diagnostic = diagnostic.label(end, "the whole run");
    }
    diagnostic = match &run.hf_export {
        Some(_) => diagnostic.note("the model is exported at the end; what `--resume` needs is not kept"),
        None => diagnostic.note("what is learnt after it is lost at the end: there is no export either"),
    };
    if let Some(nearest) = whole_interval(pipeline, total, every) {
        diagnostic = diagnostic.fix(format!("write `every_steps: {nearest}`"), range, nearest.to_string());
    }
    diagnostics.push(diagnostic);
}

/// The interval nearest to `every` that ends with the run, and at which all engines have the trainer's weights.
fn whole_interval(pipeline: &Pipeline, total: u32, every: u32) -> Option<u32> {
    let syncs: Vec<u32> = pipeline
        .live()
        .filter_map(|(_, _, contract)| match contract.role {
            Role::WeightSync { every_steps, .. } => Some(every_steps),
            _ => None,
        })
        .collect();
    let small = (1..=total.isqrt()).filter(|part| total.is_multiple_of(*part));
    let divisors = small.flat_map(|part| [part, total / part]);
    let fit = divisors.filter(|interval| syncs.iter().all(|sync| interval.is_multiple_of(*sync)));
    fit.min_by_key(|interval| (interval.abs_diff(every), *interval))
}

/// What would happen only after the run is over.
fn beyond_the_end(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    let Some(total) = pipeline.run.as_ref().and_then(|run| run.total_steps) else {
        return;
    };
    let total = total.get();
    let Some(total_range) = pipeline.range_of(&["run", "total_steps"]) else {
        return;
    };
    let mut late = Vec::new();
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
