//! The plugin protocol: lines of JSON between rlpipe and a program that judges, each line one message.
//!
//! rlpipe writes `start` and then any number of `score` to the program's standard input; the program answers each on its
//! standard output, with `ready` and `scores`. `plugins/README.md` tells it from the program's side.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::data::{FinishReason, Message, Score};

/// The version of the protocol that is spoken here.
pub const PROTOCOL: u32 = 1;

/// What rlpipe writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToPlugin {
    /// The first line.
    Start(Start),
    /// Responses to be judged.
    Score(ScoreRequest),
}

/// What a program answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromPlugin {
    /// It has started.
    Ready(Ready),
    /// The scores of one `score`.
    Scores(Scores),
}

/// The first line to a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Start {
    /// The version of the protocol: 1.
    pub protocol: u32,
    /// The node that it judges for.
    pub node: String,
    /// `config` of the pipeline, as it stands there.
    pub config: Map<String, Value>,
    /// The run's seed, for a program that draws.
    pub seed: u64,
}

/// The answer to `start`, once the program can judge.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Ready {
    /// What the program calls itself.
    pub name: String,
    /// Its version; a run says where it changes between checkpoint and resuming.
    pub version: String,
    /// A JSON Schema that `config` must keep to. It is checked before a run.
    pub config_schema: Option<Value>,
    /// Names of columns that it reads. Rows without one of them are found before a run.
    pub reads: Vec<String>,
}

/// Responses to be judged. Which of them come together is chance: a score must depend on its sample alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScoreRequest {
    /// Comes back in the answer.
    pub id: u64,
    /// The responses, those to the same prompt next to each other.
    pub samples: Vec<Sample>,
}

/// A response with what is known of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// The chat that was answered.
    pub prompt: Vec<Message>,
    /// The response, without special tokens.
    pub response: String,
    /// What a right answer is, where the row says.
    pub ground_truth: Option<String>,
    /// Where the row comes from; empty where it does not say.
    pub data_source: String,
    /// The row as it is in the file.
    pub columns: Map<String, Value>,
    /// Why the response ended.
    pub finish_reason: FinishReason,
    /// The train step, from 1; 0 before the first.
    pub step: u64,
    /// Train steps in the whole run.
    pub total_steps: u64,
    /// A number of this sample, for a program that draws: the same whenever the run is repeated; below 2^53.
    pub seed: u64,
}

/// The answer to `score`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scores {
    /// That of the `score`.
    pub id: u64,
    /// One a sample, in their order.
    pub scores: Vec<SampleScore>,
}

/// What a program says of one sample: a `reward`, which may be `null`, or an `error`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SampleScore {
    /// A finite number; `null` abstains: the response is not trained.
    pub reward: Option<f64>,
    /// The answer as it was found in the response; left out or `null` where the form is wrong.
    pub parsed: Option<String>,
    /// What the reward is made of, for the metrics.
    pub parts: BTreeMap<String, f64>,
    /// Why the sample cannot be judged; nothing else counts then, and the pipeline's `on_error` says what happens.
    pub error: Option<String>,
}

/// What came of a dry call: a program is started as a run would start it, judges one sample, and ends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tried {
    /// How it answered `start`.
    pub ready: Option<Ready>,
    /// What it said of the sample.
    pub score: Option<Result<Score, String>>,
    /// Why it got no further.
    pub failure: Option<String>,
}

/// The schema of all messages, as it is committed in `schemas/plugin.schema.json`.
pub fn schema() -> Value {
    let settings = schemars::generate::SchemaSettings::draft07();
    let mut generator = settings.into_generator();
    let to_plugin = generator.subschema_for::<ToPlugin>();
    let from_plugin = generator.subschema_for::<FromPlugin>();
    let definitions = generator.take_definitions(true);
    serde_json::json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "rlpipe plugin protocol",
        "description": "One line of JSON in either direction: rlpipe writes `ToPlugin`, the program answers `FromPlugin`.",
        "anyOf": [to_plugin, from_plugin],
        "definitions": definitions,
    })
}
