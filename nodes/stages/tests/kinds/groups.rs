//! Judgers and filters.

use std::sync::Arc;

use rlpipe_core::data::{DropReason, Group, Rollout, Row, Score, Status, Verdict};
use rlpipe_core::kind::StageError;

use crate::fakes::{World, group_stage, rollout};

fn said(responses: &[&str], ground_truth: Option<&str>) -> Group {
    let rollouts = responses.iter().map(|text| Rollout {
        response: (*text).to_owned(),
        ..rollout(&[1, 2])
    });
    Group {
        id: 0,
        sampler: "prompts".into(),
        row: Arc::new(Row {
            line: 12,
            ground_truth: ground_truth.map(str::to_owned),
            ..Row::default()
        }),
        rollouts: rollouts.collect(),
    }
}

async fn process(node: &str, group: Group) -> Result<Verdict, StageError> {
    group_stage("scored", node)
        .process(group, &World::default().context("scored", 1))
        .await
}

fn kept(verdict: Result<Verdict, StageError>) -> Group {
    match verdict.unwrap() {
        Verdict::Keep(group) => group,
        dropped => panic!("{dropped:?}"),
    }
}

fn parsed(group: &Group) -> Vec<Option<&str>> {
    let scores = group.rollouts.iter().map(|rollout| rollout.score.as_ref().unwrap());
    scores.map(|score| score.parsed.as_deref()).collect()
}

#[tokio::test]
async fn judges_read_responses_their_own_way() {
    let responses = ["7", " 7\n", "#### 7", "it is 7.", "#### 8 or 7", "none"];
    for (judge, rewards, found) in [
        (
            "number",
            [1., 1., 1., 1., 1., 0.],
            [Some("7"), Some("7"), Some("7"), Some("7"), Some("7"), None],
        ),
        (
            "exact",
            [1., 1., 0., 0., 0., 0.],
            [
                Some("7"),
                Some("7"),
                Some("#### 7"),
                Some("it is 7."),
                Some("#### 8 or 7"),
                Some("none"),
            ],
        ),
        (
            "gsm8k",
            [0., 0., 1., 0., 0., 0.],
            [None, None, Some("7"), None, Some("8"), None],
        ),
        (
            "{ gsm8k: { extract: flexible } }",
            [1., 1., 1., 1., 1., 0.],
            [Some("7"), Some("7"), Some("7"), Some("7"), Some("7"), None],
        ),
    ] {
        let group = kept(process(&format!("type: judger\njudge: {judge}"), said(&responses, Some(" 7 "))).await);
        assert_eq!(group.rewards(), rewards, "{judge}");
        assert_eq!(parsed(&group), found, "{judge}");
    }
    assert!(group_stage("scored", "type: judger\njudge: number").judges());
    assert!(!group_stage("varied", "type: filter\nkeep: spread_reward").judges());
}

#[tokio::test]
async fn i10_what_cannot_be_judged_goes_as_the_pipeline_says() {
    let no_truth = || said(&["7"], None);
    let mut called_off = said(&["7", "7", "8"], Some("7"));
    called_off.rollouts[1].status = Status::Aborted;
    for (group, why) in [
        (no_truth(), "line 12 of the data has no ground truth"),
        (called_off, "Aborted"),
    ] {
        let with = |on_error: &str| format!("type: judger\njudge: number\n{on_error}");
        for on_error in ["", "on_error: fail"] {
            let error = process(&with(on_error), group.clone()).await.unwrap_err().to_string();
            assert!(error.contains("`scored`") && error.contains(why), "{error}");
        }
        match process(&with("on_error: drop_group"), group.clone()).await.unwrap() {
            Verdict::Drop(_, DropReason::Failed(reason)) => assert!(reason.contains(why), "{reason}"),
            other => panic!("{other:?}"),
        }
        let judged = kept(process(&with("on_error: abstain"), group.clone()).await);
        let rewards: Vec<Option<f64>> = judged.rollouts.iter().map(Rollout::reward).collect();
        let wanted: &[Option<f64>] = if group.rollouts.len() == 1 {
            &[None]
        } else {
            &[Some(1.0), None, Some(0.0)]
        };
        assert_eq!(rewards, wanted, "no reward of 0, and the others are judged");
    }
}

