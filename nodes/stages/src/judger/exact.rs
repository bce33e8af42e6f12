//! The whole response.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// It has no settings.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exact {}

pub fn parse(response: &str) -> String {
    response.trim().to_owned()
}
