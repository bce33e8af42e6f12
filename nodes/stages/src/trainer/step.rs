//! One train step.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use rlpipe_core::data::{
    AdamW, Batch, ExportDtype, Group, Loss, Metrics, PackMemory, Rollout, Sequence, SequenceSums, mean,
};
use rlpipe_core::kind::{StageError, Trainer};
use rlpipe_core::services::{Context, Learner, Weights};
use serde_json::{Value, json};

use super::config::OldLogprobs;
use crate::learning::{LrSchedule, Pack, logprobs, packs, train_step, unpacked};

/// A mean difference of engine's and trainer's log-probs above this is told, and again when it has grown by so much since.
const PARITY: f64 = 0.01;
const PARITY_GROWTH: f64 = 1.5;

/// The running trainer.
pub struct TrainStep {
    pub learner: Arc<dyn Learner>,
    pub optimizer: AdamW,
    pub peak_lr: f64,
    pub lr_schedule: LrSchedule,
    pub optimizer_steps: usize,
    pub max_tokens_per_pack: usize,
    pub old_logprobs: OldLogprobs,
    pub loss: Loss,
    pub memory: PackMemory,
    /// Optimizer steps skipped so far because of a gradient that was not finite.
    pub skipped: u64,
    /// What was told last of how far engine and trainer are apart.
    pub told_parity: Option<f64>,
}

/// A rollout as the learner sees it. One without an advantage has no trained token.
pub fn sequence(group: &Group, rollout: &Rollout) -> Sequence {
    let advantage = rollout.advantage.unwrap_or(0.0) as f32;
    let mut ids = group.row.prompt_ids.clone();
    ids.extend_from_slice(&rollout.response_ids);
    Sequence {
        ids,
        prompt_tokens: group.row.prompt_ids.len() as u32,
        mask: rollout.mask.clone(),
        temperature: rollout.temperature,
        advantages: vec![advantage; rollout.response_ids.len()],
        old_logprobs: Vec::new(),
        rollout_logprobs: rollout.logprobs.clone(),
        reference_logprobs: rollout.reference_logprobs.clone().unwrap_or_default(),
    }
}

/// What the optimizer steps of one train step did.
#[derive(Default)]
struct Tally {
    sums: SequenceSums,
    /// Of the first optimizer step, which tells how far engine and trainer are apart.
    parity: SequenceSums,
    losses: Vec<f64>,
    grad_norms: Vec<f64>,
    skipped: u64,
    /// Optimizer steps without a token to train.
    empty: u64,
    /// Of float16, after the last.
    loss_scale: Option<f64>,
    tokens: usize,
}

#[async_trait]
impl Trainer for TrainStep {
    async fn begin(&mut self) -> Result<(), StageError> {
        Ok(self.learner.start_training(&self.optimizer).await?)
    }

    async fn train(&mut self, batch: &Batch, context: &Context) -> Result<Metrics, StageError> {
        let learning_rate = self.lr_schedule.rate(self.peak_lr, context.step, context.total_steps);
        let share = batch.groups.len().div_ceil(self.optimizer_steps).max(1);
        let mut shares: Vec<Vec<Pack>> = batch
            .groups
            .chunks(share)
            .map(|groups| packs(groups.iter().flat_map(sequences).collect(), self.max_tokens_per_pack))
            .collect();
        match self.old_logprobs {
            OldLogprobs::Rollout => {
                for sequence in shares.iter_mut().flatten().flat_map(|pack| &mut pack.sequences) {
                    sequence.old_logprobs.clone_from(&sequence.rollout_logprobs);
                }
            }
            // With one optimizer step the policy is still the old one: its own log-probs are exact.
            OldLogprobs::Recompute if shares.len() > 1 => {
                for share in &mut shares {
                    self.recompute(share).await?;
                }
            }
            OldLogprobs::Recompute => {}
        }
        let mut tally = Tally::default();
        let total = shares.len() as u64;
        for (index, share) in shares.iter().enumerate() {
            context
                .observer
                .progress(&context.node, "optimizer steps", index as u64, total);
            self.optimizer_step(share, learning_rate, &mut tally).await?;
        }
        self.skipped += tally.skipped;
        let metrics = self.metrics(&tally, learning_rate);
        self.notices(batch, &metrics, context);
        Ok(metrics)
    }

    async fn export(&self, folder: &Path, dtype: ExportDtype) -> Result<(), StageError> {
        Ok(self.learner.export(folder, dtype).await?)
    }

    fn snapshot(&self) -> Value {
        json!({ "skipped_optimizer_steps": self.skipped })
    }

    fn restore(&mut self, state: Value) -> Result<(), StageError> {
        self.skipped = state["skipped_optimizer_steps"]
            .as_u64()
            .ok_or_else(|| StageError("the checkpoint's trainer state has no `skipped_optimizer_steps`".to_owned()))?;
        Ok(())
    }
}

/// A group's rollouts that are trained: those that a judger gave a reward.
fn sequences(group: &Group) -> impl Iterator<Item = Sequence> + '_ {
    group
        .rollouts
        .iter()
        .filter(|rollout| rollout.advantage.is_some())
        .map(|rollout| sequence(group, rollout))
}

