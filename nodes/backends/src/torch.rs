//! Engine and learner over a worker that runs torch.

use std::path::Path;

use async_trait::async_trait;
use rlpipe_core::data::{AdamW, ExportDtype, Loss, PackMemory, Sequence, SequenceSums};
use rlpipe_core::services::{Engine, GenerateRequest, Learner, OptimizerReport, Sample, ServiceError, Weights};
use rlpipe_wire::v1::{self, from_worker::Event, to_worker::Command};

use crate::{Worker, convert};

/// Generates with one model of one worker.
#[derive(Debug, Clone)]
pub struct TorchEngine {
    worker: Worker,
    model: String,
}

impl TorchEngine {
    /// The model must have been loaded with an engine.
    pub fn new(worker: Worker, model: impl Into<String>) -> Self {
        Self {
            worker,
            model: model.into(),
        }
    }
}

#[async_trait]
impl Engine for TorchEngine {
    async fn generate(&self, request: GenerateRequest) -> Result<Vec<Sample>, ServiceError> {
        let samples = request.seeds.len();
        let command = Command::Generate(convert::generate_to_wire(&self.model, request));
        match self.worker.call_or_abort(command).await? {
            Event::Generated(generated) => {
                convert::samples_from_wire(generated, samples).map_err(|error| wrong(&self.worker, "generate", &error))
            }
            other => Err(self.worker.mismatch("generate", &other)),
        }
    }

    async fn set_version(&self, version: u64) -> Result<(), ServiceError> {
        self.worker
            .call_done(Command::SetVersion(v1::SetVersion {
                model: self.model.clone(),
                version,
            }))
            .await
    }
}

/// Trains one model of one worker.
#[derive(Debug, Clone)]
pub struct TorchLearner {
    worker: Worker,
    model: String,
}

impl TorchLearner {
    /// To be trained, the model must have been loaded as trainable.
    pub fn new(worker: Worker, model: impl Into<String>) -> Self {
        Self {
            worker,
            model: model.into(),
        }
    }
}

#[async_trait]
impl Learner for TorchLearner {
    async fn start_training(&self, optimizer: &AdamW) -> Result<(), ServiceError> {
        let command = v1::StartTraining {
            model: self.model.clone(),
            optimizer: Some(convert::adamw_to_wire(optimizer)),
        };
        self.worker.call_done(Command::StartTraining(command)).await
    }

    async fn logprobs(
        &self,
        weights: Weights,
        pack: &[Sequence],
        chunk_tokens: u32,
    ) -> Result<Vec<Vec<f32>>, ServiceError> {
        let command = v1::LogProbs {
            model: self.model.clone(),
            frozen: weights == Weights::Frozen,
            pack: Some(convert::pack_to_wire(pack, None).map_err(|error| unfit("log_probs", &error))?),
            logprob_chunk_tokens: chunk_tokens,
        };
        match self.worker.call(Command::LogProbs(command)).await? {
            Event::LogProbs(logprobs) => {
                convert::logprobs_from_wire(logprobs, pack).map_err(|error| wrong(&self.worker, "log_probs", &error))
            }
            other => Err(self.worker.mismatch("log_probs", &other)),
        }
    }

    async fn train_pack(
        &self,
        pack: &[Sequence],
        loss: &Loss,
        denominator: f64,
        memory: PackMemory,
    ) -> Result<Vec<SequenceSums>, ServiceError> {
        if !(denominator.is_finite() && denominator > 0.0) {
            let error = format!("the denominator is {denominator}, not a number above 0");
            return Err(unfit("train_pack", &error));
        }
        let command = v1::TrainPack {
            model: self.model.clone(),
            pack: Some(convert::pack_to_wire(pack, Some(loss)).map_err(|error| unfit("train_pack", &error))?),
            denominator,
            logprob_chunk_tokens: memory.chunk_tokens,
            activations: convert::activations_to_wire(memory.activations).into(),
            loss: Some(convert::loss_to_wire(loss)),
        };
        match self.worker.call(Command::TrainPack(command)).await? {
            Event::PackTrained(trained) => {
                convert::sums_from_wire(trained, pack).map_err(|error| wrong(&self.worker, "train_pack", &error))
            }
            other => Err(self.worker.mismatch("train_pack", &other)),
        }
    }

    async fn optimizer_step(&self, learning_rate: f64) -> Result<OptimizerReport, ServiceError> {
        let command = v1::OptimizerStep {
            model: self.model.clone(),
            learning_rate,
        };
        match self.worker.call(Command::OptimizerStep(command)).await? {
            Event::OptimizerStepped(stepped) => Ok(OptimizerReport {
                grad_norm: stepped.grad_norm,
                skipped: stepped.skipped,
                again: stepped.again,
                loss_scale: stepped.loss_scale,
            }),
            other => Err(self.worker.mismatch("optimizer_step", &other)),
        }
    }

    async fn freeze(&self) -> Result<(), ServiceError> {
        self.worker
            .call_done(Command::Freeze(v1::Freeze {
                model: self.model.clone(),
            }))
            .await
    }

    async fn export(&self, folder: &Path, dtype: ExportDtype) -> Result<(), ServiceError> {
        let command = v1::Export {
            model: self.model.clone(),
            folder: convert::path_to_wire(folder)?,
            dtype: dtype.name().to_owned(),
        };
        match self.worker.call(Command::Export(command)).await? {
            Event::Saved(_) => Ok(()),
            other => Err(self.worker.mismatch("export", &other)),
        }
    }
}

/// An answer that does not fit the question.
fn wrong(worker: &Worker, name: &str, error: &str) -> ServiceError {
    ServiceError(format!("{} gave a wrong answer to `{name}`: {error}", worker.name()))
}

/// A command that must not be sent.
fn unfit(name: &str, error: &str) -> ServiceError {
    ServiceError(format!("`{name}` was not sent: {error}"))
}
