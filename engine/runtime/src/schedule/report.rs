//! The metrics of a step's groups.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use rlpipe_core::data::{Batch, DropReason, FinishReason, Group, Metrics, Rollout, mean, standard_deviation};
use rlpipe_core::services::MemoryPeak;

use super::produce::Produced;
use super::state::BusyTime;
use super::times::uncovered_s;

/// What the trained groups look like.
pub fn of_batch(batch: &Batch, step: u64) -> Metrics {
    let rollouts: Vec<&Rollout> = batch.groups.iter().flat_map(|group| &group.rollouts).collect();
    let rewards: Vec<f64> = rollouts.iter().filter_map(|rollout| rollout.reward()).collect();
    let lengths: Vec<f64> = rollouts
        .iter()
        .map(|rollout| rollout.response_ids.len() as f64)
        .collect();
    let share = |test: &dyn Fn(&Rollout) -> bool| {
        let hits = rollouts.iter().filter(|rollout| test(rollout)).count();
        hits as f64 / rollouts.len().max(1) as f64
    };
    let staleness = rollouts
        .iter()
        .filter_map(|rollout| rollout.oldest_version())
        .map(|version| step.saturating_sub(version).saturating_sub(1));
    let mut metrics = Metrics::default();
    metrics.set("reward/mean", mean(&rewards));
    metrics.set("reward/std", standard_deviation(&rewards, 1));
    metrics.set("reward/min", rewards.iter().copied().reduce(f64::min).unwrap_or(0.0));
    metrics.set("reward/max", rewards.iter().copied().reduce(f64::max).unwrap_or(0.0));
    for (name, values) in parts(&rollouts) {
        metrics.set(format!("reward/parts/{name}/mean"), mean(&values));
    }
    metrics.set("response_len/mean", mean(&lengths));
    metrics.set("response_len/max", lengths.iter().copied().fold(0.0, f64::max));
    metrics.set(
        "response/truncated_rate",
        share(&|rollout| rollout.finish_reason == FinishReason::Length),
    );
    metrics.set(
        "response/format_rate",
        share(&|rollout| rollout.score.as_ref().is_some_and(|score| score.parsed.is_some())),
    );
    let is_unjudged = |rollout: &&&Rollout| rollout.score.as_ref().is_some_and(|score| score.error.is_some());
    let unjudged = rollouts.iter().filter(is_unjudged).count();
    metrics.set("response/unjudged", unjudged as f64);
    metrics.set("response/abstained", (rollouts.len() - rewards.len() - unjudged) as f64);
    metrics.set("staleness/max", staleness.max().unwrap_or(0) as f64);
    metrics.set("groups/trained", batch.groups.len() as f64);
    metrics.set(
        "groups/uniform",
        batch.groups.iter().filter(|group| group.is_uniform()).count() as f64,
    );
    metrics
}

/// What workers have taken of memory so far, at most.
pub fn of_memory(peaks: &BTreeMap<u32, MemoryPeak>) -> Metrics {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let mut metrics = Metrics::default();
    for (rank, peak) in peaks {
        metrics.set(format!("memory/worker-{rank}/host_peak_gib"), gib(peak.host_bytes));
        if peak.accelerator_bytes > 0 {
            metrics.set(
                format!("memory/worker-{rank}/accelerator_peak_gib"),
                gib(peak.accelerator_bytes),
            );
        }
    }
    metrics
}

/// Seconds of a phase in which a worker had nothing to answer, in the mean over workers.
pub fn of_driver(name: &str, busy: &BTreeMap<u32, Vec<BusyTime>>, phase: &Range<Instant>) -> Metrics {
    let idle = |times: &Vec<BusyTime>| uncovered_s(times.iter().map(|busy| busy.time.clone()), phase);
    let idle: Vec<f64> = busy.values().map(idle).collect();
    let mut metrics = Metrics::default();
    if !idle.is_empty() {
        metrics.set(name, mean(&idle));
    }
    metrics
}

/// What rewards are made of, by name, of the rollouts that have a reward.
fn parts<'a>(rollouts: &[&'a Rollout]) -> BTreeMap<&'a str, Vec<f64>> {
    let mut parts: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let scores = rollouts.iter().filter_map(|rollout| rollout.score.as_ref());
    for score in scores.filter(|score| score.reward.is_some()) {
        for (name, value) in &score.parts {
            parts.entry(name).or_default().push(*value);
        }
    }
    parts
}

/// Mean rewards by where prompts come from.
pub fn by_source(batch: &Batch) -> Metrics {
    let mut rewards: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for group in &batch.groups {
        rewards.entry(group.source()).or_default().extend(group.rewards());
    }
    let mut metrics = Metrics::default();
    for (source, rewards) in rewards.iter().filter(|(_, rewards)| !rewards.is_empty()) {
        metrics.set(format!("reward/by_source/{source}/mean"), mean(rewards));
    }
    metrics
}

/// What did not make it into the step.
pub fn of_dropped(produced: &Produced) -> Metrics {
    let mut metrics = by_reason(&produced.dropped);
    metrics.set("groups/filled", produced.filled as f64);
    metrics.set("groups/refills", f64::from(produced.refills));
    metrics
}

/// How many groups were dropped, by why.
fn by_reason(dropped: &[(Group, DropReason)]) -> Metrics {
    let filtered = dropped
        .iter()
        .filter(|(_, reason)| matches!(reason, DropReason::Filtered(_)))
        .count();
    let mut metrics = Metrics::default();
    metrics.set("groups/filtered", filtered as f64);
    metrics.set("groups/failed", (dropped.len() - filtered) as f64);
    metrics
}

/// What groups look like, those that go on and those that do not.
pub fn metrics_of(kept: &[Group], dropped: &[(Group, DropReason)]) -> Metrics {
    let batch = Batch { groups: kept.to_vec() };
    let mut metrics = of_batch(&batch, 1);
    metrics.extend(by_source(&batch));
    metrics.extend(by_reason(dropped));
    metrics
}
