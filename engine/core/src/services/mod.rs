//! What nodes are given instead of a way to the outside world.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::data::{
    AdamW, ExportDtype, FinishReason, Loss, PackMemory, Row, Sampling, Score, Seed, Sequence, SequenceSums, VersionRun,
};
use crate::plugin::Sample as PluginSample;

/// A service could not do what was asked. The text says what, where and what to do.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct ServiceError(pub String);

/// All samples of one prompt, asked for together.
#[derive(Debug, Clone)]
pub struct GenerateRequest {
    /// The prompt; the same for all samples.
    pub prompt_ids: Vec<u32>,
    /// One a sample.
    pub seeds: Vec<u64>,
    /// Tokens that end a response.
    pub stop_ids: Vec<u32>,
    /// Texts that end a response with the token that completes them, however they are spread over tokens.
    pub stop_strings: Vec<String>,
    /// How tokens are drawn.
    pub sampling: Sampling,
}

/// One generated response.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Tokens drawn.
    pub ids: Vec<u32>,
    /// Their log-probs under the distribution they were drawn from.
    pub logprobs: Vec<f32>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// How many bytes at the end of the tokens' text are the stop string that ended it and what its last token has
    /// after that; 0 where none did.
    pub stop_bytes: u32,
    /// Which weights drew them.
    pub policy_version: Vec<VersionRun>,
}

/// Generates responses. Requests are independent of each other and may be made by thousands at once.
#[async_trait]
pub trait Engine: Send + Sync {
    /// Samples of one prompt, in the order of the seeds. Dropping the future calls the request off.
    async fn generate(&self, request: GenerateRequest) -> Result<Vec<Sample>, ServiceError>;

    /// From now on tokens are drawn by the weights of train step `version`; caches of older ones are dropped.
    async fn set_version(&self, version: u64) -> Result<(), ServiceError>;
}

/// Which weights a log-prob is taken under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// Those being trained.
    Current,
    /// The copy made by `freeze`.
    Frozen,
}

/// What one optimizer step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OptimizerReport {
    /// The gradient's 2-norm before clipping.
    pub grad_norm: f64,
    /// The norm was not finite: nothing was changed but the loss scale.
    pub skipped: bool,
    /// That was because of the loss scale, which is halved: the step's packs may be trained again.
    pub again: bool,
    /// What the loss is multiplied by from now on, where the model computes in float16.
    pub loss_scale: Option<f64>,
}

/// A file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFile {
    /// Name within the folder.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

/// What a worker has taken of memory at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryPeak {
    /// Of the machine's.
    pub host_bytes: u64,
    /// Of its accelerator's; 0 without one.
    pub accelerator_bytes: u64,
}

/// Trains one model.
#[async_trait]
pub trait Learner: Send + Sync {
    /// Fresh moments and counters.
    async fn start_training(&self, optimizer: &AdamW) -> Result<(), ServiceError>;

    /// Log-probs of the response tokens of each sequence.
    async fn logprobs(
        &self,
        weights: Weights,
        pack: &[Sequence],
        chunk_tokens: u32,
    ) -> Result<Vec<Vec<f32>>, ServiceError>;

    /// Adds the gradient of `sum(token losses) / denominator`.
    async fn train_pack(
        &self,
        pack: &[Sequence],
        loss: &Loss,
        denominator: f64,
        memory: PackMemory,
    ) -> Result<Vec<SequenceSums>, ServiceError>;

    /// Applies the gradient and clears it.
    async fn optimizer_step(&self, learning_rate: f64) -> Result<OptimizerReport, ServiceError>;

    /// Keeps a copy of the weights as they are.
    async fn freeze(&self) -> Result<(), ServiceError>;

    /// Writes `model.safetensors`, with exactly the parameters of the model that was loaded.
    async fn export(&self, folder: &Path, dtype: ExportDtype) -> Result<(), ServiceError>;
}

/// A program that judges, as a node describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgeCommand {
    /// Where its settings stand in the node, such as `judge`, `command`.
    pub keys: Vec<String>,
    /// The program and its arguments.
    pub run: Vec<String>,
    /// What it is given as `config`.
    pub config: serde_json::Map<String, serde_json::Value>,
    /// At most so many samples in a message.
    pub samples_per_message: u32,
    /// It has this long for a message, and for a sample that is sent alone.
    pub timeout: Duration,
    /// It has this long until it is ready.
    pub start_timeout: Duration,
    /// A process that fails more often in a row, without an answer between, ends the run.
    pub max_restarts: u32,
    /// Names of variables that it gets from rlpipe's environment, beyond those that every program needs.
    pub environment: Vec<String>,
}

