//! Engine and learner over a worker: what is sent is what was meant, what comes back is checked.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use rlpipe_backends::{Hub, TorchEngine, TorchLearner, Worker};
use rlpipe_core::data::{
    Activations, AdamW, ExportDtype, FinishReason, KlEstimator, Loss, PackMemory, PolicyLoss, Sampling, Sequence,
    SequenceSums, VersionRun,
};
use rlpipe_core::services::{Engine, GenerateRequest, Learner, OptimizerReport, Weights};
use rlpipe_wire::v1::{self, from_worker::Event, to_worker::Command};
use support::{Dialed, connected, sample_of};

fn shared<T: Send + Sync + 'static>() {}

fn sequence() -> Sequence {
    Sequence {
        ids: vec![10, 11, 12, 13, 14],
        prompt_tokens: 2,
        mask: vec![true, false, true],
        temperature: 0.75,
        advantages: vec![0.5, 0.25, 1.0],
        old_logprobs: vec![-1.0, -2.0, -3.0],
        rollout_logprobs: vec![-1.5, -2.5, -3.5],
        reference_logprobs: vec![-4.0, -5.0, -6.0],
    }
}

fn memory(chunk_tokens: u32, activations: Activations) -> PackMemory {
    PackMemory {
        chunk_tokens,
        activations,
    }
}

fn sequence_on_the_wire() -> v1::Sequence {
    v1::Sequence {
        ids: vec![10, 11, 12, 13, 14],
        prompt_tokens: 2,
        mask: vec![true, false, true],
        temperature: 0.75,
        advantages: vec![0.5, 0.25, 1.0],
        old_logprobs: vec![-1.0, -2.0, -3.0],
        rollout_logprobs: vec![-1.5, -2.5, -3.5],
        reference_logprobs: vec![-4.0, -5.0, -6.0],
    }
}

fn policy() -> PolicyLoss {
    PolicyLoss {
        clip_low: 0.2,
        clip_high: 0.28,
        dual_clip: Some(10.0),
        log_ratio_clamp: [-20.0, 19.0],
        kl: Some((KlEstimator::K3, 0.001)),
    }
}

/// Asks the learner or engine and answers its one command with `event`.
async fn answered<T>(dialed: &mut Dialed, asking: impl Future<Output = T>, event: Event) -> (T, Command) {
    tokio::join!(asking, async {
        let (id, command) = dialed.next().await;
        dialed.answer(id, event);
        command
    })
}

#[test]
fn services_can_be_shared_between_threads() {
    shared::<Hub>();
    shared::<Worker>();
    shared::<Box<dyn Engine>>();
    shared::<TorchEngine>();
    shared::<TorchLearner>();
}

#[tokio::test]
async fn the_engine_speaks_for_its_model() {
    let (_hub, worker, mut dialed) = connected().await;
    let engine = TorchEngine::new(worker, "policy");
    let sampling = Sampling {
        max_new_tokens: 6,
        min_new_tokens: 2,
        temperature: 0.5,
        top_p: 0.9,
        top_k: 40,
        min_p: 0.1,
    };
    let request = GenerateRequest {
        prompt_ids: vec![7, 8],
        seeds: vec![u64::MAX, 5],
        stop_ids: vec![2, 3],
        stop_strings: vec!["\n\nQ".to_owned()],
        sampling,
    };
    let stopped = v1::Sample {
        finish_reason: v1::FinishReason::Stop.into(),
        stop_bytes: 5,
        ..sample_of(9, 3)
    };
    let called_off = v1::Sample {
        finish_reason: v1::FinishReason::Aborted.into(),
        ..v1::Sample::default()
    };
    let event = Event::Generated(v1::Generated {
        samples: vec![stopped, called_off],
    });
    let (samples, command) = answered(&mut dialed, engine.generate(request), event).await;

    let sampling = v1::Sampling {
        max_new_tokens: 6,
        min_new_tokens: 2,
        temperature: 0.5,
        top_p: 0.9,
        top_k: 40,
        min_p: 0.1,
    };
    let expected = v1::Generate {
        model: "policy".to_owned(),
        prompt_ids: vec![7, 8],
        seeds: vec![u64::MAX, 5],
        stop_ids: vec![2, 3],
        stop_strings: vec!["\n\nQ".to_owned()],
        sampling: Some(sampling),
    };
    assert_eq!(command, Command::Generate(expected));
    let samples = samples.unwrap();
    assert_eq!(samples[0].ids, [9, 10, 11]);
    assert_eq!(samples[0].logprobs, [-1.125, -1.25, -1.375]);
    assert_eq!(
        (samples[0].finish_reason, samples[0].stop_bytes),
        (FinishReason::Stop, 5)
    );
    let runs = [
        VersionRun { version: 3, tokens: 1 },
        VersionRun { version: 4, tokens: 2 },
    ];
    assert_eq!(samples[0].policy_version, runs);
    assert_eq!(
        (samples[1].ids.len(), samples[1].finish_reason),
        (0, FinishReason::Aborted)
    );

    let done = Event::Done(v1::Done {});
    let (result, command) = answered(&mut dialed, engine.set_version(12), done).await;
    result.unwrap();
    assert_eq!(
        command,
        Command::SetVersion(v1::SetVersion {
            model: "policy".to_owned(),
            version: 12
        })
    );
}