/// A reward function that gives one value for a whole group, spread over its samples without a word, makes every advantage
/// nothing. Here each response is judged by itself, and has a score or the group does not go on.
#[tokio::test]
async fn i15_every_response_has_a_reward_of_its_own() {
    let judge = "type: judger\njudge: number";
    let responses: Vec<String> = (0..9).map(|number| number.to_string()).collect();
    let responses: Vec<&str> = responses.iter().map(String::as_str).collect();
    let group = kept(process(judge, said(&responses, Some("4"))).await);
    assert!(group.rollouts.iter().all(|rollout| rollout.score.is_some()));
    assert_eq!(group.rewards(), [0., 0., 0., 0., 1., 0., 0., 0., 0.]);
    let alone: Vec<&str> = responses[4..5].to_vec();
    assert_eq!(kept(process(judge, said(&alone, Some("4"))).await).rewards(), [1.0]);
}

fn rewarded(rewards: &[Option<f64>]) -> Group {
    let mut group = said(&vec!["x"; rewards.len()], None);
    for (rollout, reward) in group.rollouts.iter_mut().zip(rewards) {
        rollout.score = Some(Score {
            reward: *reward,
            ..Score::default()
        });
    }
    group
}

#[tokio::test]
async fn groups_without_a_spread_of_rewards_are_kept_back_with_the_reason() {
    for (keep, rewards, reason) in [
        ("spread_reward", &[Some(1.0), Some(0.0)][..], None),
        ("spread_reward", &[Some(0.0), Some(0.0)], Some("all rewards are 0")),
        ("spread_reward", &[Some(1.0), Some(1.0)], Some("all rewards are 1")),
        ("spread_reward", &[Some(1.0), None, Some(0.0)], None),
        ("spread_reward", &[Some(1.0), None], Some("all rewards are 1")),
        ("spread_reward", &[None, None], Some("no rollout has a reward")),
        ("{ spread_reward: { above: 0.5 } }", &[Some(0.0), Some(0.6)], None),
        (
            "{ mean_reward: { min: 0.5, max: 0.75 } }",
            &[Some(1.0), Some(0.0)],
            None,
        ),
        (
            "{ mean_reward: { max: 0.75 } }",
            &[Some(1.0), None],
            Some("the mean reward is above 0.75"),
        ),
        (
            "{ mean_reward: { min: 0.5 } }",
            &[Some(0.0), Some(0.75)],
            Some("the mean reward is below 0.5"),
        ),
        ("mean_reward", &[Some(-3.0)], None),
        ("mean_reward", &[None], Some("no rollout has a reward")),
    ] {
        let group = rewarded(rewards);
        let verdict = process(&format!("type: filter\nkeep: {keep}"), group.clone())
            .await
            .unwrap();
        let wanted = match reason {
            None => Verdict::Keep(group),
            Some(reason) => Verdict::Drop(group, DropReason::Filtered(reason.to_owned())),
        };
        assert_eq!(verdict, wanted, "{keep} {rewards:?}");
    }
}

/// A group that is kept back for a spread that is too small has rewards that differ: its reason must not deny that.
#[tokio::test]
async fn the_reason_for_too_small_a_spread_names_it() {
    let node = "type: filter\nkeep: { spread_reward: { above: 0.5 } }";
    match process(node, rewarded(&[Some(0.25), Some(0.75)])).await.unwrap() {
        Verdict::Drop(_, DropReason::Filtered(reason)) => {
            assert!(!reason.contains("all rewards are"), "{reason}");
            assert!(reason.contains("0.5"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}
