//! Between the contract's types and the wire's, both ways. Lengths are checked on the way out and on the way back.

use std::path::Path;

use rlpipe_core::data::{Activations, AdamW, FinishReason, KlEstimator, Loss, Sequence, SequenceSums, VersionRun};
use rlpipe_core::services::{GenerateRequest, Sample, SavedFile, ServiceError};
use rlpipe_wire::v1;

use crate::{LoadRequest, Loaded};

pub(crate) fn path_to_wire(path: &Path) -> Result<String, ServiceError> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        ServiceError(format!(
            "the path `{}` is not UTF-8, which workers need; rename the folder",
            path.display()
        ))
    })
}

pub(crate) fn load_to_wire(request: &LoadRequest) -> Result<v1::Load, ServiceError> {
    Ok(v1::Load {
        model: request.model.clone(),
        folder: path_to_wire(&request.folder)?,
        dtype: request.dtype.clone(),
        init_seed: request.init_seed,
        engine: request.engine.as_ref().map(|engine| v1::EngineSpec {
            max_context_tokens: engine.max_context_tokens,
            slots: engine.slots,
            memory_fraction: engine.memory_fraction,
            own_weights: engine.own_weights,
        }),
        trainable: request.trainable,
        token_bytes: request.token_bytes.clone(),
    })
}

pub(crate) fn loaded_from_wire(loaded: v1::Loaded) -> Loaded {
    let v1::Loaded {
        parameters,
        vocabulary,
        slots,
        device,
        dtype,
    } = loaded;
    Loaded {
        parameters,
        vocabulary,
        slots,
        device,
        dtype,
    }
}

pub(crate) fn saved_from_wire(saved: v1::Saved) -> Vec<SavedFile> {
    let file = |v1::File { name, bytes, sha256 }| SavedFile { name, bytes, sha256 };
    saved.files.into_iter().map(file).collect()
}

pub(crate) fn generate_to_wire(model: &str, request: GenerateRequest) -> v1::Generate {
    let GenerateRequest {
        prompt_ids,
        seeds,
        stop_ids,
        stop_strings,
        sampling,
    } = request;
    v1::Generate {
        model: model.to_owned(),
        prompt_ids,
        seeds,
        stop_ids,
        stop_strings,
        sampling: Some(v1::Sampling {
            max_new_tokens: sampling.max_new_tokens,
            min_new_tokens: sampling.min_new_tokens,
            temperature: sampling.temperature,
            top_p: sampling.top_p,
            top_k: sampling.top_k,
            min_p: sampling.min_p,
        }),
    }
}

pub(crate) fn samples_from_wire(generated: v1::Generated, wanted: usize) -> Result<Vec<Sample>, String> {
    expect("samples", generated.samples.len(), wanted)?;
    let samples = generated.samples.into_iter().enumerate();
    samples
        .map(|(index, sample)| sample_from_wire(sample).map_err(|error| format!("sample {index}: {error}")))
        .collect()
}

fn sample_from_wire(sample: v1::Sample) -> Result<Sample, String> {
    let finish_reason = match sample.finish_reason() {
        v1::FinishReason::Stop => FinishReason::Stop,
        v1::FinishReason::Length => FinishReason::Length,
        v1::FinishReason::Aborted => FinishReason::Aborted,
        v1::FinishReason::Unspecified => return Err(format!("finish reason {} is unknown", sample.finish_reason)),
    };
    expect("log-probs", sample.logprobs.len(), sample.ids.len())?;
    let policy_version = versions_from_wire(&sample.policy_version, sample.ids.len())?;
    Ok(Sample {
        ids: sample.ids,
        logprobs: sample.logprobs,
        finish_reason,
        stop_bytes: sample.stop_bytes,
        policy_version,
    })
}

fn versions_from_wire(pairs: &[u64], tokens: usize) -> Result<Vec<VersionRun>, String> {
    let (pairs, rest) = pairs.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("the policy versions are not pairs of version and tokens".to_owned());
    }
    let mut runs = Vec::with_capacity(pairs.len());
    let mut covered = 0_u64;
    for &[version, length] in pairs {
        let tokens = u32::try_from(length).map_err(|_| format!("a policy version for {length} tokens"))?;
        covered += length;
        runs.push(VersionRun { version, tokens });
    }
    if covered != tokens as u64 {
        return Err(format!("{covered} tokens with a policy version, {tokens} expected"));
    }
    Ok(runs)
}

