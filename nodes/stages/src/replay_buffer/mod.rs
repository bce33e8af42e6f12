//! `replay_buffer`: the one place where a stream of groups becomes train steps.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use rlpipe_core::data::{Batch, Group, largest_remainder};
use rlpipe_core::kind::{
    Arity, Buffer, Choice, Contract, Input, NodeConfig, Output, PortType, Positive, Role, Stage, StageError,
};
use rlpipe_core::services::{ServiceError, Services};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Makes train steps of a stream of groups.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayBufferConfig {
    /// Groups in one train step.
    prompts_per_step: NonZeroU32,
    /// When groups are made. This version has `sync`: those of a step, after the step before.
    #[serde(default)]
    produce: Choice<Produce>,
    /// Which groups leave first. This version has `fifo`: those drawn first.
    #[serde(default)]
    order: Order,
    /// Share of each input in a step, by node name; rounded by largest remainder. Left out, all are equal.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(example = serde_json::json!({ "sums": 2, "words": 1 }))]
    mix: BTreeMap<String, Positive>,
}

/// When groups are made.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Produce {
    /// Those of a step are made after the step before, by the newest weights.
    Sync(SyncProduce),
}

impl Default for Produce {
    fn default() -> Self {
        Self::Sync(SyncProduce {})
    }
}

/// It has no settings of its own.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SyncProduce {}

/// Which groups leave first.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Those drawn first.
    #[default]
    Fifo,
}

impl NodeConfig for ReplayBufferConfig {
    const KIND: &'static str = "replay_buffer";
    const SUMMARY: &'static str = "Makes train steps of a stream of groups.";
    const EXAMPLE: &'static str = "\
type: replay_buffer
inputs: { groups: [scored] }
prompts_per_step: 64
produce: sync
";

    fn contract(&self) -> Contract {
        Contract {
            inputs: vec![Input::one("groups", PortType::Groups).arity(Arity::Many)],
            outputs: vec![Output::new("batch", PortType::Batch)],
            uses: Vec::new(),
            role: Role::Buffer {
                prompts_per_step: self.prompts_per_step.get(),
                mix: self
                    .mix
                    .iter()
                    .map(|(name, weight)| (name.clone(), weight.get()))
                    .collect(),
            },
        }
    }

    fn build(&self, _node: &str, _services: &dyn Services) -> Result<Stage, ServiceError> {
        Ok(Stage::Buffer(Box::new(ReplayBuffer {
            prompts_per_step: self.prompts_per_step.get() as usize,
            mix: self
                .mix
                .iter()
                .map(|(name, weight)| (name.clone(), weight.get()))
                .collect(),
            held: Vec::new(),
        })))
    }
}

struct ReplayBuffer {
    prompts_per_step: usize,
    mix: BTreeMap<String, f64>,
    /// Groups with the index of their input, in the order they came.
    held: Vec<(usize, Group)>,
}

impl Buffer for ReplayBuffer {
    fn prompts_per_step(&self) -> usize {
        self.prompts_per_step
    }

    fn wanted(&self, inputs: &[String]) -> Vec<usize> {
        let weights: Vec<f64> = inputs
            .iter()
            .map(|name| self.mix.get(name).copied().unwrap_or(1.0))
            .collect();
        let mut wanted = largest_remainder(self.prompts_per_step, &weights);
        for (input, _) in &self.held {
            wanted[*input] = wanted[*input].saturating_sub(1);
        }
        wanted
    }

    fn put(&mut self, input: usize, group: Group) {
        self.held.push((input, group));
    }

    fn take(&mut self) -> Option<Batch> {
        if self.held.len() < self.prompts_per_step {
            return None;
        }
        let mut step: Vec<(usize, Group)> = self.held.drain(..self.prompts_per_step).collect();
        step.sort_by(|(left_input, left), (right_input, right)| (left_input, left.id).cmp(&(right_input, right.id)));
        Some(Batch {
            groups: step.into_iter().map(|(_, group)| group).collect(),
        })
    }

    fn snapshot(&self) -> Value {
        serde_json::to_value(&self.held).unwrap_or(Value::Null)
    }

    fn restore(&mut self, state: Value) -> Result<(), StageError> {
        self.held = serde_json::from_value(state)
            .map_err(|error| StageError(format!("the checkpoint's replay buffer cannot be read: {error}")))?;
        Ok(())
    }
}
