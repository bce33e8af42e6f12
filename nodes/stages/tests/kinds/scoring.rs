//! What a step's or an evaluation's groups come to: evaluator, advantage, reference.

use std::sync::Arc;

use rlpipe_core::data::{Batch, FinishReason, Group, Metrics, Rollout, Row, Score, Verdict};
use rlpipe_core::kind::{Evaluator, Stage};
use rlpipe_core::services::Weights;

use crate::fakes::{Call, World, base_logprob, batch_stage, four_groups, group, group_stage, rollout, stage, trainer};

fn evaluator(settings: &str) -> Arc<dyn Evaluator> {
    match stage("evaluator", &format!("type: evaluator\n{settings}"), &World::default()) {
        Stage::Evaluator(stage) => stage,
        _ => panic!("{settings} makes no evaluator"),
    }
}

fn check(metrics: &Metrics, wanted: &[(&str, f64)]) {
    for (name, value) in wanted {
        let found = metrics.get(name).unwrap();
        assert!((found - value).abs() < 1e-12, "{name} is {found}, not {value}");
    }
}

#[test]
fn an_evaluation_counts_each_response_once() {
    let mut groups = vec![
        group(0, &[(&[1], Some(1.0)), (&[2, 3], Some(0.0))]),
        group(1, &[(&[4, 5, 6], Some(1.0)), (&[7], None), (&[8], Some(0.5))]),
    ];
    groups[0].rollouts[1].finish_reason = FinishReason::Length;
    groups[0].rollouts[0].score.as_mut().unwrap().parsed = None;
    let metrics = evaluator("").evaluate(&groups, 2);
    check(
        &metrics,
        &[
            ("accuracy", 0.75),
            ("reward/mean", 2.5 / 4.0),
            ("format_rate", 0.6),
            ("truncated_rate", 0.2),
            ("response_len/mean", 8.0 / 5.0),
            ("abstained", 1.0),
            ("groups", 2.0),
            ("groups_failed", 2.0),
        ],
    );
    check(
        &evaluator("correct_above: 0.5").evaluate(&groups, 0),
        &[("accuracy", 0.5), ("groups_failed", 0.0)],
    );
    check(
        &evaluator("correct_above: -1").evaluate(&groups, 0),
        &[("accuracy", 1.0)],
    );
}

#[test]
fn what_failed_or_was_abstained_from_is_no_zero() {
    let judged = [group(0, &[(&[1], Some(1.0))]), group(1, &[(&[2], Some(0.0))])];
    let mut with_abstained = judged.to_vec();
    with_abstained.push(group(2, &[(&[3], None)]));
    for name in ["accuracy", "reward/mean"] {
        let wanted = evaluator("").evaluate(&judged, 0).get(name);
        assert_eq!(evaluator("").evaluate(&judged, 7).get(name), wanted);
        assert_eq!(evaluator("").evaluate(&with_abstained, 0).get(name), wanted);
    }
    let mut unjudged = group(3, &[(&[4], None), (&[5], None)]);
    unjudged.rollouts[0].score.as_mut().unwrap().error = Some("it died".to_owned());
    for (groups, counts) in [(&[][..], [0.0, 0.0]), (&[unjudged][..], [1.0, 1.0])] {
        let metrics = evaluator("").evaluate(groups, 3);
        for (name, value) in &metrics.0 {
            let is_measured = !matches!(name.as_str(), "accuracy" | "reward/mean");
            assert_eq!(value.is_finite(), is_measured, "{name} is {value}");
        }
        assert_eq!(["unjudged", "abstained"].map(|name| metrics.get(name).unwrap()), counts);
    }
}

