//! The parts of a pipeline file that are not nodes.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use rlpipe_core::data::ExportDtype;
use rlpipe_core::document::PathText;
use rlpipe_core::kind::{ByteSize, Choice, Positive};
use rlpipe_text::CHAT_NAMES;
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::hub::HubConfig;

/// Where and how long the pipeline runs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Run folders are made below it: `work_dir/NAME/0001`, and so on.
    #[schemars(example = &"runs")]
    pub work_dir: PathText,
    /// Everything drawn in the run follows from it.
    #[serde(default)]
    pub seed: u64,
    /// Where workers run. This version has `local`: this machine.
    #[serde(default)]
    pub cluster: Choice<Cluster>,
    /// Train steps. Give this or `total_epochs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_steps: Option<NonZeroU32>,
    /// Passes over the training prompts. Give this or `total_steps`; needs exactly one training sampler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_epochs: Option<NonZeroU32>,
    /// How often a state is saved from which `--resume` can go on. Left out, only where the run is stopped early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointConfig>,
    /// How often the model is written as a Hugging Face folder. The last step always is, where this is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hf_export: Option<ExportConfig>,
    /// A wait longer than this, in seconds, is reported with who waits for whom.
    #[serde(default = "five_minutes")]
    pub report_waits_after_seconds: NonZeroU32,
}

fn five_minutes() -> NonZeroU32 {
    NonZeroU32::new(300).unwrap_or(NonZeroU32::MIN)
}

/// Where workers run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cluster {
    /// As child processes on this machine.
    Local(LocalCluster),
}

impl Default for Cluster {
    fn default() -> Self {
        Self::Local(LocalCluster {})
    }
}

/// It has no settings.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LocalCluster {}

/// How often a state is saved.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Every so many train steps: a multiple of `every_steps` of each `weight_sync`.
    pub every_steps: NonZeroU32,
    /// How many are kept; older ones are deleted.
    #[serde(default = "two")]
    pub keep: NonZeroU32,
}

fn two() -> NonZeroU32 {
    NonZeroU32::new(2).unwrap_or(NonZeroU32::MIN)
}

/// How often the model is exported.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportConfig {
    /// Every so many train steps: a multiple of `every_steps` of each `weight_sync`.
    pub every_steps: NonZeroU32,
    /// Type of the numbers written. `source` is that of the model that was loaded.
    #[serde(default)]
    pub dtype: ExportDtype,
}

/// Workers with the same equipment.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// What each worker computes on.
    pub accelerator: Accelerator,
    /// Machines.
    #[serde(default = "one")]
    pub nodes: NonZeroU32,
    /// Workers on each machine, one an accelerator.
    #[serde(default = "one")]
    pub workers_per_node: NonZeroU32,
    /// Processor cores, and so threads, of each worker.
    #[serde(default = "one")]
    pub cpus_per_worker: NonZeroU32,
    /// Memory of the machine for each worker, such as `16GiB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"16GiB")]
    pub host_memory_per_worker: Option<ByteSize>,
    /// Memory of each accelerator, such as `80GiB`: what the pool is put on is checked against it, on any machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"80GiB")]
    pub memory_per_accelerator: Option<ByteSize>,
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

impl PoolConfig {
    /// Workers on all machines.
    pub fn workers(&self) -> u64 {
        u64::from(self.nodes.get()) * u64::from(self.workers_per_node.get())
    }
}

/// What a worker computes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Accelerator {
    /// Nothing: the pool is for judging and the like.
    None,
    /// The processor.
    Cpu,
    /// An NVIDIA card.
    Cuda,
    /// CUDA if there is a card, else the processor.
    Auto,
}

impl Accelerator {
    /// Its name in pipelines and in the worker's environment.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Auto => "auto",
        }
    }
}

/// A model: from a folder, from a hub, or from nothing.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// A Hugging Face model folder. Give this, `hub` or `init`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"models/policy")]
    pub path: Option<PathText>,
    /// A model of the Hugging Face hub, which `rlpipe download` fetches. Give this, `path` or `init`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<HubConfig>,
    /// A small model with random weights. Give this, `path` or `hub`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<InitConfig>,
    /// Type that the model computes in. `auto` is bfloat16 on CUDA and float32 on a processor.
    #[serde(default)]
    pub dtype: Dtype,
    /// How messages become text. Left out, as the model's folder says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template: Option<ChatTemplateConfig>,
}

/// How messages become text.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChatTemplateConfig {
    /// A file with a template (Jinja, as transformers has it) instead of the one in the model's folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"templates/chat.jinja")]
    pub file: Option<PathText>,
    /// Variables that the template is given, such as `enable_thinking: false`.
    #[serde(skip_serializing_if = "Map::is_empty", deserialize_with = "template_variables")]
    #[schemars(example = serde_json::json!({ "enable_thinking": false }))]
    pub variables: Map<String, Value>,
}

fn template_variables<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    let variables = Map::deserialize(deserializer)?;
    match variables.keys().find(|name| CHAT_NAMES.contains(&name.as_str())) {
        Some(name) => Err(D::Error::custom(format!(
            "`{name}` cannot be a variable: templates are given it from the rows"
        ))),
        None => Ok(variables),
    }
}

