//! One train step: shares, denominators, old log-probs, metrics, counters, notices.

use rlpipe_core::data::{Batch, ExportDtype, Loss, Metrics, Sequence};
use rlpipe_core::services::Weights;

use crate::fakes::{Call, POISON, World, base_logprob, four_groups, group, trainer};

/// Trains one step of ten.
async fn step(settings: &str, batch: &Batch) -> (World, Metrics) {
    let world = World::default();
    let metrics = world.train(trainer(settings, &world).as_mut(), batch, 1).await;
    (world, metrics)
}

fn responses(sequences: &[Sequence]) -> Vec<&[u32]> {
    let of = |sequence: &Sequence| sequence.prompt_tokens as usize;
    sequences.iter().map(|sequence| &sequence.ids[of(sequence)..]).collect()
}

#[tokio::test]
async fn i35_groups_are_shared_out_among_optimizer_steps_and_only_then_packed() {
    let (world, _) = step("optimizer_steps: 2\nmax_tokens_per_pack: 8", &four_groups()).await;
    let mut shares: Vec<Vec<Vec<u32>>> = vec![Vec::new()];
    let mut packs = vec![0];
    for call in world.learner.calls() {
        match call {
            Call::Train(pack, ..) => {
                assert!(pack.len() == 1 || pack.iter().map(|sequence| sequence.ids.len()).sum::<usize>() <= 8);
                shares
                    .last_mut()
                    .unwrap()
                    .extend(responses(&pack).into_iter().map(<[u32]>::to_vec));
                *packs.last_mut().unwrap() += 1;
            }
            Call::Step(_) => {
                shares.push(Vec::new());
                packs.push(0);
            }
            _ => {}
        }
    }
    let wanted: [&[&[u32]]; 2] = [
        &[&[1, 2, 3], &[4], &[5, 6]],
        &[&[11, 12, 13, 14, 15], &[16], &[17, 18], &[19, 20, 21]],
    ];
    assert_eq!(shares[..2], wanted);
    // 5+3 | 4, and 7 | 3+4 | 5 tokens with prompts: no pack has sequences of both shares.
    assert_eq!(packs, [2, 3, 0]);
}

#[tokio::test]
async fn the_denominator_is_the_trained_tokens_of_the_share() {
    for pack in [1, 5, 8, 1000] {
        let (world, _) = step(
            &format!("optimizer_steps: 2\nmax_tokens_per_pack: {pack}"),
            &four_groups(),
        )
        .await;
        let packs = world.learner.packs();
        let of_first = packs
            .iter()
            .filter(|(pack, _)| pack.iter().all(|sequence| sequence.ids[1] < 53));
        let of_second = packs
            .iter()
            .filter(|(pack, _)| pack.iter().all(|sequence| sequence.ids[1] >= 53));
        assert!(of_first.clone().count() > 0 && of_first.clone().all(|(_, denominator)| *denominator == 6.0));
        assert!(of_second.clone().count() > 0 && of_second.clone().all(|(_, denominator)| *denominator == 11.0));
        assert_eq!(of_first.count() + of_second.count(), packs.len());
    }
}

#[tokio::test]
async fn tokens_outside_the_mask_are_not_in_the_denominator() {
    let mut batch = four_groups();
    batch.groups[0].rollouts[0].mask = vec![true, false, false];
    let (world, metrics) = step("", &batch).await;
    assert_eq!(world.learner.packs()[0].1, 15.0);
    assert_eq!(metrics.get("train/response_tokens"), Some(15.0));
}

#[tokio::test]
async fn rollouts_without_an_advantage_are_not_trained() {
    let (world, metrics) = step("", &four_groups()).await;
    let packs = world.learner.packs();
    assert!(!responses(&packs[0].0).contains(&&[7, 8, 9, 10][..]));
    assert_eq!(packs[0].0.len(), 7);
    assert_eq!(metrics.get("train/response_tokens"), Some(17.0));
    assert_eq!(metrics.get("train/tokens"), Some(17.0 + 7.0 * 2.0));
}

fn trained(world: &World) -> Vec<Sequence> {
    world.learner.packs().into_iter().flat_map(|(pack, _)| pack).collect()
}

#[tokio::test]
async fn with_one_optimizer_step_the_policy_is_its_own_old_one() {
    let (world, metrics) = step("old_logprobs: recompute", &four_groups()).await;
    assert!(trained(&world).iter().all(|sequence| sequence.old_logprobs.is_empty()));
    assert!(
        !world
            .learner
            .calls()
            .iter()
            .any(|call| matches!(call, Call::Logprobs(..)))
    );
    assert_eq!(metrics.get("policy/ratio_mean"), Some(1.0));
}