/// With a loss, what it needs must be there; without one only log-probs are wanted.
pub(crate) fn pack_to_wire(pack: &[Sequence], loss: Option<&Loss>) -> Result<v1::Pack, String> {
    let sequences = pack.iter().enumerate().map(|(index, sequence)| {
        sequence_to_wire(sequence, loss).map_err(|error| format!("sequence {index}: {error}"))
    });
    Ok(v1::Pack {
        sequences: sequences.collect::<Result<_, _>>()?,
    })
}

fn sequence_to_wire(sequence: &Sequence, loss: Option<&Loss>) -> Result<v1::Sequence, String> {
    if sequence.prompt_tokens == 0 || sequence.prompt_tokens as usize > sequence.ids.len() {
        return Err(format!(
            "{} prompt tokens of {} tokens",
            sequence.prompt_tokens,
            sequence.ids.len()
        ));
    }
    let policy = match loss {
        Some(Loss::Policy(policy)) => Some(policy),
        Some(Loss::CrossEntropy) | None => None,
    };
    let response = response_tokens(sequence);
    let vectors = [
        ("mask", sequence.mask.len(), loss.is_some()),
        ("advantages", sequence.advantages.len(), policy.is_some()),
        ("old log-probs", sequence.old_logprobs.len(), false),
        ("rollout log-probs", sequence.rollout_logprobs.len(), false),
        (
            "reference log-probs",
            sequence.reference_logprobs.len(),
            policy.is_some_and(|policy| policy.kl.is_some()),
        ),
    ];
    for (what, length, needed) in vectors {
        if needed || length != 0 {
            expect(what, length, response)?;
        }
    }
    Ok(v1::Sequence {
        ids: sequence.ids.clone(),
        prompt_tokens: sequence.prompt_tokens,
        mask: sequence.mask.clone(),
        temperature: sequence.temperature,
        advantages: sequence.advantages.clone(),
        old_logprobs: sequence.old_logprobs.clone(),
        rollout_logprobs: sequence.rollout_logprobs.clone(),
        reference_logprobs: sequence.reference_logprobs.clone(),
    })
}

pub(crate) fn logprobs_from_wire(answer: v1::PackLogProbs, pack: &[Sequence]) -> Result<Vec<Vec<f32>>, String> {
    expect("sequences", answer.sequences.len(), pack.len())?;
    for (index, (floats, sequence)) in answer.sequences.iter().zip(pack).enumerate() {
        expect("log-probs", floats.values.len(), response_tokens(sequence))
            .map_err(|error| format!("sequence {index}: {error}"))?;
    }
    Ok(answer.sequences.into_iter().map(|floats| floats.values).collect())
}

pub(crate) fn sums_from_wire(answer: v1::PackTrained, pack: &[Sequence]) -> Result<Vec<SequenceSums>, String> {
    expect("sequences", answer.sequences.len(), pack.len())?;
    for (index, (sums, sequence)) in answer.sequences.iter().zip(pack).enumerate() {
        expect("trained tokens", sums.tokens as usize, sequence.trained_tokens())
            .map_err(|error| format!("sequence {index}: {error}"))?;
    }
    let sums = answer.sequences.into_iter().map(|sums| SequenceSums {
        tokens: sums.tokens,
        loss: sums.loss,
        kl: sums.kl,
        ratio: sums.ratio,
        clipped_low: sums.clipped_low,
        clipped_high: sums.clipped_high,
        logprob_abs_diff: sums.logprob_abs_diff,
        logprob_abs_diff_max: sums.logprob_abs_diff_max,
        entropy: sums.entropy,
    });
    Ok(sums.collect())
}

pub(crate) fn adamw_to_wire(optimizer: &AdamW) -> v1::AdamW {
    let AdamW {
        betas: [beta1, beta2],
        eps,
        weight_decay,
        max_grad_norm,
    } = *optimizer;
    v1::AdamW {
        beta1,
        beta2,
        eps,
        weight_decay,
        max_grad_norm,
    }
}