/// Twenty answers to questions whose answer is 72, as small models give them.
const ANSWERS: [&str; 20] = [
    "#### 72",
    "48 / 2 = 24\n48 + 24 = 72\n#### 72",
    "#### 72.",
    "####72",
    "The answer is 72",
    "The answer is 72.",
    "The answer is $72.",
    "\\boxed{72}",
    "72",
    "#### 71",
    "#### 1,072",
    "#### 72 apples",
    "She sold 72 clips in 2 months",
    "I do not know",
    "",
    "#### -72",
    "seventy-two",
    "#### ",
    "So #### 70, no, #### 72",
    "Natalia sold 48 clips",
];

async fn score_of(judge: &str) -> Metrics {
    let judger = group_stage("marks", &format!("type: judger\njudge: {judge}"));
    let rollouts = ANSWERS.map(|text| Rollout {
        response: text.to_owned(),
        ..rollout(&[1])
    });
    let group = Group {
        id: 0,
        sampler: "held_out".into(),
        row: Arc::new(Row {
            ground_truth: Some("72".to_owned()),
            ..Row::default()
        }),
        rollouts: rollouts.into(),
    };
    match judger
        .process(group, &World::default().context("marks", 0))
        .await
        .unwrap()
    {
        Verdict::Keep(group) => evaluator("").evaluate(&[group], 0),
        dropped => panic!("{dropped:?}"),
    }
}

fn from_source(id: u64, source: &str, rollouts: &[(&[u32], Option<f64>)]) -> Group {
    let mut group = group(id, rollouts);
    Arc::make_mut(&mut group.row).data_source = source.to_owned();
    group
}

#[test]
fn accuracy_is_told_by_source_where_there_are_several() {
    let one = from_source(0, "sums", &[(&[1], Some(1.0)), (&[2], Some(0.0))]);
    let two = from_source(1, "", &[(&[1], Some(1.0)), (&[2], None)]);
    let three = from_source(2, "sums", &[(&[1], Some(0.0)), (&[2], Some(0.0))]);
    let metrics = evaluator("").evaluate(&[one.clone(), two, three.clone()], 0);
    check(
        &metrics,
        &[("by_source/sums/accuracy", 0.25), ("by_source/none/accuracy", 1.0)],
    );
    let alone = evaluator("").evaluate(&[one, three], 0);
    assert!(alone.0.keys().all(|name| !name.starts_with("by_source")), "{alone:?}");
}

/// A strict parser on a model that was never told the form makes it look unable, and later its learning of the form like
/// learning of the matter. The format rate beside the accuracy tells the two apart, and other judges read less strictly.
#[tokio::test]
async fn i20c_accuracy_is_told_together_with_the_rate_of_answers_in_the_right_form() {
    let strict = score_of("gsm8k").await;
    check(&strict, &[("accuracy", 0.2), ("format_rate", 0.4)]);
    let flexible = score_of("{ gsm8k: { extract: flexible } }").await;
    check(&flexible, &[("accuracy", 0.55), ("format_rate", 0.8)]);
    let number = score_of("number").await;
    check(&number, &[("accuracy", 0.55), ("format_rate", 0.8)]);
}

/// One response without a reward, taken as not-a-number, makes mean and deviation of its whole group not-a-number, and the
/// loss after it. It is left out instead, and counted.
#[tokio::test]
async fn i16_a_response_that_was_abstained_from_does_not_spoil_its_group() {
    let world = World::default();
    let mut batch = Batch {
        groups: vec![
            group(
                0,
                &[(&[1], Some(1.0)), (&[2], None), (&[3], Some(0.0)), (&[4], Some(1.0))],
            ),
            group(1, &[(&[5], None), (&[6], None)]),
            group(2, &[(&[7], Some(1.0)), (&[8], None)]),
        ],
    };
    for rollout in batch.groups.iter_mut().flat_map(|group| &mut group.rollouts) {
        rollout.advantage = None;
    }
    let advantages = batch_stage("type: advantage\nestimator: grpo", &world);
    let (batch, metrics) = advantages
        .process(batch, &world.context("advantages", 1))
        .await
        .unwrap();
    let all: Vec<Vec<Option<f64>>> = batch
        .groups
        .iter()
        .map(|group| group.rollouts.iter().map(|rollout| rollout.advantage).collect())
        .collect();
    let near = |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 1e-6;
    assert!(near(all[0][0], 0.577_350) && near(all[0][2], -1.154_701) && near(all[0][3], 0.577_350));
    assert_eq!(all[0][1], None);
    assert_eq!(all[1], [None, None]);
    assert_eq!(all[2], [Some(0.0), None]);
    check(&metrics, &[("advantage/mean", 0.0)]);
    assert!(near(metrics.get("advantage/max"), 0.577_350) && near(metrics.get("advantage/min"), -1.154_701));

    let report = world.train(trainer("", &world).as_mut(), &batch, 1).await;
    assert_eq!(report.get("train/response_tokens"), Some(4.0));
    assert!(report.0.values().all(|value| value.is_finite()) && world.learner.weight().is_finite());
}

