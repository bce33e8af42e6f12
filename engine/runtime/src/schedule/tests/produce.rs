//! Filling a step.

use std::collections::{BTreeMap, BTreeSet};

use rlpipe_core::data::{DropReason, Status};

use super::super::error::RunFailure;
use super::super::produce::{Produced, produce};
use super::super::report;
use super::fakes::{FILTERED, PLAIN, World, lines, plan, reasons, rows};

type Positions = BTreeMap<String, u64>;

/// One step of a fresh world.
async fn step(world: &World) -> (Result<Produced, RunFailure>, Positions) {
    let mut positions = Positions::new();
    let produced = produce(&mut world.graph(), &mut positions, &world.surroundings(1)).await;
    (produced, positions)
}

fn filtered(letters: &str, overrides: &[&str]) -> World {
    World::new(plan(FILTERED, overrides), &[("prompts", rows(letters))])
}

fn plain(letters: &str) -> World {
    World::new(plan(PLAIN, &[]), &[("prompts", rows(letters))])
}

#[tokio::test]
async fn rounds_ask_for_all_that_is_missing_and_positions_advance_by_what_was_drawn() {
    // Rounds: `mehb`, `mmh`, `e`, `m`.
    let (produced, positions) = step(&filtered("mehbmmhemmmm", &[])).await;
    let produced = produced.unwrap();
    assert_eq!(lines(&produced.batch), [1, 5, 6, 9]);
    assert_eq!(
        produced.batch.groups.iter().map(|group| group.id).collect::<Vec<_>>(),
        [0, 4, 5, 8]
    );
    assert_eq!((produced.refills, produced.filled), (3, 0));
    assert_eq!(positions, Positions::from([("prompts".to_owned(), 9)]));
    let no_truth = "`scored`: line 4 of the data has no ground truth";
    let dropped = [
        (1, "all rewards are 1"),
        (2, "all rewards are 0"),
        (3, no_truth),
        (6, "all rewards are 0"),
        (7, "all rewards are 1"),
    ];
    assert_eq!(reasons(&produced.dropped), dropped);
    for (group, reason) in &produced.dropped {
        let wanted = match reason {
            DropReason::Failed(_) => Status::Failed,
            DropReason::Filtered(_) => Status::Filtered,
        };
        assert!(group.rollouts.len() == 4 && group.rollouts.iter().all(|rollout| rollout.status == wanted));
    }
    let kept = produced.batch.groups.iter();
    let all = kept.chain(produced.dropped.iter().map(|(group, _)| group));
    let tokens: usize = all
        .flat_map(|group| &group.rollouts)
        .map(|rollout| rollout.response_ids.len())
        .sum();
    assert_eq!(produced.tokens, tokens, "dropped groups were generated too");

    let metrics = report::of_dropped(&produced);
    let named = |name: &str| metrics.get(name).unwrap();
    assert_eq!((named("groups/filtered"), named("groups/failed")), (4.0, 1.0));
    assert_eq!((named("groups/refills"), named("groups/filled")), (3.0, 0.0));
}

