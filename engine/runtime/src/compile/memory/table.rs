//! What a worker holds on its device, part by part: data only. docs/memory.md has the formula of each part.

use rlpipe_core::data::Activations;
use serde::{Deserialize, Serialize};

/// Where a worker's tensors lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryDevice {
    /// The machine's memory.
    Host,
    /// An accelerator's.
    Accelerator,
}

/// What a worker is at while memory is held. Phases follow each other; no two go on at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryPhase {
    /// Reading or drawing weights.
    Load,
    /// Running prompts.
    Prompts,
    /// Drawing tokens.
    Decode,
    /// Log-probs without a gradient: `reference`, and `old_logprobs: recompute` with several optimizer steps.
    Logprobs,
    /// The head of a pack, forward and backward.
    Head,
    /// The rest of a pack, as its backward pass begins.
    Backward,
    /// Clipping and AdamW.
    OptimizerStep,
    /// Writing a checkpoint or an export.
    Save,
}

impl MemoryPhase {
    /// All of them, in the order of a run.
    pub const ALL: [Self; 8] = [
        Self::Load,
        Self::Prompts,
        Self::Decode,
        Self::Logprobs,
        Self::Head,
        Self::Backward,
        Self::OptimizerStep,
        Self::Save,
    ];

    /// All but the first.
    pub const AFTER_LOAD: &'static [Self] = Self::ALL.split_at(1).1;

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Prompts => "prompts",
            Self::Decode => "decode",
            Self::Logprobs => "log-probs",
            Self::Head => "head of a pack",
            Self::Backward => "backward",
            Self::OptimizerStep => "optimizer step",
            Self::Save => "save",
        }
    }
}

/// Something that takes memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryPart {
    /// What it is, for people, such as `fp32 master weights`.
    pub name: String,
    /// Whose it is; none: the process's own.
    pub model: Option<String>,
    /// Its size.
    pub bytes: u64,
    /// Whether a run may need less of it: it follows from settings that bound what is done, not from what is held.
    pub at_most: bool,
    /// When it is there.
    pub phases: Vec<MemoryPhase>,
}

/// What packs of a node keep for their backward pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChosenActivations {
    /// The node.
    pub node: String,
    /// As it is set, or, for `auto`, as there is room.
    pub level: Activations,
    /// Levels that keep more and have no room, with what a worker would hold then, in bytes.
    pub too_large: Vec<(Activations, u64)>,
}

/// A cache that may take less than it needs at least: the worker refuses to load its model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmallCache {
    /// Whose cache it is.
    pub model: String,
    /// What `memory_fraction` leaves for it, in bytes.
    pub may_take: u64,
    /// What one rollout needs, or, in plain operators, eight, in bytes.
    pub needs: u64,
}

/// What one worker holds on its device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerMemory {
    /// The worker's pool.
    pub pool: String,
    /// Its number among all workers.
    pub rank: u32,
    /// Where.
    pub device: MemoryDevice,
    /// What there is, where a setting or the machine says.
    pub available_bytes: Option<u64>,
    /// What is held; without the parts of models that `not_checked` names.
    pub parts: Vec<MemoryPart>,
    /// What of packs is kept, for each node that trains.
    #[serde(default)]
    pub activations: Vec<ChosenActivations>,
    /// A cache that has too little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub small_cache: Option<SmallCache>,
    /// Why parts are left out; empty where everything is known.
    pub not_checked: Vec<String>,
}

impl WorkerMemory {
    /// What is held in a phase.
    pub fn bytes_in(&self, phase: MemoryPhase) -> u64 {
        let there = self.parts.iter().filter(|part| part.phases.contains(&phase));
        there.fold(0, |sum: u64, part| sum.saturating_add(part.bytes))
    }

    /// The same without what a run may not need.
    pub fn certain_bytes_in(&self, phase: MemoryPhase) -> u64 {
        let there = self
            .parts
            .iter()
            .filter(|part| !part.at_most && part.phases.contains(&phase));
        there.fold(0, |sum: u64, part| sum.saturating_add(part.bytes))
    }

    /// The phase with most, and how much that is; none where parts are left out.
    pub fn peak(&self) -> Option<(MemoryPhase, u64)> {
        let of = |phase| (phase, self.bytes_in(phase));
        let most = MemoryPhase::ALL
            .map(of)
            .into_iter()
            .rev()
            .max_by_key(|(_, bytes)| *bytes);
        most.filter(|_| self.not_checked.is_empty())
    }
}
