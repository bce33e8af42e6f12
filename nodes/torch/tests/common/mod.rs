//! Models and commands that several tests share.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout)]

pub mod kernels;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use rlpipe_torch::device::{Accelerator, load_cuda_library, open};
use rlpipe_torch::generate::SlotSettings;
use rlpipe_torch::policy::Policy;
use rlpipe_wire::v1;
use tch::Device;

pub fn golden(name: &str) -> PathBuf {
    // cargo sets it when it runs a test; where a test was carried to, `scripts/gpu_tests.sh` does.
    let folder = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&folder).join("../../tests/golden/models").join(name)
}

/// The card, for tests that need one; none where there is none. Must be the first act of a process, since torch's CUDA half
/// comes before anything else of torch: a file of tests with it has one test. `make test-gpu` requires a card.
pub fn card() -> Option<Accelerator> {
    load_cuda_library();
    match open("cuda") {
        Ok(card) => Some(card),
        Err(error) if env::var_os("RLPIPE_TEST_CARD").is_none() && error.0.starts_with("no CUDA device") => None,
        Err(error) => panic!("{error}"),
    }
}

/// One thread: the tests run beside each other.
pub fn cpu() -> Accelerator {
    tch::set_num_threads(1);
    Accelerator {
        device: Device::Cpu,
        name: "cpu".to_owned(),
    }
}

/// A folder with a `config.json` of two layers and 20 tokens, grouped-query attention, tied or not.
pub fn init_folder(tied: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = serde_json::json!({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 20, "max_position_embeddings": 48,
        "tie_word_embeddings": tied, "initializer_range": 0.1,
    });
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    folder
}

pub fn load_command(folder: &Path, dtype: &str, init_seed: Option<u64>) -> v1::Load {
    v1::Load {
        model: "tiny".to_owned(),
        folder: folder.to_str().unwrap().to_owned(),
        dtype: dtype.to_owned(),
        init_seed,
        engine: Some(v1::EngineSpec {
            max_context_tokens: 40,
            slots: 8,
            memory_fraction: 0.5,
            own_weights: false,
        }),
        trainable: true,
        token_bytes: Vec::new(),
    }
}

pub fn fresh(dtype: &str, tied: bool) -> Policy {
    let folder = init_folder(tied);
    Policy::load(&load_command(folder.path(), dtype, Some(3)), &cpu()).unwrap()
}

pub fn generate(prompt: &[u32], seeds: &[u64], sampling: v1::Sampling) -> v1::Generate {
    v1::Generate {
        model: "tiny".to_owned(),
        prompt_ids: prompt.to_vec(),
        seeds: seeds.to_vec(),
        stop_ids: vec![1],
        stop_strings: vec![],
        sampling: Some(sampling),
    }
}

pub fn sampling(max_new_tokens: u32) -> v1::Sampling {
    v1::Sampling {
        max_new_tokens,
        min_new_tokens: 0,
        temperature: 1.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
    }
}

/// Runs the engine until nothing is in flight; answers by id.
pub fn drain(policy: &mut Policy) -> std::collections::BTreeMap<u64, v1::Generated> {
    let mut all = std::collections::BTreeMap::new();
    while policy.is_generating() {
        for (id, result) in policy.advance().unwrap() {
            all.insert(id, result.unwrap());
        }
    }
    all
}

pub fn adamw() -> v1::AdamW {
    v1::AdamW {
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        max_grad_norm: 1.0,
    }
}

/// A sequence of made-up ids with every vector that a loss can want; deterministic in `seed`.
pub fn sequence(seed: u64, prompt: usize, response: usize) -> v1::Sequence {
    let draw = |index: usize| rlpipe_torch::rng::uniform(seed, index as u64);
    let logprob = |index: usize| -(1.0 + 4.0 * draw(index)) as f32;
    v1::Sequence {
        ids: (0..prompt + response).map(|at| (draw(at) * 20.0) as u32).collect(),
        prompt_tokens: prompt as u32,
        mask: (0..response).map(|at| draw(100 + at) > 0.2).collect(),
        temperature: [1.0, 0.7, 0.0][seed as usize % 3],
        advantages: (0..response).map(|at| (draw(200 + at) * 4.0 - 2.0) as f32).collect(),
        old_logprobs: (0..response).map(|at| logprob(300 + at)).collect(),
        rollout_logprobs: (0..response).map(|at| logprob(400 + at)).collect(),
        reference_logprobs: (0..response).map(|at| logprob(500 + at)).collect(),
    }
}

pub fn policy_loss(kl: v1::Kl) -> v1::train_pack::Loss {
    v1::train_pack::Loss::Policy(v1::PolicyLoss {
        clip_low: 0.2,
        clip_high: 0.28,
        dual_clip: Some(10.0),
        log_ratio_min: -20.0,
        log_ratio_max: 20.0,
        kl: kl.into(),
        kl_coefficient: 0.3,
    })
}

pub fn train_pack(sequences: &[v1::Sequence], loss: v1::train_pack::Loss, denominator: f64) -> v1::TrainPack {
    v1::TrainPack {
        model: "tiny".to_owned(),
        pack: Some(v1::Pack {
            sequences: sequences.to_vec(),
        }),
        loss: Some(loss),
        denominator,
        logprob_chunk_tokens: 7,
        activations: v1::Activations::Keep.into(),
    }
}

/// One train step as the driver takes it: again where gradients are too large for float16.
pub fn train_step(policy: &mut Policy, command: &v1::TrainPack, learning_rate: f64) -> v1::OptimizerStepped {
    loop {
        policy.train_pack(command).unwrap();
        let stepped = policy.optimizer_step(learning_rate).unwrap();
        assert_eq!(stepped.skipped, stepped.again);
        if !stepped.again {
            return stepped;
        }
    }
}

/// What the settings mean, in the plainest way: the probability of each id.
pub fn probabilities(logits: &[f64], settings: &SlotSettings) -> Vec<f64> {
    let most = logits.iter().fold(f64::NEG_INFINITY, |most, logit| most.max(*logit));
    let weight = |logit: f64| ((logit - most) / settings.temperature).exp();
    let mut order = logits.to_vec();
    order.sort_by(|a, b| b.total_cmp(a));
    let mut least = f64::NEG_INFINITY;
    if settings.top_k > 0 {
        least = order.get(settings.top_k as usize - 1).copied().unwrap_or(least);
        order.retain(|logit| *logit >= least);
    }
    if settings.top_p < 1.0 {
        let enough = settings.top_p * order.iter().map(|logit| weight(*logit)).sum::<f64>();
        let mut sum = 0.0;
        least = *order
            .iter()
            .find(|logit| {
                sum += weight(**logit);
                sum >= enough
            })
            .unwrap();
    }
    let kept = |logit: f64| {
        let weight = weight(logit);
        if logit >= least && weight >= settings.min_p {
            weight
        } else {
            0.0
        }
    };
    let total: f64 = logits.iter().map(|logit| kept(*logit)).sum();
    logits.iter().map(|logit| kept(*logit) / total).collect()
}
