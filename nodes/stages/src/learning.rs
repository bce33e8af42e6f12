//! What the kinds that learn have in common: optimizer, schedule, packing.

use std::num::NonZeroU32;

use rlpipe_core::data::{AdamW, Sequence};
use rlpipe_core::kind::{Choice, LearningRate, NonNegative, OpenFraction, Positive};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

/// A size that this version supports as 1 only.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct OnlyOne(#[schemars(range(min = 1, max = 1))] u32);

impl Default for OnlyOne {
    fn default() -> Self {
        Self(1)
    }
}

impl<'de> Deserialize<'de> for OnlyOne {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            1 => Ok(Self(1)),
            other => Err(de::Error::invalid_value(
                de::Unexpected::Unsigned(other.into()),
                &"1, which is all that this version has",
            )),
        }
    }
}

/// What turns gradients into steps.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Optimizer {
    /// Adam with decoupled weight decay.
    Adamw(AdamWConfig),
}

/// Settings of `adamw`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdamWConfig {
    /// Learning rate at its height.
    lr: Positive,
    /// Decay of the first and second moments.
    #[serde(default = "default_betas")]
    betas: [OpenFraction; 2],
    /// Added to the root of the second moment.
    #[serde(default = "default_eps")]
    eps: Positive,
    /// Decay of weight matrices, times the learning rate; norms are left out.
    #[serde(default = "default_weight_decay")]
    weight_decay: NonNegative,
}

fn default_betas() -> [OpenFraction; 2] {
    [0.9, 0.95].map(|beta| OpenFraction::new(beta).unwrap_or_else(|| unreachable!("below 1")))
}

fn default_eps() -> Positive {
    Positive::new(1e-8).unwrap_or_else(|| unreachable!("above 0"))
}

fn default_weight_decay() -> NonNegative {
    NonNegative::new(0.01).unwrap_or_else(|| unreachable!("not negative"))
}

/// Gradient norm above which gradients are scaled down, where nothing is said.
pub fn default_max_grad_norm() -> NonNegative {
    NonNegative::new(1.0).unwrap_or_else(|| unreachable!("not negative"))
}

/// Tokens in a pack, where nothing is said.
pub fn default_pack() -> NonZeroU32 {
    NonZeroU32::new(32_768).unwrap_or(NonZeroU32::MIN)
}

/// Tokens whose logits exist at the same time, where nothing is said.
pub fn default_chunk() -> NonZeroU32 {
    NonZeroU32::new(2048).unwrap_or(NonZeroU32::MIN)
}

impl Optimizer {
    /// Learning rate at its height.
    pub fn lr(&self) -> f64 {
        let Self::Adamw(adamw) = self;
        adamw.lr.get()
    }

    /// What the learner is told.
    pub fn adamw(&self, max_grad_norm: NonNegative) -> AdamW {
        let Self::Adamw(adamw) = self;
        AdamW {
            betas: adamw.betas.map(OpenFraction::get),
            eps: adamw.eps.get(),
            weight_decay: adamw.weight_decay.get(),
            max_grad_norm: max_grad_norm.get(),
        }
    }
}

/// How the learning rate goes over the steps.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LrSchedule {
    /// The same throughout, after the warm-up.
    Constant(ConstantSchedule),
    /// Down to `min_lr` in a straight line.
    Linear(DecaySchedule),
    /// Down to `min_lr` along half a cosine.
    Cosine(DecaySchedule),
}

/// Settings of `constant`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConstantSchedule {
    /// Steps in which the rate rises to its height in a straight line.
    warmup_steps: u32,
}

/// Settings of `linear` and `cosine`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DecaySchedule {
    /// Steps in which the rate rises to its height in a straight line.
    warmup_steps: u32,
    /// The rate of the last step.
    min_lr: NonNegative,
}

impl Default for LrSchedule {
    fn default() -> Self {
        Self::Constant(ConstantSchedule::default())
    }
}

