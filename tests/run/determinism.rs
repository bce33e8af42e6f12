//! One seed, one result.

use crate::harness::{Place, Record, unbroken};

#[test]
fn the_same_seed_gives_the_same_run() {
    let (first, second) = (unbroken(&[]), unbroken(&[]));
    first.assert_is(&second);
    assert_eq!(first.rows().len(), 7, "step 0 and six train steps");
    for file in [
        "rollouts/train/step-6.jsonl",
        "rollouts/eval/step-0.jsonl",
        "hf/step-6/model.safetensors",
    ] {
        assert!(first.0.contains_key(file), "{file}");
    }
    let other = unbroken(&["--set", "run.seed=8"]);
    assert_ne!(first.0["metrics, row 001"], other.0["metrics, row 001"]);
}

/// What every rollout of a file was drawn with: the oldest and the newest policy version.
fn versions(record: &Record, file: &str) -> Vec<(u64, u64)> {
    let of = |line: &serde_json::Value| {
        let runs = line["policy_version"].as_array().unwrap().clone();
        let versions: Vec<u64> = runs.iter().map(|run| run["version"].as_u64().unwrap()).collect();
        (*versions.iter().min().unwrap(), *versions.iter().max().unwrap())
    };
    record.lines(file).iter().map(of).collect()
}

/// The engine's weights are those of the last sync, also after a resume between two of them.
#[test]
fn an_engine_that_is_synced_every_second_step_resumes_between_two_syncs() {
    let every_second = ["--set", "nodes.sync.every_steps=2"];
    let whole = unbroken(&every_second);
    for (step, version) in [(1, 0), (2, 0), (3, 2), (4, 2), (5, 4), (6, 4)] {
        for found in versions(&whole, &format!("rollouts/train/step-{step}.jsonl")) {
            assert_eq!(found, (version, version), "step {step}");
        }
        let row = &whole.rows()[step as usize];
        assert_eq!(
            row["staleness/max"].as_f64().unwrap(),
            (step - version - 1) as f64,
            "step {step}"
        );
    }
    for steps in ["1", "3", "5"] {
        let place = Place::new();
        place.run(&[&every_second[..], &["--steps", steps]].concat()).expect(0);
        place.run(&[&every_second[..], &["--resume"]].concat()).expect(0);
        let mut broken = Record::of(&place.attempt());
        // `--steps` leaves an export more.
        broken
            .0
            .retain(|name, _| !name.starts_with(&format!("hf/step-{steps}/")));
        broken.assert_is(&whole);
    }
}

#[test]
fn learning_has_its_variants() {
    let variants: [&[&str]; 6] = [
        &["nodes.trainer.old_logprobs=rollout"],
        &[
            "nodes.trainer.optimizer_steps=2",
            "nodes.trainer.old_logprobs=recompute",
        ],
        &["nodes.trainer.optimizer_steps=4", "nodes.trainer.old_logprobs=rollout"],
        &[
            "nodes.trainer.loss.kl={ k2: { coefficient: 0.01 } }",
            "nodes.trainer.loss.policy.clip.dual=3.0",
        ],
        &["nodes.trainer.lr_schedule={ linear: { warmup_steps: 2, min_lr: 1e-4 } }"],
        &["nodes.trainer.lr_schedule={ constant: { warmup_steps: 2 } }"],
    ];
    let mut second_rows = Vec::new();
    for variant in variants {
        let mut arguments = vec!["--steps", "2"];
        for setting in variant {
            arguments.extend(["--set", setting]);
        }
        let record = unbroken(&arguments);
        let rows = record.rows();
        let number = |name: &str| {
            rows[2][name]
                .as_f64()
                .unwrap_or_else(|| panic!("{variant:?}: no `{name}`"))
        };
        assert!(
            number("grad_norm") > 0.0 && number("loss").is_finite() && number("lr") > 0.0,
            "{variant:?}"
        );
        second_rows.push(record.0["metrics, row 002"].clone());
    }
    for (index, row) in second_rows.iter().enumerate() {
        assert!(
            !second_rows[..index].contains(row),
            "{:?} changes nothing",
            variants[index]
        );
    }
}
