//! The groups that tests are fed.

use std::collections::BTreeMap;
use std::sync::Arc;

use rlpipe_core::data::{FinishReason, Group, Rollout, Row, Score, Status};
use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::document::Sources;

use super::Test;
use super::config::{Chat, FedGroup};
use crate::compile::pipeline::Pipeline;
use crate::compile::shown::shown_path;
use crate::run::{UnreadRollouts, read_rollouts};

/// Lines with a fault are shown with as much of them.
const SHOWN_CHARACTERS: usize = 120;

/// The groups that enter each node of a test, by name.
pub type Feeds = BTreeMap<String, Vec<Group>>;

/// Makes the groups of a test, and reads those that lie in files. Faults of files are RL1031.
pub fn load(pipeline: &Pipeline, test: &Test, sources: &mut Sources, diagnostics: &mut Diagnostics) -> Feeds {
    let mut feeds = Feeds::new();
    let mut next_id = 0;
    for (node, feed) in test.config.iter().flat_map(|config| &config.feed) {
        let mut groups = Vec::new();
        for fed in feed.groups.iter().chain(&feed.batch).flatten() {
            groups.push(group(fed, test, next_id));
            next_id += 1;
        }
        if let Some(path) = &feed.rollouts {
            let limit = feed.limit.map_or(usize::MAX, |limit| limit.get() as usize);
            match read_rollouts(path.as_path(), limit) {
                Ok(read) => groups.extend(read),
                Err(unread) => {
                    let keys = ["feed".into(), node.as_str().into(), "rollouts".into()];
                    let range = test.value_place(pipeline, &keys);
                    let shown = shown_path(path.as_path()).display().to_string();
                    diagnostics.push(told(unread, &shown, range, sources));
                }
            }
        }
        feeds.insert(node.clone(), groups);
    }
    feeds
}

fn told(unread: UnreadRollouts, path: &str, range: rlpipe_core::document::Range, sources: &mut Sources) -> Diagnostic {
    let diagnostic = |message: String| Diagnostic::error(&codes::RL1031, range, message);
    match unread {
        UnreadRollouts::File(error) => diagnostic(format!("the rollouts `{path}` cannot be read: {error}"))
            .label_text("of these")
            .note("a relative path in a file starts at the folder of that file"),
        UnreadRollouts::Empty => diagnostic(format!("there are no rollouts in `{path}`")).label_text("of these"),
        UnreadRollouts::Line { number, text, error } => {
            let text: String = text.chars().take(SHOWN_CHARACTERS).collect();
            let end = u32::try_from(text.len()).unwrap_or(u32::MAX);
            let id = sources.add_excerpt(path, text, u32::try_from(number).unwrap_or(u32::MAX));
            let line = rlpipe_core::document::Range::new(id, 0, end);
            diagnostic(format!("line {number} of `{path}` is no rollout: {error}"))
                .label_text("of these")
                .label(line, "here")
                .note("a line is one of `rollouts/train/step-N.jsonl` as a run writes it")
        }
    }
}

fn group(fed: &FedGroup, test: &Test, id: u64) -> Group {
    let name = format!("tests.{}", test.name);
    let row = Row {
        dataset: name.clone(),
        line: id + 1,
        prompt: fed
            .prompt
            .as_ref()
            .map(|Chat(messages)| messages.clone())
            .unwrap_or_default(),
        data_source: fed.data_source.clone(),
        ground_truth: fed.ground_truth.clone(),
        columns: fed.columns.clone(),
        ..Row::default()
    };
    let rollout = |(index, response): (usize, &String)| {
        let reward = fed.rewards.as_ref().and_then(|rewards| rewards.get(index)?.0);
        let parsed = fed.parsed.as_ref().and_then(|parsed| parsed.get(index)?.0.clone());
        let is_scored = fed.rewards.is_some() || fed.parsed.is_some();
        Rollout {
            response_ids: Vec::new(),
            logprobs: Vec::new(),
            mask: Vec::new(),
            policy_version: Vec::new(),
            temperature: 1.0,
            response: response.clone(),
            score: is_scored.then(|| Score {
                reward,
                parsed,
                ..Score::default()
            }),
            advantage: None,
            reference_logprobs: None,
            status: of(&fed.statuses, index).unwrap_or(Status::Completed),
            finish_reason: of(&fed.finish_reasons, index).unwrap_or(FinishReason::Stop),
        }
    };
    Group {
        id,
        sampler: Arc::from(name),
        row: Arc::new(row),
        rollouts: fed.responses.iter().enumerate().map(rollout).collect(),
    }
}

fn of<T: Copy>(values: &Option<Vec<T>>, index: usize) -> Option<T> {
    values.as_ref().and_then(|values| values.get(index).copied())
}