#[tokio::test]
async fn with_several_the_old_ones_are_computed_before_the_first() {
    let settings = "optimizer_steps: 2\nold_logprobs: recompute\nmax_tokens_per_pack: 8";
    let (world, metrics) = step(settings, &four_groups()).await;
    let calls = world.learner.calls();
    let first_step = calls.iter().position(|call| matches!(call, Call::Train(..))).unwrap();
    let asked = |call: &Call| matches!(call, Call::Logprobs(Weights::Current, _));
    assert!(calls[..first_step].iter().all(asked) && !calls[first_step..].iter().any(asked));
    for sequence in trained(&world) {
        let response = &sequence.ids[sequence.prompt_tokens as usize..];
        let wanted: Vec<f32> = response.iter().map(|id| base_logprob(*id)).collect();
        assert_eq!(sequence.old_logprobs, wanted, "under the weights before the step");
    }
    assert_ne!(
        metrics.get("policy/ratio_mean"),
        Some(1.0),
        "the second share sees the first one's step"
    );
}

#[tokio::test]
async fn old_ones_of_the_rollout_are_the_engines() {
    let mut batch = four_groups();
    for (index, rollout) in batch
        .groups
        .iter_mut()
        .flat_map(|group| &mut group.rollouts)
        .enumerate()
    {
        rollout.logprobs.fill(-0.01 * index as f32);
    }
    for settings in ["old_logprobs: rollout", "old_logprobs: rollout\noptimizer_steps: 4"] {
        let (world, metrics) = step(settings, &batch).await;
        assert!(
            !world
                .learner
                .calls()
                .iter()
                .any(|call| matches!(call, Call::Logprobs(..)))
        );
        let sequences = trained(&world);
        assert!(
            sequences
                .iter()
                .all(|sequence| sequence.old_logprobs == sequence.rollout_logprobs)
        );
        assert_eq!(sequences[6].old_logprobs, [-0.07; 3]);
        // How far apart engine and trainer are is told of what the engine's weights were trained by: the first share.
        let first = if settings.contains("optimizer_steps") { 1 } else { 4 };
        let rollouts = batch.groups[..first].iter().flat_map(|group| &group.rollouts);
        let rollouts = rollouts.filter(|rollout| rollout.advantage.is_some());
        let pairs = rollouts.flat_map(|rollout| rollout.response_ids.iter().zip(&rollout.logprobs));
        let apart: Vec<f64> = pairs
            .map(|(id, engine)| f64::from(base_logprob(*id) - engine).abs())
            .collect();
        let mean = apart.iter().sum::<f64>() / apart.len() as f64;
        let told = metrics.get("parity/logprob_abs_diff_mean").unwrap();
        assert!((told - mean).abs() < 1e-6, "{settings}: {told} is not {mean}");
    }
}

#[tokio::test]
async fn a_share_without_tokens_is_counted_and_takes_no_optimizer_step() {
    let mut batch = four_groups();
    for rollout in batch.groups[..2].iter_mut().flat_map(|group| &mut group.rollouts) {
        rollout.advantage = None;
    }
    let (world, metrics) = step("optimizer_steps: 2", &batch).await;
    assert_eq!(metrics.get("optimizer/empty"), Some(1.0));
    assert_eq!(world.learner.rates().len(), 1);
    assert!(metrics.0.values().all(|value| value.is_finite()));

    for rollout in batch.groups.iter_mut().flat_map(|group| &mut group.rollouts) {
        rollout.advantage = None;
    }
    let (world, metrics) = step("optimizer_steps: 2", &batch).await;
    assert_eq!(metrics.get("optimizer/empty"), Some(2.0));
    assert!(world.learner.rates().is_empty() && metrics.0.values().all(|value| value.is_finite()));
}

