//! Gradients: independent of the split into packs and chunks, equal to numeric ones, blind to masked positions.
#![allow(clippy::unwrap_used)]

mod common;

use common::{adamw, cpu, fresh, golden, load_command, policy_loss, sequence, train_pack};
use rlpipe_torch::policy::Policy;
use rlpipe_torch::train::AdamW;
use rlpipe_wire::v1;
use rlpipe_wire::v1::Kl;
use rlpipe_wire::v1::train_pack::Loss;
use tch::Tensor;

fn losses() -> Vec<Loss> {
    let kinds = [Kl::None, Kl::K1, Kl::K2, Kl::K3];
    kinds
        .map(policy_loss)
        .into_iter()
        .chain([Loss::CrossEntropy(v1::CrossEntropy {})])
        .collect()
}

fn batch() -> Vec<v1::Sequence> {
    (0..14)
        .map(|index| sequence(index, 1 + index as usize % 5, 3 + (index as usize * 7) % 11))
        .collect()
}

/// Gradients of a batch given as `packs` packs, flattened.
fn gradients(policy: &mut Policy, sequences: &[v1::Sequence], loss: &Loss, packs: usize) -> Vec<f64> {
    policy.start_training(adamw()).unwrap();
    for part in sequences.chunks(sequences.len().div_ceil(packs)) {
        policy.train_pack(&train_pack(part, *loss, 57.0)).unwrap();
    }
    flat(policy.trainer.as_ref().unwrap().gradients())
}

fn flat(tensors: &[Tensor]) -> Vec<f64> {
    let flat = |tensor: &Tensor| tensor.detach().to_kind(tch::Kind::Double).view([-1]);
    Vec::try_from(Tensor::cat(&tensors.iter().map(flat).collect::<Vec<_>>(), 0)).unwrap()
}

fn difference(a: &[f64], b: &[f64]) -> f64 {
    let largest = a.iter().fold(0f64, |largest, x| largest.max(x.abs()));
    a.iter().zip(b).fold(0f64, |most, (x, y)| most.max((x - y).abs())) / largest
}

#[test]
fn i37_gradients_do_not_depend_on_the_split() {
    for (dtype, tolerance) in [("float64", 1e-10), ("float32", 1e-5)] {
        for tied in [true, false] {
            let mut policy = fresh(dtype, tied);
            for loss in losses() {
                let whole = gradients(&mut policy, &batch(), &loss, 1);
                assert!(whole.iter().any(|x| x.abs() > 1e-4));
                for packs in [2, 7, 14] {
                    let found = difference(&whole, &gradients(&mut policy, &batch(), &loss, packs));
                    assert!(
                        found < tolerance,
                        "{dtype}, tied {tied}, {packs} packs, {loss:?}: {found}"
                    );
                }
            }
        }
    }
}

/// A model with weights that are all different, biases and norms of queries and keys included.
fn loaded(name: &str, dtype: &str) -> Policy {
    let command = v1::Load {
        engine: None,
        ..load_command(&golden(name), dtype, None)
    };
    Policy::load(&command, &cpu()).unwrap()
}

#[test]
fn the_cache_leaves_what_training_asks_for() {
    for (dtype, of_parameter) in [("float64", 3 * 8), ("float32", 12), ("bfloat16", 12)] {
        let mut policy = loaded("qwen3-biases", dtype);
        let said = policy.training_bytes();
        assert_eq!(said, of_parameter * policy.network.layout.parameters(), "{dtype}");
        policy.start_training(adamw()).unwrap();
        let trainer = policy.trainer.as_ref().unwrap();
        let AdamW { means, squares, .. } = &trainer.optimizer;
        let asked = trainer.gradients().iter().chain(means).chain(squares);
        let bytes = asked.map(|leaf| leaf.numel() * leaf.kind().elt_size_in_bytes());
        assert_eq!(bytes.sum::<usize>() as u64, said, "{dtype}");
        policy.trainable = false;
        assert_eq!(policy.training_bytes(), 0);
    }
}

#[test]
fn gradients_of_biases_and_head_norms_do_not_depend_on_the_split() {
    for name in ["llama-biases", "qwen2-untied", "qwen3-biases", "rope-yarn"] {
        for (dtype, tolerance) in [("float64", 1e-10), ("float32", 1e-5)] {
            let mut policy = loaded(name, dtype);
            for loss in losses() {
                let whole = gradients(&mut policy, &batch(), &loss, 1);
                for packs in [2, 14] {
                    let found = difference(&whole, &gradients(&mut policy, &batch(), &loss, packs));
                    assert!(found < tolerance, "{name}, {dtype}, {packs} packs, {loss:?}: {found}");
                }
            }
            let moved = |leaf: &Tensor| leaf.abs().max().double_value(&[]) > 1e-5;
            assert!(policy.trainer.as_ref().unwrap().gradients().iter().all(moved), "{name}");
        }
    }
}

