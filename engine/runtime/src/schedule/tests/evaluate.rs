//! Evaluations, and when things happen.

use super::super::produce::evaluate;
use super::fakes::{EVALUATED, PLAIN, World, plan, rows};
use crate::plan::Clock;

fn world(held_out: &str, overrides: &[&str]) -> World {
    let plan = plan(&format!("{PLAIN}{EVALUATED}"), overrides);
    World::new(plan, &[("prompts", rows("mmmm")), ("held_out", rows(held_out))])
}

/// Lines that were evaluated, and how many groups failed.
async fn pass(world: &World) -> (Vec<u64>, usize) {
    let graph = world.graph();
    let (groups, failed) = evaluate(&graph.evaluations[0], &world.surroundings(2)).await.unwrap();
    assert!(groups.iter().all(|group| group.rollouts.len() == 1));
    (groups.iter().map(|group| group.row.line).collect(), failed)
}

#[tokio::test]
async fn an_evaluation_goes_over_its_rows_once() {
    assert_eq!(pass(&world("mehmm", &[])).await, (vec![1, 2, 3, 4, 5], 0));
    assert_eq!(
        pass(&world("mehmm", &["nodes.evaluator.limit=3"])).await,
        (vec![1, 2, 3], 0)
    );
    assert_eq!(
        pass(&world("meh", &["nodes.evaluator.limit=100"])).await,
        (vec![1, 2, 3], 0),
        "it never wraps"
    );
}

#[tokio::test]
async fn failed_groups_are_counted_and_not_asked_for_again() {
    let world = world("mbhb", &[]);
    assert_eq!(pass(&world).await, (vec![1, 3], 2));
    assert_eq!(world.engine.answered.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn an_evaluation_repeats_itself() {
    let mut passes = Vec::new();
    for order in [0, 3, 9] {
        let world = world("mehmmhe", &[]).in_order(order);
        let graph = world.graph();
        for step in [0, 4] {
            passes.push(
                evaluate(&graph.evaluations[0], &world.surroundings(step))
                    .await
                    .unwrap(),
            );
        }
    }
    assert!(
        passes.windows(2).all(|pair| pair[0] == pair[1]),
        "it depends on neither step nor order"
    );
}

fn due(clock: &Clock, total: u64) -> Vec<u64> {
    (0..=total).filter(|step| clock.is_due(*step, total)).collect()
}

#[test]
fn a_clock_is_due_at_the_start_every_so_many_steps_and_at_the_end() {
    let clock = |at_start, every_steps, at_end| Clock {
        name: "evaluator".to_owned(),
        at_start,
        every_steps,
        at_end,
    };
    for (found, wanted) in [
        (clock(false, None, false), &[][..]),
        (clock(true, None, false), &[0]),
        (clock(false, None, true), &[7]),
        (clock(false, Some(3), false), &[3, 6]),
        (clock(true, Some(3), true), &[0, 3, 6, 7]),
        (clock(false, Some(7), true), &[7]),
        (clock(false, Some(8), false), &[]),
    ] {
        assert_eq!(due(&found, 7), wanted, "{found:?}");
    }
}

#[test]
fn clocks_are_as_the_pipeline_says() {
    let overrides = ["run.checkpoint={ every_steps: 4 }", "run.hf_export={ every_steps: 5 }"];
    let world = world("m", &overrides);
    for (name, wanted) in [
        ("sync", &[0, 1, 2, 3, 4, 5, 6][..]),
        ("evaluator", &[0, 2, 4, 6]),
        ("run.checkpoint", &[4]),
        ("run.hf_export", &[5, 6]),
    ] {
        assert_eq!(due(world.plan.clock(name).unwrap(), 6), wanted, "{name}");
    }
    assert!(world.plan.clock("trainer").is_none());

    let plan = plan(
        &format!("{PLAIN}{EVALUATED}"),
        &[
            "nodes.sync.every_steps=4",
            "nodes.evaluator.every_steps=4",
            "nodes.evaluator.at_start=false",
        ],
    );
    assert_eq!(
        due(plan.clock("sync").unwrap(), 6),
        [0, 4, 6],
        "the last step always syncs"
    );
    assert_eq!(due(plan.clock("evaluator").unwrap(), 6), [4, 6]);
    assert!(plan.clock("run.checkpoint").is_none() && plan.clock("run.hf_export").is_none());
}