impl TrainStep {
    /// What a person should see of a step: it is not silent about having learnt nothing, nor about an engine that drifts.
    fn notices(&mut self, batch: &Batch, metrics: &Metrics, context: &Context) {
        let notice = |text: &str| {
            context
                .observer
                .notice(&context.node, &format!("step {}: {text}", context.step))
        };
        if batch.groups.iter().all(Group::is_uniform) {
            notice("nothing to learn from, the rewards of every group are equal");
        }
        if let Some(empty) = metrics.get("optimizer/empty").filter(|empty| *empty > 0.0) {
            notice(&format!(
                "{empty} optimizer steps had no response with a reward, and were left out"
            ));
        }
        if let Some(skipped) = metrics.get("optimizer/skipped").filter(|skipped| *skipped > 0.0) {
            let by_type = match metrics.get("optimizer/loss_scale") {
                Some(_) => "; float16 ends at 65504, `dtype: bfloat16` does not",
                None => "",
            };
            notice(&format!(
                "{skipped} optimizer steps skipped, their gradients were not finite{by_type}"
            ));
        }
        let least = self.told_parity.map_or(PARITY, |told| told * PARITY_GROWTH);
        if let Some(difference) = metrics
            .get("parity/logprob_abs_diff_mean")
            .filter(|difference| *difference > least)
        {
            self.told_parity = Some(difference);
            notice(&format!(
                "log-probs of engine and trainer differ by {difference:.4} in the mean, more than {PARITY}; `dtype: float16` \
                 or `float32` brings them together, and `top_p`, `top_k`, `min_p` and `min_new_tokens` in training keep \
                 them apart"
            ));
        }
    }

    async fn recompute(&self, packs: &mut [Pack]) -> Result<(), StageError> {
        let logprobs = logprobs(&*self.learner, Weights::Current, packs, self.memory.chunk_tokens).await?;
        for (pack, logprobs) in packs.iter_mut().zip(logprobs) {
            for (sequence, logprobs) in pack.sequences.iter_mut().zip(logprobs) {
                sequence.old_logprobs = logprobs;
            }
        }
        Ok(())
    }

    async fn optimizer_step(&self, packs: &[Pack], learning_rate: f64, tally: &mut Tally) -> Result<(), StageError> {
        let sequences = || packs.iter().flat_map(|pack| &pack.sequences);
        let tokens: usize = sequences().map(Sequence::trained_tokens).sum();
        if tokens == 0 {
            if let Some(masked) = sequences().find(|sequence| !sequence.mask.is_empty()) {
                return Err(StageError(format!(
                    "nothing can be learnt: the masks of all {} responses of an optimizer step leave out every token, {} of \
                     the first alone; correct what sets them",
                    sequences().count(),
                    masked.mask.len()
                )));
            }
            tally.empty += 1;
            return Ok(());
        }
        let mut share = SequenceSums::default();
        tally.tokens += sequences().map(|sequence| sequence.ids.len()).sum::<usize>();
        let (learner, denominator) = (&*self.learner, tokens as f64);
        let (sums, report) = train_step(learner, packs, &self.loss, denominator, self.memory, learning_rate).await?;
        for sums in unpacked(packs, sums) {
            accumulate(&mut share, &sums);
        }
        tally.skipped += u64::from(report.skipped);
        tally.grad_norms.push(report.grad_norm);
        tally.loss_scale = report.loss_scale;
        tally
            .losses
            .push((share.loss + self.kl_coefficient() * share.kl) / tokens as f64);
        accumulate(&mut tally.sums, &share);
        // Later shares are trained by weights that the engine did not speak for.
        if tally.losses.len() == 1 {
            tally.parity = share;
        }
        Ok(())
    }

    fn kl_coefficient(&self) -> f64 {
        match &self.loss {
            Loss::Policy(policy) => policy.kl.map_or(0.0, |(_, coefficient)| coefficient),
            Loss::CrossEntropy => 0.0,
        }
    }

    fn metrics(&self, tally: &Tally, learning_rate: f64) -> Metrics {
        let per_token = |sum: f64| sum / f64::from(tally.sums.tokens.max(1));
        let mut metrics = Metrics::default();
        metrics.set("loss", mean(&tally.losses));
        metrics.set("grad_norm", mean(&tally.grad_norms));
        metrics.set("lr", learning_rate);
        let compared = f64::from(tally.parity.tokens.max(1));
        metrics.set("parity/logprob_abs_diff_mean", tally.parity.logprob_abs_diff / compared);
        metrics.set("parity/logprob_abs_diff_max", tally.parity.logprob_abs_diff_max);
        metrics.set("policy/ratio_mean", per_token(tally.sums.ratio));
        metrics.set("policy/clipped_low", per_token(tally.sums.clipped_low));
        metrics.set("policy/clipped_high", per_token(tally.sums.clipped_high));
        metrics.set("policy/entropy", per_token(tally.sums.entropy));
        if matches!(&self.loss, Loss::Policy(policy) if policy.kl.is_some()) {
            metrics.set("policy/kl", per_token(tally.sums.kl));
        }
        metrics.set("train/tokens", tally.tokens as f64);
        metrics.set("train/response_tokens", f64::from(tally.sums.tokens));
        metrics.set("optimizer/skipped", tally.skipped as f64);
        metrics.set("optimizer/skipped_total", self.skipped as f64);
        metrics.set("optimizer/empty", tally.empty as f64);
        if let Some(loss_scale) = tally.loss_scale {
            metrics.set("optimizer/loss_scale", loss_scale);
        }
        metrics
    }
}

fn accumulate(into: &mut SequenceSums, sums: &SequenceSums) {
    into.tokens += sums.tokens;
    into.loss += sums.loss;
    into.kl += sums.kl;
    into.ratio += sums.ratio;
    into.clipped_low += sums.clipped_low;
    into.clipped_high += sums.clipped_high;
    into.logprob_abs_diff += sums.logprob_abs_diff;
    into.logprob_abs_diff_max = into.logprob_abs_diff_max.max(sums.logprob_abs_diff_max);
    into.entropy += sums.entropy;
}
