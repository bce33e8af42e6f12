//! Whether the tokenizer of a model folder has tokens that the model does not have.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::{Fault, ModelConfig, Part};

#[derive(Deserialize)]
struct Tokenizer {
    #[serde(default)]
    added_tokens: Vec<Added>,
    model: Model,
}

#[derive(Deserialize)]
struct Added {
    id: u64,
    content: String,
}

#[derive(Deserialize)]
struct Model {
    vocab: Vocabulary,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Vocabulary {
    Ids(BTreeMap<String, u64>),
    /// Pieces with their scores; the id is the place.
    Pieces(Vec<IgnoredAny>),
}

/// A fault where a token's id is not below the vocabulary of the model. A file that is not there or cannot be read is
/// left to who reads the tokenizer.
pub(crate) fn check_tokenizer(folder: &Path, config: &ModelConfig) -> Option<Fault> {
    let text = fs::read(folder.join("tokenizer.json")).ok()?;
    let Tokenizer { added_tokens, model } = serde_json::from_slice(&text).ok()?;
    let own = match model.vocab {
        Vocabulary::Ids(ids) => ids.into_iter().map(|(token, id)| (id, token)).max(),
        Vocabulary::Pieces(pieces) => (pieces.len() as u64)
            .checked_sub(1)
            .map(|last| (last, "the last piece".to_owned())),
    };
    let added = added_tokens.into_iter().map(|added| (added.id, added.content));
    let (id, token) = added.chain(own).max()?;
    let vocabulary = config.vocabulary as u64;
    (id >= vocabulary).then(|| Fault {
        part: Part::Tokenizer,
        message: format!(
            "`tokenizer.json` goes up to id {id} (`{token}`), but `vocab_size` is {vocabulary}: \
             the model cannot read ids from {vocabulary} on"
        ),
    })
}
