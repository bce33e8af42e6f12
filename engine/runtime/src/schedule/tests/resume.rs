//! Whole runs, unbroken and broken.

use std::path::Path;
use std::sync::Arc;

use rlpipe_core::data::{Activations, Group, Metrics, VersionRun, repeats};
use rlpipe_stages::KINDS;

use super::super::report;
use super::super::{Ended, Run, Setup, State, Stop};
use super::fakes::{EVALUATED, FILTERED, PLAIN, World, plan, rows};
use crate::run::{Checkpoint, Identity, Purpose, RunFolder};

/// Three epochs in six steps of four groups: each second step ends with an epoch.
const ROWS: &str = "mehmmmem";

fn world(nodes: &str, letters: &str, overrides: &[&str]) -> Arc<World> {
    let plan = plan(nodes, &[overrides, &["nodes.prompts.shuffle=true"]].concat());
    Arc::new(World::new(
        plan,
        &[("prompts", rows(letters)), ("held_out", rows("mhe"))],
    ))
}

/// Runs in `work_dir` for at most `steps` steps, going on from the newest checkpoint where there is one.
async fn run(world: &Arc<World>, work_dir: &Path, steps: Option<u64>) -> Ended {
    let folder = match RunFolder::open(work_dir, "small", None).unwrap() {
        Some(folder) => folder,
        None => RunFolder::create(work_dir, "small").unwrap(),
    };
    let checkpoint: Option<Checkpoint<State>> = folder.checkpoints().newest().unwrap();
    let fresh = checkpoint.is_none();
    let setup = Setup {
        plan: world.plan.clone(),
        kinds: KINDS,
        services: world.clone(),
        workers: world.clone(),
        folder,
        reporter: world.ears.clone(),
        stop: Stop::default(),
        identity: Identity::default(),
        steps,
        model_folder: work_dir.to_owned(),
    };
    let (run, step) = Run::prepare(setup, checkpoint).await.unwrap();
    run.go(step, fresh).await.unwrap()
}

/// What a run reported that does not depend on the machine.
fn metrics(world: &World) -> Vec<(u64, Metrics)> {
    let mut all = world.ears.metrics.lock().unwrap().clone();
    for (_, metrics) in &mut all {
        metrics.0.retain(|name, _| repeats(name));
    }
    all
}

fn rollouts(work_dir: &Path, purpose: Purpose, step: u64) -> String {
    let folder = RunFolder::open(work_dir, "small", None).unwrap().unwrap();
    std::fs::read_to_string(folder.rollouts(purpose).join(format!("step-{step}.jsonl"))).unwrap()
}

fn answered(world: &World) -> Vec<u32> {
    world.engine.answered.lock().unwrap().clone()
}

/// What the plan's table chose to keep of packs is what each pack is sent with.
#[tokio::test]
async fn packs_are_sent_with_the_level_that_the_plan_chose() {
    for level in [
        Activations::Keep,
        Activations::RecomputeGated,
        Activations::RecomputeLayers,
    ] {
        let mut plan = plan(PLAIN, &[]);
        plan.memory[0].activations[0].level = level;
        let world = Arc::new(World::new(plan, &[("prompts", rows(ROWS))]));
        let work_dir = tempfile::tempdir().unwrap();
        run(&world, work_dir.path(), Some(1)).await;
        let sent = world.learner.1.lock().unwrap();
        assert!(!sent.is_empty() && sent.iter().all(|sent| *sent == level), "{sent:?}");
    }
}

