//! What a run takes of memory, and what its plan said of it.

use rlpipe_runtime::plan::Plan;

use crate::harness::Place;

/// A model that is large beside the process, and packs that are nearly full: a step has about 5200 tokens, in two even packs.
const LARGE: [&str; 14] = [
    "models.tiny.init.hidden_size=256",
    "models.tiny.init.intermediate_size=1024",
    "models.tiny.init.layers=4",
    "nodes.warm_up.epochs=1",
    "nodes.warm_up.max_tokens_per_pack=256",
    "nodes.prompts.samples_per_prompt=64",
    "nodes.buffer.prompts_per_step=16",
    "nodes.varied.max_refill=0",
    "nodes.trainer.max_tokens_per_pack=2700",
    "nodes.evaluator.at_start=false",
    "run.total_steps=1",
    "run.checkpoint.every_steps=1",
    "run.hf_export.every_steps=1",
    "nodes.evaluator.every_steps=1",
];

#[test]
fn the_plan_says_what_a_run_takes_within_15_percent() {
    let place = Place::new();
    let settings: Vec<&str> = LARGE.iter().flat_map(|setting| ["--set", setting]).collect();
    let ended = place.run(&settings).expect(0);

    let plan = std::fs::read(place.attempt().join("plan.json")).unwrap();
    let plan: Plan = serde_json::from_slice(&plan).unwrap();
    let (phase, planned) = plan.memory[0].peak().unwrap();
    let metrics = std::fs::read_to_string(place.attempt().join("metrics.jsonl")).unwrap();
    let row: serde_json::Value = serde_json::from_str(metrics.lines().last().unwrap()).unwrap();
    let measured = row["memory/worker-0/host_peak_gib"].as_f64().unwrap();
    let planned = planned as f64 / f64::from(1 << 30);
    let ratio = planned / measured;
    assert!(
        (0.85..1.15).contains(&ratio),
        "{planned:.3} GiB planned in `{}`, {measured:.3} GiB measured: {ratio:.3}",
        phase.name()
    );
    assert!(
        measured > 0.4,
        "the process alone would take that much: {measured:.3} GiB"
    );
    ended.says(&["memory/worker-0/host_peak_gib", "planned for"]);
}
