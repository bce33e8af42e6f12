//! The section `tests`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

use rlpipe_core::data::{FinishReason, Message, Status};
use rlpipe_core::document::PathText;
use rlpipe_core::kind::OpenFraction;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What is put into nodes, and what must come out of them. `rlpipe test` runs it: without a model, and without a worker.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TestConfig {
    /// Groups that enter nodes, by the name of the node. From there they go on along the edges of the pipeline.
    #[schemars(example = serde_json::json!({ "scored": { "groups": [{ "prompt": "2 + 2", "ground_truth": "4", "responses": ["4", "5"] }] } }))]
    pub feed: BTreeMap<String, Feed>,
    /// What must come out of nodes, by the name of the node. All of it must hold.
    #[schemars(example = serde_json::json!({ "scored": { "groups": [{ "rewards": [1, 0] }] } }))]
    pub expect: BTreeMap<String, Expectation>,
    /// Settings that nodes have in this test instead of their own, such as `buffer: { prompts_per_step: 2 }`.
    #[serde(default)]
    #[schemars(example = serde_json::json!({ "buffer": { "prompts_per_step": 2 } }))]
    pub settings: BTreeMap<String, Map<String, Value>>,
    /// Numbers may be off by so much, and those above 1 by this share.
    #[serde(default = "a_millionth")]
    pub tolerance: OpenFraction,
}

fn a_millionth() -> OpenFraction {
    OpenFraction::new(1e-6).unwrap_or_default()
}

/// What enters a node. Give one of `groups`, `batch` and `rollouts`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Feed {
    /// Into an input that takes `groups`.
    #[serde(default)]
    #[schemars(example = serde_json::json!([{ "prompt": "2 + 2", "ground_truth": "4", "responses": ["4", "5"] }]))]
    pub groups: Option<Vec<FedGroup>>,
    /// Into an input that takes a `batch`: the groups of one train step.
    #[serde(default)]
    #[schemars(example = serde_json::json!([{ "prompt": "2 + 2", "ground_truth": "4", "responses": ["4", "5"] }]))]
    pub batch: Option<Vec<FedGroup>>,
    /// The rollouts of a run, from a file such as `runs/NAME/0001/rollouts/train/step-1.jsonl`.
    #[serde(default)]
    #[schemars(example = &"runs/NAME/0001/rollouts/train/step-1.jsonl")]
    pub rollouts: Option<PathText>,
    /// Only so many groups of that file, the first ones.
    #[serde(default)]
    pub limit: Option<NonZeroU32>,
}

/// A prompt with responses. Lists have a value for each response.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FedGroup {
    /// What was asked: a text of the user, or a list of messages.
    #[serde(default)]
    #[schemars(example = &"2 + 2")]
    pub prompt: Option<Chat>,
    /// What a right answer is.
    #[serde(default)]
    #[schemars(example = &"4")]
    pub ground_truth: Option<String>,
    /// Where the row comes from.
    #[serde(default)]
    #[schemars(example = &"gsm8k")]
    pub data_source: String,
    /// The row as it would be in the file of the data set, for programs that read its columns.
    #[serde(default)]
    #[schemars(example = serde_json::json!({ "level": 3 }))]
    pub columns: Map<String, Value>,
    /// The responses.
    #[schemars(example = ["4", "5"])]
    pub responses: Vec<String>,
    /// Rewards, as a judger would have given them; `null`, or `false`, where there is none.
    #[serde(default)]
    #[schemars(example = [1.0, 0.0])]
    pub rewards: Option<Vec<Maybe<f64>>>,
    /// Answers as a judger would have found them; `null`, or `false`, where there is none.
    #[serde(default)]
    #[schemars(example = ["4", "5"])]
    pub parsed: Option<Vec<Maybe<String>>>,
    /// Why each response ended. Left out, all ended with a stop token.
    #[serde(default)]
    #[schemars(example = ["stop", "length"])]
    pub finish_reasons: Option<Vec<FinishReason>>,
    /// Where each response stands. Left out, all are completed.
    #[serde(default)]
    #[schemars(example = ["completed", "failed"])]
    pub statuses: Option<Vec<Status>>,
}

/// What must come out of a node. What is left out is not looked at.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The groups that go on from its output `groups`: all of them, in the order in which they were fed.
    #[serde(default)]
    #[schemars(example = serde_json::json!([{ "rewards": [1, 0] }]))]
    pub groups: Option<Vec<ExpectedGroup>>,
    /// The groups of the train step at its output `batch`: all of them, in their order.
    #[serde(default)]
    #[schemars(example = serde_json::json!([{ "advantages": [1, -1] }]))]
    pub batch: Option<Vec<ExpectedGroup>>,
    /// The groups that do not go on: all of them, in the order in which they were fed.
    #[serde(default)]
    #[schemars(example = serde_json::json!([{ "prompt": "2 + 2" }]))]
    pub dropped: Option<Vec<ExpectedGroup>>,
    /// Numbers of what goes on, by the name that a run gives them in `metrics.jsonl` (an evaluator's:
    /// without `eval/`); `null`, or `false`, where one is no number.
    #[serde(default)]
    #[schemars(example = serde_json::json!({ "accuracy": 0.5 }))]
    pub metrics: Option<BTreeMap<String, Maybe<f64>>>,
    /// Whether every response has the reward that it was fed with: for rollouts of a run.
    #[serde(default)]
    pub same_rewards: Option<bool>,
    /// The node fails, which would end a run, and its error has this text in it.
    #[serde(default)]
    #[schemars(example = &"no group is left")]
    pub error: Option<String>,
}

