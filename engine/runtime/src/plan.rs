//! The plan: everything that running needs to know, without the text it came from. It can be written and read back.

use std::collections::BTreeMap;

use rlpipe_core::kind::{Arity, Field, Kind, PortType, Role, Target};
use rlpipe_core::services::ServiceError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::compile::{ModelConfig, Node, Pipeline, PoolConfig, RunConfig};
use crate::hash::sha256;

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
        })
    }

    /// A hash of all that a resumed run may not change: everything but `work_dir`, `checkpoint`, `hf_export`,
    /// `report_waits_after_seconds` and the number of steps.
    pub fn hash(&self) -> String {
        let mut value = serde_json::to_value(self).unwrap_or(Value::Null);
        value["run"] = json!({ "seed": self.run.seed, "cluster": self.run.cluster });
        value["total_steps"] = Value::Null;
        if let Some(clocks) = value["clocks"].as_array_mut() {
            clocks.retain(|clock| !clock["name"].as_str().is_some_and(|name| name.starts_with("run.")));
        }
        sha256(value.to_string().as_bytes())
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

/// Live nodes, each after those it takes from; the order of the file where that leaves a choice.
fn in_order(pipeline: &Pipeline) -> Vec<usize> {
    let mut placed = vec![false; pipeline.nodes.len()];
    let mut order = Vec::new();
    for start in (0..pipeline.nodes.len()).filter(|index| pipeline.nodes[*index].live) {
        let mut stack = vec![start];
        while let Some(&index) = stack.last() {
            let mut before = pipeline.nodes[index]
                .inputs
                .values()
                .flatten()
                .map(|endpoint| endpoint.node);
            if let Some(next) = before.find(|node| !placed[*node]) {
                stack.push(next);
                continue;
            }
            stack.pop();
            if !std::mem::replace(&mut placed[index], true) {
                order.push(index);
            }
        }
    }
    order
}

fn planned_node(pipeline: &Pipeline, node: &Node) -> Option<PlannedNode> {
    let edge = |endpoint: &crate::compile::Endpoint| Edge {
        node: pipeline.nodes[endpoint.node].name.clone(),
        port: endpoint.port.to_owned(),
        port_type: endpoint.port_type,
        fields: match endpoint.port_type {
            PortType::Groups | PortType::Batch => endpoint.fields.clone(),
            _ => Vec::new(),
        },
    };
    Some(PlannedNode {
        name: node.name.clone(),
        kind: node.kind?.name.to_owned(),
        config: node.config.as_ref()?.resolved(),
        inputs: node
            .inputs
            .iter()
            .map(|(port, endpoints)| ((*port).to_owned(), endpoints.iter().map(edge).collect()))
            .collect(),
    })
}

fn clocks(pipeline: &Pipeline, run: &RunConfig) -> Vec<Clock> {
    let mut clocks = Vec::new();
    for (_, node, contract) in pipeline.live() {
        match contract.role {
            Role::WeightSync { every_steps, .. } => clocks.push(Clock {
                name: node.name.clone(),
                at_start: true,
                every_steps: Some(every_steps.into()),
                at_end: true,
            }),
            Role::Evaluator {
                at_start,
                every_steps,
                at_end,
                ..
            } => clocks.push(Clock {
                name: node.name.clone(),
                at_start,
                every_steps: every_steps.map(u64::from),
                at_end,
            }),
            _ => {}
        }
    }
    if let Some(checkpoint) = &run.checkpoint {
        clocks.push(of_run("run.checkpoint", checkpoint.every_steps.get()));
    }
    if let Some(export) = &run.hf_export {
        clocks.push(Clock {
            at_end: true,
            ..of_run("run.hf_export", export.every_steps.get())
        });
    }
    clocks
}

fn of_run(name: &str, every_steps: u32) -> Clock {
    Clock {
        name: name.to_owned(),
        at_start: false,
        every_steps: Some(every_steps.into()),
        at_end: false,
    }
}

fn batch_table(pipeline: &Pipeline) -> Option<BatchTable> {
    let (trainer, optimizer_steps, max_tokens_per_pack) =
        pipeline.live().find_map(|(index, _, contract)| match contract.role {
            Role::Trainer {
                optimizer_steps,
                max_tokens_per_pack,
                ..
            } => Some((index, u64::from(optimizer_steps), u64::from(max_tokens_per_pack))),
            _ => None,
        })?;
    let upstream = pipeline.upstream(trainer);
    let roles = || {
        upstream
            .iter()
            .filter_map(|index| Some(&pipeline.nodes[*index].contract.as_ref()?.role))
    };
    let prompts_per_step = roles().find_map(|role| match role {
        Role::Buffer { prompts_per_step, .. } => Some(u64::from(*prompts_per_step)),
        _ => None,
    })?;
    // The warm-up's examples are upstream too, through `initial_weights`: only prompts that are answered count.
    let samplers = || {
        upstream.iter().filter_map(|index| {
            let sampler = pipeline.nodes[*index].input("prompts")?.node;
            match pipeline.nodes[sampler].contract.as_ref()?.role {
                Role::Sampler {
                    samples_per_prompt,
                    max_prompt_tokens,
                    ..
                } => Some((u64::from(samples_per_prompt), max_prompt_tokens.map(u64::from))),
                _ => None,
            }
        })
    };
    let samples_per_prompt = samplers().map(|(samples, _)| samples).max()?;
    let max_prompt_tokens = samplers()
        .map(|(_, tokens)| tokens)
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .max();
    let max_new_tokens = roles()
        .filter_map(|role| match role {
            Role::AgentLoop { max_new_tokens, .. } => Some(u64::from(*max_new_tokens)),
            _ => None,
        })
        .max()?;
    let prompts_per_optimizer_step = prompts_per_step / optimizer_steps;
    Some(BatchTable {
        prompts_per_step,
        samples_per_prompt,
        rollouts_per_step: prompts_per_step * samples_per_prompt,
        optimizer_steps,
        prompts_per_optimizer_step,
        max_prompt_tokens,
        max_new_tokens,
        max_tokens_per_pack,
        most_packs_per_optimizer_step: max_prompt_tokens.map(|prompt| {
            let in_a_pack = (max_tokens_per_pack / (prompt + max_new_tokens)).max(1);
            (prompts_per_optimizer_step * samples_per_prompt).div_ceil(in_a_pack)
        }),
    })
}

/// One worker for each place in each pool that computes, with the models that its nodes name.
fn workers(pipeline: &Pipeline) -> Vec<PlannedWorker> {
    let mut models_of_pool: BTreeMap<&str, BTreeMap<&str, PlannedModel>> = BTreeMap::new();
    for (_, node, contract) in pipeline.live() {
        let (Some(pool), Some(model)) = (contract.used(Target::Pool), contract.used(Target::Model)) else {
            continue;
        };
        let planned = models_of_pool
            .entry(pool)
            .or_default()
            .entry(model)
            .or_insert_with(|| PlannedModel {
                model: model.to_owned(),
                trainable: false,
                engine: None,
            });
        match contract.role {
            Role::Trainer { .. } | Role::SftTrainer { .. } => planned.trainable = true,
            Role::Engine {
                max_context_tokens,
                max_concurrent_rollouts,
                memory_fraction,
                ..
            } => {
                planned.engine = Some(PlannedEngine {
                    node: node.name.clone(),
                    max_context_tokens,
                    slots: max_concurrent_rollouts.unwrap_or(0),
                    memory_fraction,
                    own_weights: synced_every(pipeline, &node.name) > 1,
                });
            }
            _ => {}
        }
    }
    let mut workers = Vec::new();
    for (pool, models) in models_of_pool {
        let count = pipeline
            .pools
            .get(pool)
            .and_then(|pool| pool.config.as_ref())
            .map_or(0, PoolConfig::workers);
        for _ in 0..count {
            workers.push(PlannedWorker {
                pool: pool.to_owned(),
                rank: workers.len() as u32,
                models: models.values().cloned().collect(),
            });
        }
    }
    workers
}

fn synced_every(pipeline: &Pipeline, engine: &str) -> u32 {
    pipeline
        .live()
        .find_map(|(_, _, contract)| match &contract.role {
            Role::WeightSync { to, every_steps } if to == engine => Some(*every_steps),
            _ => None,
        })
        .unwrap_or(1)
}

/// The resolved file: what was meant, with every default, absolute paths and no variables. It loads again, identically.
pub fn resolved(pipeline: &Pipeline) -> Option<Value> {
    let plan = Plan::of(pipeline)?;
    let mut nodes = serde_json::Map::new();
    for node in &plan.nodes {
        let source = &pipeline.nodes[pipeline.find(&node.name)?];
        let mut text = serde_json::Map::new();
        text.insert("type".to_owned(), node.kind.clone().into());
        if !node.inputs.is_empty() {
            text.insert("inputs".to_owned(), inputs(node, source));
        }
        if let Value::Object(config) = &node.config {
            text.extend(config.clone());
        }
        nodes.insert(node.name.clone(), Value::Object(text));
    }
    Some(json!({
        "version": 1,
        "name": plan.name,
        "run": plan.run,
        "pools": plan.pools,
        "models": plan.models,
        "nodes": nodes,
    }))
}

fn inputs(node: &PlannedNode, source: &Node) -> Value {
    let arity = |port: &str| {
        let inputs = source.contract.iter().flat_map(|contract| &contract.inputs);
        inputs
            .into_iter()
            .find(|input| input.name == port)
            .map(|input| input.arity)
    };
    let name = |edge: &Edge| Value::String(format!("{}.{}", edge.node, edge.port));
    node.inputs
        .iter()
        .map(|(port, edges)| {
            let value = match arity(port) {
                Some(Arity::Many) => edges.iter().map(name).collect(),
                _ => edges.first().map_or(Value::Null, name),
            };
            (port.clone(), value)
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}
