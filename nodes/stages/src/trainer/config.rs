//! The trainer's settings.

use std::num::NonZeroU32;

use rlpipe_core::data::{Activations, KlEstimator, Loss, PackMemory, PolicyLoss};
use rlpipe_core::kind::{
    AboveOne, Arity, Choice, Contract, Field, Input, NodeConfig, NonNegative, OpenFraction, Output, PortType, Role,
    Stage, Use,
};
use rlpipe_core::services::{ServiceError, Services};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::step::TrainStep;
use crate::learning::{OnlyOne, Optimizer, Schedule, default_chunk, default_max_grad_norm, default_pack};

/// Improves the policy.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainerConfig {
    /// The pool it runs in.
    pool: String,
    /// The model it trains.
    model: String,
    /// Optimizer steps in a train step, each over an equal share of its groups: a divisor of `prompts_per_step`.
    #[serde(default = "one")]
    optimizer_steps: NonZeroU32,
    /// Tokens that go through the model together. Bounds memory; results do not depend on it.
    #[serde(default = "default_pack")]
    max_tokens_per_pack: NonZeroU32,
    /// What the forward pass keeps for the backward pass; the rest is computed again. Bounds memory; results do not depend
    /// on it.
    #[serde(default)]
    activations: Activations,
    /// How the model is spread over workers.
    #[serde(default)]
    parallel: TrainerParallel,
    /// Whether weights and optimizer wait in host memory. This version has: false.
    #[serde(default)]
    cpu_offload: NotYet,
    /// What turns gradients into steps.
    optimizer: Choice<Optimizer>,
    /// Gradients with a larger 2-norm are scaled down to it. 0 leaves them.
    #[serde(default = "default_max_grad_norm")]
    max_grad_norm: NonNegative,
    /// How the learning rate goes over the train steps.
    #[serde(default)]
    lr_schedule: Schedule,
    /// Where the log-probs before this train step come from: `recompute` asks the trainer, `rollout` takes the engine's.
    #[serde(default)]
    old_logprobs: OldLogprobs,
    /// What is minimised.
    #[serde(default)]
    loss: LossConfig,
}

/// How the model is spread over workers.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainerParallel {
    /// What is spread. This version has `full`: weights, gradients and optimizer, over all workers of the pool.
    shard: Shard,
    /// Workers that share one sequence. This version has: 1.
    sequence: OnlyOne,
    /// Workers that share the experts. This version has: 1.
    expert: OnlyOne,
}

/// What is spread.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shard {
    /// Weights, gradients and optimizer.
    #[default]
    Full,
}

/// A switch that this version can leave off only.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct NotYet(#[schemars(extend("enum" = [false]))] bool);

impl<'de> Deserialize<'de> for NotYet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if bool::deserialize(deserializer)? {
            let found = serde::de::Unexpected::Bool(true);
            return Err(serde::de::Error::invalid_value(
                found,
                &"`false`, which is all that this version has",
            ));
        }
        Ok(Self(false))
    }
}

/// Where the log-probs before this train step come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OldLogprobs {
    /// The trainer computes them; with one optimizer step they are its own, exactly, at no cost.
    #[default]
    Recompute,
    /// The engine reported them with the tokens.
    Rollout,
}

/// What is minimised.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// The policy's part.
    policy: Choice<PolicyConfig>,
    /// The pull towards a frozen reference; needs a `reference` node upstream.
    kl: Choice<KlConfig>,
    /// How token losses become one number.
    reduction: Reduction,
    /// Tokens whose logits exist at the same time. Bounds memory; results do not depend on it.
    logprob_chunk_tokens: Chunk,
}

/// Tokens whose logits exist at the same time.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Chunk(NonZeroU32);

impl Default for Chunk {
    fn default() -> Self {
        Self(default_chunk())
    }
}

/// The policy's part of the loss.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyConfig {
    /// PPO's clipped objective.
    Clip(ClipConfig),
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self::Clip(ClipConfig::default())
    }
}

/// Settings of `clip`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClipConfig {
    /// The ratio of new to old probability is held above 1 less this.
    low: OpenFraction,
    /// The ratio is held below 1 and this.
    high: NonNegative,
    /// With a negative advantage, the loss is at most so many times the advantage's size: above 1. Left out, there is no
    /// bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    dual: Option<AboveOne>,
    /// Bounds of the difference of log-probs before it is exponentiated.
    log_ratio_clamp: LogRatioClamp,
}

impl Default for ClipConfig {
    fn default() -> Self {
        Self {
            low: OpenFraction::new(0.2).unwrap_or_else(|| unreachable!("below 1")),
            high: NonNegative::new(0.2).unwrap_or_else(|| unreachable!("not negative")),
            dual: None,
            log_ratio_clamp: LogRatioClamp([-20.0, 20.0]),
        }
    }
}

/// A bound below 0 and one above: between others, every ratio would be cut and nothing learnt.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct LogRatioClamp(#[schemars(with = "Clamp")] [f64; 2]);

/// The schema of [`LogRatioClamp`].
struct Clamp;

