//! How fast this machine generates and trains, step by step:
//! `cargo run --release -p rlpipe-torch --example speed [quickstart | smollm2-135m | train [CHUNK [ACTIVATIONS [PACKS]]]]`.
//!
//! Weights are random, so nothing stops early. `quickstart` is 32 x 8 rollouts of 8 tokens in float32 on the CPU;
//! `smollm2-135m` is 64 x 8 rollouts of 256 tokens in bfloat16, on CUDA where there is some. `train` is the training half of
//! that alone, on 512 made-up sequences of 352 tokens, or on the first PACKS packs of 92 of them: CHUNK tokens have logits
//! at a time, and ACTIVATIONS is `keep`, `recompute_gated` or `recompute_layers`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::time::Instant;

use rlpipe_torch::device::{load_cuda_library, open, settle_threads};
use rlpipe_torch::policy::Policy;
use rlpipe_wire::v1;

struct Work {
    config: &'static str,
    dtype: &'static str,
    accelerator: &'static str,
    vocabulary: u32,
    groups: u64,
    prompt_tokens: u32,
    new_tokens: u32,
    sequences_per_pack: usize,
}

const QUICKSTART: Work = Work {
    config: r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 384,
        "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 20, "max_position_embeddings": 32}"#,
    dtype: "float32",
    accelerator: "cpu",
    vocabulary: 20,
    groups: 32,
    prompt_tokens: 7,
    new_tokens: 8,
    sequences_per_pack: 256,
};

const SMOLLM2: Work = Work {
    config: r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 576, "intermediate_size": 1536,
        "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
        "max_position_embeddings": 2048, "rope_theta": 100000, "rms_norm_eps": 1e-5, "tie_word_embeddings": true}"#,
    dtype: "bfloat16",
    accelerator: "auto",
    vocabulary: 49152,
    groups: 64,
    prompt_tokens: 100,
    new_tokens: 256,
    sequences_per_pack: 92,
};

const LOSS: v1::PolicyLoss = v1::PolicyLoss {
    clip_low: 0.2,
    clip_high: 0.28,
    dual_clip: None,
    log_ratio_min: -20.0,
    log_ratio_max: 20.0,
    kl: v1::Kl::None as i32,
    kl_coefficient: 0.0,
};

fn main() {
    load_cuda_library();
    settle_threads();
    let what = std::env::args().nth(1).unwrap_or_default();
    let work = match what.as_str() {
        "smollm2-135m" => SMOLLM2,
        "train" => Work {
            prompt_tokens: 96,
            ..SMOLLM2
        },
        _ => QUICKSTART,
    };
    let folder = std::env::temp_dir().join(format!("rlpipe-speed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.json"), work.config).unwrap();
    let max_context_tokens = (work.prompt_tokens + work.new_tokens).next_multiple_of(32);
    let load = v1::Load {
        model: "model".into(),
        folder: folder.to_str().unwrap().into(),
        dtype: work.dtype.into(),
        init_seed: Some(1),
        engine: (what != "train").then_some(v1::EngineSpec {
            max_context_tokens,
            slots: 0,
            memory_fraction: 0.5,
            own_weights: false,
        }),
        trainable: true,
        token_bytes: Vec::new(),
    };
    let accelerator = open(work.accelerator).unwrap();
    let mut policy = Policy::load(&load, &accelerator).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    println!("{:?}", policy.describe(&accelerator.name));
    let optimizer = v1::AdamW {
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        max_grad_norm: 1.0,
    };
    policy.start_training(optimizer).unwrap();
    for step in 0..5 {
        if what == "train" {
            train(&mut policy, &work);
        } else {
            run(&mut policy, &work, step);
        }
    }
}