/// Judges by a program; many groups may be asked for at once.
#[async_trait]
pub trait CommandJudge: Send + Sync {
    /// What it says of each sample, in order. An error in the place of a score is that sample's alone; one of the whole
    /// call means that the program is of no use any more.
    async fn score(&self, samples: Vec<PluginSample>) -> Result<Vec<Result<Score, String>>, ServiceError>;
}

/// The rows of a sampler, by their place in its data. They are read and tokenized when they are asked for.
pub trait Rows: Send + Sync {
    /// How many there are; at least 1.
    fn count(&self) -> u64;
    /// The row at `index`, below [`count`](Self::count). An error says which file cannot be read any more, or has changed.
    fn row(&self, index: u64) -> Result<Arc<Row>, ServiceError>;
    /// The values of [`Row::data_source`], in order; where there are very many, only the first ones.
    fn data_sources(&self) -> &[String];
}

/// Rows in memory, such as those of tests.
pub struct HeldRows {
    rows: Vec<Arc<Row>>,
    data_sources: Vec<String>,
}

impl FromIterator<Row> for HeldRows {
    fn from_iter<I: IntoIterator<Item = Row>>(rows: I) -> Self {
        let rows: Vec<Arc<Row>> = rows.into_iter().map(Arc::new).collect();
        let data_sources: BTreeSet<&String> = rows.iter().map(|row| &row.data_source).collect();
        Self {
            data_sources: data_sources.into_iter().cloned().collect(),
            rows,
        }
    }
}

impl Rows for HeldRows {
    fn count(&self) -> u64 {
        self.rows.len() as u64
    }

    fn row(&self, index: u64) -> Result<Arc<Row>, ServiceError> {
        let found = usize::try_from(index).ok().and_then(|index| self.rows.get(index));
        found
            .cloned()
            .ok_or_else(|| ServiceError(format!("there is no row {index} among {}", self.count())))
    }

    fn data_sources(&self) -> &[String] {
        &self.data_sources
    }
}

/// Token ids to text; rows come tokenized.
pub trait Tokenizer: Send + Sync {
    /// Text without special tokens, and without the last `without_bytes` bytes that the tokens stand for. What is not
    /// UTF-8 then becomes U+FFFD.
    fn decode(&self, ids: &[u32], without_bytes: u32) -> Result<String, ServiceError>;
    /// Tokens that end a response; the first is appended to examples.
    fn stop_ids(&self) -> &[u32];
}

/// Is told how far things are.
pub trait Observer: Send + Sync {
    /// `done` of `total` units of `what` (such as "warm_up: batches").
    fn progress(&self, node: &str, what: &str, done: u64, total: u64);
    /// Something a person should see, once.
    fn notice(&self, node: &str, text: &str);
}

/// Where nodes find each other's state and the outside, by name, when they are built. Names were checked by the compiler.
pub trait Services: Send + Sync {
    /// The run's seed.
    fn seed(&self) -> Seed;
    /// The name of the node at an input that takes exactly one.
    fn input(&self, node: &str, input: &str) -> Result<String, ServiceError>;
    /// Rows of a sampler: all of them passed the checks.
    fn rows(&self, sampler: &str) -> Result<Arc<dyn Rows>, ServiceError>;
    /// The engine of a `rollout_engine` node.
    fn engine(&self, node: &str) -> Result<Arc<dyn Engine>, ServiceError>;
    /// Tokenizer of the model that an engine node serves.
    fn tokenizer(&self, engine: &str) -> Result<Arc<dyn Tokenizer>, ServiceError>;
    /// Who trains a model.
    fn learner(&self, model: &str) -> Result<Arc<dyn Learner>, ServiceError>;
    /// A program that a node judges by, running in the node's pool.
    fn command_judge(&self, node: &str, command: &JudgeCommand) -> Result<Arc<dyn CommandJudge>, ServiceError>;
}

/// What a node is told each time it fires.
#[derive(Clone)]
pub struct Context {
    /// The node's name.
    pub node: Arc<str>,
    /// The train step, from 1; 0 before the first.
    pub step: u64,
    /// Train steps in the whole run.
    pub total_steps: u64,
    /// The run's seed.
    pub seed: Seed,
    /// Who is told about progress.
    pub observer: Arc<dyn Observer>,
}
