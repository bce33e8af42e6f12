//! Rows, rollouts and groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Message;

/// A row of a data set, tokenized.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The data set's name: its key in `datasets`, or the sampler's name where there is one data set.
    pub dataset: String,
    /// Line in the file, from 1.
    pub line: u64,
    /// The chat as it is in the data.
    pub prompt: Vec<Message>,
    /// The chat through the model's template, ending where the answer begins.
    pub prompt_ids: Vec<u32>,
    /// The answer and the stop token, where the row has an `answer`.
    pub answer_ids: Vec<u32>,
    /// Where the row comes from; judgers may depend on it.
    pub data_source: String,
    /// What a right answer is; judgers compare with it.
    pub ground_truth: Option<String>,
    /// The row as it is in the file, before `map`.
    pub columns: Map<String, Value>,
}

/// How tokens are drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// The response ends after so many tokens.
    pub max_new_tokens: u32,
    /// Stop tokens cannot be drawn before so many, and stop strings are not looked for.
    pub min_new_tokens: u32,
    /// 0 takes the likeliest token and reports its log-prob at temperature 1.
    pub temperature: f64,
    /// The smallest set of likeliest tokens with at least this probability is drawn from, and what is as likely as the last of
    /// them; 1 is all.
    pub top_p: f64,
    /// Only so many likeliest tokens are drawn from, and what is as likely as the last of them; 0 is all.
    pub top_k: u32,
    /// Only tokens with at least this share of the likeliest one's probability are drawn from; 0 is all.
    pub min_p: f64,
}

/// Why a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// A stop token, which is the last token, or a stop string, which the last token completes.
    Stop,
    /// `max_new_tokens` or the context's end.
    Length,
    /// It was called off.
    Aborted,
}

/// Where a rollout stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Nothing generated yet.
    #[default]
    Init,
    /// Generated to its end.
    Completed,
    /// Called off.
    Aborted,
    /// Too old to train on.
    Expired,
    /// Generation or judging failed.
    Failed,
    /// Sorted out by a filter.
    Filtered,
}

/// Consecutive tokens of one policy version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRun {
    /// The train step whose weights drew the tokens.
    pub version: u64,
    /// How many tokens.
    pub tokens: u32,
}

/// What a judger says of one response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// None: the judger abstained; the rollout is not trained.
    pub reward: Option<f64>,
    /// The answer as it was found in the response; none where the form is wrong.
    pub parsed: Option<String>,
    /// What the reward is made of, by name; for the metrics.
    #[serde(default)]
    pub parts: BTreeMap<String, f64>,
    /// Why it could not be judged; there is no reward then.
    #[serde(default)]
    pub error: Option<String>,
}

/// One sampled response. Vectors are aligned with the response tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    /// Tokens drawn.
    pub response_ids: Vec<u32>,
    /// Their log-probs under the distribution they were drawn from.
    pub logprobs: Vec<f32>,
    /// Which of them are trained.
    pub mask: Vec<bool>,
    /// Who drew them, as runs.
    pub policy_version: Vec<VersionRun>,
    /// Temperature they were drawn at.
    pub temperature: f64,
    /// The text, without special tokens; where a stop string ended it, what comes before that.
    pub response: String,
    /// None until judged.
    pub score: Option<Score>,
    /// None until the advantage node.
    pub advantage: Option<f64>,
    /// Under the frozen reference; none without a reference node.
    pub reference_logprobs: Option<Vec<f32>>,
    /// Where it stands.
    pub status: Status,
    /// Why it ended.
    pub finish_reason: FinishReason,
}

impl Rollout {
    /// The reward, if it was judged and the judger did not abstain.
    pub fn reward(&self) -> Option<f64> {
        self.score.as_ref().and_then(|score| score.reward)
    }

    /// The oldest policy version among its tokens.
    pub fn oldest_version(&self) -> Option<u64> {
        self.policy_version.iter().map(|run| run.version).min()
    }
}

/// All samples of one prompt: the unit of admission, age and eviction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Unique in the run: the sampler's draws, counted.
    pub id: u64,
    /// The sampler it came from.
    pub sampler: Arc<str>,
    /// Its prompt.
    pub row: Arc<Row>,
    /// Its samples.
    pub rollouts: Vec<Rollout>,
}

impl Group {
    /// Rewards of the rollouts that have one.
    pub fn rewards(&self) -> Vec<f64> {
        self.rollouts.iter().filter_map(Rollout::reward).collect()
    }

    /// Where its prompt comes from, to be shown: `none` where the row does not say.
    pub fn source(&self) -> &str {
        match self.row.data_source.as_str() {
            "" => "none",
            source => source,
        }
    }

    /// Whether no reward differs from another, so that a group-relative advantage is zero.
    pub fn is_uniform(&self) -> bool {
        let rewards = self.rewards();
        rewards.windows(2).all(|pair| pair[0] == pair[1])
    }
}

/// Why a group does not go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DropReason {
    /// Something went wrong; the text says what.
    Failed(String),
    /// A filter kept it back; the text is the filter's reason.
    Filtered(String),
}

/// What a stage makes of a group.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It goes on.
    Keep(Group),
    /// It is counted and goes no further.
    Drop(Group, DropReason),
}

/// The groups of exactly one train step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// In the order they were drawn.
    pub groups: Vec<Group>,
}
