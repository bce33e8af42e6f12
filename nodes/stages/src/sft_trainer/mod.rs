//! `sft_trainer`: learns from examples, once, before the first train step.
//!
//! An example is the prompt through the chat template, then the answer, then the stop token; answer and stop token are
//! trained.

use std::num::NonZeroU32;
use std::sync::Arc;

use async_trait::async_trait;
use rlpipe_core::data::{Activations, AdamW, Loss, Metrics, PackMemory, Row, Sequence, mean};
use rlpipe_core::kind::{
    Choice, Contract, Input, NodeConfig, NonNegative, Output, PortType, Role, Source, Stage, StageError, Use, WarmUp,
};
use rlpipe_core::services::{Context, Learner, ServiceError, Services};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::learning::{
    LrSchedule, Optimizer, Schedule, default_chunk, default_max_grad_norm, default_pack, packs, train_step, unpacked,
};

/// Learns from examples before the first train step.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SftTrainerConfig {
    /// The pool it runs in.
    pool: String,
    /// The model it trains: the trainer's, which begins with what is learnt here and a fresh optimizer.
    model: String,
    /// How often it goes through the examples.
    #[serde(default = "one")]
    epochs: NonZeroU32,
    /// Examples in one optimizer step; the last of an epoch may have fewer.
    examples_per_step: NonZeroU32,
    /// What turns gradients into steps.
    optimizer: Choice<Optimizer>,
    /// Gradients with a larger 2-norm are scaled down to it. 0 leaves them.
    #[serde(default = "default_max_grad_norm")]
    max_grad_norm: NonNegative,
    /// How the learning rate goes over the optimizer steps.
    #[serde(default)]
    lr_schedule: Schedule,
    /// Tokens that go through the model together.
    #[serde(default = "default_pack")]
    max_tokens_per_pack: NonZeroU32,
    /// Tokens whose logits exist at the same time.
    #[serde(default = "default_chunk")]
    logprob_chunk_tokens: NonZeroU32,
    /// What the forward pass keeps for the backward pass; the rest is computed again. Bounds memory; results do not depend
    /// on it.
    #[serde(default)]
    activations: Activations,
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

impl NodeConfig for SftTrainerConfig {
    const KIND: &'static str = "sft_trainer";
    const SUMMARY: &'static str = "Learns from examples, once, before the first train step.";
    const EXAMPLE: &'static str = "\
type: sft_trainer
inputs: { examples: lessons.examples }
pool: gpu
model: policy
epochs: 2
examples_per_step: 64
optimizer: { adamw: { lr: 1e-5 } }
";

    fn contract(&self) -> Contract {
        Contract {
            inputs: vec![Input::one("examples", PortType::Examples)],
            outputs: vec![Output::new("weights", PortType::Weights)],
            uses: vec![Use::pool(&self.pool), Use::model(&self.model)],
            role: Role::SftTrainer {
                examples_per_step: self.examples_per_step.get(),
                max_tokens_per_pack: self.max_tokens_per_pack.get(),
                logprob_chunk_tokens: self.logprob_chunk_tokens.get(),
                activations: self.activations,
                learning_rate: self.lr_schedule.described(self.optimizer.lr()),
            },
        }
    }

    fn build(&self, _node: &str, services: &dyn Services) -> Result<Stage, ServiceError> {
        Ok(Stage::WarmUp(Box::new(SftTrainer {
            learner: services.learner(&self.model)?,
            optimizer: self.optimizer.adamw(self.max_grad_norm),
            peak_lr: self.optimizer.lr(),
            lr_schedule: self.lr_schedule.0.clone(),
            epochs: self.epochs.get().into(),
            examples_per_step: self.examples_per_step.get().into(),
            max_tokens_per_pack: self.max_tokens_per_pack.get() as usize,
            memory: PackMemory {
                chunk_tokens: self.logprob_chunk_tokens.get(),
                activations: self.activations,
            },
        })))
    }
}

struct SftTrainer {
    learner: Arc<dyn Learner>,
    optimizer: AdamW,
    peak_lr: f64,
    lr_schedule: LrSchedule,
    epochs: u64,
    examples_per_step: u64,
    max_tokens_per_pack: usize,
    memory: PackMemory,
}

fn example(row: &Row) -> Sequence {
    let mut ids = row.prompt_ids.clone();
    ids.extend_from_slice(&row.answer_ids);
    Sequence {
        ids,
        prompt_tokens: row.prompt_ids.len() as u32,
        mask: vec![true; row.answer_ids.len()],
        temperature: 1.0,
        ..Sequence::default()
    }
}

#[async_trait]
impl WarmUp for SftTrainer {
    async fn run(&mut self, examples: &dyn Source, context: &Context) -> Result<Metrics, StageError> {
        self.learner.start_training(&self.optimizer).await?;
        let batches = examples.rows().div_ceil(self.examples_per_step);
        let total = batches * self.epochs;
        let (mut losses, mut skipped) = (Vec::new(), 0.0);
        for batch in 0..total {
            context.observer.progress(&context.node, "batches", batch, total);
            let (epoch, place) = (batch / batches, batch % batches);
            let start = epoch * examples.rows() + place * self.examples_per_step;
            let end = (start + self.examples_per_step).min((epoch + 1) * examples.rows());
            let sequences: Vec<Sequence> = (start..end)
                .map(|position| Ok(example(&*examples.row(position)?)))
                .collect::<Result<_, StageError>>()?;
            let tokens: usize = sequences.iter().map(Sequence::trained_tokens).sum();
            if tokens == 0 {
                return Err(StageError(format!(
                    "nothing can be learnt from {} examples: their answers have no tokens; give the rows an `answer`",
                    sequences.len()
                )));
            }
            let packs = packs(sequences, self.max_tokens_per_pack);
            let learning_rate = self.lr_schedule.rate(self.peak_lr, batch + 1, total);
            let (learner, loss, denominator) = (&*self.learner, &Loss::CrossEntropy, tokens as f64);
            let (sums, report) = train_step(learner, &packs, loss, denominator, self.memory, learning_rate).await?;
            let loss: f64 = unpacked(&packs, sums).iter().map(|sums| sums.loss).sum();
            skipped += f64::from(u8::from(report.skipped));
            losses.push(loss / tokens.max(1) as f64);
        }
        context.observer.progress(&context.node, "batches", total, total);
        let last = losses.len().saturating_sub(batches as usize);
        let mut metrics = Metrics::default();
        metrics.set("sft/loss_first", losses.first().copied().unwrap_or(0.0));
        metrics.set("sft/loss_last_epoch", mean(&losses[last..]));
        metrics.set("sft/optimizer_steps", total as f64);
        metrics.set("sft/optimizer_skipped", skipped);
        Ok(metrics)
    }
}
