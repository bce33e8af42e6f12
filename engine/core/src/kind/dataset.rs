//! What a sampler says of the data it draws from.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// How rows are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DatasetFormat {
    /// Parquet where the file's name ends in `.parquet`, else JSON lines.
    #[default]
    Auto,
    /// A JSON object on each line.
    Jsonl,
    /// Apache Parquet.
    Parquet,
}

/// What to do with a prompt above the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OverLong {
    /// Leave the row out, and count it.
    #[default]
    Skip,
    /// Refuse to run.
    Error,
}

/// What a right answer must look like, so that a judge can find it in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TruthForm {
    /// Any text.
    Text,
    /// Digits, and a sign before them.
    WholeNumber,
    /// Digits, dots and commas, and a sign before them.
    Number,
}

impl TruthForm {
    /// Whether a right answer looks so.
    pub fn fits(self, truth: &str) -> bool {
        let truth = truth.trim();
        let number = truth.strip_prefix('-').unwrap_or(truth);
        let has_digit = number.bytes().any(|byte| byte.is_ascii_digit());
        match self {
            Self::Text => true,
            Self::WholeNumber => has_digit && number.bytes().all(|byte| byte.is_ascii_digit()),
            Self::Number => {
                has_digit
                    && number
                        .bytes()
                        .all(|byte| byte.is_ascii_digit() || b".,".contains(&byte))
            }
        }
    }

    /// Its name, such as "a whole number".
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::WholeNumber => "a whole number",
            Self::Number => "a number",
        }
    }
}

/// Rows that a judge cannot judge without a ground truth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truth {
    /// Their `data_source`; none: all.
    pub source: Option<String>,
    /// What it must look like.
    pub form: TruthForm,
}

/// Templates that make what a row needs out of its columns; what has no template is taken from the row as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RowMap {
    /// The prompt: a template, or a list of messages whose `role` and `content` are templates. A whole `{{ column }}` may
    /// give a list of messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"{{ question }}")]
    pub prompt: Option<PromptMap>,
    /// The answer that an `sft_trainer` learns.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"{{ solution }}")]
    pub answer: Option<String>,
    /// What judgers compare with: becomes `reward_model.ground_truth`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"{{ answer }}")]
    pub ground_truth: Option<String>,
    /// Where the row comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"gsm8k")]
    pub data_source: Option<String>,
    /// Functions that the model may call: a whole `{{ column }}` that gives a list of JSON schemas.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"{{ tools }}")]
    pub tools: Option<String>,
}

impl RowMap {
    /// Whether it maps nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A prompt, as templates.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum PromptMap {
    /// One template.
    Text(String),
    /// A template for each message.
    Messages(Vec<MessageMap>),
}

/// A message, as templates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageMap {
    /// `system`, `user`, `assistant`, ...
    #[schemars(example = &"user")]
    pub role: String,
    /// What is said.
    #[schemars(example = &"{{ question }}")]
    pub content: String,
}

impl<'de> Deserialize<'de> for PromptMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PromptVisitor;
        impl<'de> Visitor<'de> for PromptVisitor {
            type Value = PromptMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a template, or a list of messages with `role` and `content`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<PromptMap, E> {
                Ok(PromptMap::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<PromptMap, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(PromptMap::Messages)
            }
        }
        deserializer.deserialize_any(PromptVisitor)
    }
}

impl JsonSchema for PromptMap {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PromptMap".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let message = generator.subschema_for::<MessageMap>();
        json_schema!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": message, "minItems": 1 }] })
    }
}

/// One data set of a sampler.
#[derive(Debug, Clone, PartialEq)]
pub struct DatasetSource {
    /// Its key in `datasets`; none: it is the sampler's `dataset`.
    pub name: Option<String>,
    /// A file, or a folder of files; absolute once resolved.
    pub path: PathBuf,
    /// How its rows are written.
    pub format: DatasetFormat,
    /// How much of the rows that pass is used, above 0; above 1 they are repeated.
    pub sample_ratio: f64,
    /// What makes a row of its columns.
    pub map: RowMap,
    /// An expression over the columns: rows for which it does not hold are left out.
    pub filter: Option<String>,
    /// A JSON schema that the columns must fit.
    pub schema: Option<PathBuf>,
}

impl DatasetSource {
    /// Where its settings stand in the node.
    pub fn keys(&self) -> Vec<&str> {
        match &self.name {
            Some(name) => vec!["datasets", name],
            None => vec!["dataset"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TruthForm::{Number, Text, WholeNumber};

    #[test]
    fn truths_have_the_form_that_judges_look_for() {
        for (truth, whole, number) in [
            ("72", true, true),
            (" -5\n", true, true),
            ("1,234", false, true),
            ("2.5", false, true),
            ("three", false, false),
            ("3 apples", false, false),
            ("", false, false),
            ("-", false, false),
            ("--3", false, false),
            (".", false, false),
        ] {
            assert_eq!(
                (WholeNumber.fits(truth), Number.fits(truth)),
                (whole, number),
                "{truth}"
            );
            assert!(Text.fits(truth));
        }
    }
}