#[test]
fn gradients_are_the_slopes_of_the_loss() {
    let models = [
        ("tied", fresh("float64", true)),
        ("untied", fresh("float64", false)),
        ("qwen2", loaded("qwen2-untied", "float64")),
        ("qwen3", loaded("qwen3-biases", "float64")),
    ];
    for (name, mut policy) in models {
        let sequences: Vec<_> = (0..4).map(|index| sequence(index, 2, 4 + index as usize)).collect();
        for (index, loss) in losses().into_iter().enumerate() {
            let coefficient = if index == 0 || index == 4 { 0.0 } else { 0.3 };
            let gradient = gradients(&mut policy, &sequences, &loss, 1);
            let mut value = |policy: &mut Policy| {
                let sums = policy
                    .train_pack(&train_pack(&sequences, loss, 57.0))
                    .unwrap()
                    .sequences;
                sums.iter().map(|sums| sums.loss + coefficient * sums.kl).sum::<f64>() / 57.0
            };
            let mut before = 0;
            for leaf in 0..policy.weights.len() {
                let weights = policy.weights[leaf].detach().view([-1]);
                for at in [0, weights.numel() as i64 / 3, weights.numel() as i64 - 2] {
                    let start = weights.double_value(&[at]);
                    let slope = |policy: &mut Policy, step: f64, value: &mut dyn FnMut(&mut Policy) -> f64| {
                        let _ = weights.get(at).fill_(start + step);
                        let found = value(policy);
                        let _ = weights.get(at).fill_(start);
                        found
                    };
                    let step = 1e-5;
                    let ahead = slope(&mut policy, step, &mut value);
                    let numeric = (ahead - slope(&mut policy, -step, &mut value)) / (2.0 * step);
                    let found = gradient[before + at as usize];
                    assert!(
                        (numeric - found).abs() < 1e-7,
                        "{name}, {loss:?}, leaf {leaf}: {numeric} {found}"
                    );
                }
                before += weights.numel();
            }
        }
    }
}

#[test]
fn i29_chunks_and_masked_positions_do_not_matter() {
    let mut policy = fresh("float64", true);
    for loss in losses() {
        let whole = gradients(&mut policy, &batch(), &loss, 1);
        for chunk in [0, 1, 1000] {
            policy.start_training(adamw()).unwrap();
            let mut command = train_pack(&batch(), loss, 57.0);
            command.logprob_chunk_tokens = chunk;
            policy.train_pack(&command).unwrap();
            let found = flat(policy.trainer.as_ref().unwrap().gradients());
            assert!(difference(&whole, &found) < 1e-12);
        }
        let mut spoiled = batch();
        for sequence in &mut spoiled {
            for at in (0..sequence.mask.len()).filter(|at| !sequence.mask[*at]) {
                sequence.advantages[at] = f32::NAN;
                sequence.old_logprobs[at] = f32::INFINITY;
                sequence.reference_logprobs[at] = f32::NAN;
                sequence.rollout_logprobs[at] = f32::NAN;
            }
        }
        assert!(
            spoiled
                .iter()
                .any(|sequence| sequence.advantages.iter().any(|x| x.is_nan()))
        );
        assert_eq!(gradients(&mut policy, &spoiled, &loss, 1), whole);
        let sums = policy.train_pack(&train_pack(&spoiled, loss, 57.0)).unwrap();
        assert_eq!(sums, policy.train_pack(&train_pack(&batch(), loss, 57.0)).unwrap());
        assert!(
            sums.sequences
                .iter()
                .all(|sums| sums.loss.is_finite() && sums.logprob_abs_diff.is_finite())
        );
    }
}

