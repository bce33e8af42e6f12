//! Fills a step, and goes once over an evaluation's prompts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::try_join_all;
use rlpipe_core::data::{Batch, DropReason, Group, Verdict};

use super::error::RunFailure;
use super::graph::{Evaluation, Graph};
use super::path::{Path, Surroundings, Traveled};

/// More reasons than these are counted only.
const SHOWN_REASONS: usize = 8;

/// What producing one step came to.
#[derive(Default)]
pub struct Produced {
    /// The step's groups.
    pub batch: Batch,
    /// Groups that were kept back and stayed so, with why.
    pub dropped: Vec<(Group, DropReason)>,
    /// Groups that were kept back and complete the step all the same.
    pub filled: usize,
    /// Rounds of asking again.
    pub refills: u32,
    /// Response tokens generated.
    pub tokens: usize,
    /// Seconds in judges, all groups together.
    pub judge_s: f64,
}

impl Produced {
    /// Groups dropped for a reason of one kind.
    pub fn dropped(&self, test: impl Fn(&DropReason) -> bool) -> usize {
        self.dropped.iter().filter(|(_, reason)| test(reason)).count()
    }

    /// Why groups were dropped, the most frequent first: "12: all rewards are 0; 3: all rewards are 1".
    pub fn reasons(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, reason) in &self.dropped {
            let (DropReason::Failed(text) | DropReason::Filtered(text)) = reason;
            *counts.entry(text).or_insert(0) += 1;
        }
        let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        // A reason that names a line of the data is one of many.
        let more = counts.len().saturating_sub(SHOWN_REASONS);
        counts
            .iter()
            .take(SHOWN_REASONS)
            .map(|(reason, count)| format!("{count}: {reason}"))
            .chain((more > 0).then(|| format!("and {more} more reasons")))
            .collect::<Vec<_>>()
            .join("; ")
    }
}

/// Makes one step. Rounds keep what is drawn independent of which group is ready first: each asks for all that is
/// missing, and waits for all of it.
pub async fn produce(
    graph: &mut Graph,
    positions: &mut BTreeMap<String, u64>,
    surroundings: &Surroundings,
) -> Result<Produced, RunFailure> {
    let mut produced = Produced::default();
    let mut dropped: Vec<(usize, Group, DropReason)> = Vec::new();
    let mut round = 0;
    loop {
        let wanted = graph.buffer.wanted(&graph.inputs);
        let missing: usize = wanted.iter().sum();
        if missing == 0
            && let Some(batch) = graph.buffer.take()
        {
            produced.batch = batch;
            produced.dropped = dropped.into_iter().map(|(_, group, reason)| (group, reason)).collect();
            return Ok(produced);
        }
        let exhausted: Vec<usize> = (0..wanted.len())
            .filter(|input| wanted[*input] > 0 && round > graph.paths[*input].max_refill)
            .collect();
        if !exhausted.is_empty() {
            for input in exhausted {
                if !fill(graph, input, wanted[input], &mut dropped, &mut produced) {
                    produced.dropped = dropped.into_iter().map(|(_, group, reason)| (group, reason)).collect();
                    return Err(RunFailure::Exhausted {
                        step: surroundings.context.step,
                        missing,
                        rounds: round - 1,
                        reasons: produced.reasons(),
                        filtered: produced.dropped(|reason| matches!(reason, DropReason::Filtered(_))) > 0,
                    });
                }
            }
            continue;
        }
        produced.refills = round;
        round += 1;
        let draws = draws(graph, &wanted, positions);
        for (input, traveled) in travel(draws, surroundings).await? {
            produced.judge_s += traveled.judge_s;
            produced.tokens += tokens(&traveled.verdict);
            match traveled.verdict {
                Verdict::Keep(group) => graph.buffer.put(input, group),
                Verdict::Drop(group, reason) => dropped.push((input, group, reason)),
            }
        }
    }
}

/// The next positions of each path, `wanted` of each.
fn draws<'a>(
    graph: &'a Graph,
    wanted: &[usize],
    positions: &mut BTreeMap<String, u64>,
) -> Vec<(usize, &'a Path, Range<u64>)> {
    let draw = |(input, (path, count)): (usize, (&'a Path, &usize))| {
        let position = positions.entry(path.sampler.to_string()).or_insert(0);
        let start = *position;
        *position += *count as u64;
        (input, path, start..*position)
    };
    graph.paths.iter().zip(wanted).enumerate().map(draw).collect()
}

/// Begins to make the rows of the next step, as far as it is known what is drawn for it.
pub fn prepare(graph: &Graph, positions: &BTreeMap<String, u64>) {
    let wanted = graph.buffer.wanted(&graph.inputs);
    for (_, path, range) in draws(graph, &wanted, &mut positions.clone()) {
        path.prepare(range);
    }
}

/// Begins to make the rows of an evaluation.
pub fn prepare_evaluation(evaluation: &Evaluation) {
    evaluation.path.prepare(0..prompts(evaluation));
}

/// Completes a step with groups that a filter kept back, the last first; whether there were enough.
fn fill(
    graph: &mut Graph,
    input: usize,
    missing: usize,
    dropped: &mut Vec<(usize, Group, DropReason)>,
    produced: &mut Produced,
) -> bool {
    if !graph.paths[input].fill {
        return false;
    }
    for _ in 0..missing {
        let usable = dropped.iter().rposition(|(of, group, reason)| {
            *of == input && matches!(reason, DropReason::Filtered(_)) && !group.rewards().is_empty()
        });
        let Some(index) = usable else { return false };
        let (_, mut group, _) = dropped.remove(index);
        for rollout in &mut group.rollouts {
            rollout.status = rlpipe_core::data::Status::Completed;
        }
        graph.buffer.put(input, group);
        produced.filled += 1;
    }
    true
}

/// All draws at once; in the order of the draws.
async fn travel(
    draws: Vec<(usize, &Path, Range<u64>)>,
    surroundings: &Surroundings,
) -> Result<Vec<(usize, Traveled)>, RunFailure> {
    let mut drawn = Vec::new();
    for (input, path, range) in draws {
        let mut rows = path.prepared().await;
        drawn.extend(range.map(|position| (input, path, position, rows.remove(&position))));
    }
    let total = drawn.len() as u64;
    let done = AtomicU64::new(0);
    let done = &done;
    try_join_all(drawn.into_iter().map(|(input, path, position, row)| async move {
        let traveled = path.travel(position, row, surroundings).await?;
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        surroundings.reporter.progress(&path.loop_name, "groups", done, total);
        Ok((input, traveled))
    }))
    .await
}

fn tokens(verdict: &Verdict) -> usize {
    let (Verdict::Keep(group) | Verdict::Drop(group, _)) = verdict;
    group.rollouts.iter().map(|rollout| rollout.response_ids.len()).sum()
}

fn prompts(evaluation: &Evaluation) -> u64 {
    let rows = evaluation.path.source.rows();
    evaluation.limit.map_or(rows, |limit| limit.min(rows))
}

/// One pass over an evaluation's prompts, never wrapping: the groups, how many failed, and the tokens generated.
pub async fn evaluate(evaluation: &Evaluation, surroundings: &Surroundings) -> Result<(Vec<Group>, usize), RunFailure> {
    let draws = vec![(0, &evaluation.path, 0..prompts(evaluation))];
    let (mut groups, mut failed) = (Vec::new(), 0);
    for (_, traveled) in travel(draws, surroundings).await? {
        match traveled.verdict {
            Verdict::Keep(group) => groups.push(group),
            Verdict::Drop(..) => failed += 1,
        }
    }
    Ok((groups, failed))
}
