//! Learning from examples.

use std::sync::Arc;

use rlpipe_core::data::{Loss, Metrics, Row};
use rlpipe_core::kind::{Source, Stage, WarmUp};

use crate::fakes::{Call, POISON, STOP, World, base_logprob, stage};

fn world(rows: u64) -> World {
    let row = |line: u64| Row {
        line,
        prompt_ids: vec![90, line as u32],
        answer_ids: vec![line as u32 % 9 + 1; line as usize % 3 + 1]
            .into_iter()
            .chain([STOP])
            .collect(),
        ..Row::default()
    };
    World {
        rows: (1..=rows).map(row).collect(),
        ..World::default()
    }
}

fn lessons(world: &World) -> Arc<dyn Source> {
    match stage("lessons", "type: sampler\ndataset: { path: lessons.jsonl }", world) {
        Stage::Source(stage) => stage,
        _ => panic!("no sampler"),
    }
}

fn warm_up(settings: &str, world: &World) -> Box<dyn WarmUp> {
    let text =
        format!("type: sft_trainer\npool: gpu\nmodel: policy\noptimizer: {{ adamw: {{ lr: 0.1 }} }}\n{settings}");
    match stage("warm_up", &text, world) {
        Stage::WarmUp(stage) => stage,
        _ => panic!("{text} is no warm-up"),
    }
}

async fn learn(settings: &str, world: &World) -> Metrics {
    let context = world.context("warm_up", 0);
    warm_up(settings, world)
        .run(lessons(world).as_ref(), &context)
        .await
        .unwrap()
}

/// Lines of the examples of each optimizer step.
fn batches(world: &World) -> Vec<Vec<u32>> {
    let mut batches = vec![Vec::new()];
    for call in world.learner.calls() {
        match call {
            Call::Train(pack, ..) => batches
                .last_mut()
                .unwrap()
                .extend(pack.iter().map(|sequence| sequence.ids[1])),
            Call::Step(_) => batches.push(Vec::new()),
            _ => {}
        }
    }
    assert_eq!(batches.pop(), Some(Vec::new()));
    batches
}

#[tokio::test]
async fn every_example_comes_once_an_epoch_and_the_last_batch_may_be_smaller() {
    for (rows, examples_per_step, sizes) in [(10, 4, &[4, 4, 2][..]), (8, 4, &[4, 4]), (3, 16, &[3])] {
        let world = world(rows);
        let metrics = learn(&format!("epochs: 3\nexamples_per_step: {examples_per_step}"), &world).await;
        let batches = batches(&world);
        let found: Vec<usize> = batches.iter().map(Vec::len).collect();
        assert_eq!(found, sizes.repeat(3));
        assert_eq!(metrics.get("sft/optimizer_steps"), Some(3.0 * sizes.len() as f64));
        let epochs: Vec<Vec<u32>> = batches.chunks(sizes.len()).map(<[Vec<u32>]>::concat).collect();
        for epoch in &epochs {
            let mut lines = epoch.clone();
            lines.sort_unstable();
            assert_eq!(lines, (1..=rows as u32).collect::<Vec<_>>());
        }
        assert!(epochs.windows(2).any(|pair| pair[0] != pair[1]), "in another order");
    }
}

#[tokio::test]
async fn only_the_answer_and_its_stop_token_are_trained() {
    let world = world(5);
    learn("examples_per_step: 2", &world).await;
    for call in world.learner.calls() {
        let Call::Train(pack, loss, _) = call else { continue };
        assert_eq!(loss, Loss::CrossEntropy);
        for sequence in pack {
            let row = &world.rows[sequence.ids[1] as usize - 1];
            assert_eq!(sequence.ids, [row.prompt_ids.as_slice(), &row.answer_ids].concat());
            assert_eq!((sequence.prompt_tokens, sequence.ids.last()), (2, Some(&STOP)));
            assert_eq!(sequence.mask, vec![true; row.answer_ids.len()]);
            assert_eq!(sequence.temperature, 1.0);
        }
    }
}

