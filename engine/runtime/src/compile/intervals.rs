//! RL04: intervals that must be multiples of each other, and bounds that contradict each other.

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::document::Range;
use rlpipe_core::kind::{Keeps, LearningRate, Role};

use super::pipeline::{Node, Pipeline};

/// Something that happens every so many train steps.
struct Interval {
    /// As in a sentence: "`evaluator`".
    name: String,
    every: u32,
    range: Range,
    /// The last step of the run, where it should fire there too.
    meets: Option<u32>,
}

/// Checks intervals against each `weight_sync` that they depend on.
pub fn check(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    let run = pipeline.run.as_ref();
    let mut everywhere = Vec::new();
    if let Some(checkpoint) = run.and_then(|run| run.checkpoint.as_ref()) {
        let total = run.and_then(|run| run.total_steps).map(std::num::NonZeroU32::get);
        let interval = in_run(pipeline, "checkpoint", checkpoint.every_steps.get());
        everywhere.extend(interval.map(|interval| Interval {
            meets: total,
            ..interval
        }));
    }
    if let Some(export) = run.and_then(|run| run.hf_export.as_ref()) {
        everywhere.extend(in_run(pipeline, "hf_export", export.every_steps.get()));
    }
    for (_, sync, contract) in pipeline.live() {
        let Role::WeightSync { to, every_steps } = &contract.role else {
            continue;
        };
        for interval in &everywhere {
            multiple(interval, sync, *every_steps, diagnostics);
        }
        let fed = pipeline.find(to).map(|engine| pipeline.downstream(engine));
        for (index, node, contract) in pipeline.live() {
            let Role::Evaluator {
                every_steps: Some(every),
                ..
            } = contract.role
            else {
                continue;
            };
            if fed.as_ref().is_some_and(|fed| fed[index]) {
                let range = node.range_of(&["every_steps"]);
                let interval = Interval {
                    name: format!("`{}`", node.name),
                    every,
                    range,
                    meets: None,
                };
                multiple(&interval, sync, *every_steps, diagnostics);
            }
        }
    }
    for (_, node, contract) in pipeline.live() {
        match &contract.role {
            Role::Evaluator {
                at_start: false,
                every_steps: None,
                at_end: false,
                ..
            } => diagnostics.push(
                Diagnostic::error(&codes::RL0403, node.key_range, format!("`{}` never fires", node.name))
                    .label_text("neither at the start, nor in between, nor at the end")
                    .note("give it `every_steps`, `at_start: true` or `at_end: true`, or set `enabled: false`"),
            ),
            Role::AgentLoop {
                max_new_tokens,
                min_new_tokens,
                ..
            } if min_new_tokens > max_new_tokens => {
                diagnostics.push(
                    Diagnostic::error(
                        &codes::RL0402,
                        node.range_of(&["sampling", "min_new_tokens"]),
                        format!("`min_new_tokens: {min_new_tokens}` is above `max_new_tokens: {max_new_tokens}`"),
                    )
                    .label_text("above the upper bound")
                    .label(node.range_of(&["sampling", "max_new_tokens"]), "the upper bound")
                    .note("a response ends at `max_new_tokens`: raise that, or lower this"),
                );
            }
            Role::Trainer { learning_rate, .. } | Role::SftTrainer { learning_rate, .. } => {
                rates(node, learning_rate, diagnostics);
            }
            Role::Filter {
                keeps: Keeps::Mean { min, max },
                ..
            } if min > max => diagnostics.push(
                Diagnostic::error(
                    &codes::RL0402,
                    node.range_of(&["keep", "mean_reward", "min"]),
                    format!("`min: {min}` is above `max: {max}`"),
                )
                .label_text("above the upper bound")
                .label(node.range_of(&["keep", "mean_reward", "max"]), "the upper bound")
                .note("no mean lies between them: exchange the two"),
            ),
            _ => {}
        }
    }
    for (name, variable) in &pipeline.env.vars {
        if let (Some(min), Some(max)) = (variable.min, variable.max)
            && min > max
        {
            let at = |key: &str| pipeline.range_of(&["env", "vars", name, key]);
            if let (Some(min_range), Some(max_range)) = (at("min"), at("max")) {
                diagnostics.push(
                    Diagnostic::error(&codes::RL0402, min_range, format!("`min: {min}` is above `max: {max}`"))
                        .label_text("above the upper bound")
                        .label(max_range, "the upper bound")
                        .note("no value fits: exchange the two"),
                );
            }
        }
    }
}

/// A rate falls to what it ends with.
fn rates(node: &Node, rate: &LearningRate, diagnostics: &mut Diagnostics) {
    let (peak, Some(min)) = (rate.peak, rate.min) else {
        return;
    };
    if min <= peak {
        return;
    }
    let schedule = node
        .tree
        .get("lr_schedule")
        .and_then(|schedule| schedule.entries().first());
    let place = node.range_of(&["lr_schedule", schedule.map_or("", |entry| &entry.key), "min_lr"]);
    diagnostics.push(
        Diagnostic::error(&codes::RL0402, place, format!("`min_lr: {min}` is above `lr: {peak}`"))
            .label_text("the rate would rise to it")
            .label(node.range_of(&["optimizer", "adamw", "lr"]), "the rate at its height")
            .note("the rate falls from `lr` to `min_lr`: lower this, or raise that"),
    );
}

fn in_run(pipeline: &Pipeline, key: &str, every: u32) -> Option<Interval> {
    let range = pipeline.range_of(&["run", key, "every_steps"])?;
    Some(Interval {
        name: format!("`run.{key}`"),
        every,
        range,
        meets: None,
    })
}

fn multiple(interval: &Interval, sync: &Node, every_sync: u32, diagnostics: &mut Diagnostics) {
    if interval.every.is_multiple_of(every_sync) {
        return;
    }
    let every = u64::from(interval.every);
    let below = every - every % u64::from(every_sync);
    let above = below + u64::from(every_sync);
    let nearest = if below > 0 && every - below < above - every {
        below
    } else {
        above
    };
    // One that also meets the last step, where that is not far off.
    let ratio = |candidate: u64| (candidate as f64 / every as f64).ln().abs();
    let last = interval.meets.and_then(|total| {
        let steps = u64::from(every_sync)..=(2 * every).min(u64::from(total));
        let multiples = steps
            .step_by(every_sync as usize)
            .filter(|candidate| 2 * candidate >= every);
        let meeting = multiples.filter(|candidate| u64::from(total).is_multiple_of(*candidate));
        meeting.min_by(|one, other| ratio(*one).total_cmp(&ratio(*other)))
    });
    let nearest = last.unwrap_or(nearest);
    let others = match (last, below) {
        (Some(last), _) => format!("`{last}`, which meets the last step"),
        (None, 0) => format!("`{above}`"),
        (None, _) => format!("`{below}` or `{above}`"),
    };
    diagnostics.push(
        Diagnostic::error(
            &codes::RL0401,
            interval.range,
            format!(
                "{} fires every {} steps, but `{}` brings weights every {every_sync}",
                interval.name, interval.every, sync.name
            ),
        )
        .label_text(format!("not a multiple of {every_sync}"))
        .label(sync.range_of(&["every_steps"]), format!("weights reach the engine every {every_sync} steps"))
        .note("between two syncs the engine's weights are not the trainer's: what is measured or saved would not be what runs")
        .fix(format!("use a multiple of {every_sync}, such as {others}"), interval.range, nearest.to_string()),
    );
}
