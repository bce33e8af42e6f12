//! `advantage`: how much better a response is than was to be expected.

mod grpo;

use std::sync::Arc;

use async_trait::async_trait;
use rlpipe_core::data::{Batch, Metrics, mean};
use rlpipe_core::kind::{
    BatchStage, Choice, Contract, Field, Input, NodeConfig, Output, PortType, Role, Stage, StageError,
};
use rlpipe_core::services::{Context, ServiceError, Services};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Turns rewards into advantages.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdvantageConfig {
    /// The estimator.
    estimator: Choice<Estimator>,
}

/// How advantages are estimated.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Estimator {
    /// The reward against the group's mean, over the group's standard deviation.
    Grpo(grpo::Grpo),
}

impl NodeConfig for AdvantageConfig {
    const KIND: &'static str = "advantage";
    const SUMMARY: &'static str = "Turns rewards into advantages.";
    const EXAMPLE: &'static str = "\
type: advantage
inputs: { batch: buffer }
estimator: grpo
";

    fn contract(&self) -> Contract {
        Contract {
            inputs: vec![Input::one("batch", PortType::Batch).needs(&[Field::Reward])],
            outputs: vec![Output::new("batch", PortType::Batch).adds(&[Field::Advantage])],
            uses: Vec::new(),
            role: Role::Advantage {
                min_samples_per_prompt: 2,
            },
        }
    }

    fn build(&self, _node: &str, _services: &dyn Services) -> Result<Stage, ServiceError> {
        Ok(Stage::Batch(Arc::new(Advantage {
            estimator: self.estimator.0.clone(),
        })))
    }
}

struct Advantage {
    estimator: Estimator,
}

#[async_trait]
impl BatchStage for Advantage {
    async fn process(&self, mut batch: Batch, _context: &Context) -> Result<(Batch, Metrics), StageError> {
        let Estimator::Grpo(grpo) = &self.estimator;
        let mut all = Vec::new();
        for group in &mut batch.groups {
            let mut advantages = grpo.advantages(&group.rewards()).into_iter();
            for rollout in group.rollouts.iter_mut().filter(|rollout| rollout.reward().is_some()) {
                rollout.advantage = advantages.next();
                all.extend(rollout.advantage);
            }
        }
        let mut metrics = Metrics::default();
        metrics.set("advantage/mean", mean(&all));
        metrics.set("advantage/max", all.iter().copied().fold(0.0, f64::max));
        metrics.set("advantage/min", all.iter().copied().fold(0.0, f64::min));
        Ok((batch, metrics))
    }
}
