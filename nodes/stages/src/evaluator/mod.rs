//! `evaluator`: one pass over a sampler, summed up.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use rlpipe_core::data::{FinishReason, Group, Metrics, Rollout, mean};
use rlpipe_core::kind::{
    Contract, Evaluator as EvaluatorStage, Field, Input, NodeConfig, Output, PortType, Role, Stage,
};
use rlpipe_core::services::{ServiceError, Services};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Measures the model on held-out prompts.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvaluatorConfig {
    /// Whether it fires at all. If not, nodes that only it needs are left out.
    #[serde(default = "yes")]
    enabled: bool,
    /// Whether it fires before the first train step.
    #[serde(default)]
    at_start: bool,
    /// It fires every so many train steps: a multiple of `every_steps` of the engine's `weight_sync`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every_steps: Option<NonZeroU32>,
    /// Whether it fires after the last train step.
    #[serde(default = "yes")]
    at_end: bool,
    /// At most so many prompts. Left out, all of the sampler's rows, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<NonZeroU32>,
    /// A response counts as correct where its reward is above this.
    #[serde(default)]
    correct_above: f64,
}

fn yes() -> bool {
    true
}

impl NodeConfig for EvaluatorConfig {
    const KIND: &'static str = "evaluator";
    const SUMMARY: &'static str = "Measures the model on held-out prompts.";
    const EXAMPLE: &'static str = "\
type: evaluator
inputs: { groups: eval_scored }
every_steps: 10
";

    fn contract(&self) -> Contract {
        Contract {
            inputs: vec![Input::one("groups", PortType::Groups).needs(&[Field::Reward])],
            outputs: vec![Output::new("metrics", PortType::Metrics)],
            uses: Vec::new(),
            role: Role::Evaluator {
                enabled: self.enabled,
                at_start: self.at_start,
                every_steps: self.every_steps.map(NonZeroU32::get),
                at_end: self.at_end,
                limit: self.limit.map(NonZeroU32::get),
            },
        }
    }

    fn build(&self, _node: &str, _services: &dyn Services) -> Result<Stage, ServiceError> {
        Ok(Stage::Evaluator(Arc::new(Evaluator {
            correct_above: self.correct_above,
        })))
    }
}

/// Accuracies of more data sources are not shown one by one.
const MOST_SOURCES: usize = 64;

struct Evaluator {
    correct_above: f64,
}

impl EvaluatorStage for Evaluator {
    fn evaluate(&self, groups: &[Group], failed: usize) -> Metrics {
        let rollouts: Vec<&Rollout> = groups.iter().flat_map(|group| &group.rollouts).collect();
        let judged: Vec<f64> = rollouts.iter().filter_map(|rollout| rollout.reward()).collect();
        let is_unjudged = |rollout: &&&Rollout| rollout.score.as_ref().is_some_and(|score| score.error.is_some());
        let unjudged = rollouts.iter().filter(is_unjudged).count();
        let share = |test: &dyn Fn(&Rollout) -> bool| {
            mean(
                &rollouts
                    .iter()
                    .map(|rollout| f64::from(u8::from(test(rollout))))
                    .collect::<Vec<_>>(),
            )
        };
        let mut metrics = Metrics::default();
        metrics.set(
            "accuracy",
            measured(
                &judged
                    .iter()
                    .map(|reward| f64::from(u8::from(*reward > self.correct_above)))
                    .collect::<Vec<_>>(),
            ),
        );
        metrics.set("reward/mean", measured(&judged));
        metrics.set(
            "format_rate",
            share(&|rollout| rollout.score.as_ref().is_some_and(|score| score.parsed.is_some())),
        );
        metrics.set(
            "response_len/mean",
            mean(
                &rollouts
                    .iter()
                    .map(|rollout| rollout.response_ids.len() as f64)
                    .collect::<Vec<_>>(),
            ),
        );
        metrics.set(
            "truncated_rate",
            share(&|rollout| rollout.finish_reason == FinishReason::Length),
        );
        metrics.set("groups", groups.len() as f64);
        metrics.set("groups_failed", failed as f64);
        metrics.set("unjudged", unjudged as f64);
        metrics.set("abstained", (rollouts.len() - judged.len() - unjudged) as f64);
        metrics.extend(self.by_source(groups));
        metrics
    }
}

/// The mean; of nothing it is not a number, as a 0 would look like one that was measured.
fn measured(values: &[f64]) -> f64 {
    if values.is_empty() { f64::NAN } else { mean(values) }
}

impl Evaluator {
    /// Accuracy by where prompts come from, where they come from several places.
    fn by_source(&self, groups: &[Group]) -> Metrics {
        let mut correct: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for group in groups {
            let of_group = group.rewards().into_iter();
            let of_group = of_group.map(|reward| f64::from(u8::from(reward > self.correct_above)));
            correct.entry(group.source()).or_default().extend(of_group);
        }
        let mut metrics = Metrics::default();
        if (2..=MOST_SOURCES).contains(&correct.len()) {
            for (source, correct) in correct.iter().filter(|(_, correct)| !correct.is_empty()) {
                metrics.set(format!("by_source/{source}/accuracy"), mean(correct));
            }
        }
        metrics
    }
}
