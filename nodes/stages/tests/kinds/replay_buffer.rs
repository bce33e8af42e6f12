//! A stream of groups to train steps.

use proptest::prelude::*;
use rlpipe_core::data::{Batch, Group, VersionRun};
use rlpipe_core::kind::{Buffer, Stage};

use crate::fakes::{World, group, stage};

fn buffer(settings: &str) -> Box<dyn Buffer> {
    match stage("buffer", &format!("type: replay_buffer\n{settings}"), &World::default()) {
        Stage::Buffer(stage) => stage,
        _ => panic!("{settings} makes no buffer"),
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn one(id: u64) -> Group {
    group(id, &[(&[1, 2], Some(1.0))])
}

fn ids(batch: &Batch) -> Vec<u64> {
    batch.groups.iter().map(|group| group.id).collect()
}

#[test]
fn the_mix_is_shared_out_by_largest_remainder() {
    let inputs = names(&["sums", "riddles", "code"]);
    for (settings, wanted) in [
        ("prompts_per_step: 8", [3, 3, 2]),
        ("prompts_per_step: 8\nmix: { sums: 2, riddles: 1, code: 1 }", [4, 2, 2]),
        (
            "prompts_per_step: 7\nmix: { sums: 0.5, riddles: 0.25, code: 0.25 }",
            [3, 2, 2],
        ),
        ("prompts_per_step: 2\nmix: { sums: 5, riddles: 1, code: 1 }", [2, 0, 0]),
        ("prompts_per_step: 8\nmix: { code: 2 }", [2, 2, 4]),
    ] {
        let buffer = buffer(settings);
        assert_eq!(buffer.wanted(&inputs), wanted, "{settings}");
        assert_eq!(buffer.prompts_per_step(), wanted.iter().sum::<usize>());
    }
}

#[test]
fn groups_that_are_held_are_not_asked_for() {
    let inputs = names(&["sums", "riddles"]);
    let mut buffer = buffer("prompts_per_step: 4\nmix: { sums: 3, riddles: 1 }");
    assert_eq!(buffer.wanted(&inputs), [3, 1]);
    buffer.put(0, one(0));
    assert_eq!(buffer.wanted(&inputs), [2, 1]);
    buffer.put(1, one(0));
    buffer.put(0, one(1));
    assert_eq!((buffer.wanted(&inputs), buffer.take()), (vec![1, 0], None));
    buffer.put(0, one(2));
    assert_eq!(buffer.wanted(&inputs), [0, 0]);
    assert_eq!(ids(&buffer.take().unwrap()), [0, 1, 2, 0]);
    assert_eq!((buffer.wanted(&inputs), buffer.take()), (vec![3, 1], None));
}

#[test]
fn a_step_is_in_the_order_of_inputs_and_draws() {
    let mut buffer = buffer("prompts_per_step: 4\norder: fifo");
    for (input, id) in [(1, 7), (0, 9), (1, 3), (0, 2)] {
        buffer.put(input, one(id));
    }
    assert_eq!(ids(&buffer.take().unwrap()), [2, 9, 3, 7]);
}

#[test]
fn groups_that_came_first_leave_first() {
    let mut buffer = buffer("prompts_per_step: 2");
    for id in [5, 6, 1, 2, 3] {
        buffer.put(0, one(id));
    }
    assert_eq!(ids(&buffer.take().unwrap()), [5, 6]);
    assert_eq!(ids(&buffer.take().unwrap()), [1, 2]);
    assert_eq!((buffer.take(), buffer.wanted(&names(&["sums"]))), (None, vec![1]));
}

/// Counters that begin at nothing after a break, while what they count is still there, let a buffer ask for too much and
/// hold what is too old. Nothing is counted apart from the groups: they come back whole, with the versions that drew them.
#[test]
fn a_restored_buffer_asks_for_what_is_missing_and_knows_the_age_of_what_it_holds() {
    let inputs = names(&["sums", "riddles"]);
    let settings = "prompts_per_step: 3\nmix: { sums: 2, riddles: 1 }";
    let mut before = buffer(settings);
    let mut old = one(4);
    old.rollouts[0].policy_version = vec![
        VersionRun { version: 6, tokens: 1 },
        VersionRun { version: 5, tokens: 1 },
    ];
    before.put(0, old);
    before.put(1, one(2));

    let text = before.snapshot().to_string();
    let mut after = buffer(settings);
    after.restore(serde_json::from_str(&text).unwrap()).unwrap();
    assert_eq!(after.wanted(&inputs), [1, 0]);
    for buffer in [&mut before, &mut after] {
        buffer.put(0, one(5));
    }
    let (unbroken, resumed) = (before.take().unwrap(), after.take().unwrap());
    assert_eq!(resumed, unbroken);
    assert_eq!(resumed.groups[0].rollouts[0].oldest_version(), Some(5));
    assert_eq!((after.wanted(&inputs), after.take()), (vec![2, 1], None));

    let error = after.restore(serde_json::json!({ "held": 3 })).unwrap_err().to_string();
    assert!(error.contains("replay buffer"), "{error}");
}

proptest! {
    /// Whatever comes in what order, a buffer that gets what it asks for gives full steps and loses nothing.
    #[test]
    fn what_goes_in_comes_out_once(per_step in 1_usize..12, weights in prop::collection::vec(1_u32..9, 1..4), steps in 1..4) {
        let inputs: Vec<String> = (0..weights.len()).map(|input| format!("input_{input}")).collect();
        let mix: Vec<String> = inputs.iter().zip(&weights).map(|(name, weight)| format!("{name}: {weight}")).collect();
        let mut buffer = buffer(&format!("prompts_per_step: {per_step}\nmix: {{ {} }}", mix.join(", ")));
        let (mut next, mut seen) = (0, Vec::new());
        for _ in 0..steps {
            for (input, count) in buffer.wanted(&inputs).into_iter().enumerate().rev() {
                for _ in 0..count {
                    buffer.put(input, one(next));
                    next += 1;
                }
            }
            prop_assert_eq!(buffer.wanted(&inputs).iter().sum::<usize>(), 0);
            let batch = buffer.take().unwrap();
            prop_assert_eq!(batch.groups.len(), per_step);
            seen.extend(ids(&batch));
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..next).collect::<Vec<_>>());
    }
}