#[tokio::test]
async fn metrics_are_sums_over_sequences_and_know_no_packs() {
    let settings = "optimizer_steps: 2\nmax_tokens_per_pack:";
    let mut batch = four_groups();
    batch.groups[1].rollouts[0].logprobs = vec![-0.9, -0.1];
    let (_, whole) = step(&format!("{settings} 1000"), &batch).await;
    for pack in [1, 5, 8, 11, 20] {
        let (_, metrics) = step(&format!("{settings} {pack}"), &batch).await;
        assert_eq!(metrics, whole, "bit for bit");
    }

    let (_, metrics) = step("", &batch).await;
    // Ratios are 1, so that a sequence's loss is minus its advantage for each token.
    let loss = -(3.0 - 1.0 + 2.0 * 0.5 - 5.0 * 0.25 + 0.25 + 2.0 * 2.0 - 3.0 * 2.0) / 17.0;
    assert_eq!(metrics.get("loss"), Some(loss));
    let differences = [
        f64::from(-0.9_f32 - base_logprob(5)).abs(),
        f64::from(-0.1_f32 - base_logprob(6)).abs(),
    ];
    let mean = metrics.get("parity/logprob_abs_diff_mean").unwrap();
    assert!((mean - differences.iter().sum::<f64>() / 17.0).abs() < 1e-7);
    let most = metrics.get("parity/logprob_abs_diff_max").unwrap();
    assert!((most - differences[0].max(differences[1])).abs() < 1e-7);
    let tokens = [1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21];
    let entropy: f64 = tokens.iter().map(|id| -f64::from(base_logprob(*id))).sum();
    assert!((metrics.get("policy/entropy").unwrap() - entropy / 17.0).abs() < 1e-12);
}

fn with_reference(mut batch: Batch, distance: f32) -> Batch {
    for rollout in batch.groups.iter_mut().flat_map(|group| &mut group.rollouts) {
        rollout.reference_logprobs = Some(rollout.logprobs.iter().map(|logprob| logprob - distance).collect());
    }
    batch
}

#[tokio::test]
async fn the_kl_term_enters_the_loss_with_its_coefficient() {
    let batch = with_reference(four_groups(), 0.5);
    let (plain_world, plain) = step("", &batch).await;
    let (world, metrics) = step("loss: { kl: { k3: { coefficient: 0.2 } } }", &batch).await;
    let kl = metrics.get("policy/kl").unwrap();
    assert!((kl - ((-0.5_f64).exp() + 0.5 - 1.0)).abs() < 1e-6);
    let difference = metrics.get("loss").unwrap() - plain.get("loss").unwrap();
    assert!((difference - 0.2 * kl).abs() < 1e-12);
    assert_ne!(world.learner.weight(), plain_world.learner.weight());
    assert_eq!(
        plain.get("policy/kl"),
        None,
        "nothing is reported that was not computed"
    );
}

#[tokio::test]
async fn the_loss_reaches_the_learner_as_it_is_written() {
    let settings = "loss: { policy: { clip: { low: 0.1, high: 0.3, dual: 4.0, log_ratio_clamp: [-5, 6] } } }";
    let (world, _) = step(settings, &four_groups()).await;
    let Some(Call::Train(_, Loss::Policy(loss), _)) = world.learner.calls().first().cloned() else {
        panic!("nothing was trained")
    };
    assert_eq!((loss.clip_low, loss.clip_high, loss.dual_clip), (0.1, 0.3, Some(4.0)));
    assert_eq!((loss.log_ratio_clamp, loss.kl), ([-5.0, 6.0], None));
}

#[tokio::test]
async fn training_begins_with_a_fresh_optimizer_of_these_settings() {
    let world = World::default();
    let mut trainer = trainer("max_grad_norm: 0.25", &world);
    trainer.begin().await.unwrap();
    trainer
        .export("exports/step-1".as_ref(), ExportDtype::Source)
        .await
        .unwrap();
    match world.learner.calls().as_slice() {
        [Call::Start(adamw), Call::Export(folder)] => {
            assert_eq!((adamw.betas, adamw.eps), ([0.9, 0.95], 1e-8));
            assert_eq!((adamw.weight_decay, adamw.max_grad_norm), (0.01, 0.25));
            assert_eq!(folder.to_str(), Some("exports/step-1"));
        }
        calls => panic!("{calls:?}"),
    }
}

#[tokio::test]
async fn i23_every_optimizer_step_has_the_rate_of_its_train_step() {
    let world = World::default();
    let settings = "optimizer_steps: 2\nlr_schedule: { linear: { warmup_steps: 2, min_lr: 0.1 } }";
    let mut trainer = trainer(settings, &world);
    let mut told = Vec::new();
    for step in [1, 2, 6, 10] {
        let metrics = world.train(trainer.as_mut(), &four_groups(), step).await;
        told.push(metrics.get("lr").unwrap());
    }
    for (told, wanted) in told.iter().zip([0.25, 0.5, 0.3, 0.1]) {
        assert!((told - wanted).abs() < 1e-12, "{told} is not {wanted}");
    }
    let twice: Vec<f64> = told.iter().flat_map(|rate| [*rate, *rate]).collect();
    assert_eq!(world.learner.rates(), twice);
}