/// Packs and the optimizer step on sequences of made-up tokens.
fn train(policy: &mut Policy, work: &Work) {
    let argument = |at: usize| std::env::args().nth(at);
    let chunk = argument(2).map_or(4096, |text| text.parse().unwrap());
    let level = match argument(3).as_deref() {
        Some("recompute_gated") => v1::Activations::RecomputeGated,
        Some("recompute_layers") => v1::Activations::RecomputeLayers,
        _ => v1::Activations::Keep,
    };
    let packs = argument(4).map_or(usize::MAX, |text| text.parse().unwrap());
    let response = work.new_tokens as usize;
    let sequences: Vec<_> = (0..8 * work.groups)
        .map(|row| v1::Sequence {
            ids: (0..work.prompt_tokens + work.new_tokens)
                .map(|at| (at * 7919 + row as u32 * 104_729) % work.vocabulary)
                .collect(),
            prompt_tokens: work.prompt_tokens,
            mask: vec![true; response],
            temperature: 1.0,
            advantages: vec![0.5; response],
            ..Default::default()
        })
        .collect();
    let commands: Vec<_> = sequences
        .chunks(work.sequences_per_pack)
        .take(packs)
        .map(|part| v1::TrainPack {
            pack: Some(v1::Pack {
                sequences: part.to_vec(),
            }),
            loss: Some(v1::train_pack::Loss::Policy(LOSS)),
            denominator: (sequences.len() * response) as f64,
            logprob_chunk_tokens: chunk,
            activations: level.into(),
            ..Default::default()
        })
        .collect();
    let start = Instant::now();
    let mut tokens = 0;
    let mut loss = 0.0;
    for command in &commands {
        let sequences = &command.pack.as_ref().unwrap().sequences;
        tokens += sequences.iter().map(|sequence| sequence.ids.len()).sum::<usize>();
        loss += policy
            .train_pack(command)
            .unwrap()
            .sequences
            .iter()
            .map(|sums| sums.entropy)
            .sum::<f64>();
    }
    let training = start.elapsed();
    let norm = policy.optimizer_step(1e-5).unwrap().grad_norm;
    let all = start.elapsed();
    let rate = tokens as f64 / all.as_secs_f64();
    println!("packs {training:.2?}, all {all:.2?} ({rate:.0} tokens/s); gradient {norm:.3e}, entropy {loss:.5e}");
    if let Ok(memory) = rlpipe_torch::native::cuda::memory() {
        println!("{memory:?}");
    }
}

fn run(policy: &mut Policy, work: &Work, step: u64) {
    let prompt = |id: u64| (0..work.prompt_tokens).map(move |at| (at * 31 + id as u32 * 7) % work.vocabulary);
    let start = Instant::now();
    for id in 0..work.groups {
        let sampling = v1::Sampling {
            max_new_tokens: work.new_tokens,
            temperature: 1.0,
            top_p: 1.0,
            ..Default::default()
        };
        let command = v1::Generate {
            prompt_ids: prompt(id).collect(),
            seeds: (0..8).map(|sample| step << 32 | id << 8 | sample).collect(),
            sampling: Some(sampling),
            ..Default::default()
        };
        policy.generate(id, command).unwrap();
    }
    let mut samples = Vec::new();
    while policy.is_generating() {
        for (id, generated) in policy.advance().unwrap() {
            samples.extend(generated.unwrap().samples.into_iter().map(|sample| (id, sample)));
        }
    }
    let generating = start.elapsed();
    let response = work.new_tokens as usize;
    let sequences: Vec<_> = samples
        .into_iter()
        .map(|(id, sample)| v1::Sequence {
            ids: prompt(id).chain(sample.ids).collect(),
            prompt_tokens: work.prompt_tokens,
            mask: vec![true; response],
            temperature: 1.0,
            advantages: vec![0.5; response],
            rollout_logprobs: sample.logprobs,
            ..Default::default()
        })
        .collect();
    let packs: Vec<_> = sequences
        .chunks(work.sequences_per_pack)
        .map(|part| v1::Pack {
            sequences: part.to_vec(),
        })
        .collect();
    let start = Instant::now();
    for pack in &packs {
        let command = v1::LogProbs {
            pack: Some(pack.clone()),
            logprob_chunk_tokens: 512,
            ..Default::default()
        };
        policy.logprobs(&command).unwrap();
    }
    let scoring = start.elapsed();
    let start = Instant::now();
    let (mut difference, mut tokens) = (0.0, 0);
    for pack in &packs {
        let command = v1::TrainPack {
            pack: Some(pack.clone()),
            loss: Some(v1::train_pack::Loss::Policy(LOSS)),
            denominator: (sequences.len() * response) as f64,
            logprob_chunk_tokens: 512,
            ..Default::default()
        };
        for sums in policy.train_pack(&command).unwrap().sequences {
            difference += sums.logprob_abs_diff;
            tokens += sums.tokens;
        }
    }
    let training = start.elapsed();
    let start = Instant::now();
    policy.optimizer_step(1e-5).unwrap();
    policy.set_version(step + 1);
    let stepping = start.elapsed();
    let rate = f64::from(tokens) / generating.as_secs_f64();
    println!(
        "generate {generating:.2?} ({rate:.0} tokens/s), log-probs {scoring:.2?}, packs {training:.2?}, optimizer \
         {stepping:.2?}, mean log-prob difference {:.1e}",
        difference / f64::from(tokens)
    );
}