/// Type that a model computes in. Weights are trained in float32 whatever it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// bfloat16 on CUDA, float32 on a processor.
    #[default]
    Auto,
    /// 16 bits, the upper half of float32.
    Bfloat16,
    /// 16 bits, of units an eighth as large as bfloat16's, up to 65504: log-probs of engine and trainer are an eighth
    /// as far apart. The loss is scaled, so that its gradients are not too small.
    Float16,
    /// 32 bits.
    Float32,
}

impl Dtype {
    /// What is meant on a card, or on a processor.
    pub fn on(self, is_card: bool) -> Self {
        match self {
            Self::Auto if is_card => Self::Bfloat16,
            Self::Auto => Self::Float32,
            given => given,
        }
    }

    /// Its name in pipelines and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Bfloat16 => "bfloat16",
            Self::Float16 => "float16",
            Self::Float32 => "float32",
        }
    }
}

/// A model from nothing.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InitConfig {
    /// Its architecture. This version has `llama`, `qwen2`, `qwen3`.
    pub architecture: Architecture,
    /// Width of the residual stream.
    pub hidden_size: NonZeroU32,
    /// Number of layers.
    pub layers: NonZeroU32,
    /// Attention heads; a divisor of `hidden_size`.
    pub heads: NonZeroU32,
    /// Heads of keys and values; a divisor of `heads`. Left out, as many as `heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_value_heads: Option<NonZeroU32>,
    /// Width of the feed-forward part.
    pub intermediate_size: NonZeroU32,
    /// Longest context in tokens.
    #[serde(default = "context")]
    pub max_position_embeddings: NonZeroU32,
    /// Base of the rotary embedding.
    #[serde(default = "rope")]
    pub rope_theta: Positive,
    /// Added under the root of each norm.
    #[serde(default = "norm")]
    pub rms_norm_eps: Positive,
    /// Whether the output head is the embedding.
    #[serde(default = "yes")]
    pub tied_embeddings: bool,
    /// How text becomes tokens.
    pub tokenizer: Choice<InitTokenizer>,
}

fn context() -> NonZeroU32 {
    NonZeroU32::new(2048).unwrap_or(NonZeroU32::MIN)
}

fn rope() -> Positive {
    Positive::new(10_000.0).unwrap_or_else(|| unreachable!("above 0"))
}

fn norm() -> Positive {
    Positive::new(1e-5).unwrap_or_else(|| unreachable!("above 0"))
}

fn yes() -> bool {
    true
}

/// Architecture of a model from nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// Llama's.
    Llama,
    /// Qwen2's: queries, keys and values have a bias.
    Qwen2,
    /// Qwen3's: each head's query and key is normed.
    Qwen3,
}

/// How text becomes tokens in a model from nothing.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InitTokenizer {
    /// A token for each of these characters; no others can be read or written.
    #[schemars(example = serde_json::json!({ "characters": "0123456789+-= " }))]
    Characters(String),
    /// A token for each byte.
    Bytes,
}

/// Everything that the file takes from outside.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EnvConfig {
    /// Environment variables by name; `${NAME}` stands for one anywhere in the file.
    #[schemars(example = serde_json::json!({ "MODEL_PATH": { "kind": "dir", "help": "a Hugging Face model folder" } }))]
    pub vars: BTreeMap<String, VarConfig>,
    /// What must hold among them.
    #[schemars(example = serde_json::json!([{ "at_most_one": ["USE_SMALL", "USE_LARGE"] }]))]
    pub rules: Vec<Rule>,
}

/// One environment variable.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VarConfig {
    /// What its value is.
    pub kind: VarKind,
    /// Its value where it is unset or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = 8)]
    pub default: Option<Scalar>,
    /// Whether it may be unset without a default: a setting that is this reference and nothing else is then left out.
    #[serde(default)]
    pub optional: bool,
    /// Smallest value of a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Largest value of a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// The values of a `choice`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["small", "large"])]
    pub of: Vec<String>,
    /// What it is for, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"a Hugging Face model folder")]
    pub help: Option<String>,
}

/// What a variable's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VarKind {
    /// A path, which need not exist.
    Path,
    /// A folder that exists.
    Dir,
    /// A file that exists.
    File,
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// Any text.
    Text,
    /// One of the texts in `of`.
    Choice,
    /// Set to `1` or `true`, or else `0`, `false` or nothing.
    Flag,
}

/// A default: a text, a number or a switch.
#[derive(Debug, Clone, PartialEq)]
pub struct Scalar(pub String);

impl Serialize for Scalar {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Scalar;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text, a number, `true` or `false`")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
                Ok(Scalar(value.to_owned()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Scalar {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Scalar".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

/// What must hold among variables, given by name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// No two of them are set.
    #[schemars(example = serde_json::json!({ "at_most_one": ["USE_SMALL", "USE_LARGE"] }))]
    AtMostOne(Vec<String>),
    /// One of them is set, and no other.
    #[schemars(example = serde_json::json!({ "exactly_one": ["USE_SMALL", "USE_LARGE"] }))]
    ExactlyOne(Vec<String>),
    /// Either each of them is set or none.
    #[schemars(example = serde_json::json!({ "all_or_none": ["USER_NAME", "USER_KEY"] }))]
    AllOrNone(Vec<String>),
}

impl Rule {
    /// The names it speaks of.
    pub fn names(&self) -> &[String] {
        let (Self::AtMostOne(names) | Self::ExactlyOne(names) | Self::AllOrNone(names)) = self;
        names
    }
}
