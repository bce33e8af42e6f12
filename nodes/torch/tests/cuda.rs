//! The same golden values and parities on a card. One test, because torch's CUDA half must come before any torch act of
//! the process; a machine without a card has nothing to check here.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;

use common::{
    adamw, card, cpu, drain, generate, golden, load_command, policy_loss, sampling, sequence, train_pack, train_step,
};
use rlpipe_torch::device::Accelerator;
use rlpipe_torch::policy::Policy;
use rlpipe_torch::store::{restore, save};
use rlpipe_wire::v1;
use serde_json::Value;

#[test]
fn a_card_computes_what_a_cpu_does() {
    let Some(card) = card() else { return };
    assert_ne!(card.name, "cuda");
    golden_values(&card);
    gradients(&card);
    chosen_slots_and_parity(&card);
    checkpoint(&card);
}

fn load(card: &Accelerator, name: &str, dtype: &str, slots: u32) -> Policy {
    let mut command = load_command(&golden(name), dtype, None);
    command.engine.as_mut().unwrap().slots = slots;
    Policy::load(&command, card).unwrap()
}

fn golden_values(card: &Accelerator) {
    let ids = |value: &Value| serde_json::from_value::<Vec<u32>>(value.clone()).unwrap();
    for name in ["tied", "untied"] {
        let values: Value =
            serde_json::from_str(&fs::read_to_string(golden(&format!("{name}.json"))).unwrap()).unwrap();
        let mut policy = load(card, name, "float32", 8);
        let cases = values["sequences"].as_array().unwrap();
        let whole = |case: &Value| v1::Sequence {
            ids: ids(&case["ids"]),
            prompt_tokens: 1,
            ..Default::default()
        };
        let pack = v1::Pack {
            sequences: cases.iter().map(whole).collect(),
        };
        let found = policy
            .logprobs(&v1::LogProbs {
                pack: Some(pack),
                ..Default::default()
            })
            .unwrap()
            .sequences;
        for (case, found) in cases.iter().zip(found) {
            let expected: Vec<f64> = serde_json::from_value(case["logprobs"].clone()).unwrap();
            assert!(
                expected
                    .iter()
                    .zip(found.values)
                    .all(|(a, b)| (a - f64::from(b)).abs() < 1e-4),
                "{name}"
            );
        }
        // Prompts of different lengths share a padded prefill; blocks run beyond the end of some.
        let cases = values["greedy"].as_array().unwrap();
        for (id, case) in cases.iter().enumerate() {
            let settings = v1::Sampling {
                temperature: 0.0,
                ..sampling(7 + 6 * id as u32)
            };
            let mut command = generate(&ids(&case["prompt"]), &[1, 2], settings);
            command.stop_ids.clear();
            policy.generate(id as u64, command).unwrap();
        }
        for (id, generated) in drain(&mut policy) {
            let (case, sample) = (&cases[id as usize], &generated.samples[0]);
            let gaps: Vec<f64> = serde_json::from_value(case["gaps"].clone()).unwrap();
            let sure = gaps
                .iter()
                .position(|gap| *gap < 1e-4)
                .unwrap_or(20)
                .min(sample.ids.len());
            assert_eq!(sample.ids.len(), 7 + 6 * id as usize);
            assert_eq!(sample.ids[..sure], ids(&case["ids"])[..sure], "{name} {id}");
        }
    }
}