#[tokio::test]
async fn samples_that_do_not_fit_the_request_are_named() {
    let (_hub, worker, mut dialed) = connected().await;
    let engine = TorchEngine::new(worker, "policy");
    let sampling = Sampling {
        max_new_tokens: 5,
        min_new_tokens: 0,
        temperature: 1.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
    };
    let request = GenerateRequest {
        prompt_ids: vec![1],
        seeds: vec![1, 2],
        stop_ids: vec![],
        stop_strings: vec![],
        sampling,
    };
    let good = || sample_of(1, 4);
    let with = |change: fn(&mut v1::Sample)| {
        let mut bad = good();
        change(&mut bad);
        vec![good(), bad]
    };
    let cases = [
        (vec![good()], "1 samples, 2 expected"),
        (vec![good(), good(), good()], "3 samples, 2 expected"),
        (
            with(|sample| sample.logprobs.truncate(3)),
            "sample 1: 3 log-probs, 4 expected",
        ),
        (
            with(|sample| sample.finish_reason = 0),
            "sample 1: finish reason 0 is unknown",
        ),
        (
            with(|sample| sample.finish_reason = 9),
            "sample 1: finish reason 9 is unknown",
        ),
        (
            with(|sample| sample.policy_version = vec![3]),
            "sample 1: the policy versions are not pairs",
        ),
        (
            with(|sample| sample.policy_version = vec![3, 3]),
            "sample 1: 3 tokens with a policy version, 4 expected",
        ),
        (
            with(|sample| sample.policy_version = vec![3, u64::MAX]),
            "sample 1: a policy version for 18446744073709551615",
        ),
    ];
    for (samples, expected) in cases {
        let event = Event::Generated(v1::Generated { samples });
        let (result, _) = answered(&mut dialed, engine.generate(request.clone()), event).await;
        let error = result.unwrap_err().to_string();
        let expected = format!("worker 0 of pool `gpu` gave a wrong answer to `generate`: {expected}");
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[tokio::test]
async fn the_learner_sends_all_of_a_pack_and_a_loss() {
    let (_hub, worker, dialed) = connected().await;
    let learner = TorchLearner::new(worker.clone(), "policy");
    let serving = dialed.serve();
    let adamw = AdamW {
        betas: [0.9, 0.95],
        eps: 1e-8,
        weight_decay: 0.1,
        max_grad_norm: 1.5,
    };
    let pack = vec![
        sequence(),
        Sequence {
            ids: vec![1, 2],
            prompt_tokens: 2,
            ..Sequence::default()
        },
    ];

    learner.start_training(&adamw).await.unwrap();
    let logprobs = learner.logprobs(Weights::Frozen, &pack, 256).await.unwrap();
    assert_eq!(logprobs, [vec![-12.0, -13.0, -14.0], vec![]]);
    let sums = learner
        .train_pack(
            &pack,
            &Loss::Policy(policy()),
            640.0,
            memory(512, Activations::RecomputeGated),
        )
        .await
        .unwrap();
    let expected = SequenceSums {
        tokens: 2,
        loss: 1.75,
        kl: 2.0,
        ratio: 3.0,
        clipped_low: 4.0,
        clipped_high: 5.0,
        logprob_abs_diff: 6.0,
        logprob_abs_diff_max: 7.0,
        entropy: 8.0,
    };
    assert_eq!((sums.len(), &sums[0], sums[1].tokens), (2, &expected, 0));
    learner
        .train_pack(&pack[..1], &Loss::CrossEntropy, 1.0, PackMemory::default())
        .await
        .unwrap();
    let report = learner.optimizer_step(0.25).await.unwrap();
    assert_eq!(
        report,
        OptimizerReport {
            grad_norm: 0.5,
            skipped: true,
            again: true,
            loss_scale: Some(512.0),
        }
    );
    learner.freeze().await.unwrap();
    learner.export("/run/hf".as_ref(), ExportDtype::Bfloat16).await.unwrap();
    worker.shutdown().await.unwrap();

    let model = || "policy".to_owned();
    let bare = v1::Sequence {
        ids: vec![1, 2],
        prompt_tokens: 2,
        ..v1::Sequence::default()
    };
    let both = v1::Pack {
        sequences: vec![sequence_on_the_wire(), bare],
    };
    let optimizer = v1::AdamW {
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        max_grad_norm: 1.5,
    };
    let loss = v1::PolicyLoss {
        clip_low: 0.2,
        clip_high: 0.28,
        dual_clip: Some(10.0),
        log_ratio_min: -20.0,
        log_ratio_max: 19.0,
        kl: v1::Kl::K3.into(),
        kl_coefficient: 0.001,
    };
    let expected = [
        Command::StartTraining(v1::StartTraining {
            model: model(),
            optimizer: Some(optimizer),
        }),
        Command::LogProbs(v1::LogProbs {
            model: model(),
            frozen: true,
            pack: Some(both.clone()),
            logprob_chunk_tokens: 256,
        }),
        Command::TrainPack(v1::TrainPack {
            model: model(),
            pack: Some(both),
            denominator: 640.0,
            logprob_chunk_tokens: 512,
            activations: v1::Activations::RecomputeGated.into(),
            loss: Some(v1::train_pack::Loss::Policy(loss)),
        }),
        Command::TrainPack(v1::TrainPack {
            model: model(),
            pack: Some(v1::Pack {
                sequences: vec![sequence_on_the_wire()],
            }),
            denominator: 1.0,
            logprob_chunk_tokens: 0,
            activations: v1::Activations::Keep.into(),
            loss: Some(v1::train_pack::Loss::CrossEntropy(v1::CrossEntropy {})),
        }),
        Command::OptimizerStep(v1::OptimizerStep {
            model: model(),
            learning_rate: 0.25,
        }),
        Command::Freeze(v1::Freeze { model: model() }),
        Command::Export(v1::Export {
            model: model(),
            folder: "/run/hf".to_owned(),
            dtype: "bfloat16".to_owned(),
        }),
        Command::Shutdown(v1::Shutdown {}),
    ];
    assert_eq!(serving.await.unwrap(), expected);
}

#[tokio::test]
async fn packs_that_do_not_fit_together_are_not_sent() {
    let (_hub, worker, _dialed) = connected().await;
    let learner = TorchLearner::new(worker.clone(), "policy");
    let loss = Loss::Policy(policy());
    type Change = fn(&mut Sequence);
    let cases: [(Change, &str); 7] = [
        (|sequence| sequence.prompt_tokens = 0, "0 prompt tokens of 5 tokens"),
        (|sequence| sequence.prompt_tokens = 6, "6 prompt tokens of 5 tokens"),
        (|sequence| sequence.mask.clear(), "0 mask, 3 expected"),
        (|sequence| sequence.advantages.truncate(2), "2 advantages, 3 expected"),
        (
            |sequence| sequence.old_logprobs.truncate(1),
            "1 old log-probs, 3 expected",
        ),
        (
            |sequence| sequence.rollout_logprobs.push(0.0),
            "4 rollout log-probs, 3 expected",
        ),
        (
            |sequence| sequence.reference_logprobs.clear(),
            "0 reference log-probs, 3 expected",
        ),
    ];
    for (change, expected) in cases {
        let mut bad = sequence();
        change(&mut bad);
        let error = learner
            .train_pack(&[sequence(), bad], &loss, 1.0, memory(1, Activations::Keep))
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(error, format!("`train_pack` was not sent: sequence 1: {expected}"));
    }
    for denominator in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = learner
            .train_pack(&[sequence()], &loss, denominator, memory(1, Activations::Keep))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("not a number above 0"), "{error}");
    }
    assert!(worker.pending().is_empty());
}