/// A loader that is saved at the end of an epoch and comes back used up ends the next one at once, and the run with it, as
/// if all were done. A position has no end: every step after the break is made, each with a whole step's groups.
#[tokio::test]
async fn i21_a_run_that_was_broken_at_the_end_of_an_epoch_does_all_its_steps() {
    let work_dir = tempfile::tempdir().unwrap();
    let before = world(PLAIN, ROWS, &[]);
    assert_eq!(run(&before, work_dir.path(), Some(2)).await, Ended::Stopped { step: 2 });
    assert_eq!(answered(&before).len(), ROWS.len(), "one epoch");

    let after = world(PLAIN, ROWS, &[]);
    assert_eq!(run(&after, work_dir.path(), None).await, Ended::Finished);
    let steps: Vec<u64> = metrics(&after).into_iter().map(|(step, _)| step).collect();
    assert_eq!(steps, [3, 4, 5, 6]);
    for (_, metrics) in metrics(&after) {
        assert_eq!(metrics.get("groups/trained"), Some(4.0));
    }
    for epoch in answered(&after).chunks(ROWS.len()) {
        let mut rows = epoch.to_vec();
        rows.sort_unstable();
        assert_eq!(rows, (0..ROWS.len() as u32).collect::<Vec<_>>(), "every row once");
    }
}

/// When only the number of steps is saved, a resumed run draws other rows than the unbroken one, and their curves cannot be
/// laid over each other. The position of each sampler is saved, refills included, and its order follows from the seed.
#[tokio::test]
async fn i22_a_broken_run_draws_the_same_rows_in_the_same_order() {
    for (nodes, breaks) in [(PLAIN, &[1, 3][..]), (FILTERED, &[1]), (FILTERED, &[2, 1, 1])] {
        let nodes = format!("{nodes}{EVALUATED}");
        let (whole_dir, broken_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let whole = world(&nodes, ROWS, &[]);
        assert_eq!(run(&whole, whole_dir.path(), None).await, Ended::Finished);

        let (mut drawn, mut reported) = (Vec::new(), Vec::new());
        for steps in breaks.iter().copied().map(Some).chain([None]) {
            let part = world(&nodes, ROWS, &[]);
            run(&part, broken_dir.path(), steps).await;
            drawn.extend(answered(&part));
            reported.extend(metrics(&part));
        }
        assert_eq!(drawn, answered(&whole));
        assert_eq!(reported, metrics(&whole));
        for step in 1..=6 {
            let of = |dir: &tempfile::TempDir| rollouts(dir.path(), Purpose::Train, step);
            assert_eq!(of(&broken_dir), of(&whole_dir), "step {step}");
        }
    }
}

/// A version counter that is restored while what it is compared with begins at nothing makes every rollout look fresh, or
/// hopelessly old. Staleness is taken from the versions that drew the tokens, so that a break changes nothing.
#[tokio::test]
async fn i24_staleness_is_the_same_after_a_break() {
    let overrides = ["nodes.sync.every_steps=3", "run.checkpoint={ every_steps: 3 }"];
    let staleness = |world: &World| -> Vec<f64> {
        let rows = metrics(world).into_iter().filter(|(step, _)| *step > 0);
        rows.map(|(_, metrics)| metrics.get("staleness/max").unwrap()).collect()
    };
    let work_dir = tempfile::tempdir().unwrap();
    let before = world(PLAIN, ROWS, &overrides);
    run(&before, work_dir.path(), Some(4)).await;
    let after = world(PLAIN, ROWS, &overrides);
    run(&after, work_dir.path(), None).await;
    assert_eq!(
        [staleness(&before), staleness(&after)].concat(),
        [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]
    );
}

#[test]
fn staleness_counts_from_the_oldest_token() {
    let mut group = Group {
        id: 0,
        sampler: "prompts".into(),
        row: Arc::default(),
        rollouts: Vec::new(),
    };
    let mut batch = |versions: &[u64]| {
        let mut state = serde_json::json!({
            "response_ids": [1], "logprobs": [0.0], "mask": [true], "policy_version": [], "temperature": 1.0,
            "response": "", "score": null, "advantage": null, "reference_logprobs": null,
            "status": "completed", "finish_reason": "stop",
        });
        let runs = versions.iter().map(|version| VersionRun {
            version: *version,
            tokens: 1,
        });
        state["policy_version"] = serde_json::to_value(runs.collect::<Vec<_>>()).unwrap();
        group.rollouts = vec![serde_json::from_value(state).unwrap()];
        rlpipe_core::data::Batch {
            groups: vec![group.clone()],
        }
    };
    let mut of = |versions: &[u64], step| report::of_batch(&batch(versions), step).get("staleness/max");
    assert_eq!(of(&[6], 7), Some(0.0));
    assert_eq!(of(&[6, 4, 5], 7), Some(2.0));
    assert_eq!(of(&[], 7), Some(0.0));
}

#[tokio::test]
async fn rewards_are_told_by_source_where_the_data_has_several() {
    let told = |sources: &'static [&str]| async move {
        let work_dir = tempfile::tempdir().unwrap();
        let mut mixed = rows("eehh");
        for (row, source) in mixed.iter_mut().zip(sources.iter().cycle()) {
            row.data_source = (*source).to_owned();
        }
        let plan = plan(PLAIN, &["nodes.prompts.shuffle=false", "run.total_steps=1"]);
        let world = Arc::new(World::new(plan, &[("prompts", mixed)]));
        run(&world, work_dir.path(), None).await;
        let (_, metrics) = metrics(&world).pop().unwrap();
        let by_source = metrics.0.into_iter().filter(|(name, _)| name.contains("by_source"));
        by_source.collect::<Vec<_>>()
    };
    assert_eq!(
        told(&["a", "a", "b/c", ""]).await,
        [
            ("reward/by_source/a/mean".to_owned(), 1.0),
            ("reward/by_source/b/c/mean".to_owned(), 0.0),
            ("reward/by_source/none/mean".to_owned(), 0.0)
        ]
    );
    assert_eq!(told(&["a"]).await, []);
}

