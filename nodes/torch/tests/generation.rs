//! The engine: independence of neighbours, ends, versions, refusals, and parity with the trainer.
#![allow(clippy::unwrap_used)]

mod common;

use common::{cpu, drain, fresh, generate, init_folder, load_command, sampling};
use rlpipe_torch::policy::Policy;
use rlpipe_wire::v1;
use rlpipe_wire::v1::FinishReason;

fn with_slots(slots: u32, dtype: &str, hidden: i64) -> Policy {
    let folder = init_folder(true);
    let path = folder.path().join("config.json");
    let config = std::fs::read_to_string(&path).unwrap();
    let config = config.replace("\"hidden_size\":64", &format!("\"hidden_size\":{hidden}"));
    std::fs::write(&path, config).unwrap();
    let mut command = load_command(folder.path(), dtype, Some(3));
    command.engine.as_mut().unwrap().slots = slots;
    let policy = Policy::load(&command, &cpu()).unwrap();
    assert_eq!(policy.network.config.hidden, hidden);
    policy
}

/// Requests that differ in everything.
fn crowd() -> Vec<v1::Generate> {
    (0..12u64)
        .map(|index| {
            let prompt: Vec<u32> = (0..=index as u32).map(|at| (at * 7 + index as u32) % 20).collect();
            let seeds: Vec<u64> = (0..index % 4 + 1).map(|sample| 1000 * index + sample).collect();
            let sampling = v1::Sampling {
                max_new_tokens: 4 + index as u32,
                min_new_tokens: (index % 3) as u32,
                temperature: [1.0, 0.6, 0.0, 1.7][index as usize % 4],
                top_p: [1.0, 0.8][index as usize % 2],
                top_k: [0, 0, 5][index as usize % 3],
                min_p: [0.0, 0.0, 0.0, 0.0, 0.1][index as usize % 5],
            };
            generate(&prompt, &seeds, sampling)
        })
        .collect()
}

#[test]
fn a_rollout_is_the_same_alone_and_among_others() {
    for (slots, dtype, hidden) in [
        (3, "float32", 64),
        (8, "float32", 64),
        (32, "float32", 128),
        (32, "bfloat16", 64),
        (8, "float16", 64),
    ] {
        let mut alone = Vec::new();
        let mut policy = with_slots(slots, dtype, hidden);
        tch::set_num_threads(if hidden == 128 { 2 } else { 1 });
        for command in crowd() {
            policy.generate(0, command).unwrap();
            alone.extend(drain(&mut policy).into_values());
        }
        // All at once, in both orders, and staggered: other slots, other neighbours, old keys in the cache.
        let mut together = |order: &[usize], between: usize| {
            let mut found = std::collections::BTreeMap::new();
            for &index in order {
                policy.generate(index as u64, crowd().swap_remove(index)).unwrap();
                for _ in 0..between {
                    found.extend(
                        policy
                            .advance()
                            .unwrap()
                            .into_iter()
                            .map(|(id, result)| (id, result.unwrap())),
                    );
                }
            }
            found.extend(drain(&mut policy));
            found.into_values().collect::<Vec<_>>()
        };
        let forth: Vec<usize> = (0..12).collect();
        let back: Vec<usize> = forth.iter().rev().copied().collect();
        assert!(alone == together(&forth, 0), "{dtype}, {slots} slots");
        assert!(alone == together(&back, 0), "{dtype}, {slots} slots, backwards");
        assert!(alone == together(&forth, 2), "{dtype}, {slots} slots, staggered");
    }
}

