//! How a model is written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Type of the numbers in an exported model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExportDtype {
    /// Each tensor in the type that it came in.
    #[default]
    Source,
    /// 32 bits: all that training knows.
    Float32,
    /// 16 bits, the upper half of float32.
    Bfloat16,
    /// 16 bits, of finer steps and less range: what is above 65504 becomes infinite.
    Float16,
}

impl ExportDtype {
    /// Its name in pipelines, on the wire and in a model's `config.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Float32 => "float32",
            Self::Bfloat16 => "bfloat16",
            Self::Float16 => "float16",
        }
    }
}