#[test]
fn sums_are_those_of_the_tokens() {
    let mut policy = fresh("float64", true);
    policy.start_training(adamw()).unwrap();
    let mut sequences = batch();
    // The policy's own log-probs stand in for the old ones.
    sequences[3].old_logprobs.clear();
    let logprobs = policy
        .logprobs(&v1::LogProbs {
            pack: Some(v1::Pack {
                sequences: sequences.clone(),
            }),
            ..Default::default()
        })
        .unwrap()
        .sequences;
    let sums = policy
        .train_pack(&train_pack(&sequences, policy_loss(Kl::K2), 3.0))
        .unwrap()
        .sequences;
    for ((sequence, current), sums) in sequences.iter().zip(logprobs).zip(sums) {
        let (mut tokens, mut ratio, mut kl, mut low, mut high, mut diff, mut worst) =
            (0, 0.0, 0.0, 0.0, 0.0, 0.0, 0f64);
        for at in (0..sequence.mask.len()).filter(|at| sequence.mask[*at]) {
            let now = f64::from(current.values[at]);
            let old = sequence.old_logprobs.get(at).map_or(now, |old| f64::from(*old));
            let reference = f64::from(sequence.reference_logprobs[at]);
            let apart = (now - f64::from(sequence.rollout_logprobs[at])).abs();
            tokens += 1;
            ratio += (now - old).exp();
            kl += 0.5 * (now - reference).powi(2);
            low += f64::from((now - old).exp() < 0.8);
            high += f64::from((now - old).exp() > 1.28);
            diff += apart;
            worst = worst.max(apart);
        }
        assert_eq!((sums.tokens, sums.clipped_low, sums.clipped_high), (tokens, low, high));
        for (found, expected) in [
            (sums.ratio, ratio),
            (sums.kl, kl),
            (sums.logprob_abs_diff, diff),
            (sums.logprob_abs_diff_max, worst),
        ] {
            assert!(
                (found - expected).abs() < 1e-4 * (1.0 + expected.abs()),
                "{found} {expected}"
            );
        }
        assert!(sums.entropy > 0.0 && sums.entropy < f64::from(tokens) * 20f64.ln());
    }
}

#[test]
fn i45_a_norm_that_is_not_finite_changes_nothing() {
    let mut policy = fresh("float32", true);
    policy.start_training(adamw()).unwrap();
    let mut bad = sequence(1, 2, 6);
    bad.mask.fill(true);
    bad.advantages[2] = f32::INFINITY;
    let before = flat(&policy.weights);
    policy
        .train_pack(&train_pack(&[bad], policy_loss(Kl::None), 6.0))
        .unwrap();
    let stepped = policy.optimizer_step(0.1).unwrap();
    assert!(stepped.skipped && !stepped.grad_norm.is_finite());
    assert_eq!(flat(&policy.weights), before);
    let trainer = policy.trainer.as_ref().unwrap();
    assert_eq!((trainer.optimizer.steps, trainer.pending_packs()), (0, 0));
    assert!(flat(trainer.gradients()).iter().all(|x| *x == 0.0));
    policy
        .train_pack(&train_pack(&[sequence(1, 2, 6)], policy_loss(Kl::None), 6.0))
        .unwrap();
    assert!(!policy.optimizer_step(0.1).unwrap().skipped);
}

#[test]
fn clipping_scales_to_the_largest_norm() {
    let mut norms = Vec::new();
    // Without moments (beta 0) and with a huge eps a step is the gradient times rate / eps.
    for max_grad_norm in [0.0, 0.01] {
        let mut policy = fresh("float64", true);
        let settings = v1::AdamW {
            beta1: 0.0,
            beta2: 0.0,
            eps: 1e6,
            weight_decay: 0.0,
            max_grad_norm,
        };
        policy.start_training(settings).unwrap();
        let before = flat(&policy.weights);
        policy
            .train_pack(&train_pack(&batch(), policy_loss(Kl::None), 57.0))
            .unwrap();
        let stepped = policy.optimizer_step(1e6).unwrap();
        let moved = flat(&policy.weights)
            .iter()
            .zip(before)
            .map(|(a, b)| (a - b).powi(2))
            .sum::<f64>()
            .sqrt();
        norms.push((stepped.grad_norm, moved));
    }
    assert!(norms[0].0 > 0.01 && norms[0].0 == norms[1].0);
    assert!((norms[0].1 - norms[0].0).abs() < 1e-5 * norms[0].0);
    assert!((norms[1].1 - 0.01).abs() < 1e-7, "{norms:?}");
}

#[test]
fn training_lowers_the_loss_in_every_type() {
    for dtype in ["float32", "bfloat16", "float16"] {
        let mut policy = fresh(dtype, false);
        policy.start_training(adamw()).unwrap();
        let mut history = Vec::new();
        for _ in 0..30 {
            let command = train_pack(&batch(), Loss::CrossEntropy(v1::CrossEntropy {}), 80.0);
            history.push(
                policy
                    .train_pack(&command)
                    .unwrap()
                    .sequences
                    .iter()
                    .map(|sums| sums.loss)
                    .sum::<f64>(),
            );
            policy.optimizer_step(1e-2).unwrap();
        }
        assert!(history[29] < 0.6 * history[0], "{dtype}: {history:?}");
    }
}

