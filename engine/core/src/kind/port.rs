//! Types of ports, and the fields of what crosses them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What may cross an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortType {
    /// Rows with a prompt.
    Prompts,
    /// Rows with a prompt and an answer.
    Examples,
    /// A stream of groups.
    Groups,
    /// The groups of exactly one train step.
    Batch,
    /// A model's weights, as a version.
    Weights,
    /// Something that generates.
    Engine,
    /// Named numbers.
    Metrics,
}

impl fmt::Display for PortType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prompts => "prompts",
            Self::Examples => "examples",
            Self::Groups => "groups",
            Self::Batch => "batch",
            Self::Weights => "weights",
            Self::Engine => "engine",
            Self::Metrics => "metrics",
        })
    }
}

/// What each rollout of a `groups` or `batch` port carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// Token ids of prompt and response, and the mask.
    Tokens,
    /// Log-probs as sampled, with their temperature.
    SampledLogprobs,
    /// Policy version of each token.
    PolicyVersion,
    /// A judger's reward.
    Reward,
    /// The answer as a judger found it.
    Parsed,
    /// An advantage.
    Advantage,
    /// Log-probs under a frozen reference.
    ReferenceLogprobs,
}

impl Field {
    /// The kind of node that adds this field, for errors.
    pub fn made_by(self) -> &'static str {
        match self {
            Self::Tokens | Self::SampledLogprobs | Self::PolicyVersion => "agent_loop",
            Self::Reward | Self::Parsed => "judger",
            Self::Advantage => "advantage",
            Self::ReferenceLogprobs => "reference",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tokens => "tokens",
            Self::SampledLogprobs => "sampled_logprobs",
            Self::PolicyVersion => "policy_version",
            Self::Reward => "reward",
            Self::Parsed => "parsed",
            Self::Advantage => "advantage",
            Self::ReferenceLogprobs => "reference_logprobs",
        })
    }
}

/// How many nodes an input takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arity {
    /// Exactly one.
    One,
    /// One or none.
    Optional,
    /// One or more, as a list.
    Many,
}