impl JsonSchema for Clamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Clamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "array",
            "items": [{ "type": "number", "exclusiveMaximum": 0 }, { "type": "number", "exclusiveMinimum": 0 }],
            "minItems": 2,
            "maxItems": 2,
        })
    }
}

impl<'de> Deserialize<'de> for LogRatioClamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let [low, high] = <[f64; 2]>::deserialize(deserializer)?;
        if low < 0.0 && high > 0.0 {
            return Ok(Self([low, high]));
        }
        Err(serde::de::Error::custom(format!(
            "the bounds [{low}, {high}] must lie on both sides of 0, the lower one first, such as [-20, 20]"
        )))
    }
}

/// Estimators of the KL divergence from the reference, with d = log pi - log pi_ref.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlConfig {
    /// There is no such term.
    #[default]
    None,
    /// d. Its gradient does not depend on the reference.
    K1(KlTerm),
    /// d^2 / 2.
    K2(KlTerm),
    /// exp(-d) + d - 1.
    K3(KlTerm),
}

/// How much the KL term counts.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KlTerm {
    /// Factor of the term in the loss.
    coefficient: NonNegative,
}

impl Default for KlTerm {
    fn default() -> Self {
        Self {
            coefficient: NonNegative::new(0.001).unwrap_or_else(|| unreachable!("not negative")),
        }
    }
}

/// How token losses become one number.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// The mean over all trained tokens of the optimizer step.
    #[default]
    TokenMean,
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

impl LossConfig {
    fn kl(&self) -> Option<(KlEstimator, f64)> {
        match &self.kl.0 {
            KlConfig::None => None,
            KlConfig::K1(term) => Some((KlEstimator::K1, term.coefficient.get())),
            KlConfig::K2(term) => Some((KlEstimator::K2, term.coefficient.get())),
            KlConfig::K3(term) => Some((KlEstimator::K3, term.coefficient.get())),
        }
    }

    /// The distances from 1 at which the ratio is held.
    fn clip(&self) -> (f64, f64) {
        let PolicyConfig::Clip(clip) = &self.policy.0;
        (clip.low.get(), clip.high.get())
    }

    fn loss(&self) -> Loss {
        let PolicyConfig::Clip(clip) = &self.policy.0;
        Loss::Policy(PolicyLoss {
            clip_low: clip.low.get(),
            clip_high: clip.high.get(),
            dual_clip: clip.dual.map(AboveOne::get),
            log_ratio_clamp: clip.log_ratio_clamp.0,
            kl: self.kl(),
        })
    }
}

impl NodeConfig for TrainerConfig {
    const KIND: &'static str = "trainer";
    const SUMMARY: &'static str = "Improves the policy, a train step at a time.";
    const EXAMPLE: &'static str = "\
type: trainer
inputs: { batch: advantages }
pool: gpu
model: policy
max_tokens_per_pack: 32768
optimizer: { adamw: { lr: 1e-6 } }
loss: { policy: { clip: { low: 0.2, high: 0.28 } } }
";

    fn contract(&self) -> Contract {
        let mut needs = vec![Field::Tokens, Field::SampledLogprobs, Field::Advantage];
        if self.loss.kl().is_some() {
            needs.push(Field::ReferenceLogprobs);
        }
        Contract {
            inputs: vec![
                Input::one("batch", PortType::Batch).needs(&needs),
                Input::one("initial_weights", PortType::Weights).arity(Arity::Optional),
            ],
            outputs: vec![Output::new("weights", PortType::Weights)],
            uses: vec![Use::pool(&self.pool), Use::model(&self.model)],
            role: Role::Trainer {
                optimizer_steps: self.optimizer_steps.get(),
                max_tokens_per_pack: self.max_tokens_per_pack.get(),
                logprob_chunk_tokens: self.loss.logprob_chunk_tokens.0.get(),
                activations: self.activations,
                sequence_parallel: 1,
                learning_rate: self.lr_schedule.described(self.optimizer.lr()),
                kl: self.loss.kl(),
                clip: self.loss.clip(),
            },
        }
    }

    fn build(&self, _node: &str, services: &dyn Services) -> Result<Stage, ServiceError> {
        Ok(Stage::Trainer(Box::new(TrainStep {
            learner: services.learner(&self.model)?,
            optimizer: self.optimizer.adamw(self.max_grad_norm),
            peak_lr: self.optimizer.lr(),
            lr_schedule: self.lr_schedule.0.clone(),
            optimizer_steps: self.optimizer_steps.get() as usize,
            max_tokens_per_pack: self.max_tokens_per_pack.get() as usize,
            old_logprobs: self.old_logprobs,
            loss: self.loss.loss(),
            memory: PackMemory {
                chunk_tokens: self.loss.logprob_chunk_tokens.0.get(),
                activations: self.activations,
            },
            skipped: 0,
            told_parity: None,
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_the_log_ratio_lie_on_both_sides_of_0() {
        let read = |text: &str| serde_json::from_str::<LogRatioClamp>(text).map(|clamp| clamp.0);
        assert_eq!(read("[-20, 20]").ok(), Some([-20.0, 20.0]));
        for text in ["[5, -5]", "[5, 6]", "[-6, -5]", "[0, 1]", "[-1]"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
