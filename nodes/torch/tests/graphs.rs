//! Generation by captured graphs over a paged cache, on a card. One test, because torch's CUDA half must come before any
//! torch act of the process; a machine without a card has nothing to check here.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::collections::BTreeMap;

use common::{card, drain, generate, sampling};
use rlpipe_torch::device::Accelerator;
use rlpipe_torch::policy::Policy;
use rlpipe_wire::v1;
use rlpipe_wire::v1::FinishReason;

const VOCABULARY: u32 = 517;
const CONTEXT: u32 = 320;

/// Architecture, query heads, key heads, size of a head.
type Shape = (&'static str, i64, i64, i64);

const SHAPES: [Shape; 6] = [
    ("LlamaForCausalLM", 9, 3, 64),
    ("LlamaForCausalLM", 4, 4, 32),
    ("LlamaForCausalLM", 3, 1, 96),
    ("Qwen2ForCausalLM", 14, 2, 64),
    ("Qwen3ForCausalLM", 16, 2, 64),
    ("Qwen3ForCausalLM", 12, 1, 128),
];

fn load(card: &Accelerator, (architecture, heads, kv_heads, head_dim): Shape, slots: u32, dtype: &str) -> Policy {
    let folder = tempfile::tempdir().unwrap();
    let config = serde_json::json!({
        "architectures": [architecture], "hidden_size": 256, "intermediate_size": 264, "num_hidden_layers": 3,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim,
        "vocab_size": VOCABULARY, "max_position_embeddings": 512, "initializer_range": 0.08,
    });
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let command = v1::Load {
        model: "tiny".into(),
        folder: folder.path().to_str().unwrap().into(),
        dtype: dtype.into(),
        init_seed: Some(5),
        engine: Some(v1::EngineSpec {
            max_context_tokens: CONTEXT,
            slots,
            memory_fraction: 0.2,
            own_weights: false,
        }),
        trainable: true,
        token_bytes: (0..VOCABULARY).map(|id| vec![b'a' + (id % 26) as u8]).collect(),
    };
    Policy::load(&command, card).unwrap()
}

#[test]
fn graphs_generate_what_the_model_says() {
    let Some(card) = card() else { return };
    for shape in SHAPES {
        // float16 has three bits more.
        for (dtype, bound) in [("bfloat16", 0.03), ("float16", 0.03 / 8.0)] {
            log_probs_are_the_trainers(&card, shape, dtype, bound);
        }
    }
    let shape = SHAPES[0];
    greedy_tokens_are_those_of_plain_operators(&card, shape);
    samples_wait_for_slots_and_pages(&card, shape);
    ends_are_where_they_were_asked_for(&card, shape);
    what_is_aborted_leaves_the_rest_alone(&card, shape);
    the_same_seed_gives_the_same_tokens(&card, shape);
    weights_that_diverged_are_told(&card, shape);
}

fn prompt(seed: u64, length: usize) -> Vec<u32> {
    (0..length as u64)
        .map(|at| (rlpipe_torch::rng::uniform(seed, at) * f64::from(VOCABULARY)) as u32)
        .collect()
}

/// Groups whose prompts end before, at and after the border of a page.
fn crowd() -> Vec<v1::Generate> {
    let lengths = [1, 5, 63, 64, 65, 127, 128, 129, 200, 64, 31, 250];
    let of = |(index, length): (usize, &usize)| {
        let settings = v1::Sampling {
            max_new_tokens: [70, 3, 1, 65, 40][index % 5],
            min_new_tokens: (index % 3) as u32,
            ..sampling(0)
        };
        let seeds: Vec<u64> = (0..index as u64 % 5 + 1)
            .map(|sample| 100 * index as u64 + sample)
            .collect();
        generate(&prompt(index as u64, *length), &seeds, settings)
    };
    lengths.iter().enumerate().map(of).collect()
}

fn run(policy: &mut Policy, commands: &[v1::Generate]) -> BTreeMap<u64, v1::Generated> {
    for (id, command) in commands.iter().enumerate() {
        policy.generate(id as u64, command.clone()).unwrap();
    }
    drain(policy)
}

/// The engine is as near to float32 as the trainer is: what is between them is the rounding of the half type.
fn log_probs_are_the_trainers(card: &Accelerator, shape: Shape, dtype: &str, bound: f32) {
    let [policy, exact] = [dtype, "float32"].map(|dtype| load(card, shape, 24, dtype));
    let mut policy = policy;
    let commands = crowd();
    let found = run(&mut policy, &commands);
    let mut apart = [0f32; 3];
    let mut count = 0;
    for (id, command) in commands.iter().enumerate() {
        let samples = &found[&(id as u64)].samples;
        assert_eq!(samples.len(), command.seeds.len());
        let whole = |sample: &v1::Sample| v1::Sequence {
            ids: [command.prompt_ids.as_slice(), &sample.ids].concat(),
            prompt_tokens: command.prompt_ids.len() as u32,
            ..Default::default()
        };
        let pack = v1::Pack {
            sequences: samples.iter().map(whole).collect(),
        };
        let scored = [&policy, &exact].map(|policy| {
            let command = v1::LogProbs {
                pack: Some(pack.clone()),
                ..Default::default()
            };
            policy.logprobs(&command).unwrap().sequences
        });
        let settings = command.sampling.unwrap();
        let most = settings.max_new_tokens.min(CONTEXT - command.prompt_ids.len() as u32);
        for (index, sample) in samples.iter().enumerate() {
            let stopped = sample.finish_reason() == FinishReason::Stop;
            assert_eq!(stopped, sample.ids.last() == Some(&1));
            assert!(
                stopped || sample.ids.len() == most as usize,
                "{shape:?} {id}: {}",
                sample.ids.len()
            );
            // Below the smallest length the distribution is another one.
            for at in settings.min_new_tokens as usize..sample.ids.len() {
                let [engine, trainer, exact] = [
                    sample.logprobs[at],
                    scored[0][index].values[at],
                    scored[1][index].values[at],
                ];
                for (sum, (a, b)) in apart
                    .iter_mut()
                    .zip([(engine, trainer), (engine, exact), (trainer, exact)])
                {
                    *sum += (a - b).abs();
                }
                count += 1;
            }
        }
    }
    let [parity, engine, trainer] = apart.map(|sum| sum / count as f32);
    println!(
        "{shape:?}, {dtype}: {count} log-probs, engine to trainer {parity:.1e}, to float32 {engine:.1e}, trainer {trainer:.1e}"
    );
    assert!(
        parity < bound && engine < 1.2 * trainer + 1e-3,
        "{shape:?}, {dtype}: {parity} {engine} {trainer}"
    );
}

/// Where float32 is sure of the next token, bfloat16 draws the same one.
fn greedy_tokens_are_those_of_plain_operators(card: &Accelerator, shape: Shape) {
    let commands: Vec<v1::Generate> = (0..40)
        .map(|index| {
            let settings = v1::Sampling {
                temperature: 0.0,
                ..sampling(1)
            };
            generate(&prompt(index, 3 + 7 * index as usize), &[1], settings)
        })
        .collect();
    let [fast, plain] = ["bfloat16", "float32"].map(|dtype| run(&mut load(card, shape, 16, dtype), &commands));
    let (mut same, mut nearly) = (0, 0);
    for (id, plain) in &plain {
        let (fast, plain) = (&fast[id].samples[0], &plain.samples[0]);
        same += usize::from(fast.ids == plain.ids);
        nearly += usize::from((fast.logprobs[0] - plain.logprobs[0]).abs() < 0.1);
    }
    println!("greedy: {same} of 40 tokens are those of float32");
    assert!(same >= 30 && nearly == 40, "{same} {nearly}");
}

fn samples_wait_for_slots_and_pages(card: &Accelerator, shape: Shape) {
    // Two slots have ten pages; a long prompt and one sample of it take five.
    let mut policy = load(card, shape, 2, "bfloat16");
    let settings = sampling(120);
    let commands = [
        generate(&prompt(1, 130), &(0..9).collect::<Vec<_>>(), settings),
        generate(&prompt(2, 190), &(0..3).collect::<Vec<_>>(), settings),
        generate(&prompt(3, 1), &(0..5).collect::<Vec<_>>(), settings),
    ];
    let narrow = run(&mut policy, &commands);
    let wide = run(&mut load(card, shape, 64, "bfloat16"), &commands);
    for (id, wide) in &wide {
        let first = |generated: &v1::Generated| generated.samples.iter().map(|s| s.ids[0]).collect::<Vec<_>>();
        assert_eq!(first(&narrow[id]), first(wide));
        assert!(narrow[id].samples.iter().all(|sample| !sample.ids.is_empty()));
    }
    assert!(policy.engine.as_ref().unwrap().is_idle());
    // A single slot, up to the end of the context, wherever in a page the prompt ends.
    let mut single = load(card, shape, 1, "bfloat16");
    for length in [1, 63, 64, 65, 319] {
        let command = generate(&prompt(4, length), &[1, 2], sampling(100_000));
        let command = v1::Generate {
            stop_ids: vec![],
            ..command
        };
        for sample in &run(&mut single, &[command])[&0].samples {
            assert_eq!(sample.ids.len(), CONTEXT as usize - length);
        }
    }
    // Again, in a cache full of old keys.
    assert_eq!(run(&mut policy, &commands).len(), 3);
}

fn ends_are_where_they_were_asked_for(card: &Accelerator, shape: Shape) {
    let mut policy = load(card, shape, 32, "bfloat16");
    let seeds: Vec<u64> = (0..16).collect();
    let prompt = prompt(4, 60);
    let with = |stop_ids: Vec<u32>, stop_strings: Vec<String>, settings: v1::Sampling| v1::Generate {
        stop_ids,
        stop_strings,
        ..generate(&prompt, &seeds, settings)
    };
    let commands = [
        // More stop ids than any request before: the arrays grow, the graphs are made anew.
        with((0..400).collect(), vec![], sampling(50)),
        with(
            (0..400).collect(),
            vec![],
            v1::Sampling {
                min_new_tokens: 9,
                ..sampling(50)
            },
        ),
        with(vec![], vec!["ab".into(), "q".into()], sampling(100)),
        with(
            vec![],
            vec![],
            v1::Sampling {
                top_k: 1,
                ..sampling(20)
            },
        ),
        with(
            vec![],
            vec![],
            v1::Sampling {
                temperature: 0.0,
                ..sampling(20)
            },
        ),
        with(
            vec![],
            vec![],
            v1::Sampling {
                top_p: 0.5,
                min_p: 0.05,
                temperature: 0.8,
                ..sampling(20)
            },
        ),
        with(vec![], vec![], sampling(100_000)),
    ];
    let found = run(&mut policy, &commands);
    for sample in &found[&0].samples {
        assert!(sample.ids.iter().rev().skip(1).all(|id| *id >= 400));
    }
    for sample in &found[&1].samples {
        let (early, late) = sample.ids.split_at(9);
        assert!(early.iter().all(|id| *id >= 400) && late.iter().rev().skip(1).all(|id| *id >= 400));
    }
    for sample in &found[&2].samples {
        let text: String = sample.ids.iter().map(|id| char::from(b'a' + (id % 26) as u8)).collect();
        assert_eq!(
            sample.finish_reason() == FinishReason::Stop,
            text.ends_with("ab") || text.ends_with('q')
        );
        assert!(
            !text[..text.len() - 1].contains("ab") && !text[..text.len() - 1].contains('q'),
            "{text}"
        );
    }
    let greedy = &found[&4].samples[0];
    for sample in &found[&4].samples {
        assert_eq!(sample.ids, greedy.ids);
    }
    let of_one = found[&3].samples.iter().flat_map(|sample| &sample.logprobs);
    // Of one that is kept, or of several that are equal.
    assert!(of_one.clone().all(|logprob| *logprob > -2.0) && of_one.filter(|logprob| **logprob == 0.0).count() > 200);
    assert!(
        found[&5]
            .samples
            .iter()
            .flat_map(|sample| &sample.logprobs)
            .all(|logprob| *logprob <= 0.0)
    );
    for sample in &found[&6].samples {
        assert_eq!(sample.ids.len(), CONTEXT as usize - 60);
        assert_eq!(sample.finish_reason(), FinishReason::Length);
    }
}

fn what_is_aborted_leaves_the_rest_alone(card: &Accelerator, shape: Shape) {
    let mut policy = load(card, shape, 8, "bfloat16");
    policy.set_version(3);
    for id in 0..4 {
        let seeds: Vec<u64> = (0..6).collect();
        policy
            .generate(id, generate(&prompt(id, 70), &seeds, sampling(200)))
            .unwrap();
    }
    for _ in 0..5 {
        policy.advance().unwrap();
    }
    for id in [0, 3] {
        let aborted = policy.engine.as_mut().unwrap().abort(id).unwrap();
        assert!(
            aborted
                .samples
                .iter()
                .any(|sample| sample.finish_reason() == FinishReason::Aborted)
        );
    }
    policy.set_version(4);
    let found = drain(&mut policy);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [1, 2]);
    for sample in found.values().flat_map(|generated| &generated.samples) {
        assert_eq!(
            sample.policy_version.chunks(2).map(|pair| pair[1]).sum::<u64>(),
            sample.ids.len() as u64
        );
        assert!(sample.policy_version.chunks(2).all(|pair| pair[0] == 3 || pair[0] == 4));
        assert_eq!(sample.policy_version[sample.policy_version.len() - 2], 4);
    }
}

