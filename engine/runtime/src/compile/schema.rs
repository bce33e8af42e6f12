//! The JSON Schema of a pipeline file, for editors.

use rlpipe_core::kind::Kind;
use serde_json::{Value, json};

/// The schema, made of the kinds.
pub fn pipeline_schema(_kinds: &[Kind]) -> Value {
    json!({})
}

/// A kind's ports, settings and example, as text for the terminal.
pub fn describe_kind(kind: &Kind) -> String {
    format!("{}\n\n{}\n", kind.summary, kind.example)
}
