//! Prompts to groups.

use std::collections::BTreeSet;
use std::sync::Arc;

use rlpipe_core::data::{FinishReason, Group, Row, Status};
use rlpipe_core::kind::{AgentLoop, GroupTask, Stage};

use crate::fakes::{STOP, World, batch_stage, stage};

fn answers(world: &World, sampling: &str) -> Arc<dyn AgentLoop> {
    let text = format!("type: agent_loop\nloop: single_turn\nsampling: {sampling}");
    match stage("answers", &text, world) {
        Stage::AgentLoop(stage) => stage,
        _ => panic!("{text} is no agent loop"),
    }
}

fn task(id: u64) -> GroupTask {
    GroupTask {
        id,
        sampler: "prompts".into(),
        row: Arc::new(Row {
            line: 3,
            prompt_ids: vec![5, 6, 7],
            ..Row::default()
        }),
        samples: 4,
    }
}

/// The group of a task, from a node of this name at this step.
async fn run(id: u64, node: &str, step: u64) -> (Group, Vec<u64>) {
    let world = World::default();
    let answers = answers(&world, "{ max_new_tokens: 5 }");
    let group = answers.run(task(id), &world.context(node, step)).await.unwrap();
    let seeds = world.engine.requests.lock().unwrap()[0].seeds.clone();
    (group, seeds)
}

#[tokio::test]
async fn seeds_differ_by_group_sample_and_node() {
    let mut all = BTreeSet::new();
    for node in ["answers", "tries"] {
        for id in 0..50 {
            all.extend(run(id, node, 1).await.1);
        }
    }
    assert_eq!(all.len(), 2 * 50 * 4);
}

#[tokio::test]
async fn seeds_do_not_depend_on_the_step_nor_on_what_was_asked_before() {
    let (group, seeds) = run(9, "answers", 1).await;
    assert_eq!(run(9, "answers", 5).await, (group.clone(), seeds.clone()));

    let world = World::default();
    let answers = answers(&world, "{ max_new_tokens: 5 }");
    for id in [4, 2, 9] {
        let again = answers.run(task(id), &world.context("answers", 2)).await.unwrap();
        assert_eq!(again == group, id == 9);
    }
    assert_eq!(world.engine.requests.lock().unwrap()[2].seeds, seeds);
}

#[tokio::test]
async fn the_engine_is_asked_for_what_is_written() {
    let world = World::default();
    let sampling = "{ max_new_tokens: 5, min_new_tokens: 2, temperature: 0.5, top_p: 0.9, top_k: 3, min_p: 0.05 }";
    let answers = answers(&world, sampling);
    let group = answers.run(task(1), &world.context("answers", 1)).await.unwrap();
    let requests = world.engine.requests.lock().unwrap();
    let asked = &requests[0];
    assert_eq!(
        (asked.prompt_ids.as_slice(), asked.stop_ids.as_slice()),
        (&[5, 6, 7][..], &[STOP][..])
    );
    let sampling = &asked.sampling;
    assert_eq!(
        (sampling.max_new_tokens, sampling.min_new_tokens, sampling.top_k),
        (5, 2, 3)
    );
    assert_eq!((sampling.temperature, sampling.top_p, sampling.min_p), (0.5, 0.9, 0.05));
    assert!(group.rollouts.iter().all(|rollout| rollout.temperature == 0.5));
}

#[tokio::test]
async fn rollouts_are_what_the_engine_drew() {
    let mut ends = BTreeSet::new();
    for id in 0..20 {
        let (group, _) = run(id, "answers", 1).await;
        assert_eq!(
            (group.id, &*group.sampler, group.row.line, group.rollouts.len()),
            (id, "prompts", 3, 4)
        );
        for rollout in group.rollouts {
            let tokens = rollout.response_ids.len();
            assert_eq!(rollout.mask, vec![true; tokens], "the stop token is trained too");
            assert_eq!(
                (rollout.logprobs.len(), rollout.policy_version[0].tokens as usize),
                (tokens, tokens)
            );
            assert_eq!(
                (rollout.score, rollout.advantage, rollout.reference_logprobs),
                (None, None, None)
            );
            let stopped = rollout.finish_reason == FinishReason::Stop;
            assert_eq!(rollout.response_ids.last() == Some(&STOP), stopped);
            let shown = rollout.response.split(' ').count();
            assert_eq!(shown, tokens - usize::from(stopped), "the text has no special tokens");
            let wanted = match rollout.finish_reason {
                FinishReason::Aborted => Status::Aborted,
                FinishReason::Stop | FinishReason::Length => Status::Completed,
            };
            assert_eq!(rollout.status, wanted);
            ends.insert(format!("{:?}", rollout.finish_reason));
        }
    }
    assert_eq!(ends.len(), 3);
}

/// Grouping by the prompt's text, or by its place in a repeated list, puts samples of several draws of one prompt together
/// where a data set has duplicates. A group is a draw: its own id, seeds and baseline.
#[tokio::test]
async fn draws_of_the_same_prompt_stay_groups_of_their_own() {
    let (mut first, first_seeds) = run(1, "answers", 1).await;
    let (mut second, second_seeds) = run(2, "answers", 1).await;
    assert_eq!(first.row, second.row);
    assert_ne!(first.id, second.id);
    assert!(first_seeds.iter().all(|seed| !second_seeds.contains(seed)));
    assert_ne!(first.rollouts, second.rollouts);

    for (group, rewards) in [(&mut first, [1.0, 0.0, 0.0, 1.0]), (&mut second, [1.0, 1.0, 1.0, 1.0])] {
        for (rollout, reward) in group.rollouts.iter_mut().zip(rewards) {
            rollout.score = Some(rlpipe_core::data::Score {
                reward: Some(reward),
                ..Default::default()
            });
        }
    }
    let world = World::default();
    let batch = rlpipe_core::data::Batch {
        groups: vec![first, second],
    };
    let advantages = batch_stage("type: advantage\nestimator: { grpo: { std: none } }", &world);
    let (batch, _) = advantages
        .process(batch, &world.context("advantages", 1))
        .await
        .unwrap();
    let of = |group: &Group| {
        group
            .rollouts
            .iter()
            .map(|rollout| rollout.advantage.unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&batch.groups[0]), [0.5, -0.5, -0.5, 0.5]);
    assert_eq!(of(&batch.groups[1]), [0.0; 4]);
}