/// The rate is what there is to know: on a card the last bits depend on the batch.
fn the_same_seed_gives_the_same_tokens(card: &Accelerator, shape: Shape) {
    let mut policy = load(card, shape, 64, "bfloat16");
    let commands = crowd();
    let together = run(&mut policy, &commands);
    let again = run(&mut policy, &commands);
    let (mut tokens, mut repeated, mut alone) = (0, 0, 0);
    for (id, command) in commands.iter().enumerate() {
        let id = id as u64;
        policy.generate(id, command.clone()).unwrap();
        let single = drain(&mut policy);
        for ((a, b), c) in together[&id]
            .samples
            .iter()
            .zip(&again[&id].samples)
            .zip(&single[&id].samples)
        {
            let same = |other: &v1::Sample| a.ids.iter().zip(&other.ids).take_while(|(x, y)| x == y).count();
            tokens += a.ids.len();
            repeated += same(b);
            alone += same(c);
        }
    }
    println!("of {tokens} tokens {repeated} come again in the same batch before the first other one, {alone} alone");
    assert_eq!(repeated, tokens);
}

fn weights_that_diverged_are_told(card: &Accelerator, shape: Shape) {
    let mut policy = load(card, shape, 8, "bfloat16");
    let kept: Vec<tch::Tensor> = policy.weights.iter().map(|leaf| leaf.detach().copy()).collect();
    {
        let _no_grad = tch::no_grad_guard();
        let _ = policy.weights[3].detach().fill_(f64::NAN);
    }
    policy.generate(1, generate(&[5; 70], &[1, 2], sampling(10))).unwrap();
    let error = loop {
        if let Err(error) = policy.advance() {
            break error.0;
        }
    };
    assert!(error.contains("diverged"), "{error}");
    assert_eq!(policy.engine.as_mut().unwrap().clear(), [1]);
    for (leaf, kept) in policy.weights.iter().zip(&kept) {
        leaf.detach().copy_(kept);
    }
    assert_eq!(run(&mut policy, &crowd()).len(), crowd().len());
}
