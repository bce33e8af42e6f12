//! What a run takes of memory, and what its plan said of it.

use rlpipe_runtime::plan::Plan;

use crate::harness::{Ended, Place};

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
    let (ended, planned, measured) = planned_and_measured(&[]);
    assert!(
        measured > 0.4,
        "the process alone would take that much: {measured:.3} GiB of {planned:.3}"
    );
    ended.says(&["memory/worker-0/host_peak_gib", "planned for"]);
}

/// Where there is no room for all that a pack could keep, less is kept, and that is less in the worker, too.
#[test]
fn a_run_keeps_of_its_packs_what_there_is_room_for() {
    let (ended, planned, measured) = planned_and_measured(&["pools.local.host_memory_per_worker=500MiB"]);
    let said = "activations of `trainer`: recompute_gated, because `keep` would take ";
    let ended = ended.says(&[said]);
    let (_, keep) = ended.text.split_once(said).unwrap();
    let keep: f64 = keep.split(' ').next().unwrap().parse().unwrap();
    assert!(
        planned < keep && measured < keep,
        "{planned:.3} {measured:.3} {keep:.3}"
    );
}

/// A run of the large model, its peak as planned and as measured, in GiB; they are no more than 15 % apart.
fn planned_and_measured(more: &[&str]) -> (Ended, f64, f64) {
    let place = Place::new();
    let settings: Vec<&str> = LARGE
        .iter()
        .chain(more)
        .flat_map(|setting| ["--set", setting])
        .collect();
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
    (ended, planned, measured)
}
