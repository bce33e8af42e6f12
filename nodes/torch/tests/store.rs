//! A restored worker goes on bit for bit; broken checkpoints are named.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use common::{
    adamw, cpu, drain, generate, init_folder, load_command, policy_loss, sampling, sequence, train_pack, train_step,
};
use rlpipe_torch::policy::Policy;
use rlpipe_torch::store::{restore, save};
use rlpipe_wire::v1;
use rlpipe_wire::v1::Kl;
use sha2::{Digest, Sha256};
use tch::Tensor;

type Policies = BTreeMap<String, Policy>;

fn load(dtype: &str, seed: u64, own_weights: bool) -> Policies {
    let folder = init_folder(true);
    let mut command = load_command(folder.path(), dtype, Some(seed));
    command.engine.as_mut().unwrap().own_weights = own_weights;
    BTreeMap::from([("tiny".to_owned(), Policy::load(&command, &cpu()).unwrap())])
}

fn train(policies: &mut Policies, step: u64) {
    let policy = policies.get_mut("tiny").unwrap();
    let sequences: Vec<_> = (0..4).map(|index| sequence(10 * step + index, 2, 7)).collect();
    let command = train_pack(&sequences, policy_loss(Kl::K3), 20.0);
    assert!(!train_step(policy, &command, 1e-2).skipped);
}

/// Everything that can be seen: weights, log-probs of both copies, rollouts.
fn behaviour(policies: &mut Policies) -> (Vec<Vec<f32>>, v1::PackLogProbs, v1::PackLogProbs, v1::Generated) {
    let policy = policies.get_mut("tiny").unwrap();
    let flat = |leaf: &Tensor| Vec::try_from(leaf.detach().to_kind(tch::Kind::Float).view([-1])).unwrap();
    let weights = policy.master().iter().map(flat).collect();
    let pack = Some(v1::Pack {
        sequences: vec![sequence(1, 3, 8)],
    });
    let logprobs = |frozen| {
        let command = v1::LogProbs {
            frozen,
            pack: pack.clone(),
            ..Default::default()
        };
        policy.logprobs(&command).unwrap()
    };
    let (current, frozen) = (logprobs(false), logprobs(true));
    policy.generate(1, generate(&[3, 4], &[1, 2, 3], sampling(9))).unwrap();
    (weights, current, frozen, drain(policy).remove(&1).unwrap())
}

#[test]
fn i25e_a_restored_worker_goes_on_bit_for_bit() {
    for (dtype, own_weights) in [
        ("float32", false),
        ("float32", true),
        ("bfloat16", true),
        ("float16", false),
        ("float64", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut first = load(dtype, 3, own_weights);
        let policy = first.get_mut("tiny").unwrap();
        policy.freeze();
        policy
            .start_training(v1::AdamW {
                beta1: 0.1 + 0.2,
                ..adamw()
            })
            .unwrap();
        train(&mut first, 0);
        first.get_mut("tiny").unwrap().set_version(7);
        // With its own weights the engine is now behind the policy.
        train(&mut first, 1);
        let files = save(folder.path(), &first).unwrap();
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names.contains(&"tiny.engine.safetensors"), own_weights);
        for file in &files {
            let bytes = fs::read(folder.path().join(&file.name)).unwrap();
            let hash: String = Sha256::digest(&bytes)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!((file.bytes, &file.sha256), (bytes.len() as u64, &hash));
        }
        // Another seed: all that is equal afterwards came from the folder.
        let mut second = load(dtype, 4, own_weights);
        restore(folder.path(), &mut second).unwrap();
        assert!(
            behaviour(&mut first) == behaviour(&mut second),
            "{dtype}, own weights {own_weights}"
        );
        train(&mut first, 2);
        train(&mut second, 2);
        assert!(
            behaviour(&mut first) == behaviour(&mut second),
            "{dtype}, own weights {own_weights}, a step later"
        );
        let samples = behaviour(&mut second).3.samples;
        assert!(samples.iter().all(|sample| sample.policy_version[0] == 7));
        let again = tempfile::tempdir().unwrap();
        train(&mut second, 3);
        train(&mut first, 3);
        assert_eq!(
            save(folder.path(), &first).unwrap(),
            save(again.path(), &second).unwrap()
        );
    }
}

