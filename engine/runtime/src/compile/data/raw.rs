//! What a row must look like: the type, and the JSON schema that is made from it.

use rlpipe_core::data::Message;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A row of a data set, after `map`. Other keys are left alone.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a JSON object with a `prompt`")]
#[schemars(rename = "Row")]
pub struct RawRow {
    /// What is asked: a text, or a list of messages.
    pub prompt: RawPrompt,
    /// JSON schemas of functions that the model may call, for the chat template.
    #[serde(default)]
    pub tools: Option<Vec<Value>>,
    /// What the model may look things up in, for the chat template.
    #[serde(default)]
    pub documents: Option<Vec<Value>>,
    /// What an `sft_trainer` learns to answer.
    #[serde(default)]
    pub answer: Option<String>,
    /// Where the row comes from; metrics and judgers tell by it.
    #[serde(default)]
    pub data_source: Option<String>,
    /// What judgers compare with.
    #[serde(default)]
    pub reward_model: Option<RawRewardModel>,
}

/// What is asked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "`prompt` must be a text, or a list of messages with `role` and `content`"
)]
#[schemars(rename = "Prompt")]
pub enum RawPrompt {
    /// One message of the user.
    Text(String),
    /// A conversation in which the assistant speaks next.
    Messages(Vec<Message>),
}

/// What judgers compare with.
#[derive(Debug, JsonSchema)]
#[schemars(rename = "RewardModel")]
pub struct RawRewardModel {
    /// A right answer.
    pub ground_truth: Option<RawTruth>,
}

/// By way of a value: as it is derived, named fields would be read from a list, too.
impl<'de> Deserialize<'de> for RawRewardModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        let object = value
            .as_object_mut()
            .ok_or_else(|| D::Error::custom("`reward_model` must be an object with a `ground_truth`"))?;
        let truth = object.remove("ground_truth").unwrap_or_default();
        let ground_truth = Option::deserialize(truth).map_err(D::Error::custom)?;
        Ok(Self { ground_truth })
    }
}

/// A right answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "`reward_model.ground_truth` must be a text or a number")]
#[schemars(rename = "GroundTruth")]
pub enum RawTruth {
    /// As a text.
    Text(String),
    /// As a whole number.
    Integer(i64),
    /// As a number.
    Number(f64),
}

/// The JSON schema of rows.
pub fn row_schema() -> Value {
    let schema = SchemaSettings::draft07()
        .into_generator()
        .into_root_schema_for::<RawRow>();
    let mut schema = schema.to_value();
    strip_formats(&mut schema);
    schema["$id"] = "dataset-row.schema.json".into();
    schema
}

/// Formats such as `int64` are Rust's: a validator would not know them.
fn strip_formats(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.remove("format");
            object.values_mut().for_each(strip_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_formats),
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Values as they may stand anywhere in a row, right or wrong.
    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-1e6_f64..1e6).prop_map(Value::from),
            "[a-z]{0,4}".prop_map(Value::from),
        ];
        let message =
            (leaf.clone(), leaf.clone(), any::<bool>()).prop_map(|(role, content, whole)| match (whole, content) {
                (true, Value::Bool(true)) => json!({ "role": "user" }),
                (true, content) => json!({ "role": "user", "content": content }),
                (false, content) => json!({ "role": role, "content": content }),
            });
        leaf.prop_recursive(2, 8, 3, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::vec(message.clone(), 0..3).prop_map(Value::from),
                inner.prop_map(|truth| json!({ "ground_truth": truth })),
            ]
        })
    }

    fn rows() -> impl Strategy<Value = Value> {
        let keys = ["prompt", "answer", "data_source", "reward_model", "tools", "other"];
        let entries = keys.map(|key| prop::option::of(values()).prop_map(move |value| (key, value)));
        Vec::from(entries).prop_map(|entries| {
            entries
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?)))
                .collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_schema_takes_exactly_the_rows_that_are_read(row in rows()) {
            let validator = jsonschema::validator_for(&row_schema()).unwrap();
            let read = serde_json::from_value::<RawRow>(row.clone());
            prop_assert_eq!(validator.is_valid(&row), read.is_ok(), "{} {:?}", row, read);
        }
    }

    #[test]
    fn rows_of_the_shipped_forms_fit() {
        let validator = jsonschema::validator_for(&row_schema()).unwrap();
        for (row, fits) in [
            (json!({ "prompt": "1+2=" }), true),
            (
                json!({ "prompt": [{ "role": "user", "content": "1+2=" }], "reward_model": { "ground_truth": 3 } }),
                true,
            ),
            (
                json!({ "prompt": "1+2=", "answer": "3", "data_source": null, "extra_info": { "index": 1 } }),
                true,
            ),
            (json!({ "question": "1+2=" }), false),
            (json!({ "prompt": 12 }), false),
            (json!({ "prompt": [{ "role": "user" }] }), false),
            (json!({ "prompt": "1+2=", "reward_model": "3" }), false),
            (
                json!({ "prompt": "1+2=", "reward_model": { "ground_truth": ["3"] } }),
                false,
            ),
            (json!([]), false),
        ] {
            assert_eq!(validator.is_valid(&row), fits, "{row}");
        }
    }
}