#[tokio::test]
async fn the_mean_is_over_the_tokens_of_the_batch_whatever_the_packs() {
    let mut weights = Vec::new();
    for pack in [1, 6, 13, 1000] {
        let world = world(10);
        let metrics = learn(&format!("examples_per_step: 4\nmax_tokens_per_pack: {pack}"), &world).await;
        weights.push((world.learner.weight(), metrics));
        for (lines, denominators) in batches(&world).iter().zip(denominators(&world)) {
            let tokens: usize = lines
                .iter()
                .map(|line| world.rows[*line as usize - 1].answer_ids.len())
                .sum();
            assert!(denominators.iter().all(|denominator| *denominator == tokens as f64));
        }
    }
    assert!(
        weights
            .iter()
            .all(|(weight, _)| *weight == weights[0].0 && *weight != 0.0)
    );
    for (_, metrics) in &weights {
        for (name, value) in &metrics.0 {
            assert!((value - weights[0].1.get(name).unwrap()).abs() < 1e-12, "{name}");
        }
    }
}

/// Denominators of the packs of each optimizer step.
fn denominators(world: &World) -> Vec<Vec<f64>> {
    let mut all = vec![Vec::new()];
    for call in world.learner.calls() {
        match call {
            Call::Train(_, _, denominator) => all.last_mut().unwrap().push(denominator),
            Call::Step(_) => all.push(Vec::new()),
            _ => {}
        }
    }
    all
}

#[tokio::test]
async fn it_begins_with_a_fresh_optimizer_and_reports_what_it_learnt() {
    let world = world(6);
    let metrics = learn("epochs: 4\nexamples_per_step: 6\nmax_grad_norm: 2", &world).await;
    match &world.learner.calls()[0] {
        Call::Start(adamw) => assert_eq!(adamw.max_grad_norm, 2.0),
        other => panic!("{other:?}"),
    }
    let answers = || world.rows.iter().flat_map(|row| &row.answer_ids);
    let first: f64 = answers().map(|id| -f64::from(base_logprob(*id))).sum::<f64>() / answers().count() as f64;
    assert!((metrics.get("sft/loss_first").unwrap() - first).abs() < 1e-12);
    assert!(metrics.get("sft/loss_last_epoch").unwrap() < first);
    assert_eq!(metrics.get("sft/optimizer_skipped"), Some(0.0));
    let told = world.ears.progress.lock().unwrap();
    assert_eq!(told.first(), Some(&("batches".to_owned(), 0, 4)));
    assert_eq!(told.last(), Some(&("batches".to_owned(), 4, 4)));
}

#[tokio::test]
async fn the_rate_goes_over_all_optimizer_steps() {
    let world = world(4);
    learn(
        "epochs: 2\nexamples_per_step: 2\nlr_schedule: { linear: { warmup_steps: 2 } }",
        &world,
    )
    .await;
    for (found, wanted) in world.learner.rates().iter().zip([0.05, 0.1, 0.05, 0.0]) {
        assert!((found - wanted).abs() < 1e-12, "{found} is not {wanted}");
    }
    assert_eq!(world.learner.rates().len(), 4);
}

#[tokio::test]
async fn an_example_is_the_same_whatever_the_step_size() {
    let (one, many) = (world(7), world(7));
    learn("examples_per_step: 1", &one).await;
    learn("examples_per_step: 7", &many).await;
    assert_eq!(
        batches(&one).concat(),
        batches(&many).concat(),
        "the order is the sampler's"
    );
    assert!(!batches(&one).concat().contains(&POISON));
}

#[tokio::test]
async fn i7_examples_without_a_token_to_learn_are_an_error() {
    let mut world = world(4);
    world.rows.iter_mut().for_each(|row| row.answer_ids.clear());
    let lessons = lessons(&world);
    let mut warm_up = warm_up("examples_per_step: 2", &world);
    let error = warm_up
        .run(lessons.as_ref(), &world.context("warm_up", 0))
        .await
        .unwrap_err();
    assert!(error.0.contains("nothing can be learnt from 2 examples"), "{}", error.0);
}

#[tokio::test]
async fn gradients_too_large_for_their_type_are_computed_again() {
    let (usual, other) = (world(5), world(5));
    other.learner.overflow(2);
    assert_eq!(
        learn("examples_per_step: 2", &other).await,
        learn("examples_per_step: 2", &usual).await
    );
    assert_eq!(other.learner.weight(), usual.learner.weight());
    assert_eq!(batches(&other).len(), batches(&usual).len() + 2);
}
