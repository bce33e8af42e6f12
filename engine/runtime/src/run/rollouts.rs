//! `rollouts/{train,eval}/step-N.jsonl`: one line a rollout, one file a step.

use std::io::{self, Write};
use std::path::Path;

use rlpipe_core::data::{FinishReason, Group, Message, Status, VersionRun};
use serde::Serialize;

use super::disk::write_atomic_with;
use super::errors::RunError;

/// One line: a rollout and what it came from. Vectors but `prompt_ids` are aligned with `response_ids`, but for
/// `policy_version`, whose runs add up to its length. Log-probs that are not finite are `null`.
#[derive(Serialize)]
struct Line<'a> {
    group_id: u64,
    /// `GROUP/INDEX`, the index in the group from 0.
    rollout_id: String,
    prompt: &'a [Message],
    prompt_ids: &'a [u32],
    response: &'a str,
    response_ids: &'a [u32],
    logprobs: &'a [f32],
    mask: &'a [bool],
    policy_version: &'a [VersionRun],
    /// None: not judged, or the judger abstained.
    reward: Option<f64>,
    parsed: Option<&'a str>,
    advantage: Option<f64>,
    status: Status,
    finish_reason: FinishReason,
    data_source: &'a str,
    ground_truth: Option<&'a str>,
    sampler: &'a str,
}

/// Writes the rollouts of a step into `folder`, as `step-N.jsonl`, or `step-N.NODE.jsonl` where several nodes write
/// there. The file is there whole or not at all.
pub fn write_rollouts(folder: &Path, step: u64, node: Option<&str>, groups: &[Group]) -> Result<(), RunError> {
    let name = match node {
        Some(node) => format!("step-{step}.{node}.jsonl"),
        None => format!("step-{step}.jsonl"),
    };
    write_atomic_with(&folder.join(name), None, |file| {
        for group in groups {
            write_group(file, group)?;
        }
        Ok(())
    })
}

fn write_group(file: &mut impl Write, group: &Group) -> io::Result<()> {
    for (index, rollout) in group.rollouts.iter().enumerate() {
        let line = Line {
            group_id: group.id,
            rollout_id: format!("{}/{index}", group.id),
            prompt: &group.row.prompt,
            prompt_ids: &group.row.prompt_ids,
            response: &rollout.response,
            response_ids: &rollout.response_ids,
            logprobs: &rollout.logprobs,
            mask: &rollout.mask,
            policy_version: &rollout.policy_version,
            reward: rollout.reward(),
            parsed: rollout.score.as_ref().and_then(|score| score.parsed.as_deref()),
            advantage: rollout.advantage,
            status: rollout.status,
            finish_reason: rollout.finish_reason,
            data_source: &group.row.data_source,
            ground_truth: group.row.ground_truth.as_deref(),
            sampler: &group.sampler,
        };
        serde_json::to_writer(&mut *file, &line)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}
