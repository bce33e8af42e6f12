//! `rollouts/{train,eval}/step-N.jsonl`: one line a rollout, one file a step.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;

use rlpipe_core::data::{FinishReason, Group, Message, Rollout, Row, Score, Status, VersionRun};
use serde::{Deserialize, Serialize};

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
    /// What the reward is made of, where the judger says.
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<&'a BTreeMap<String, f64>>,
    /// Why it could not be judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    judge_error: Option<&'a str>,
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
            parts: rollout
                .score
                .as_ref()
                .map(|score| &score.parts)
                .filter(|parts| !parts.is_empty()),
            judge_error: rollout.score.as_ref().and_then(|score| score.error.as_deref()),
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

/// A line as it is read back. What later versions add to it is passed over.
#[derive(Deserialize)]
struct ReadLine {
    group_id: u64,
    prompt: Vec<Message>,
    #[serde(default)]
    prompt_ids: Vec<u32>,
    response: String,
    #[serde(default)]
    response_ids: Vec<u32>,
    #[serde(default)]
    logprobs: Vec<Option<f32>>,
    #[serde(default)]
    mask: Vec<bool>,
    #[serde(default)]
    policy_version: Vec<VersionRun>,
    #[serde(default)]
    reward: Option<f64>,
    #[serde(default)]
    parsed: Option<String>,
    #[serde(default)]
    parts: BTreeMap<String, f64>,
    #[serde(default)]
    judge_error: Option<String>,
    finish_reason: FinishReason,
    #[serde(default)]
    data_source: String,
    #[serde(default)]
    ground_truth: Option<String>,
    sampler: String,
    status: Status,
}

/// Why rollouts cannot be read.
#[derive(Debug)]
pub enum UnreadRollouts {
    /// The file cannot be read.
    File(io::Error),
    /// It has no lines.
    Empty,
    /// A line is no rollout.
    Line {
        /// Its number, from 1.
        number: u64,
        /// Its text.
        text: String,
        /// What is wrong with it.
        error: String,
    },
}

/// The first `limit` groups of a file that [`write_rollouts`] wrote, as they were before their advantages: lines of the
/// same group stand together. What a filter dropped stands there completed, as it came to the filter. The columns of
/// rows are not in such a file.
pub fn read_rollouts(path: &Path, limit: usize) -> Result<Vec<Group>, UnreadRollouts> {
    let file = BufReader::new(File::open(path).map_err(UnreadRollouts::File)?);
    let mut groups: Vec<Group> = Vec::new();
    for (text, number) in file.lines().zip(1..) {
        let text = text.map_err(UnreadRollouts::File)?;
        if text.trim().is_empty() {
            continue;
        }
        let line: ReadLine = serde_json::from_str(&text).map_err(|error| UnreadRollouts::Line {
            number,
            error: error.to_string(),
            text,
        })?;
        let is_next = |group: &Group| group.id == line.group_id && *group.sampler == *line.sampler;
        if !groups.last().is_some_and(is_next) {
            if groups.len() == limit {
                break;
            }
            groups.push(Group {
                id: line.group_id,
                sampler: Arc::from(line.sampler.as_str()),
                row: Arc::new(Row {
                    dataset: path.display().to_string(),
                    line: number,
                    prompt: line.prompt.clone(),
                    prompt_ids: line.prompt_ids.clone(),
                    data_source: line.data_source.clone(),
                    ground_truth: line.ground_truth.clone(),
                    ..Row::default()
                }),
                rollouts: Vec::new(),
            });
        }
        if let Some(group) = groups.last_mut() {
            group.rollouts.push(rollout(line));
        }
    }
    if groups.is_empty() {
        return Err(UnreadRollouts::Empty);
    }
    Ok(groups)
}

fn rollout(line: ReadLine) -> Rollout {
    let is_scored = line.reward.is_some() || line.parsed.is_some() || line.judge_error.is_some();
    Rollout {
        response_ids: line.response_ids,
        logprobs: line
            .logprobs
            .into_iter()
            .map(|value| value.unwrap_or(f32::NAN))
            .collect(),
        mask: line.mask,
        policy_version: line.policy_version,
        temperature: 1.0,
        response: line.response,
        score: is_scored.then_some(Score {
            reward: line.reward,
            parsed: line.parsed,
            parts: line.parts,
            error: line.judge_error,
        }),
        advantage: None,
        reference_logprobs: None,
        status: match line.status {
            Status::Filtered => Status::Completed,
            status => status,
        },
        finish_reason: line.finish_reason,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::sync::Arc;

    use rlpipe_core::data::{Rollout, Row, Score};

    use super::*;

    #[test]
    fn a_line_is_a_rollout_and_what_it_came_from() {
        let row = Row {
            dataset: String::new(),
            columns: serde_json::Map::new(),
            line: 9,
            prompt: vec![Message::new("user", "1+1=")],
            prompt_ids: vec![4, 5],
            answer_ids: vec![],
            data_source: "sums".into(),
            ground_truth: Some("2".into()),
        };
        let judged = Rollout {
            response_ids: vec![6, 0],
            logprobs: vec![-0.1, f32::NEG_INFINITY],
            mask: vec![true, false],
            policy_version: vec![VersionRun { version: 3, tokens: 2 }],
            temperature: 1.0,
            response: "2\n".into(),
            score: Some(Score {
                reward: Some(1.0),
                parsed: Some("2".into()),
                parts: [("format".to_owned(), 0.5)].into(),
                error: None,
            }),
            advantage: Some(0.5),
            reference_logprobs: None,
            status: Status::Completed,
            finish_reason: FinishReason::Stop,
        };
        let failed = Rollout {
            score: None,
            advantage: None,
            status: Status::Failed,
            ..judged.clone()
        };
        let group = Group {
            id: 7,
            sampler: "prompts".into(),
            row: Arc::new(row),
            rollouts: vec![judged, failed],
        };
        let folder = tempfile::tempdir().unwrap();
        write_rollouts(folder.path(), 4, None, std::slice::from_ref(&group)).unwrap();
        let text = fs::read_to_string(folder.path().join("step-4.jsonl")).unwrap();
        let (first, second) = text.trim_end().split_once('\n').unwrap();
        assert_eq!(
            first,
            r#"{"group_id":7,"rollout_id":"7/0","prompt":[{"role":"user","content":"1+1="}],"prompt_ids":[4,5],"#
                .to_owned()
                + r#""response":"2\n","response_ids":[6,0],"logprobs":[-0.1,null],"mask":[true,false],"#
                + r#""policy_version":[{"version":3,"tokens":2}],"reward":1.0,"parsed":"2","parts":{"format":0.5},"advantage":0.5,"#
                + r#""status":"completed","finish_reason":"stop","data_source":"sums","ground_truth":"2","#
                + r#""sampler":"prompts"}"#
        );
        assert!(
            second.contains(r#""rollout_id":"7/1""#) && second.contains(r#""reward":null"#),
            "{second}"
        );

        write_rollouts(folder.path(), 4, Some("marks"), &[group]).unwrap();
        assert_eq!(
            fs::read_to_string(folder.path().join("step-4.marks.jsonl")).unwrap(),
            text
        );
    }
}
