//! The plan: everything that running needs to know, without the text it came from. It can be written and read back.

mod batch;
mod derive;
mod origins;
mod resolved;

use std::collections::BTreeMap;

use rlpipe_core::kind::{Field, Kind, PortType};
use rlpipe_core::services::ServiceError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::compile::{BufferProof, ModelConfig, Pipeline, PoolConfig, RunConfig, WorkerMemory, proof, worker_memory};
use crate::hash::sha256;

use batch::batch_table;
use derive::{clocks, in_order, planned_node, workers};
pub use origins::{Origin, ValueFrom, annotated, origins};
pub use resolved::resolved;

/// A checked pipeline, ready to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Of this format.
    pub version: u32,
    /// The pipeline's name.
    pub name: String,
    /// Where and how long it runs.
    pub run: RunConfig,
    /// Train steps; none while it depends on rows that were not read yet.
    pub total_steps: Option<u64>,
    /// Pools by name.
    pub pools: BTreeMap<String, PoolConfig>,
    /// Models by name.
    pub models: BTreeMap<String, ModelConfig>,
    /// Live nodes; each comes after those it takes from.
    pub nodes: Vec<PlannedNode>,
    /// When things happen.
    pub clocks: Vec<Clock>,
    /// How the numbers of a train step fit together.
    pub batch: Option<BatchTable>,
    /// Processes to start.
    pub workers: Vec<PlannedWorker>,
    /// What they hold in memory, as far as it is known.
    #[serde(default)]
    pub memory: Vec<WorkerMemory>,
    /// Why no step waits for ever.
    #[serde(default)]
    pub liveness: Vec<BufferProof>,
}

/// A node of a plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedNode {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its config, every default written out.
    pub config: Value,
    /// What its inputs take, by port.
    pub inputs: BTreeMap<String, Vec<Edge>>,
}

/// One end of an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// The node that gives.
    pub node: String,
    /// Its port.
    pub port: String,
    /// What crosses.
    pub port_type: PortType,
    /// The fields that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Field>,
}

/// When a node, or something of the run, happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// A node's name, or `run.checkpoint`, `run.hf_export`.
    pub name: String,
    /// Before the first train step.
    pub at_start: bool,
    /// Every so many train steps.
    pub every_steps: Option<u64>,
    /// After the last one.
    pub at_end: bool,
}

impl Clock {
    /// Whether it is time, after `step` of `total`; step 0 is before the first.
    pub fn is_due(&self, step: u64, total: u64) -> bool {
        if step == 0 {
            return self.at_start;
        }
        self.every_steps.is_some_and(|every| step.is_multiple_of(every)) || (self.at_end && step == total)
    }
}

/// The numbers of one train step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchTable {
    /// Groups in a train step.
    pub prompts_per_step: u64,
    /// Rollouts in a group.
    pub samples_per_prompt: u64,
    /// Rollouts in a train step.
    pub rollouts_per_step: u64,
    /// Optimizer steps in a train step.
    pub optimizer_steps: u64,
    /// Groups in an optimizer step.
    pub prompts_per_optimizer_step: u64,
    /// Longest prompt, if bounded.
    pub max_prompt_tokens: Option<u64>,
    /// Longest response.
    pub max_new_tokens: u64,
    /// Tokens that go through the model together.
    pub max_tokens_per_pack: u64,
    /// Packs of an optimizer step, if every rollout is as long as it may be.
    pub most_packs_per_optimizer_step: Option<u64>,
}

/// A process to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedWorker {
    /// Its pool.
    pub pool: String,
    /// Its number among all workers.
    pub rank: u32,
    /// What it holds.
    pub models: Vec<PlannedModel>,
}

/// A model in a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedModel {
    /// Its name.
    pub model: String,
    /// Whether it is trained.
    pub trainable: bool,
    /// How it generates, if it does.
    pub engine: Option<PlannedEngine>,
}

/// How a model generates.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedEngine {
    /// The engine node.
    pub node: String,
    /// Prompt and response together.
    pub max_context_tokens: u32,
    /// Rollouts in flight; 0: the worker chooses.
    pub slots: u32,
    /// Share of the device's memory.
    pub memory_fraction: f64,
    /// Whether it keeps its own copy of the weights, because it is not synced at every step.
    pub own_weights: bool,
}