#[test]
fn weights_that_diverged_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut policies = load("float32", 3, false);
    let policy = policies.get_mut("tiny").unwrap();
    policy.start_training(adamw()).unwrap();
    let _ = policy.master()[2].shallow_clone().get(0).fill_(f64::NAN);
    let export = policy.export(folder.path(), "source").unwrap_err().0;
    let saved = save(folder.path(), &policies).unwrap_err().0;
    for error in [export, saved] {
        assert!(error.contains("they have diverged, and are not written"), "{error}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_save_in_the_middle_of_a_step_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut policies = load("float32", 3, false);
    let policy = policies.get_mut("tiny").unwrap();
    policy.start_training(adamw()).unwrap();
    policy
        .train_pack(&train_pack(&[sequence(1, 2, 6)], policy_loss(Kl::K1), 6.0))
        .unwrap();
    assert!(
        save(folder.path(), &policies)
            .unwrap_err()
            .0
            .contains("gradients of 1 packs")
    );
    policies.get_mut("tiny").unwrap().optimizer_step(1e-3).unwrap();
    assert!(
        save(Path::new("/nowhere"), &policies)
            .unwrap_err()
            .0
            .contains("cannot write `/nowhere/tiny.weights")
    );
}

#[test]
fn broken_and_foreign_checkpoints_are_named_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut saved = load("float32", 3, false);
    saved.get_mut("tiny").unwrap().start_training(adamw()).unwrap();
    saved.get_mut("tiny").unwrap().freeze();
    train(&mut saved, 0);
    save(folder.path(), &saved).unwrap();

    let mut policies = load("float32", 4, false);
    policies.get_mut("tiny").unwrap().freeze();
    let before = behaviour(&mut policies);
    let mut refused = |file: &str, contents: &[u8], reason: &str| {
        let path = folder.path().join(file);
        let kept = fs::read(&path).unwrap();
        fs::write(&path, contents).unwrap();
        let error = restore(folder.path(), &mut policies).unwrap_err().0;
        assert!(error.contains(reason) && error.contains(file), "{error}");
        fs::write(&path, kept).unwrap();
    };
    let squares = fs::read(folder.path().join("tiny.squares.safetensors")).unwrap();
    let whole = "not a whole safetensors file";
    refused("tiny.squares.safetensors", &squares[..squares.len() / 2], whole);
    refused("tiny.squares.safetensors", &[], whole);
    refused("tiny.weights.safetensors", b"something else entirely", whole);
    let foreign = fs::read(common::golden("tied/model.safetensors")).unwrap();
    refused("tiny.weights.safetensors", &foreign, "has shape");
    refused("worker.json", b"{}", "not a worker's checkpoint");
    let index = String::from_utf8(fs::read(folder.path().join("worker.json")).unwrap()).unwrap();
    refused(
        "worker.json",
        index
            .replace("\"format_version\": 1", "\"format_version\": 9")
            .as_bytes(),
        "is needed",
    );
    assert!(before == behaviour(&mut policies));

    let refused = |policies: &mut Policies| restore(folder.path(), policies).unwrap_err().0;
    assert!(refused(&mut load("bfloat16", 3, false)).contains("saved as float32, but is loaded as bfloat16"));
    assert!(refused(&mut BTreeMap::new()).contains("has the models `tiny`"));
    let empty = tempfile::tempdir().unwrap();
    assert!(
        restore(empty.path(), &mut policies)
            .unwrap_err()
            .0
            .contains("worker.json")
    );
    restore(folder.path(), &mut policies).unwrap();
    assert!(behaviour(&mut saved) == behaviour(&mut policies));
}
