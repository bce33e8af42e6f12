//! Against transformers: log-probs and greedy continuations of tiny models, and what an export holds.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;

use common::{cpu, drain, generate, golden, load_command, sampling};
use rlpipe_torch::policy::Policy;
use rlpipe_wire::v1;
use serde_json::Value;

const MODELS: [&str; 13] = [
    "tied",
    "untied",
    "llama-biases",
    "qwen2-tied",
    "qwen2-untied",
    "qwen3",
    "qwen3-biases",
    "rope-linear",
    "rope-dynamic",
    "rope-llama3",
    "rope-yarn",
    "rope-yarn-old",
    "rope-yarn-scales",
];

fn load(name: &str) -> (Policy, Value) {
    let values: Value = serde_json::from_str(&fs::read_to_string(golden(&format!("{name}.json"))).unwrap()).unwrap();
    let mut command = load_command(&golden(name), "float32", None);
    command.engine.as_mut().unwrap().max_context_tokens = values["context"].as_u64().unwrap() as u32;
    (Policy::load(&command, &cpu()).unwrap(), values)
}

fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|number| number.as_f64().unwrap())
        .collect()
}

fn logprobs(policy: &Policy, sequences: &[Vec<u32>]) -> Vec<Vec<f32>> {
    let sequence = |ids: &Vec<u32>| v1::Sequence {
        ids: ids.clone(),
        prompt_tokens: 1,
        ..Default::default()
    };
    let pack = v1::Pack {
        sequences: sequences.iter().map(sequence).collect(),
    };
    let command = v1::LogProbs {
        model: String::new(),
        frozen: false,
        pack: Some(pack),
        logprob_chunk_tokens: 10,
    };
    policy
        .logprobs(&command)
        .unwrap()
        .sequences
        .into_iter()
        .map(|floats| floats.values)
        .collect()
}

#[test]
fn log_probs_are_those_of_transformers() {
    for name in MODELS {
        let (policy, values) = load(name);
        assert_eq!(
            policy.network.layout.parameters(),
            values["parameters"].as_u64().unwrap()
        );
        let cases = values["sequences"].as_array().unwrap();
        let sequences: Vec<Vec<u32>> = cases.iter().map(|case| ids(&case["ids"])).collect();
        let mut differences = Vec::new();
        for (case, found) in cases.iter().zip(logprobs(&policy, &sequences)) {
            let expected = numbers(&case["logprobs"]);
            assert_eq!(expected.len(), found.len());
            let pairs = expected.iter().zip(found);
            differences.extend(pairs.map(|(expected, found)| (expected - f64::from(found)).abs()));
        }
        let largest = differences
            .iter()
            .fold(0f64, |largest, difference| largest.max(*difference));
        let mean = differences.iter().sum::<f64>() / differences.len() as f64;
        assert!(
            largest < 2e-5 && mean < 5e-6,
            "{name}: largest {largest:e}, mean {mean:e}"
        );
    }
}

#[test]
fn greedy_continuations_are_those_of_transformers() {
    for name in MODELS {
        let (mut policy, values) = load(name);
        let cases = values["greedy"].as_array().unwrap();
        for (id, case) in cases.iter().enumerate() {
            let mut command = generate(&ids(&case["prompt"]), &[9, 9], sampling(20));
            command.sampling = Some(v1::Sampling {
                temperature: 0.0,
                top_k: 1,
                ..sampling(20)
            });
            command.stop_ids.clear();
            policy.generate(id as u64, command).unwrap();
        }
        for (id, generated) in drain(&mut policy) {
            let case = &cases[id as usize];
            let (expected, chosen, gaps) = (ids(&case["ids"]), numbers(&case["logprobs"]), numbers(&case["gaps"]));
            assert_eq!(generated.samples[0], generated.samples[1]);
            let sample = &generated.samples[0];
            for at in 0..20 {
                if gaps[at] < 1e-4 {
                    break;
                }
                assert_eq!(sample.ids[at], expected[at], "{name}, prompt {id}, token {at}");
                assert!((f64::from(sample.logprobs[at]) - chosen[at]).abs() < 1e-4);
            }
        }
    }
}

#[test]
fn an_export_is_the_model_that_came_in() {
    for name in MODELS {
        let (policy, _) = load(name);
        let folder = tempfile::tempdir().unwrap();
        policy.export(folder.path(), "source").unwrap();
        let bytes = fs::read(folder.path().join("model.safetensors")).unwrap();
        let export = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let mut names = 0;
        for file in fs::read_dir(golden(name)).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_some_and(|extension| extension == "safetensors") {
                let bytes = fs::read(file).unwrap();
                for (name, view) in safetensors::SafeTensors::deserialize(&bytes).unwrap().iter() {
                    names += 1;
                    let found = export.tensor(name).unwrap();
                    assert!((found.dtype(), found.shape(), found.data()) == (view.dtype(), view.shape(), view.data()));
                }
            }
        }
        assert_eq!(export.len(), names);
    }
}

#[test]
fn i25c_an_export_loads_and_scores_the_same() {
    for name in MODELS {
        let (policy, values) = load(name);
        let folder = tempfile::tempdir().unwrap();
        policy.export(folder.path(), "source").unwrap();
        fs::copy(golden(name).join("config.json"), folder.path().join("config.json")).unwrap();
        let command = v1::Load {
            engine: None,
            ..load_command(folder.path(), "float32", None)
        };
        let again = Policy::load(&command, &cpu()).unwrap();
        let cases = values["sequences"].as_array().unwrap();
        let sequences: Vec<Vec<u32>> = cases.iter().map(|case| ids(&case["ids"])).collect();
        assert_eq!(logprobs(&policy, &sequences), logprobs(&again, &sequences), "{name}");
    }
}

#[test]
fn a_longer_context_than_the_rotary_scaling_allows_is_refused() {
    let refused = |name: &str, context| {
        let mut command = load_command(&golden(name), "float32", None);
        command.engine.as_mut().unwrap().max_context_tokens = context;
        Policy::load(&command, &cpu()).err().map(|error| error.0)
    };
    assert_eq!(refused("rope-dynamic", 32), None);
    let error = refused("rope-dynamic", 33).unwrap();
    assert!(error.contains("reads 2 to 32 positions; with `dynamic`"), "{error}");
    // The factor counts: 16 x 4.
    assert_eq!(refused("rope-linear", 64), None);
    assert!(refused("rope-linear", 65).unwrap().ends_with("reads 2 to 64 positions"));
    assert_eq!(refused("rope-yarn", 64), None);
    assert!(refused("rope-yarn", 65).is_some());
}