#[tokio::test]
async fn gradients_too_large_for_their_type_are_computed_again() {
    let (usual, world) = (World::default(), World::default());
    let metrics = usual.train(trainer("", &usual).as_mut(), &four_groups(), 1).await;
    world.learner.overflow(2);
    let again = world.train(trainer("", &world).as_mut(), &four_groups(), 1).await;
    assert_eq!(world.learner.weight(), usual.learner.weight());
    assert_eq!(again, metrics);
    assert_eq!(again.get("optimizer/skipped"), Some(0.0));
    assert_eq!(again.get("optimizer/loss_scale"), Some(0.0));
    let trained = |world: &World| {
        world
            .learner
            .calls()
            .iter()
            .filter(|call| matches!(call, Call::Train(..)))
            .count()
    };
    assert_eq!(trained(&world), 3 * trained(&usual));
}

#[tokio::test]
async fn skipped_steps_are_counted_over_breaks() {
    let world = World::default();
    let mut before = trainer("optimizer_steps: 2", &world);
    let mut batch = four_groups();
    batch.groups[3].rollouts[0].response_ids[1] = POISON;
    let metrics = world.train(before.as_mut(), &batch, 1).await;
    assert_eq!(metrics.get("optimizer/skipped"), Some(1.0));
    assert_eq!(metrics.get("optimizer/skipped_total"), Some(1.0));
    let notices = world.notices();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].starts_with("trainer: step 1: ") && notices[0].contains("1 optimizer step"));

    let mut after = trainer("optimizer_steps: 2", &world);
    after.restore(before.snapshot()).unwrap();
    let metrics = world.train(after.as_mut(), &four_groups(), 2).await;
    assert_eq!(metrics.get("optimizer/skipped"), Some(0.0));
    assert_eq!(metrics.get("optimizer/skipped_total"), Some(1.0));

    let error = after.restore(serde_json::json!({})).unwrap_err().to_string();
    assert!(error.contains("skipped_optimizer_steps"), "{error}");
}

#[tokio::test]
async fn a_step_that_teaches_nothing_says_so() {
    let equal = Batch {
        groups: vec![group(0, &[(&[1], Some(0.0)), (&[2], Some(0.0))])],
    };
    let (world, _) = step("", &equal).await;
    assert_eq!(world.notices().len(), 1);
    assert!(world.notices()[0].contains("the rewards of every group are equal"));
    let (world, _) = step("", &four_groups()).await;
    assert!(world.notices().is_empty());
}

#[tokio::test]
async fn i28_an_engine_that_drifts_is_told() {
    let drifted = |by: f32| {
        let mut batch = four_groups();
        let rollouts = batch.groups.iter_mut().flat_map(|group| &mut group.rollouts);
        rollouts
            .flat_map(|rollout| &mut rollout.logprobs)
            .for_each(|logprob| *logprob -= by);
        batch
    };
    let (world, _) = step("", &drifted(0.02)).await;
    assert_eq!(world.notices().len(), 1);
    assert!(
        world.notices()[0].contains("differ by 0.0200 in the mean"),
        "{}",
        world.notices()[0]
    );
    let (world, metrics) = step("", &drifted(0.005)).await;
    assert!(world.notices().is_empty());
    assert!((metrics.get("parity/logprob_abs_diff_mean").unwrap() - 0.005).abs() < 1e-6);

    // Not in every step, but again when it has grown.
    let world = World::default();
    let mut trainer = trainer("", &world);
    for (index, (by, told)) in [(0.2, 1), (0.25, 1), (0.2, 1), (0.4, 2), (0.5, 2)]
        .into_iter()
        .enumerate()
    {
        world.train(trainer.as_mut(), &drifted(by), index as u64 + 1).await;
        assert_eq!(world.notices().len(), told, "{by}");
    }
}

#[tokio::test]
async fn progress_is_told_by_optimizer_steps() {
    let (world, _) = step("optimizer_steps: 4", &four_groups()).await;
    let told = world.ears.progress.lock().unwrap();
    assert_eq!(told.first(), Some(&("optimizer steps".to_owned(), 0, 4)));
    assert!(told.windows(2).all(|pair| pair[0].1 < pair[1].1));
}