#[test]
fn gradients_too_large_for_float16_are_asked_for_again() {
    /// Trains one step from a loss scale, and says how often it was too large.
    fn settled(factor: f64) -> (Policy, v1::OptimizerStepped, i32) {
        let mut policy = fresh("float16", false);
        policy.start_training(adamw()).unwrap();
        policy.trainer.as_mut().unwrap().loss_scale.as_mut().unwrap().factor = factor;
        let before = flat(&policy.weights);
        for tries in 0.. {
            let command = train_pack(&batch(), policy_loss(Kl::None), 57.0);
            policy.train_pack(&command).unwrap();
            let stepped = policy.optimizer_step(1e-2).unwrap();
            let changed = flat(&policy.weights) != before;
            assert!(stepped.skipped == stepped.again && changed != stepped.again);
            assert_eq!(
                stepped.loss_scale,
                Some(factor / 2f64.powi(tries + i32::from(stepped.again)))
            );
            if !stepped.again {
                return (policy, stepped, tries);
            }
        }
        unreachable!()
    }
    let (mut usual, expected, tries) = settled(16.0);
    assert_eq!(tries, 0);
    let (scaled, found, tries) = settled(1_073_741_824.0);
    assert!(tries > 0 && (found.grad_norm / expected.grad_norm - 1.0).abs() < 1e-2);
    let [usual_weights, scaled_weights] = [&usual, &scaled].map(|policy| flat(&policy.weights));
    let apart = usual_weights
        .iter()
        .zip(&scaled_weights)
        .map(|(a, b)| (a - b).powi(2))
        .sum::<f64>()
        .sqrt();
    let moved = usual_weights
        .iter()
        .zip(flat(&fresh("float16", false).weights))
        .map(|(a, b)| (a - b).powi(2));
    assert!(apart < 0.05 * moved.sum::<f64>().sqrt(), "{apart}");

    // What no scale can mend is not asked for again.
    let mut bad = sequence(1, 2, 6);
    bad.mask.fill(true);
    bad.advantages[2] = f32::INFINITY;
    usual
        .train_pack(&train_pack(&[bad], policy_loss(Kl::None), 6.0))
        .unwrap();
    let stepped = usual.optimizer_step(1e-2).unwrap();
    assert!(stepped.skipped && !stepped.again && stepped.loss_scale == Some(16.0));
}

#[test]
fn bad_packs_are_refused_with_a_reason() {
    let mut policy = fresh("float32", true);
    let good = sequence(1, 2, 6);
    let refused = |policy: &mut Policy, sequence: v1::Sequence| {
        policy
            .train_pack(&train_pack(&[sequence], policy_loss(Kl::K3), 1.0))
            .unwrap_err()
            .0
    };
    assert!(refused(&mut policy, good.clone()).contains("send StartTraining first"));
    policy.start_training(adamw()).unwrap();
    let mut change = |change: &dyn Fn(&mut v1::Sequence), reason: &str| {
        let mut bad = good.clone();
        change(&mut bad);
        let error = refused(&mut policy, bad);
        assert!(error.contains(reason), "{error}");
    };
    change(&|bad| bad.prompt_tokens = 0, "a prompt of 0");
    change(&|bad| bad.prompt_tokens = 9, "8 tokens and a prompt of 9");
    change(&|bad| bad.ids[3] = 20, "token id 20 is outside");
    change(
        &|bad| bad.mask.truncate(5),
        "`mask` has 5 values for a response of 6 tokens",
    );
    change(&|bad| bad.old_logprobs.truncate(5), "`old_logprobs` has 5 values");
    change(&|bad| bad.advantages.clear(), "needs `advantages`");
    change(&|bad| bad.reference_logprobs.clear(), "needs `reference_logprobs`");
    change(&|bad| bad.temperature = f64::NAN, "`temperature` is NaN");
    change(&|bad| bad.ids.extend([1; 60]), "but the model reads 48");
    let error = policy
        .train_pack(&train_pack(&[], policy_loss(Kl::None), 1.0))
        .unwrap_err()
        .0;
    assert!(error.contains("no sequence"));
    let error = policy
        .train_pack(&train_pack(&[sequence(1, 2, 6)], policy_loss(Kl::None), 0.0))
        .unwrap_err()
        .0;
    assert!(error.contains("`denominator` is 0"));
    assert_eq!(policy.trainer.as_ref().unwrap().pending_packs(), 0);
    assert!(
        policy
            .logprobs(&v1::LogProbs {
                frozen: true,
                ..Default::default()
            })
            .unwrap_err()
            .0
            .contains("send Freeze")
    );
}