#[test]
fn i27_log_probs_are_those_of_the_trainer() {
    for (dtype, tolerance) in [
        ("float32", 1e-5),
        ("float64", 1e-6),
        ("bfloat16", 0.1),
        ("float16", 0.02),
    ] {
        for temperature in [1.0, 0.6, 0.0] {
            let mut policy = fresh(dtype, false);
            let settings = v1::Sampling {
                temperature,
                ..sampling(12)
            };
            policy
                .generate(1, generate(&[5, 6, 7], &[1, 2, 3, 4], settings))
                .unwrap();
            let generated = drain(&mut policy).remove(&1).unwrap();
            let sequences = generated.samples.iter().map(|sample| v1::Sequence {
                ids: [&[5, 6, 7], sample.ids.as_slice()].concat(),
                prompt_tokens: 3,
                temperature,
                ..Default::default()
            });
            let command = v1::LogProbs {
                pack: Some(v1::Pack {
                    sequences: sequences.collect(),
                }),
                ..Default::default()
            };
            for (sample, trainer) in generated
                .samples
                .iter()
                .zip(policy.logprobs(&command).unwrap().sequences)
            {
                assert_eq!(sample.logprobs.len(), trainer.values.len());
                for (engine, trainer) in sample.logprobs.iter().zip(&trainer.values) {
                    assert!(
                        (engine - trainer).abs() < tolerance,
                        "{dtype} {temperature}: {engine} {trainer}"
                    );
                }
            }
        }
    }
}

#[test]
fn samples_end_by_stop_length_or_context() {
    let mut policy = fresh("float32", true);
    policy
        .generate(1, generate(&[5], &(0..64).collect::<Vec<_>>(), sampling(30)))
        .unwrap();
    let samples = drain(&mut policy).remove(&1).unwrap().samples;
    for sample in &samples {
        assert_eq!(sample.ids.len(), sample.logprobs.len());
        let stopped = sample.ids.last() == Some(&1);
        assert!(!sample.ids[..sample.ids.len() - 1].contains(&1));
        assert_eq!(
            sample.finish_reason(),
            if stopped {
                FinishReason::Stop
            } else {
                FinishReason::Length
            }
        );
        assert!(stopped || sample.ids.len() == 30);
    }
    assert!(
        samples
            .iter()
            .any(|sample| sample.finish_reason() == FinishReason::Stop)
    );

    // A context of 40 tokens has room for 5 more.
    policy
        .generate(
            2,
            v1::Generate {
                stop_ids: vec![],
                ..generate(&[5; 35], &[1], sampling(30))
            },
        )
        .unwrap();
    let sample = drain(&mut policy).remove(&2).unwrap().samples.remove(0);
    assert_eq!((sample.ids.len(), sample.finish_reason()), (5, FinishReason::Length));

    // Nothing stops before `min_new_tokens`; afterwards anything may.
    let every_other = v1::Generate {
        stop_ids: (0..20).step_by(2).collect(),
        ..generate(
            &[5],
            &(0..64).collect::<Vec<_>>(),
            v1::Sampling {
                min_new_tokens: 4,
                ..sampling(20)
            },
        )
    };
    policy.generate(3, every_other).unwrap();
    let samples = drain(&mut policy).remove(&3).unwrap().samples;
    assert!(
        samples
            .iter()
            .all(|sample| sample.ids.len() > 4 && sample.ids[..4].iter().all(|id| id % 2 == 1))
    );
    assert!(samples.iter().any(|sample| sample.ids.len() == 5));
}

/// What each of the 20 tokens stands for: pieces that stop strings are spread over, halves of a character, and nothing.
const PIECES: [&[u8]; 20] = [
    b"a", b"", b"b", b"ab", b"ba", b"\xC3", b"\xA9", b"a\xC3", b"\xA9b", b"\n", b"\n\n", b"\nQ", b"Q:", b" ", b"aba",
    b"c", b"\n\nQ", b"Q", b"", b"bc",
];

/// The tokens up to the first after which the bytes have a stop string that ends beyond the first `unsearched` tokens, and how
/// many bytes lie behind its start.
fn reference(ids: &[u32], stops: &[&str], unsearched: usize) -> Option<(Vec<u32>, u32)> {
    let text = |ids: &[u32]| {
        ids.iter()
            .flat_map(|&id| PIECES[id as usize])
            .copied()
            .collect::<Vec<u8>>()
    };
    let before = text(&ids[..unsearched.min(ids.len())]).len();
    (unsearched + 1..=ids.len()).find_map(|tokens| {
        let said = text(&ids[..tokens]);
        let starts = stops.iter().flat_map(|stop| {
            let ends_late = |start: &usize| start + stop.len() > before;
            let at = said
                .windows(stop.len())
                .enumerate()
                .filter(|(_, part)| *part == stop.as_bytes());
            at.map(|(start, _)| start).filter(ends_late).collect::<Vec<_>>()
        });
        Some((ids[..tokens].to_vec(), (said.len() - starts.min()?) as u32))
    })
}