impl Plan {
    /// The plan of a pipeline without errors; none if it has some.
    pub fn of(pipeline: &Pipeline) -> Option<Self> {
        let run = pipeline.run.clone()?;
        let pools = pipeline
            .pools
            .iter()
            .map(|(name, pool)| Some((name.clone(), pool.config.clone()?)));
        let models = pipeline
            .models
            .iter()
            .map(|(name, model)| Some((name.clone(), model.config.clone()?)));
        let nodes: Option<Vec<PlannedNode>> = in_order(pipeline)
            .into_iter()
            .map(|index| planned_node(pipeline, &pipeline.nodes[index]))
            .collect();
        Some(Self {
            version: 1,
            name: pipeline.name.clone()?,
            total_steps: run.total_steps.map(|steps| steps.get().into()),
            clocks: clocks(pipeline, &run),
            run,
            pools: pools.collect::<Option<_>>()?,
            models: models.collect::<Option<_>>()?,
            nodes: nodes?,
            batch: batch_table(pipeline),
            workers: workers(pipeline),
            memory: worker_memory(pipeline, None, &[]),
            liveness: proof(pipeline),
        })
    }

    /// A hash of all that a resumed run may not change: everything but `work_dir`, `checkpoint`, `hf_export`,
    /// `report_waits_after_seconds`, the number of steps, and what of activations is kept, which changes no result. What
    /// memory it takes follows from the rest and the machine.
    pub fn hash(&self) -> String {
        let mut value = serde_json::to_value(self).unwrap_or(Value::Null);
        value["run"] = json!({ "seed": self.run.seed, "cluster": self.run.cluster });
        value["total_steps"] = Value::Null;
        // What follows from the rest, and may be said otherwise.
        value["memory"] = Value::Null;
        value["liveness"] = Value::Null;
        for node in value["nodes"].as_array_mut().into_iter().flatten() {
            let Some(config) = node["config"].as_object_mut() else {
                continue;
            };
            config.shift_remove("activations");
            // Off is what it was before there was such a setting.
            if let Some(sampling) = config.get_mut("sampling").and_then(Value::as_object_mut)
                && sampling.get("min_p").and_then(Value::as_f64) == Some(0.0)
            {
                sampling.shift_remove("min_p");
            }
        }
        if let Some(clocks) = value["clocks"].as_array_mut() {
            clocks.retain(|clock| !clock["name"].as_str().is_some_and(|name| name.starts_with("run.")));
        }
        sha256(value.to_string().as_bytes())
    }

    /// A node as it runs: what of a pack is kept is what the table of memory says, where it has the node.
    pub fn with_activations(&self, node: &PlannedNode) -> PlannedNode {
        let mut node = node.clone();
        let mut chosen = self.memory.iter().flat_map(|worker| &worker.activations);
        if let Some(chosen) = chosen.find(|chosen| chosen.node == node.name)
            && let Some(config) = node.config.as_object_mut()
        {
            config.insert("activations".to_owned(), json!(chosen.level));
        }
        node
    }

    /// The node of a name.
    pub fn node(&self, name: &str) -> Option<&PlannedNode> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// When something happens.
    pub fn clock(&self, name: &str) -> Option<&Clock> {
        self.clocks.iter().find(|clock| clock.name == name)
    }
}

impl PlannedNode {
    /// Its config, typed.
    pub fn load(&self, kinds: &[Kind]) -> Result<Box<dyn rlpipe_core::kind::AnyConfig>, ServiceError> {
        let kind = kinds
            .iter()
            .find(|kind| kind.name == self.kind)
            .ok_or_else(|| ServiceError(format!("`{}`: this rlpipe has no kind `{}`", self.name, self.kind)))?;
        (kind.load)(self.config.clone()).map_err(|error| ServiceError(format!("`{}`: {error}", self.name)))
    }

    /// The node at an input that takes exactly one.
    pub fn input(&self, port: &str) -> Option<&str> {
        self.inputs.get(port)?.first().map(|edge| edge.node.as_str())
    }
}
