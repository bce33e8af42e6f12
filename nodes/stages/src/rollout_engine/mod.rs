//! `rollout_engine`: generates responses with the weights that a `weight_sync` brings it.

use std::num::NonZeroU32;

use rlpipe_core::kind::{Choice, Contract, Fraction, NodeConfig, Output, PortType, Role, Stage, Use};
use rlpipe_core::services::{ServiceError, Services};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::learning::OnlyOne;

/// Generates responses.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RolloutEngineConfig {
    /// The pool it runs in.
    pool: String,
    /// The model it serves.
    model: String,
    /// What generates. This version has `torch`, its own engine.
    #[serde(default)]
    backend: Choice<Backend>,
    /// How one copy of the model is spread over accelerators.
    #[serde(default)]
    parallel: EngineParallel,
    /// Longest prompt and response together, in tokens.
    max_context_tokens: NonZeroU32,
    /// Share of an accelerator's memory for everything in the pool's worker, cache included.
    #[serde(default = "most")]
    memory_fraction: Fraction,
    /// Responses generated at the same time. Left out, the worker chooses by its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_concurrent_rollouts: Option<NonZeroU32>,
}

/// What generates.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// rlpipe's own engine on libtorch, which shares its weights with the trainer.
    Torch(TorchBackend),
}

impl Default for Backend {
    fn default() -> Self {
        Self::Torch(TorchBackend {})
    }
}

/// It has no settings of its own.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TorchBackend {}

/// How one copy of the model is spread.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EngineParallel {
    /// Accelerators that share each layer. This version has: 1.
    tensor: OnlyOne,
    /// Accelerators that share the experts. This version has: 1.
    expert: OnlyOne,
}

fn most() -> Fraction {
    Fraction::new(0.8).unwrap_or_else(|| unreachable!("0.8 is a fraction"))
}

impl NodeConfig for RolloutEngineConfig {
    const KIND: &'static str = "rollout_engine";
    const SUMMARY: &'static str = "Generates responses with the weights that a `weight_sync` brings it.";
    const EXAMPLE: &'static str = "\
type: rollout_engine
pool: gpu
model: policy
backend: torch
max_context_tokens: 1536
";

    fn contract(&self) -> Contract {
        Contract {
            inputs: Vec::new(),
            outputs: vec![Output::new("engine", PortType::Engine)],
            uses: vec![Use::pool(&self.pool), Use::model(&self.model)],
            role: Role::Engine {
                max_context_tokens: self.max_context_tokens.get(),
                max_concurrent_rollouts: self.max_concurrent_rollouts.map(NonZeroU32::get),
                memory_fraction: self.memory_fraction.get(),
                tensor_parallel: 1,
            },
        }
    }

    fn build(&self, node: &str, services: &dyn Services) -> Result<Stage, ServiceError> {
        services.engine(node)?;
        Ok(Stage::Engine)
    }
}
