//! Whether the tokens that end responses are tokens of the model.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{Fault, ModelConfig, Part};

/// A fault where `eos_token_id` names an id that is not below the vocabulary: nothing could ever stop there, and the worker
/// refuses it at the first response. A file that cannot be read is left to who reads the tokenizer.
pub(crate) fn check_stops(folder: &Path, config: &ModelConfig) -> Option<Fault> {
    let vocabulary = config.vocabulary as u64;
    for name in ["generation_config.json", "config.json"] {
        let text = fs::read(folder.join(name)).ok();
        let Some(file) = text.and_then(|text| serde_json::from_slice::<Value>(&text).ok()) else {
            continue;
        };
        let ids: Vec<u64> = match &file["eos_token_id"] {
            Value::Array(ids) => ids.iter().filter_map(Value::as_u64).collect(),
            id => id.as_u64().into_iter().collect(),
        };
        // The first file that names any decides, as when the tokenizer is read.
        if ids.is_empty() {
            continue;
        }
        let beyond = ids.into_iter().find(|id| *id >= vocabulary)?;
        return Some(Fault {
            part: Part::Stop,
            message: format!(
                "`eos_token_id` of `{name}` names {beyond}, but `vocab_size` is {vocabulary}: no response could stop there"
            ),
        });
    }
    None
}
