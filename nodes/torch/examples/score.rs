//! Log-probs and greedy continuations of a model folder, for `scripts/compare_transformers.py`.
//!
//!     score FOLDER DTYPE < request.json > answer.json
//!
//! The request has `sequences` (token ids; every token but the first is scored), `prompts` and `new_tokens`; the answer
//! has `logprobs` and `greedy`.

use std::error::Error;
use std::io::{Write, stdin, stdout};

use rlpipe_torch::device::{load_cuda_library, open, settle_threads};
use rlpipe_torch::policy::Policy;
use rlpipe_wire::v1;
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Request {
    sequences: Vec<Vec<u32>>,
    prompts: Vec<Vec<u32>>,
    new_tokens: u32,
}

#[derive(Serialize)]
struct Answer {
    logprobs: Vec<Vec<f32>>,
    greedy: Vec<Vec<u32>>,
}

fn main() -> Result<(), Box<dyn Error>> {
    load_cuda_library();
    settle_threads();
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(dtype)) = (arguments.next(), arguments.next()) else {
        return Err("give a model folder and a dtype".into());
    };
    let request: Request = serde_json::from_reader(stdin())?;
    let longest = request.prompts.iter().map(Vec::len).max().unwrap_or(0);
    let load = v1::Load {
        model: "model".to_owned(),
        folder,
        dtype,
        engine: Some(v1::EngineSpec {
            max_context_tokens: longest as u32 + request.new_tokens,
            slots: 8,
            memory_fraction: 0.5,
            own_weights: false,
        }),
        ..Default::default()
    };
    let mut policy = Policy::load(&load, &open("auto")?)?;
    let answer = Answer {
        logprobs: logprobs(&policy, request.sequences)?,
        greedy: greedy(&mut policy, request.prompts, request.new_tokens)?,
    };
    serde_json::to_writer(stdout().lock(), &answer)?;
    Ok(stdout().flush()?)
}

fn logprobs(policy: &Policy, sequences: Vec<Vec<u32>>) -> Result<Vec<Vec<f32>>, Box<dyn Error>> {
    let mut all = Vec::new();
    for ids in sequences {
        let sequence = v1::Sequence {
            ids,
            prompt_tokens: 1,
            ..Default::default()
        };
        let command = v1::LogProbs {
            pack: Some(v1::Pack {
                sequences: vec![sequence],
            }),
            ..Default::default()
        };
        let answer = policy.logprobs(&command)?;
        all.extend(answer.sequences.into_iter().map(|floats| floats.values));
    }
    Ok(all)
}

fn greedy(policy: &mut Policy, prompts: Vec<Vec<u32>>, new_tokens: u32) -> Result<Vec<Vec<u32>>, Box<dyn Error>> {
    let mut continuations = vec![Vec::new(); prompts.len()];
    for (id, prompt_ids) in prompts.into_iter().enumerate() {
        let command = v1::Generate {
            prompt_ids,
            seeds: vec![0],
            sampling: Some(v1::Sampling {
                max_new_tokens: new_tokens,
                top_p: 1.0,
                ..Default::default()
            }),
            ..Default::default()
        };
        policy.generate(id as u64, command)?;
    }
    while policy.is_generating() {
        for (id, generated) in policy.advance()? {
            continuations[id as usize] = generated?.samples.remove(0).ids;
        }
    }
    Ok(continuations)
}
