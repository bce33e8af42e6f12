//! `rlpipe bench train`: packs of random sequences with random advantages, then the optimizer step.

use anyhow::{Result, ensure};
use rlpipe_backends::{TorchLearner, Worker};
use rlpipe_core::data::{Activations, AdamW, Loss, PackMemory, PolicyLoss, Seed, Sequence};
use rlpipe_core::services::{Learner as _, OptimizerReport};
use rlpipe_stages::learning::{self, Pack};
use serde_json::json;

use super::arguments::{BenchActivations, TrainArguments};
use super::report::{CeilingsLine, Measured, Report};
use super::roofline::Training;
use super::worker::{BenchWorker, MODEL, ensure_held, random_ids, timed};
use crate::ExitError;

/// What a trainer has where nothing is said.
const OPTIMIZER: AdamW = AdamW {
    betas: [0.9, 0.95],
    eps: 1e-8,
    weight_decay: 0.01,
    max_grad_norm: 1.0,
};
/// As small as it is in GRPO: weights stay what they are.
const LEARNING_RATE: f64 = 1e-6;

/// A step of equal sequences.
struct Step {
    packs: Vec<Pack>,
    trained_tokens: u64,
    loss: Loss,
    memory: PackMemory,
}

impl Step {
    fn new(arguments: &TrainArguments, sequences: u32, vocabulary: u32) -> Self {
        let response = (arguments.tokens - arguments.prompt_tokens) as usize;
        let sequence = |index: u32| Sequence {
            ids: random_ids(Seed::run(1).with(index.into()), arguments.tokens, vocabulary),
            prompt_tokens: arguments.prompt_tokens,
            mask: vec![true; response],
            temperature: 1.0,
            advantages: vec![if index.is_multiple_of(2) { 1.0 } else { -1.0 }; response],
            ..Sequence::default()
        };
        let sequences: Vec<Sequence> = (0..sequences).map(sequence).collect();
        Self {
            trained_tokens: (sequences.len() * response) as u64,
            packs: learning::packs(sequences, arguments.pack_tokens as usize),
            loss: Loss::Policy(PolicyLoss {
                clip_low: 0.2,
                clip_high: 0.2,
                dual_clip: None,
                log_ratio_clamp: [-20.0, 20.0],
                kl: None,
            }),
            memory: PackMemory {
                chunk_tokens: arguments.chunk_tokens,
                activations: match arguments.activations {
                    BenchActivations::Keep => Activations::Keep,
                    BenchActivations::RecomputeGated => Activations::RecomputeGated,
                    BenchActivations::RecomputeLayers => Activations::RecomputeLayers,
                },
            },
        }
    }

    /// Seconds of all packs, and of the optimizer step; of the last try where float16 asked for a smaller loss scale.
    async fn once(&self, learner: &TorchLearner) -> Result<[f64; 2]> {
        loop {
            let (report, seconds) = self.tried(learner).await?;
            if report.again {
                continue;
            }
            ensure!(
                !report.skipped,
                "the optimizer step was skipped: the gradient's norm is {}",
                report.grad_norm
            );
            return Ok(seconds);
        }
    }

    async fn tried(&self, learner: &TorchLearner) -> Result<(OptimizerReport, [f64; 2])> {
        let (trained, packs_s) = timed(async {
            let denominator = self.trained_tokens as f64;
            let sums = learning::train(learner, &self.packs, &self.loss, denominator, self.memory).await?;
            Ok(sums.iter().flatten().map(|sums| u64::from(sums.tokens)).sum::<u64>())
        })
        .await?;
        ensure!(
            trained == self.trained_tokens,
            "{trained} tokens were trained, {} were sent",
            self.trained_tokens
        );
        let (report, optimizer_s) = timed(async { Ok(learner.optimizer_step(LEARNING_RATE).await?) }).await?;
        Ok((report, [packs_s, optimizer_s]))
    }
}

/// Measures.
pub async fn train(arguments: &TrainArguments) -> Result<Report> {
    if arguments.prompt_tokens >= arguments.tokens {
        return Err(ExitError::misused(format!(
            "`--prompt-tokens {}` leaves nothing to train of `--tokens {}`; give fewer",
            arguments.prompt_tokens, arguments.tokens
        )));
    }
    if arguments.pack_tokens < arguments.tokens {
        return Err(ExitError::misused(format!(
            "`--pack-tokens {}` has no room for a sequence of `--tokens {}`; give more",
            arguments.pack_tokens, arguments.tokens
        )));
    }
    let worker = BenchWorker::start(&arguments.worker).await?;
    let sequences = arguments.sequences.unwrap_or(if worker.is_cpu() { 8 } else { 512 });
    let tokens = u128::from(sequences) * u128::from(arguments.tokens);
    ensure_held(sequences.into(), tokens, "`--sequences` or `--tokens`")?;
    let loaded = worker.load(arguments.worker.dtype, None, true).await?;
    let learner = learner(&worker.worker).await?;
    let step = Step::new(arguments, sequences, loaded.vocabulary);
    let [mut packs, mut optimizer, mut all] = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..=arguments.worker.runs {
        let [packs_s, optimizer_s] = step.once(&learner).await?;
        packs.push(packs_s);
        optimizer.push(optimizer_s);
        all.push(packs_s + optimizer_s);
    }
    let mut report = worker.report("train", &loaded, arguments.shown.date.as_ref());
    let ceilings = CeilingsLine::from(worker.worker.ceilings().await?);
    let training = Training {
        sequences: sequences.into(),
        tokens: arguments.tokens.into(),
        prompt_tokens: arguments.prompt_tokens.into(),
        packs: step.packs.len() as u64,
        number_bytes: if loaded.dtype == "float32" { 4 } else { 2 },
    };
    let sizes = &worker.model.sizes;
    let (in_packs, in_step) = (training.packs(sizes), training.optimizer(sizes));
    let tokens = f64::from(sequences) * f64::from(arguments.tokens);
    for (name, times, work) in [
        ("train", &all, in_packs + in_step),
        ("forward and backward", &packs, in_packs),
        ("optimizer step", &optimizer, in_step),
    ] {
        let measured = Measured::of(name, &times[1..], times.first().copied(), "tokens", tokens);
        report
            .measured
            .extend(measured.map(|measured| measured.against(work, &ceilings, &loaded.dtype)));
    }
    report.ceilings = Some(ceilings);
    report.settings = [
        ("sequences", json!(sequences)),
        ("tokens", json!(arguments.tokens)),
        ("prompt_tokens", json!(arguments.prompt_tokens)),
        ("pack_tokens", json!(arguments.pack_tokens)),
        ("packs", json!(step.packs.len())),
        ("chunk_tokens", json!(arguments.chunk_tokens)),
        ("activations", json!(step.memory.activations)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect();
    worker.end().await?;
    Ok(report)
}

async fn learner(worker: &Worker) -> Result<TorchLearner> {
    let learner = TorchLearner::new(worker.clone(), MODEL);
    learner.start_training(&OPTIMIZER).await?;
    Ok(learner)
}
