//! What has gone wrong in training loops elsewhere.

use rlpipe_core::data::Batch;

use crate::fakes::{POISON, World, four_groups, group, trainer};

/// The weight after one train step.
async fn learnt(settings: &str, batch: &Batch) -> f64 {
    let world = World::default();
    world.train(trainer(settings, &world).as_mut(), batch, 1).await;
    world.learner.weight()
}

/// A token mean that is taken over each pack, and then over packs, weighs tokens by the company they are in: the gradient
/// changes with the pack size. The count of the whole share is known before the first pack goes backward.
#[tokio::test]
async fn i34_the_gradient_does_not_depend_on_how_a_share_is_packed() {
    let batch = four_groups();
    let whole = learnt("max_tokens_per_pack: 1000", &batch).await;
    assert_ne!(whole, 0.0);
    for pack in 1..32 {
        let packed = learnt(&format!("max_tokens_per_pack: {pack}"), &batch).await;
        // Packs are balanced, so that tokens are summed in another order.
        assert!((packed - whole).abs() < 1e-15, "{pack}: {packed} {whole}");
    }

    // By hand: minus advantage times slope of each token, over 17 tokens; plain descent at the rate 0.5.
    let mut gradient = 0.0;
    for rollout in batch.groups.iter().flat_map(|group| &group.rollouts) {
        let slopes: f64 = rollout.response_ids.iter().map(|id| f64::from(id % 5)).sum();
        gradient -= rollout.advantage.unwrap_or(0.0) * slopes / 17.0;
    }
    assert!((whole + 0.5 * gradient).abs() < 1e-12);
}

/// Tokens of a pack whose gradient is not finite must neither count for those that are, nor be counted as learnt from:
/// the whole optimizer step is left out, the others keep their own token counts.
#[tokio::test]
async fn i39_a_gradient_that_is_not_finite_takes_its_whole_optimizer_step_and_no_other() {
    let mut poisoned = four_groups();
    poisoned.groups[2].rollouts[0].response_ids[4] = POISON;
    let first_half = Batch {
        groups: four_groups().groups[..2].to_vec(),
    };
    let world = World::default();
    let mut trainer = trainer("optimizer_steps: 2\nmax_tokens_per_pack: 8", &world);
    let metrics = world.train(trainer.as_mut(), &poisoned, 1).await;
    assert_eq!(world.learner.weight(), learnt("", &first_half).await);
    assert_eq!(metrics.get("optimizer/skipped"), Some(1.0));
    let denominators: Vec<f64> = world
        .learner
        .packs()
        .into_iter()
        .map(|(_, denominator)| denominator)
        .collect();
    assert_eq!(denominators, [6.0, 6.0, 11.0, 11.0, 11.0], "as if nothing had happened");

    // The skipped gradient is gone: the next step learns from its own tokens alone.
    let before = world.learner.weight();
    world.train(trainer.as_mut(), &first_half, 2).await;
    assert!(world.learner.weight().is_finite() && world.learner.weight() != before);
}

/// Responses that a judger abstained from carry no signal; counting their tokens would shrink every other gradient.
#[tokio::test]
async fn tokens_that_are_not_trained_do_not_thin_out_the_mean() {
    let judged = [(&[1, 2, 3][..], Some(1.0)), (&[4][..], Some(-1.0))];
    let with_abstained = [judged[0], (&[8, 9, 10, 11, 12, 13][..], None), judged[1]];
    let of = |responses: &[(&[u32], Option<f64>)]| Batch {
        groups: vec![group(0, responses)],
    };
    assert_eq!(learnt("", &of(&with_abstained)).await, learnt("", &of(&judged)).await);
}

/// The old log-probs of a later share must not be taken after an earlier share has moved the policy: its ratio would be 1
/// whatever happened, and nothing would ever be clipped.
#[tokio::test]
async fn later_shares_are_measured_against_the_policy_before_the_step() {
    let world = World::default();
    let mut trainer = trainer("optimizer_steps: 2", &world);
    let batch = Batch {
        groups: vec![group(0, &[(&[4], Some(1.0))]), group(1, &[(&[9], Some(1.0))])],
    };
    let metrics = world.train(trainer.as_mut(), &batch, 1).await;
    // The first share moves the weight by 0.5 * 4: the second finds a ratio of e^8.
    let second = 8.0_f64.exp();
    let mean = metrics.get("policy/ratio_mean").unwrap();
    assert!((mean / ((1.0 + second) / 2.0) - 1.0).abs() < 1e-6, "{mean}");
    assert_eq!(metrics.get("policy/clipped_high"), Some(0.5));
}

/// A mask of zeros makes a run that looks healthy and trains nothing: it ends with a word instead.
#[tokio::test]
async fn i7_a_mask_that_sums_to_zero_is_an_error() {
    let mut batch = four_groups();
    for rollout in batch.groups.iter_mut().flat_map(|group| &mut group.rollouts) {
        rollout.mask.fill(false);
    }
    let world = World::default();
    let mut trainer = trainer("", &world);
    let error = trainer.train(&batch, &world.context("trainer", 1)).await.unwrap_err();
    assert!(error.0.contains("the masks of all 7 responses"), "{}", error.0);

    // One token that counts is enough.
    batch.groups[3].rollouts[1].mask[2] = true;
    trainer.train(&batch, &world.context("trainer", 1)).await.unwrap();
}
