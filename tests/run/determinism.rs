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
    const ONE_STEP: &str = "    max_tokens_per_pack: 64\n";
    let steps = |steps: u32, old: &str| format!("{ONE_STEP}    optimizer_steps: {steps}\n    old_logprobs: {old}\n");
    let kl = "k3: { coefficient: 0.01 }";
    let schedule = "cosine: { warmup_steps: 1, min_lr: 1e-4 }";
    let variants = [
        (ONE_STEP, steps(1, "rollout")),
        (ONE_STEP, steps(2, "recompute")),
        (ONE_STEP, steps(4, "rollout")),
        (kl, "k2: { coefficient: 0.01 }".to_owned()),
        (kl, "k1: { coefficient: 0.01 }".to_owned()),
        ("high: 0.28", "high: 0.28, dual: 1.5".to_owned()),
        (schedule, "linear: { warmup_steps: 1, min_lr: 1e-4 }".to_owned()),
        (schedule, "constant: { warmup_steps: 3 }".to_owned()),
    ];
    let unchanged = unbroken(&["--steps", "2"]).0["metrics, row 002"].clone();
    let mut same = Vec::new();
    for (from, to) in &variants {
        let record = Place::with_own_files(&[(*from, to.as_str())]).record(&["--steps", "2"]);
        let rows = record.rows();
        for name in ["loss", "grad_norm", "lr", "policy/kl"] {
            assert!(
                rows[2][name].as_f64().is_some_and(f64::is_finite),
                "{to}: `{name}` in {}",
                rows[2]
            );
        }
        if record.0["metrics, row 002"] == unchanged {
            same.push(to);
        }
    }
    // The worker's log-probs differ from the engine's in the last bits, and the bound of `dual` is seldom reached.
    assert!(
        same.iter().all(|to| to.contains("dual")),
        "these change nothing: {same:?}"
    );
}

#[test]
fn each_evaluator_has_its_steps_its_prompts_and_its_names() {
    let again = "nodes.again={ type: evaluator, inputs: { groups: marks }, every_steps: 4, at_end: false, limit: 3 }";
    let whole = unbroken(&["--set", again]);
    let rows = whole.rows();
    for (step, row) in rows.iter().enumerate() {
        let measured = |node: &str| row[format!("eval/{node}/accuracy")].is_number();
        assert_eq!(
            (measured("evaluator"), measured("again")),
            (step % 2 == 0, step == 4),
            "step {step}"
        );
        let lines = |node: &str| {
            whole
                .0
                .get(&format!("rollouts/eval/step-{step}.{node}.jsonl"))
                .map(|text| text.iter().filter(|byte| **byte == b'\n').count())
        };
        assert_eq!(
            (lines("evaluator"), lines("again")),
            ((step % 2 == 0).then_some(8), (step == 4).then_some(3))
        );
    }
    assert_eq!(rows[4]["eval/again/groups"], 3.0);
    // What is measured does not change what is learnt.
    let none = unbroken(&["--set", "nodes.evaluator.enabled=false"]);
    for step in 1..=6 {
        let file = format!("rollouts/train/step-{step}.jsonl");
        assert!(whole.0[&file] == none.0[&file], "{file}");
    }
    assert!(none.0.keys().all(|name| !name.starts_with("rollouts/eval")));

    let late = unbroken(&["--set", "nodes.evaluator={ at_start: false, every_steps: 4 }"]);
    let measured = late
        .rows()
        .iter()
        .map(|row| row["eval/accuracy"].is_number())
        .collect::<Vec<_>>();
    assert_eq!(
        measured,
        [false, false, false, false, true, false, true],
        "every fourth step and the last"
    );
}
