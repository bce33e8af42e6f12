//! What a learner is given: sequences packed together, a loss, and an optimizer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A prompt and its response. Every vector but `ids` is aligned with the response, or empty where noted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sequence {
    /// Prompt and response tokens.
    pub ids: Vec<u32>,
    /// How many of `ids` are the prompt; at least 1.
    pub prompt_tokens: u32,
    /// Which response tokens are trained.
    pub mask: Vec<bool>,
    /// The trainer divides its logits by it, so that log-probs are of the distribution sampled from; 0 counts as 1.
    pub temperature: f64,
    /// Advantage of each response token.
    pub advantages: Vec<f32>,
    /// Log-probs under the policy before this train step; empty: the policy's own, detached.
    pub old_logprobs: Vec<f32>,
    /// What the engine reported; empty: parity is not measured.
    pub rollout_logprobs: Vec<f32>,
    /// Log-probs under the frozen reference; empty without a KL term.
    pub reference_logprobs: Vec<f32>,
}

impl Sequence {
    /// How many response tokens are trained.
    pub fn trained_tokens(&self) -> usize {
        self.mask.iter().filter(|&&trained| trained).count()
    }
}

/// Estimators of the KL divergence from the reference, with `d = log pi - log pi_ref`
/// (Schulman, "Approximating KL divergence", 2020).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlEstimator {
    /// `d`.
    K1,
    /// `d^2 / 2`.
    K2,
    /// `exp(-d) + d - 1`, with `-d` held in [-20, 20] and the value in [-10, 10].
    K3,
}

/// The clipped policy loss of PPO (Schulman et al. 2017, eq. 7) with separate bounds and dual clip (Ye et al. 2020, eq. 5).
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyLoss {
    /// The ratio is held above `1 - clip_low`.
    pub clip_low: f64,
    /// The ratio is held below `1 + clip_high`.
    pub clip_high: f64,
    /// With a negative advantage the loss is at most `dual_clip * |advantage|`.
    pub dual_clip: Option<f64>,
    /// Bounds of `log pi - log pi_old` before it is exponentiated.
    pub log_ratio_clamp: [f64; 2],
    /// KL term and its coefficient.
    pub kl: Option<(KlEstimator, f64)>,
}

/// What is minimised.
#[derive(Debug, Clone, PartialEq)]
pub enum Loss {
    /// Reinforcement learning.
    Policy(PolicyLoss),
    /// Minus the log-prob of each trained token.
    CrossEntropy,
}

/// What the forward pass of a pack keeps for its backward pass. What is not kept is computed again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Activations {
    /// As much as there is memory for, as far as it is known before the run: all of it, else without the gated part,
    /// else the inputs of layers. `rlpipe plan` says which.
    #[default]
    Auto,
    /// All that is read again: the fastest.
    Keep,
    /// All but the gated part of each layer: about half the memory, and a sixth more time.
    RecomputeGated,
    /// The input of each layer: about a quarter of the memory, and a third more time.
    RecomputeLayers,
}

impl Activations {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Keep => "keep",
            Self::RecomputeGated => "recompute_gated",
            Self::RecomputeLayers => "recompute_layers",
        }
    }
}

/// What bounds the memory of a pack; results do not depend on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PackMemory {
    /// Tokens whose logits exist at the same time; 0: as many as the learner finds right.
    pub chunk_tokens: u32,
    /// What is kept of each layer.
    pub activations: Activations,
}

/// Sums over the trained tokens of one sequence, divided by nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SequenceSums {
    /// Trained tokens.
    pub tokens: u32,
    /// Loss without the KL term.
    pub loss: f64,
    /// KL without its coefficient.
    pub kl: f64,
    /// `pi / pi_old`.
    pub ratio: f64,
    /// Tokens whose ratio lies below the lower bound.
    pub clipped_low: f64,
    /// Tokens whose ratio lies above the upper bound.
    pub clipped_high: f64,
    /// `|log pi_old - rollout log-prob|`.
    pub logprob_abs_diff: f64,
    /// The largest of those.
    pub logprob_abs_diff_max: f64,
    /// Entropy of the distribution.
    pub entropy: f64,
}

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2) and a bound on the gradient's norm.
#[derive(Debug, Clone, PartialEq)]
pub struct AdamW {
    /// Decay of the first and second moments.
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decay of the weights, times the learning rate; matrices only.
    pub weight_decay: f64,
    /// Gradients with a larger 2-norm are scaled down to it; 0 leaves them.
    pub max_grad_norm: f64,
}