#[test]
fn samples_end_with_the_token_that_completes_a_stop_string() {
    let folder = init_folder(true);
    let load = v1::Load {
        token_bytes: PIECES.map(<[u8]>::to_vec).to_vec(),
        ..load_command(folder.path(), "float32", Some(3))
    };
    let mut policy = Policy::load(&load, &cpu()).unwrap();
    let seeds: Vec<u64> = (0..200).collect();
    let mut answers = |stops: &[&str], min_new_tokens: u32, max_new_tokens: u32| {
        let command = v1::Generate {
            stop_ids: vec![],
            stop_strings: stops.iter().map(|&stop| stop.to_owned()).collect(),
            ..generate(
                &[5],
                &seeds,
                v1::Sampling {
                    min_new_tokens,
                    ..sampling(max_new_tokens)
                },
            )
        };
        policy.generate(1, command).unwrap();
        drain(&mut policy).remove(&1).unwrap().samples
    };
    let uncut = answers(&[], 0, 24);
    for (stops, min_new_tokens) in [
        (&["\n\nQ:"][..], 0),
        (&["\u{e9}"], 0),
        (&["ab", "ba"], 0),
        (&["a\u{e9}b", "abab", "c"], 0),
        (&["ab"], 5),
        (&["\nQ", "c"], 12),
    ] {
        let (mut stopped, mut spread) = (0, 0);
        for (whole, sample) in uncut.iter().zip(answers(stops, min_new_tokens, 24)) {
            let expected = reference(&whole.ids, stops, min_new_tokens as usize);
            let (ids, stop_bytes) = expected.clone().unwrap_or_else(|| (whole.ids.clone(), 0));
            assert_eq!(
                (&sample.ids, sample.stop_bytes),
                (&ids, stop_bytes),
                "{stops:?} {min_new_tokens}"
            );
            assert_eq!(sample.logprobs, whole.logprobs[..ids.len()]);
            assert_eq!(sample.policy_version, [0, ids.len() as u64]);
            assert_eq!(sample.finish_reason() == FinishReason::Stop, expected.is_some());
            stopped += usize::from(expected.is_some());
            spread += usize::from(expected.is_some_and(|(ids, bytes)| {
                ids.last()
                    .is_some_and(|&last| (bytes as usize) > PIECES[last as usize].len())
            }));
        }
        assert!(
            stopped > 0 && spread > 0,
            "{stops:?}: {stopped} stopped, {spread} over several tokens"
        );
    }

    // The last token that there is room for may complete one.
    let short = answers(&["a"], 0, 1);
    assert!(
        short
            .iter()
            .any(|sample| sample.finish_reason() == FinishReason::Stop && sample.ids.len() == 1)
    );
}

#[test]
fn stop_strings_need_the_bytes_of_tokens() {
    let mut policy = fresh("float32", true);
    let command = v1::Generate {
        stop_strings: vec!["a".into()],
        ..generate(&[5], &[1], sampling(3))
    };
    let error = policy.generate(1, command).unwrap_err().0;
    assert!(error.contains("without the bytes of its tokens"), "{error}");
}

#[test]
fn tokens_carry_the_version_that_drew_them() {
    let mut policy = fresh("float32", true);
    policy.set_version(4);
    policy
        .generate(
            1,
            v1::Generate {
                stop_ids: vec![],
                ..generate(&[5], &[1, 2], sampling(10))
            },
        )
        .unwrap();
    for _ in 0..3 {
        assert!(policy.advance().unwrap().is_empty());
    }
    policy.set_version(5);
    // The logits of a token are computed when it is asked for.
    for sample in drain(&mut policy).remove(&1).unwrap().samples {
        assert_eq!(sample.policy_version, [4, 3, 5, 7]);
    }
}