#[tokio::test]
async fn evaluations_do_not_change_what_training_draws() {
    let (with_dir, without_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let nodes = format!("{FILTERED}{EVALUATED}");
    let with = world(&nodes, ROWS, &["run.checkpoint={ every_steps: 6 }"]);
    let without = world(
        &nodes,
        ROWS,
        &["run.checkpoint={ every_steps: 6 }", "nodes.evaluator.enabled=false"],
    );
    run(&with, with_dir.path(), None).await;
    run(&without, without_dir.path(), None).await;
    assert!(answered(&with).len() > answered(&without).len());
    for step in 1..=6 {
        let of = |dir: &tempfile::TempDir| rollouts(dir.path(), Purpose::Train, step);
        assert_eq!(of(&with_dir), of(&without_dir), "step {step}");
    }
    let positions = |dir: &tempfile::TempDir| {
        let folder = RunFolder::open(dir.path(), "small", None).unwrap().unwrap();
        folder.checkpoints().newest::<State>().unwrap().unwrap().state.positions
    };
    assert_eq!(positions(&with_dir), positions(&without_dir));
    assert!(!positions(&with_dir).contains_key("held_out"));
}

#[tokio::test]
async fn a_run_goes_through_its_phases_in_order() {
    let work_dir = tempfile::tempdir().unwrap();
    let overrides = [
        "run.total_steps=3",
        "run.checkpoint={ every_steps: 2 }",
        "run.hf_export={ every_steps: 2 }",
        "nodes.sync.every_steps=2",
    ];
    let world = world(&format!("{PLAIN}{EVALUATED}"), ROWS, &overrides);
    assert_eq!(run(&world, work_dir.path(), None).await, Ended::Finished);
    let wanted = [
        (0, &["weight sync", "evaluation"][..]),
        (1, &["generation", "training"]),
        (
            2,
            &[
                "generation",
                "training",
                "export",
                "weight sync",
                "evaluation",
                "checkpoint",
            ],
        ),
        (3, &["generation", "training", "export", "weight sync", "evaluation"]),
    ];
    let wanted: Vec<(u64, &str)> = wanted
        .iter()
        .flat_map(|(step, phases)| phases.iter().map(|phase| (*step, *phase)))
        .collect();
    assert_eq!(*world.ears.phases.lock().unwrap(), wanted);
}
