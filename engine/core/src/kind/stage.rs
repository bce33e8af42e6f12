//! Running nodes: one trait for each way in which a node takes part in a step.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::data::{Batch, ExportDtype, Group, Metrics, Row, Verdict};
use crate::services::{Context, ServiceError};

/// A stage cannot go on. The text says what, where and what to do.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct StageError(pub String);

impl From<ServiceError> for StageError {
    fn from(error: ServiceError) -> Self {
        Self(error.0)
    }
}

/// A node, built.
pub enum Stage {
    /// Gives rows by position.
    Source(Arc<dyn Source>),
    /// State only; others look it up.
    Engine,
    /// Prompts to groups.
    AgentLoop(Arc<dyn AgentLoop>),
    /// Groups to groups.
    Groups(Arc<dyn GroupStage>),
    /// Groups to steps.
    Buffer(Box<dyn Buffer>),
    /// Steps to steps.
    Batch(Arc<dyn BatchStage>),
    /// Learns from steps.
    Trainer(Box<dyn Trainer>),
    /// Learns before the first step.
    WarmUp(Box<dyn WarmUp>),
    /// Brings weights to an engine.
    WeightSync(Arc<dyn WeightSync>),
    /// Groups to metrics.
    Evaluator(Arc<dyn Evaluator>),
}

/// Rows as a pure function of position, so that a position is all there is to save.
pub trait Source: Send + Sync {
    /// Rows in one epoch; at least 1.
    fn rows(&self) -> u64;
    /// The row at a position counted over all epochs.
    fn row(&self, position: u64) -> Result<Arc<Row>, StageError>;
    /// See [`crate::services::Rows::data_sources`].
    fn data_sources(&self) -> &[String];
    /// Samples that each row gets.
    fn samples_per_prompt(&self) -> u32;
}

/// One prompt to be answered.
#[derive(Debug, Clone)]
pub struct GroupTask {
    /// Becomes [`Group::id`].
    pub id: u64,
    /// The sampler that drew it.
    pub sampler: Arc<str>,
    /// The prompt.
    pub row: Arc<Row>,
    /// How many answers.
    pub samples: u32,
}

/// Answers one prompt; many run at once.
#[async_trait]
pub trait AgentLoop: Send + Sync {
    /// A group with `task.samples` rollouts, some of which may have failed.
    async fn run(&self, task: GroupTask, context: &Context) -> Result<Group, StageError>;
}

/// Works on one group; many run at once.
#[async_trait]
pub trait GroupStage: Send + Sync {
    /// What becomes of the group.
    async fn process(&self, group: Group, context: &Context) -> Result<Verdict, StageError>;
    /// Whether time spent here is judging.
    fn judges(&self) -> bool {
        false
    }
}

/// Holds groups until there is a step's worth.
pub trait Buffer: Send {
    /// Groups in a step.
    fn prompts_per_step(&self) -> usize;
    /// How many of the step each input gives, in the order of inputs; sums to what is still missing.
    fn wanted(&self, inputs: &[String]) -> Vec<usize>;
    /// Takes a group in, from the input of that index.
    fn put(&mut self, input: usize, group: Group);
    /// Gives a step's groups, or none while some are missing.
    fn take(&mut self) -> Option<Batch>;
    /// Groups held, for the checkpoint.
    fn snapshot(&self) -> Value;
    /// Takes a snapshot back.
    fn restore(&mut self, state: Value) -> Result<(), StageError>;
}

/// Works on a whole step.
#[async_trait]
pub trait BatchStage: Send + Sync {
    /// The step with fields added, and what to report.
    async fn process(&self, batch: Batch, context: &Context) -> Result<(Batch, Metrics), StageError>;
    /// Called once, when training is about to begin.
    async fn begin(&self) -> Result<(), StageError> {
        Ok(())
    }
}

/// Learns from steps.
#[async_trait]
pub trait Trainer: Send {
    /// Called once, when training is about to begin.
    async fn begin(&mut self) -> Result<(), StageError>;
    /// One train step.
    async fn train(&mut self, batch: &Batch, context: &Context) -> Result<Metrics, StageError>;
    /// Writes the model as a Hugging Face folder's weights.
    async fn export(&self, folder: &std::path::Path, dtype: ExportDtype) -> Result<(), StageError>;
    /// Counters, for the checkpoint; weights and moments are the worker's.
    fn snapshot(&self) -> Value;
    /// Takes a snapshot back.
    fn restore(&mut self, state: Value) -> Result<(), StageError>;
}

/// Learns from examples, once, before the first step.
#[async_trait]
pub trait WarmUp: Send {
    /// Goes through the examples and reports.
    async fn run(&mut self, examples: &dyn Source, context: &Context) -> Result<Metrics, StageError>;
}

/// Brings weights to an engine.
#[async_trait]
pub trait WeightSync: Send + Sync {
    /// The engine speaks for train step `version` when this returns.
    async fn sync(&self, version: u64) -> Result<(), StageError>;
}

/// Sums up one evaluation.
pub trait Evaluator: Send + Sync {
    /// Metrics without prefix, such as `accuracy`. `failed` groups are counted, not zero.
    fn evaluate(&self, groups: &[Group], failed: usize) -> Metrics;
}
