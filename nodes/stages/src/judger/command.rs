//! A program that judges.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rlpipe_core::data::Score;
use rlpipe_core::document::CommandWord;
use rlpipe_core::kind::TimeSpan;
use rlpipe_core::plugin::Sample;
use rlpipe_core::services::{CommandJudge, JudgeCommand, ServiceError};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value};

use super::judging::{Asked, Judging};

/// Settings of `command`. What the program reads and writes is told in `plugins/README.md`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// The program and its arguments, such as `[python3, ./reward.py]`. A word that begins with `./` or `../` is a path
    /// from the folder of this file; the program itself runs in the folder that rlpipe was started in.
    #[schemars(example = ["python3", "./reward.py"])]
    run: Words,
    /// What the program is given when it starts. It may say what it takes, and that is checked before a run.
    #[serde(default)]
    #[schemars(example = serde_json::json!({ "tolerance": 0.01 }))]
    config: Map<String, Value>,
    /// At most so many responses in one message. Whole groups go together, as far as they fit.
    #[serde(default = "thirty_two")]
    samples_per_message: NonZeroU32,
    /// It has so long for a message. When that is over it is killed and started again, and each response of the message is
    /// judged alone: one that takes longer than this by itself cannot be judged.
    #[serde(default = "thirty_seconds")]
    #[schemars(example = &"30s")]
    timeout: TimeSpan,
    /// It has so long to become ready.
    #[serde(default = "a_minute")]
    #[schemars(example = &"2m")]
    start_timeout: TimeSpan,
    /// The run ends when a process fails more often than this in a row, without an answer between. A response that
    /// fails alone, after its message has failed, does not count.
    #[serde(default = "three")]
    max_restarts: u32,
    /// Names of environment variables that it is given beside `PATH`, `HOME`, the language, Python's, and other common
    /// ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["HF_HOME"])]
    environment: Vec<String>,
}

fn thirty_two() -> NonZeroU32 {
    NonZeroU32::new(32).unwrap_or(NonZeroU32::MIN)
}

fn thirty_seconds() -> TimeSpan {
    TimeSpan(Duration::from_secs(30))
}

fn a_minute() -> TimeSpan {
    TimeSpan(Duration::from_secs(60))
}

fn three() -> u32 {
    3
}

/// A program and its arguments: at least one word.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
struct Words(Vec<CommandWord>);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = Vec::<CommandWord>::deserialize(deserializer)?;
        match words.first() {
            Some(_) => Ok(Self(words)),
            None => Err(de::Error::invalid_length(0, &"a program and its arguments")),
        }
    }
}

impl JsonSchema for Words {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CommandWords".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": { "type": "string" }, "minItems": 1 })
    }
}

impl Command {
    /// What services and passes need to know of it.
    pub fn described(&self, keys: &[&str]) -> JudgeCommand {
        JudgeCommand {
            keys: keys.iter().chain(&["command"]).map(|key| (*key).to_owned()).collect(),
            run: self.run.0.iter().map(|word| word.as_str().to_owned()).collect(),
            config: self.config.clone(),
            samples_per_message: self.samples_per_message.get(),
            timeout: self.timeout.0,
            start_timeout: self.start_timeout.0,
            max_restarts: self.max_restarts,
            environment: self.environment.clone(),
        }
    }
}

/// Asks the program.
pub struct Program(pub Arc<dyn CommandJudge>);

#[async_trait]
impl Judging for Program {
    async fn score(&self, asked: &Asked<'_>) -> Result<Vec<Result<Score, String>>, ServiceError> {
        if asked.rollouts.is_empty() {
            return Ok(Vec::new());
        }
        let samples = asked.rollouts.iter().map(|index| sample(asked, *index)).collect();
        let mut scores = self.0.score(samples).await?;
        let line = asked.group.row.line;
        for (score, index) in scores.iter_mut().zip(&asked.rollouts) {
            if let Err(error) = score {
                *error = format!("response {} to line {line} of the data: {error}", index + 1);
            }
        }
        Ok(scores)
    }
}

fn sample(asked: &Asked<'_>, index: usize) -> Sample {
    let (group, context) = (asked.group, asked.context);
    let rollout = &group.rollouts[index];
    let seed = context.seed.named(&context.node).with(group.id).with(index as u64);
    Sample {
        prompt: group.row.prompt.clone(),
        response: rollout.response.clone(),
        ground_truth: group.row.ground_truth.clone(),
        data_source: group.row.data_source.clone(),
        columns: group.row.columns.clone(),
        finish_reason: rollout.finish_reason,
        step: context.step,
        total_steps: context.total_steps,
        // Not every language has whole numbers of 64 bits.
        seed: seed.0 >> 11,
    }
}