#[test]
fn an_engine_with_its_own_weights_changes_with_the_version_only() {
    let folder = init_folder(true);
    let mut command = load_command(folder.path(), "float32", Some(3));
    command.engine.as_mut().unwrap().own_weights = true;
    let mut policy = Policy::load(&command, &cpu()).unwrap();
    let draw = |policy: &mut Policy| {
        policy.generate(1, generate(&[5], &[1, 2, 3], sampling(10))).unwrap();
        drain(policy)
            .remove(&1)
            .unwrap()
            .samples
            .into_iter()
            .map(|sample| sample.logprobs)
            .collect::<Vec<_>>()
    };
    let before = draw(&mut policy);
    policy.start_training(common::adamw()).unwrap();
    let pack = common::train_pack(&[common::sequence(1, 2, 9)], common::policy_loss(v1::Kl::None), 9.0);
    policy.train_pack(&pack).unwrap();
    policy.optimizer_step(0.05).unwrap();
    assert_eq!(draw(&mut policy), before);
    policy.set_version(1);
    assert_ne!(draw(&mut policy), before);
}

#[test]
fn bad_requests_are_refused_with_a_reason() {
    let mut policy = fresh("float32", true);
    let good = sampling(4);
    let cases = [
        (generate(&[], &[1], good), "the prompt is empty"),
        (
            generate(&[20], &[1], good),
            "token id 20 is outside the vocabulary of 20",
        ),
        (
            v1::Generate {
                stop_ids: vec![77],
                ..generate(&[1], &[1], good)
            },
            "token id 77",
        ),
        (
            generate(&[1; 41], &[1], good),
            "a prompt of 41 tokens leaves no room in a context of 40",
        ),
        (generate(&[1], &[1], sampling(0)), "`max_new_tokens` is 0"),
        (
            generate(
                &[1],
                &[1],
                v1::Sampling {
                    temperature: -1.0,
                    ..good
                },
            ),
            "`temperature` is -1",
        ),
        (
            generate(
                &[1],
                &[1],
                v1::Sampling {
                    temperature: f64::NAN,
                    ..good
                },
            ),
            "`temperature` is NaN",
        ),
        (
            generate(&[1], &[1], v1::Sampling { top_p: 0.0, ..good }),
            "`top_p` is 0",
        ),
        (
            generate(&[1], &[1], v1::Sampling { top_p: 1.5, ..good }),
            "`top_p` is 1.5",
        ),
        (
            generate(&[1], &[1], v1::Sampling { min_p: 1.0, ..good }),
            "`min_p` is 1",
        ),
        (
            generate(
                &[1],
                &[1],
                v1::Sampling {
                    min_p: f64::NAN,
                    ..good
                },
            ),
            "`min_p` is NaN",
        ),
        (
            v1::Generate {
                stop_ids: (0..20).collect(),
                ..generate(
                    &[1],
                    &[1],
                    v1::Sampling {
                        min_new_tokens: 2,
                        ..good
                    },
                )
            },
            "every token stops",
        ),
    ];
    for (command, reason) in cases {
        let error = policy.generate(1, command).unwrap_err().0;
        assert!(error.contains(reason), "{error}");
    }
    assert!(!policy.is_generating());
    policy.generate(1, generate(&[1], &[], good)).unwrap();
    assert!(drain(&mut policy).remove(&1).unwrap().samples.is_empty());
}

#[test]
fn diverged_weights_are_an_error_and_the_engine_recovers() {
    let mut policy = fresh("float32", true);
    policy.generate(1, generate(&[5], &[1, 2], sampling(6))).unwrap();
    let before = drain(&mut policy);
    let norm = policy.weights[1].detach();
    let kept = norm.copy();
    let _ = norm.shallow_clone().fill_(f64::NAN);
    policy.generate(1, generate(&[5], &[1, 2], sampling(6))).unwrap();
    assert!(policy.advance().unwrap_err().0.contains("not finite"));
    assert_eq!(policy.engine.as_mut().unwrap().clear(), [1]);
    norm.shallow_clone().copy_(&kept);
    policy.generate(1, generate(&[5], &[1, 2], sampling(6))).unwrap();
    assert_eq!(drain(&mut policy), before);
}
