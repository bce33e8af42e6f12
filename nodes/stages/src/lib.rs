//! Every node kind, one folder each. Pure: the outside world comes in through `Services` and `Context` only.
//!
//! A new kind is a folder with a config that implements `NodeConfig`, and one line in [`KINDS`].

mod advantage;
mod agent_loop;
mod evaluator;
mod filter;
mod judger;
pub mod learning;
mod reference;
mod replay_buffer;
mod rollout_engine;
mod sampler;
mod sft_trainer;
mod trainer;
mod weight_sync;

use rlpipe_core::kind::Kind;

/// All kinds, in the order in which a pipeline usually has them.
pub const KINDS: &[Kind] = &[
    Kind::of::<sampler::SamplerConfig>(),
    Kind::of::<rollout_engine::RolloutEngineConfig>(),
    Kind::of::<agent_loop::AgentLoopConfig>(),
    Kind::of::<judger::JudgerConfig>(),
    Kind::of::<filter::FilterConfig>(),
    Kind::of::<replay_buffer::ReplayBufferConfig>(),
    Kind::of::<reference::ReferenceConfig>(),
    Kind::of::<advantage::AdvantageConfig>(),
    Kind::of::<sft_trainer::SftTrainerConfig>(),
    Kind::of::<trainer::TrainerConfig>(),
    Kind::of::<weight_sync::WeightSyncConfig>(),
    Kind::of::<evaluator::EvaluatorConfig>(),
];