impl LrSchedule {
    /// Steps of warm-up.
    pub fn warmup_steps(&self) -> u32 {
        match self {
            Self::Constant(schedule) => schedule.warmup_steps,
            Self::Linear(schedule) | Self::Cosine(schedule) => schedule.warmup_steps,
        }
    }

    /// What passes need to know of it.
    pub fn described(&self, peak: f64) -> LearningRate {
        LearningRate {
            peak,
            warmup_steps: self.warmup_steps(),
            min: match self {
                Self::Constant(_) => None,
                Self::Linear(schedule) | Self::Cosine(schedule) => Some(schedule.min_lr.get()),
            },
        }
    }

    /// The rate of `step` of `total`, counted from 1: `peak * step / warmup` up to the height, then the decay with
    /// progress `(step - warmup) / (total - warmup)`, so that the last step has `min_lr`.
    pub fn rate(&self, peak: f64, step: u64, total: u64) -> f64 {
        let warmup = u64::from(self.warmup_steps());
        if step < warmup {
            return peak * step as f64 / warmup as f64;
        }
        let progress = (step - warmup) as f64 / total.saturating_sub(warmup).max(1) as f64;
        let progress = progress.min(1.0);
        match self {
            Self::Constant(_) => peak,
            Self::Linear(schedule) => peak + (schedule.min_lr.get() - peak) * progress,
            Self::Cosine(schedule) => {
                let low = schedule.min_lr.get();
                low + (peak - low) * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
            }
        }
    }
}

/// The name of the schedule and its settings, as it stands in a config.
pub type Schedule = Choice<LrSchedule>;

/// Which sequences go together: in order, as many as fit. A longer sequence is alone.
pub fn pack(sequences: &[Sequence], max_tokens: usize) -> Vec<std::ops::Range<usize>> {
    let mut packs = Vec::new();
    let (mut start, mut tokens) = (0, 0);
    for (index, sequence) in sequences.iter().enumerate() {
        if index > start && tokens + sequence.ids.len() > max_tokens {
            packs.push(start..index);
            (start, tokens) = (index, 0);
        }
        tokens += sequence.ids.len();
    }
    if start < sequences.len() {
        packs.push(start..sequences.len());
    }
    packs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(lengths: &[usize]) -> Vec<Sequence> {
        lengths
            .iter()
            .map(|&length| Sequence {
                ids: vec![0; length],
                ..Sequence::default()
            })
            .collect()
    }

    #[test]
    fn packs_are_as_in_xtuner() {
        assert_eq!(pack(&lengths(&[5, 4, 3, 6, 2]), 10), [0..2, 2..4, 4..5]);
        assert_eq!(pack(&lengths(&[4, 4, 4]), 8), [0..2, 2..3]);
        assert_eq!(pack(&lengths(&[9, 1]), 8), [0..1, 1..2]);
        assert!(pack(&[], 8).is_empty());
    }

    fn near(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-15, "{left} is not {right}");
    }

    #[test]
    fn rates_rise_and_fall() {
        let decay = || DecaySchedule {
            warmup_steps: 2,
            min_lr: NonNegative::new(0.1).unwrap_or_else(|| unreachable!()),
        };
        let cosine = LrSchedule::Cosine(decay());
        near(cosine.rate(1.0, 1, 10), 0.5);
        near(cosine.rate(1.0, 2, 10), 1.0);
        near(cosine.rate(1.0, 6, 10), 0.55);
        near(cosine.rate(1.0, 10, 10), 0.1);
        let linear = LrSchedule::Linear(decay());
        near(linear.rate(1.0, 4, 10), 0.775);
        near(linear.rate(1.0, 10, 10), 0.1);
        near(LrSchedule::default().rate(3.0, 1, 1), 3.0);
        near(
            LrSchedule::Constant(ConstantSchedule { warmup_steps: 4 }).rate(1.0, 1, 9),
            0.25,
        );
    }
}