pub(crate) fn activations_to_wire(activations: Activations) -> v1::Activations {
    match activations {
        // A plan has chosen; nobody who has none knows what there is room for.
        Activations::Auto | Activations::Keep => v1::Activations::Keep,
        Activations::RecomputeGated => v1::Activations::RecomputeGated,
        Activations::RecomputeLayers => v1::Activations::RecomputeLayers,
    }
}

pub(crate) fn loss_to_wire(loss: &Loss) -> v1::train_pack::Loss {
    let policy = match loss {
        Loss::Policy(policy) => policy,
        Loss::CrossEntropy => return v1::train_pack::Loss::CrossEntropy(v1::CrossEntropy {}),
    };
    let (kl, kl_coefficient) = match policy.kl {
        None => (v1::Kl::None, 0.0),
        Some((KlEstimator::K1, coefficient)) => (v1::Kl::K1, coefficient),
        Some((KlEstimator::K2, coefficient)) => (v1::Kl::K2, coefficient),
        Some((KlEstimator::K3, coefficient)) => (v1::Kl::K3, coefficient),
    };
    let [log_ratio_min, log_ratio_max] = policy.log_ratio_clamp;
    v1::train_pack::Loss::Policy(v1::PolicyLoss {
        clip_low: policy.clip_low,
        clip_high: policy.clip_high,
        dual_clip: policy.dual_clip,
        log_ratio_min,
        log_ratio_max,
        kl: kl.into(),
        kl_coefficient,
    })
}

fn response_tokens(sequence: &Sequence) -> usize {
    sequence.ids.len().saturating_sub(sequence.prompt_tokens as usize)
}

fn expect(what: &str, found: usize, expected: usize) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{found} {what}, {expected} expected"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use rlpipe_core::data::PolicyLoss;

    use super::*;

    #[test]
    fn a_path_that_is_not_text_is_refused() {
        assert_eq!(path_to_wire("/models/\u{e9}".as_ref()).unwrap(), "/models/\u{e9}");
        let error = path_to_wire(OsStr::from_bytes(b"/models/\xff").as_ref())
            .unwrap_err()
            .to_string();
        assert!(error.contains("is not UTF-8") && error.contains("rename"), "{error}");
    }

    #[test]
    fn every_kl_estimator_has_its_own_name() {
        let cases = [
            (None, v1::Kl::None, 0.0),
            (Some((KlEstimator::K1, 0.5)), v1::Kl::K1, 0.5),
            (Some((KlEstimator::K2, 0.25)), v1::Kl::K2, 0.25),
            (Some((KlEstimator::K3, 0.125)), v1::Kl::K3, 0.125),
        ];
        for (kl, name, coefficient) in cases {
            let loss = PolicyLoss {
                clip_low: 0.1,
                clip_high: 0.2,
                dual_clip: None,
                log_ratio_clamp: [-1.0, 2.0],
                kl,
            };
            let expected = v1::PolicyLoss {
                clip_low: 0.1,
                clip_high: 0.2,
                dual_clip: None,
                log_ratio_min: -1.0,
                log_ratio_max: 2.0,
                kl: name.into(),
                kl_coefficient: coefficient,
            };
            assert_eq!(
                loss_to_wire(&Loss::Policy(loss)),
                v1::train_pack::Loss::Policy(expected)
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn policy_versions_are_taken_whole_or_not_at_all(
            pairs in proptest::collection::vec(proptest::prop_oneof![0_u64..4, proptest::num::u64::ANY], 0..7),
            tokens in 0_usize..5,
        ) {
            if let Ok(runs) = versions_from_wire(&pairs, tokens) {
                let back: Vec<u64> = runs.iter().flat_map(|run| [run.version, u64::from(run.tokens)]).collect();
                proptest::prop_assert_eq!(back, pairs);
                proptest::prop_assert_eq!(runs.iter().map(|run| run.tokens as usize).sum::<usize>(), tokens);
            }
        }
    }
}