#[tokio::test]
async fn what_is_drawn_does_not_depend_on_who_is_ready_first() {
    let letters = "mehmhhbemmhebmhemhmmebhhmm";
    let mut seen = Vec::new();
    let mut orders = BTreeSet::new();
    for order in 0..12 {
        let world = filtered(letters, &[]).in_order(order);
        let (mut graph, mut positions) = (world.graph(), Positions::new());
        let mut steps = Vec::new();
        for number in 1..4 {
            let produced = produce(&mut graph, &mut positions, &world.surroundings(number))
                .await
                .unwrap();
            steps.push((produced.batch, produced.dropped, produced.refills, produced.tokens));
        }
        orders.insert(world.engine.answered.lock().unwrap().clone());
        seen.push((steps, positions));
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
    assert!(
        orders.len() > 8,
        "the engine did not finish in other orders: {}",
        orders.len()
    );
}

#[tokio::test]
async fn groups_count_up_as_they_are_done() {
    let world = plain("mmmm").in_order(5);
    step(&world).await.0.unwrap();
    assert_eq!(*world.ears.progress.lock().unwrap(), [(1, 4), (2, 4), (3, 4), (4, 4)]);
}

/// A filter over data that a model always or never gets right asks for more without end, or ends with a message that names
/// no cause. Here the rounds are counted, and the failure says how many groups were all wrong and how many all right.
#[tokio::test]
async fn a_filter_that_keeps_everything_back_ends_the_run_with_the_reasons_counted() {
    let world = filtered("hheh", &["nodes.varied.max_refill=2"]);
    let (failure, positions) = step(&world).await;
    let failure = failure.err().unwrap();
    match &failure {
        RunFailure::Exhausted {
            step,
            missing,
            rounds,
            reasons,
            filtered,
        } => {
            assert_eq!((*step, *missing, *rounds, *filtered), (1, 4, 2, true));
            assert_eq!(reasons, "9: all rewards are 0; 3: all rewards are 1");
        }
        other => panic!("{other}"),
    }
    let text = failure.to_string();
    assert!(
        text.contains("4 groups short after 2 rounds") && text.contains("when_exhausted: fill"),
        "{text}"
    );
    assert_eq!(positions["prompts"], 12);
}

#[tokio::test]
async fn without_rounds_a_step_must_be_right_at_once() {
    let (failure, positions) = step(&filtered("mmmh", &["nodes.varied.max_refill=0"])).await;
    match failure.err().unwrap() {
        RunFailure::Exhausted { missing, rounds, .. } => assert_eq!((missing, rounds), (1, 0)),
        other => panic!("{other}"),
    }
    assert_eq!(positions["prompts"], 4);
    let (produced, _) = step(&filtered("mmmm", &["nodes.varied.max_refill=0"])).await;
    assert_eq!(produced.unwrap().refills, 0);
}

const FILL: [&str; 2] = ["nodes.varied.max_refill=2", "nodes.varied.when_exhausted=fill"];

#[tokio::test]
async fn groups_that_were_kept_back_complete_a_step_the_last_first() {
    // Rounds: `mhbe`, `hbh`, `ehb`; kept back in the end: 1 h, 3 e, 4 h, 6 h, 7 e, 8 h.
    let (produced, positions) = step(&filtered("mhbehbhehb", &FILL)).await;
    let produced = produced.unwrap();
    assert_eq!(lines(&produced.batch), [1, 7, 8, 9]);
    assert_eq!((produced.filled, produced.refills, positions["prompts"]), (3, 2, 10));
    let rollouts = || produced.batch.groups.iter().flat_map(|group| &group.rollouts);
    assert!(rollouts().all(|rollout| rollout.status == Status::Completed));
    let left: Vec<u64> = reasons(&produced.dropped).into_iter().map(|(id, _)| id).collect();
    assert_eq!(
        left,
        [1, 2, 3, 4, 5, 9],
        "what stays dropped is told, failed groups among it"
    );
    assert_eq!(produced.dropped(|reason| matches!(reason, DropReason::Failed(_))), 3);
}

#[tokio::test]
async fn failed_groups_never_complete_a_step() {
    for letter in ["b", "c"] {
        let (failure, _) = step(&filtered(&letter.repeat(20), &FILL)).await;
        let failure = failure.err().unwrap();
        assert!(matches!(failure, RunFailure::Exhausted { missing: 4, .. }), "{failure}");
    }
}

#[tokio::test]
async fn failed_groups_are_asked_for_again_without_a_filter() {
    // Rounds: `mbbm`, `bb`, `bm`, `e`.
    let (produced, positions) = step(&plain("mbbmbbbmemmm")).await;
    let produced = produced.unwrap();
    assert_eq!(lines(&produced.batch), [1, 4, 8, 9]);
    assert_eq!((produced.refills, positions["prompts"]), (3, 9));
}

#[tokio::test]
async fn failed_groups_end_the_run_after_four_rounds_without_a_filter() {
    let (failure, positions) = step(&plain(&"b".repeat(30))).await;
    let failure = failure.err().unwrap();
    let text = failure.to_string();
    assert!(
        !text.contains("max_refill") && text.contains("on_error"),
        "there is no filter to change: {text}"
    );
    match failure {
        RunFailure::Exhausted { rounds, reasons, .. } => {
            assert_eq!(rounds, 4);
            assert!(
                reasons.starts_with("1: `scored`: line 1 of the data has no ground truth; "),
                "{reasons}"
            );
            assert!(
                reasons.ends_with("and 12 more reasons"),
                "a list that can be read: {reasons}"
            );
        }
        other => panic!("{other}"),
    }
    assert_eq!(positions["prompts"], 20);
}

const TWO_TASKS: &str = "
  sums: { type: sampler, dataset: { path: sums.jsonl }, shuffle: false, samples_per_prompt: 4, max_prompt_tokens: 8 }
  riddles: { type: sampler, dataset: { path: riddles.jsonl }, shuffle: false, samples_per_prompt: 4, max_prompt_tokens: 8 }
  sum_answers: { type: agent_loop, inputs: { prompts: sums.prompts, engine: engine }, sampling: { max_new_tokens: 4 } }
  riddle_answers: { type: agent_loop, inputs: { prompts: riddles.prompts, engine: engine }, sampling: { max_new_tokens: 4 } }
  scored_sums: { type: judger, inputs: { groups: sum_answers }, judge: number, on_error: drop_group }
  scored_riddles: { type: judger, inputs: { groups: riddle_answers }, judge: number, on_error: drop_group }
  buffer: { type: replay_buffer, inputs: { groups: [scored_sums, scored_riddles] }, prompts_per_step: 4, mix: { scored_sums: 3, scored_riddles: 1 } }
";

#[tokio::test]
async fn each_input_gives_its_share_and_replaces_its_own_failures() {
    let of = |sums: &str, riddles: &str| {
        World::new(
            plan(TWO_TASKS, &[]),
            &[("sums", rows(sums)), ("riddles", rows(riddles))],
        )
    };
    let (produced, positions) = step(&of("mmmmmm", "bbmm")).await;
    let produced = produced.unwrap();
    let drawn: Vec<(&str, u64)> = produced
        .batch
        .groups
        .iter()
        .map(|group| (&*group.sampler, group.id))
        .collect();
    assert_eq!(drawn, [("sums", 0), ("sums", 1), ("sums", 2), ("riddles", 2)]);
    assert_eq!(
        positions,
        Positions::from([("riddles".to_owned(), 3), ("sums".to_owned(), 3)])
    );

    let (failure, positions) = step(&of("mmmmmm", "bbbbbbbbb")).await;
    assert!(matches!(
        failure.err().unwrap(),
        RunFailure::Exhausted { missing: 1, .. }
    ));
    assert_eq!((positions["sums"], positions["riddles"]), (3, 5));
}

const SHARED_SAMPLER: &str = "
  prompts: { type: sampler, dataset: { path: rows.jsonl }, shuffle: false, samples_per_prompt: 4, max_prompt_tokens: 8 }
  cold: { type: agent_loop, inputs: { prompts: prompts.prompts, engine: engine }, sampling: { max_new_tokens: 4, temperature: 0.7 } }
  hot: { type: agent_loop, inputs: { prompts: prompts.prompts, engine: engine }, sampling: { max_new_tokens: 4, temperature: 1.2 } }
  scored_cold: { type: judger, inputs: { groups: cold }, judge: number, on_error: drop_group }
  scored_hot: { type: judger, inputs: { groups: hot }, judge: number, on_error: drop_group }
  buffer: { type: replay_buffer, inputs: { groups: [scored_cold, scored_hot] }, prompts_per_step: 4 }
";

#[tokio::test]
async fn two_ways_from_one_sampler_share_its_rows() {
    let world = World::new(plan(SHARED_SAMPLER, &[]), &[("prompts", rows("mmbmmm"))]);
    let (produced, positions) = step(&world).await;
    assert_eq!(lines(&produced.unwrap().batch), [1, 2, 4, 5]);
    assert_eq!(positions["prompts"], 5);
}

/// Duplicates in a data set, or an epoch that ends within a step, bring the same prompt twice into one step. Groups are told
/// apart by their draw, never by their prompt: none is merged or lost, and their samples differ.
#[tokio::test]
async fn i48_the_same_prompt_twice_in_a_step_makes_two_groups() {
    let mut twins = rows("mmm");
    twins[1] = twins[0].clone();
    let world = World::new(plan(PLAIN, &[]), &[("prompts", twins)]);
    let (produced, positions) = step(&world).await;
    let groups = produced.unwrap().batch.groups;
    let seen: Vec<(u64, u64)> = groups.iter().map(|group| (group.id, group.row.line)).collect();
    assert_eq!(seen, [(0, 1), (1, 1), (2, 3), (3, 1)]);
    assert_eq!(positions["prompts"], 4);
    for (left, right) in [(0, 1), (0, 3), (1, 3)] {
        assert_ne!(groups[left].rollouts, groups[right].rollouts);
    }
}

#[tokio::test]
async fn a_stage_that_cannot_go_on_is_named_with_its_step() {
    let mut world = plain("mmmm");
    world.engine = std::sync::Arc::new(super::fakes::Shuffled {
        breaks_at: Some(2),
        ..Default::default()
    });
    let text = step(&world).await.0.err().unwrap().to_string();
    assert_eq!(text, "`answers` failed at step 1: the worker is gone");

    let judged = World::new(
        plan(PLAIN, &["nodes.scored.on_error=fail"]),
        &[("prompts", rows("mbmm"))],
    );
    let text = step(&judged).await.0.err().unwrap().to_string();
    assert!(text.starts_with("`scored` failed at step 1: "), "{text}");
}