/// In half types the error is that of the type, so it is held as a whole: the norm of the difference.
fn gradients(card: &Accelerator) {
    for name in ["untied", "llama-biases", "qwen2-untied", "qwen3-biases"] {
        let on = |device: &Accelerator, dtype: &str, level: v1::Activations| {
            let mut policy = load(device, name, dtype, 8);
            policy.start_training(adamw()).unwrap();
            if let Some(scale) = &mut policy.trainer.as_mut().unwrap().loss_scale {
                // With so few tokens a gradient is large by itself.
                scale.factor = 16.0;
            }
            let sequences: Vec<_> = (0..6).map(|index| sequence(index, 2, 5 + index as usize)).collect();
            let mut command = train_pack(&sequences, policy_loss(v1::Kl::K3), 30.0);
            command.activations = level.into();
            policy.train_pack(&command).unwrap();
            let trainer = policy.trainer.as_ref().unwrap();
            let flat = |g: &tch::Tensor| g.to_device(tch::Device::Cpu).to_kind(tch::Kind::Double).view([-1]);
            let scaled = tch::Tensor::cat(&trainer.gradients().iter().map(flat).collect::<Vec<_>>(), 0);
            scaled / trainer.loss_scale.map_or(1.0, |scale| scale.factor)
        };
        let expected = on(&cpu(), "float64", v1::Activations::Keep);
        for (dtype, bound) in [
            ("float64", 1e-10),
            ("float32", 1e-4),
            ("bfloat16", 0.05),
            ("float16", 0.01),
        ] {
            for level in [
                v1::Activations::Keep,
                v1::Activations::RecomputeGated,
                v1::Activations::RecomputeLayers,
            ] {
                let found = on(card, dtype, level);
                let apart = ((found - &expected).norm() / expected.norm()).double_value(&[]);
                assert!(apart < bound, "{name}, {dtype}, {level:?}: {apart}");
            }
        }
    }
}

fn chosen_slots_and_parity(card: &Accelerator) {
    for (dtype, tolerance) in [("float32", 1e-4), ("bfloat16", 0.3), ("float16", 0.05)] {
        let mut policy = load(card, "untied", dtype, 0);
        assert_eq!(policy.engine.as_ref().unwrap().slots(), 1024);
        let settings = v1::Sampling {
            top_p: 0.9,
            top_k: 30,
            ..sampling(25)
        };
        policy
            .generate(1, generate(&[5, 6, 7], &(0..64).collect::<Vec<_>>(), settings))
            .unwrap();
        policy
            .generate(2, generate(&[5; 12], &(0..1500).collect::<Vec<_>>(), sampling(25)))
            .unwrap();
        let generated = drain(&mut policy);
        assert!(generated[&1].samples.iter().all(|sample| !sample.ids.is_empty()));
        let whole = |sample: &v1::Sample| v1::Sequence {
            ids: [&[5; 12], sample.ids.as_slice()].concat(),
            prompt_tokens: 12,
            ..Default::default()
        };
        let pack = v1::Pack {
            sequences: generated[&2].samples.iter().map(whole).collect(),
        };
        let trainer = policy
            .logprobs(&v1::LogProbs {
                pack: Some(pack),
                ..Default::default()
            })
            .unwrap()
            .sequences;
        let (mut worst, mut sum, mut count) = (0f32, 0.0, 0);
        for (sample, trainer) in generated[&2].samples.iter().zip(trainer) {
            for (a, b) in sample.logprobs.iter().zip(trainer.values) {
                worst = worst.max((a - b).abs());
                sum += (a - b).abs();
                count += 1;
            }
        }
        assert!(
            worst < tolerance && sum / (count as f32) < tolerance / 10.0,
            "{dtype}: {worst}, {}",
            sum / count as f32
        );
    }
}

fn checkpoint(card: &Accelerator) {
    for dtype in ["bfloat16", "float16"] {
        a_restored_worker_of(card, dtype);
    }
}

fn a_restored_worker_of(card: &Accelerator, dtype: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut first = BTreeMap::from([("tiny".to_owned(), load(card, "untied", dtype, 8))]);
    let train = |policies: &mut BTreeMap<String, Policy>| {
        let policy = policies.get_mut("tiny").unwrap();
        let command = train_pack(&[sequence(1, 2, 9)], policy_loss(v1::Kl::None), 9.0);
        train_step(policy, &command, 1e-3)
    };
    first.get_mut("tiny").unwrap().start_training(adamw()).unwrap();
    assert!(!train(&mut first).skipped);
    save(folder.path(), &first).unwrap();
    let mut second = BTreeMap::from([("tiny".to_owned(), load(card, "untied", dtype, 8))]);
    restore(folder.path(), &mut second).unwrap();
    let pairs = first["tiny"].master().iter().zip(second["tiny"].master());
    assert!(pairs.into_iter().all(|(a, b)| a.equal(b)));
    assert!((train(&mut first).grad_norm - train(&mut second).grad_norm).abs() < 1e-3);
}