#[tokio::test]
async fn answers_that_do_not_fit_the_pack_are_named() {
    let (_hub, worker, mut dialed) = connected().await;
    let learner = TorchLearner::new(worker, "policy");
    let pack = vec![sequence()];
    let floats = |length| v1::Floats {
        values: vec![0.0; length],
    };
    for (sequences, expected) in [
        (vec![], "0 sequences, 1 expected"),
        (vec![floats(3), floats(3)], "2 sequences, 1 expected"),
        (vec![floats(5)], "sequence 0: 5 log-probs, 3 expected"),
    ] {
        let event = Event::LogProbs(v1::PackLogProbs { sequences });
        let (result, _) = answered(&mut dialed, learner.logprobs(Weights::Current, &pack, 1), event).await;
        let error = result.unwrap_err().to_string();
        assert_eq!(
            error,
            format!("worker 0 of pool `gpu` gave a wrong answer to `log_probs`: {expected}")
        );
    }
    let sums = |tokens| v1::SequenceSums {
        tokens,
        ..v1::SequenceSums::default()
    };
    for (sequences, expected) in [
        (vec![], "0 sequences, 1 expected"),
        (vec![sums(3)], "sequence 0: 3 trained tokens, 2 expected"),
    ] {
        let event = Event::PackTrained(v1::PackTrained { sequences });
        let asking = learner.train_pack(&pack, &Loss::CrossEntropy, 1.0, memory(1, Activations::Keep));
        let (result, _) = answered(&mut dialed, asking, event).await;
        let error = result.unwrap_err().to_string();
        assert_eq!(
            error,
            format!("worker 0 of pool `gpu` gave a wrong answer to `train_pack`: {expected}")
        );
    }
}
