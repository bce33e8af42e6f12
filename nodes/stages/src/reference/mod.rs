//! `reference`: log-probs under a frozen copy of the model, for a KL term in the loss.

use std::num::NonZeroU32;
use std::sync::Arc;

use async_trait::async_trait;
use rlpipe_core::data::{Batch, Metrics};
use rlpipe_core::kind::{
    BatchStage, Contract, Field, Input, NodeConfig, Output, PortType, Role, Stage, StageError, Use,
};
use rlpipe_core::services::{Context, Learner, ServiceError, Services, Weights};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::learning::{default_chunk, default_pack, logprobs, packs, unpacked};
use crate::trainer::sequence;

/// Adds log-probs under a frozen copy of the model.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReferenceConfig {
    /// The pool it runs in.
    pool: String,
    /// The model: a copy of it as it is when training begins, after any warm-up, stays unchanged.
    model: String,
    /// Tokens that go through the model together.
    #[serde(default = "default_pack")]
    max_tokens_per_pack: NonZeroU32,
    /// Tokens whose logits exist at the same time.
    #[serde(default = "default_chunk")]
    logprob_chunk_tokens: NonZeroU32,
}

impl NodeConfig for ReferenceConfig {
    const KIND: &'static str = "reference";
    const SUMMARY: &'static str = "Adds log-probs under a frozen copy of the model.";
    const EXAMPLE: &'static str = "\
type: reference
inputs: { batch: buffer }
pool: gpu
model: policy
";

    fn contract(&self) -> Contract {
        Contract {
            inputs: vec![Input::one("batch", PortType::Batch).needs(&[Field::Tokens])],
            outputs: vec![Output::new("batch", PortType::Batch).adds(&[Field::ReferenceLogprobs])],
            uses: vec![Use::pool(&self.pool), Use::model(&self.model)],
            role: Role::Reference {
                max_tokens_per_pack: self.max_tokens_per_pack.get(),
                logprob_chunk_tokens: self.logprob_chunk_tokens.get(),
            },
        }
    }

    fn build(&self, _node: &str, services: &dyn Services) -> Result<Stage, ServiceError> {
        Ok(Stage::Batch(Arc::new(Reference {
            learner: services.learner(&self.model)?,
            max_tokens_per_pack: self.max_tokens_per_pack.get() as usize,
            chunk_tokens: self.logprob_chunk_tokens.get(),
        })))
    }
}

struct Reference {
    learner: Arc<dyn Learner>,
    max_tokens_per_pack: usize,
    chunk_tokens: u32,
}

#[async_trait]
impl BatchStage for Reference {
    async fn begin(&self) -> Result<(), StageError> {
        Ok(self.learner.freeze().await?)
    }

    async fn process(&self, mut batch: Batch, _context: &Context) -> Result<(Batch, Metrics), StageError> {
        let sequences: Vec<_> = batch
            .groups
            .iter()
            .flat_map(|group| group.rollouts.iter().map(|rollout| sequence(group, rollout)))
            .collect();
        let packs = packs(sequences, self.max_tokens_per_pack);
        let answers = logprobs(&*self.learner, Weights::Frozen, &packs, self.chunk_tokens).await?;
        let rollouts = batch.groups.iter_mut().flat_map(|group| &mut group.rollouts);
        for (rollout, logprobs) in rollouts.zip(unpacked(&packs, answers)) {
            rollout.reference_logprobs = Some(logprobs);
        }
        Ok((batch, Metrics::default()))
    }
}