/// What a group must be. Lists have a value for each response; what is left out is not looked at.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectedGroup {
    /// The last message of its prompt.
    #[serde(default)]
    #[schemars(example = &"2 + 2")]
    pub prompt: Option<String>,
    /// Rewards; `null`, or `false`, where there is none.
    #[serde(default)]
    #[schemars(example = [1.0, 0.0])]
    pub rewards: Option<Vec<Maybe<f64>>>,
    /// Answers as the judger found them; `null`, or `false`, where there is none.
    #[serde(default)]
    #[schemars(example = ["4", "5"])]
    pub parsed: Option<Vec<Maybe<String>>>,
    /// What the rewards are made of, by name.
    #[serde(default)]
    #[schemars(example = serde_json::json!([{ "right": 1 }, { "right": 0 }]))]
    pub parts: Option<Vec<BTreeMap<String, f64>>>,
    /// A text in the error of each response that could not be judged; `null`, or `false`, where there is none.
    #[serde(default)]
    #[schemars(example = serde_json::json!([false, "timed out"]))]
    pub errors: Option<Vec<Maybe<String>>>,
    /// Advantages; `null`, or `false`, where there is none.
    #[serde(default)]
    #[schemars(example = [1.0, -1.0])]
    pub advantages: Option<Vec<Maybe<f64>>>,
    /// Where each response stands.
    #[serde(default)]
    #[schemars(example = ["completed", "failed"])]
    pub statuses: Option<Vec<Status>>,
    /// A text in the reason why the group was dropped.
    #[serde(default)]
    #[schemars(example = &"spread")]
    pub reason: Option<String>,
}

/// A text of the user, or a list of messages.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Chat(pub Vec<Message>);

impl<'de> Deserialize<'de> for Chat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ChatVisitor;
        impl<'de> Visitor<'de> for ChatVisitor {
            type Value = Chat;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or a list of messages with `role` and `content`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Chat, E> {
                Ok(Chat(vec![Message::new("user", text)]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Chat, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Chat)
            }

            // A value that was reported already.
            fn visit_unit<E: de::Error>(self) -> Result<Chat, E> {
                Ok(Chat(Vec::new()))
            }
        }
        deserializer.deserialize_any(ChatVisitor)
    }
}

impl JsonSchema for Chat {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Chat".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let message = generator.subschema_for::<Message>();
        json_schema!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": message }] })
    }
}

/// A value, or none: `null`, or `false`, because TOML has no `null`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Maybe<T>(pub Option<T>);

/// What a [`Maybe`] can hold.
pub trait MaybeOf: Sized {
    /// What is wanted, in words.
    const EXPECTED: &'static str;
    /// The type in JSON Schema.
    const SCHEMA_TYPE: &'static str;
    /// From a number.
    fn of_number(number: f64) -> Option<Self>;
    /// From a text.
    fn of_text(text: &str) -> Option<Self>;
}

impl MaybeOf for f64 {
    const EXPECTED: &'static str = "a number, or `null` or `false` where there is none";
    const SCHEMA_TYPE: &'static str = "number";

    fn of_number(number: f64) -> Option<Self> {
        Some(number)
    }

    /// As a variable gives it.
    fn of_text(text: &str) -> Option<Self> {
        text.trim().parse().ok().filter(|number: &f64| number.is_finite())
    }
}

impl MaybeOf for String {
    const EXPECTED: &'static str = "a text, or `null` or `false` where there is none";
    const SCHEMA_TYPE: &'static str = "string";

    fn of_number(_: f64) -> Option<Self> {
        None
    }

    fn of_text(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl<'de, T: MaybeOf> Deserialize<'de> for Maybe<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MaybeVisitor<T>(std::marker::PhantomData<T>);
        impl<T: MaybeOf> MaybeVisitor<T> {
            fn number<E: de::Error>(self, number: f64) -> Result<Maybe<T>, E> {
                match T::of_number(number) {
                    Some(value) => Ok(Maybe(Some(value))),
                    None => Err(E::invalid_type(de::Unexpected::Float(number), &self)),
                }
            }
        }
        impl<T: MaybeOf> Visitor<'_> for MaybeVisitor<T> {
            type Value = Maybe<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_unit<E: de::Error>(self) -> Result<Maybe<T>, E> {
                Ok(Maybe(None))
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Maybe<T>, E> {
                if value {
                    return Err(E::invalid_type(de::Unexpected::Bool(value), &self));
                }
                Ok(Maybe(None))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Maybe<T>, E> {
                self.number(value as f64)
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Maybe<T>, E> {
                self.number(value as f64)
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Maybe<T>, E> {
                self.number(value)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Maybe<T>, E> {
                match T::of_text(text) {
                    Some(value) => Ok(Maybe(Some(value))),
                    None => Err(E::invalid_type(de::Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(MaybeVisitor(std::marker::PhantomData))
    }
}

impl<T: MaybeOf> JsonSchema for Maybe<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Maybe_{}", T::SCHEMA_TYPE).into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": T::SCHEMA_TYPE }, { "enum": [null, false] }] })
    }
}