#[tokio::test]
async fn the_reference_is_the_model_as_training_begins() {
    let world = World::default();
    let reference = batch_stage("type: reference\npool: gpu\nmodel: policy", &world);
    reference.begin().await.unwrap();
    assert_eq!(world.learner.calls(), [Call::Freeze]);

    let mut trainer = trainer("", &world);
    for step in 1..3 {
        let (batch, metrics) = reference
            .process(four_groups(), &world.context("frozen", step))
            .await
            .unwrap();
        assert!(metrics.0.is_empty());
        for rollout in batch.groups.iter().flat_map(|group| &group.rollouts) {
            let wanted: Vec<f32> = rollout.response_ids.iter().map(|id| base_logprob(*id)).collect();
            assert_eq!(rollout.reference_logprobs.as_ref(), Some(&wanted));
        }
        world.train(trainer.as_mut(), &batch, step).await;
        assert_ne!(world.learner.weight(), 0.0);
    }
    assert_eq!(
        world
            .learner
            .calls()
            .iter()
            .filter(|call| **call == Call::Freeze)
            .count(),
        1
    );
}

#[tokio::test]
async fn reference_log_probs_stay_with_their_rollouts_whatever_the_packs() {
    let mut batches = Vec::new();
    for pack in [1, 5, 9, 1000] {
        let world = World::default();
        let text = format!("type: reference\npool: gpu\nmodel: policy\nmax_tokens_per_pack: {pack}");
        let reference = batch_stage(&text, &world);
        batches.push(
            reference
                .process(four_groups(), &world.context("frozen", 1))
                .await
                .unwrap()
                .0,
        );
        for call in world.learner.calls() {
            match call {
                Call::Logprobs(Weights::Frozen, part) => {
                    let tokens: usize = part.iter().map(|sequence| sequence.ids.len()).sum();
                    assert!(part.len() == 1 || tokens <= pack);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(batches.windows(2).all(|pair| pair[0] == pair[1]));
    let rollouts = batches[0].groups.iter().flat_map(|group| &group.rollouts);
    for rollout in rollouts {
        assert_eq!(
            rollout.reference_logprobs.as_ref().unwrap().len(),
            rollout.response_ids.len()
        );
    }
}

#[tokio::test]
async fn advantages_add_a_field_and_leave_the_rest() {
    let world = World::default();
    let mut bare = four_groups();
    for rollout in bare.groups.iter_mut().flat_map(|group| &mut group.rollouts) {
        rollout.advantage = None;
        rollout.score = Some(Score {
            reward: Some(f64::from(rollout.response_ids[0] % 2)),
            ..Score::default()
        });
    }
    let advantages = batch_stage("type: advantage\nestimator: grpo", &world);
    let (mut batch, _) = advantages
        .process(bare.clone(), &world.context("advantages", 1))
        .await
        .unwrap();
    for rollout in batch.groups.iter_mut().flat_map(|group| &mut group.rollouts) {
        assert!(rollout.advantage.take().is_some());
    }
    assert_eq!(batch, bare);
}
