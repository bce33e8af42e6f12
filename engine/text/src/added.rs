//! Tokens that the files beside `tokenizer.json` add to it or describe anew, as transformers' fast tokenizers take them:
//! `added_tokens_decoder`, `additional_special_tokens` and `extra_special_tokens` of `tokenizer_config.json`,
//! `additional_special_tokens` of `special_tokens_map.json`, `added_tokens.json`, and every named special token.

use std::path::Path;

use serde_json::Value;
use tokenizers::AddedToken;

use crate::TextError;
use crate::folder::malformed;

/// A token to add, and the id that its file gives it.
#[derive(Debug, Clone)]
pub(crate) struct Added {
    pub token: AddedToken,
    pub id: u32,
    /// The file has the id alone: of a token that `tokenizer.json` describes it knows nothing better.
    pub is_bare: bool,
}

/// Entries of `added_tokens_decoder`: id to content and flags, in the order of the ids.
pub(crate) fn decoder(path: &Path, config: &Value) -> Result<Vec<Added>, TextError> {
    let mut added = Vec::new();
    for (id, entry) in config["added_tokens_decoder"].as_object().into_iter().flatten() {
        let (Ok(id), Some(content)) = (id.parse(), entry["content"].as_str()) else {
            let problem = format!("`added_tokens_decoder` has an entry `{id}` that is not an id with its `content`");
            return Err(malformed(path, problem));
        };
        let flag = |name: &str, absent: bool| entry[name].as_bool().unwrap_or(absent);
        let special = flag("special", false);
        let token = AddedToken::from(content, special)
            .single_word(flag("single_word", false))
            .lstrip(flag("lstrip", false))
            .rstrip(flag("rstrip", false))
            .normalized(flag("normalized", !special));
        let is_bare = false;
        added.push(Added { token, id, is_bare });
    }
    added.sort_by_key(|added| added.id);
    Ok(added)
}

/// Entries of `added_tokens.json`: content to id, in the order of the ids.
pub(crate) fn list(path: &Path, tokens: &Value) -> Result<Vec<Added>, TextError> {
    let mut added = Vec::new();
    for (content, id) in tokens.as_object().into_iter().flatten() {
        let Some(id) = id.as_u64().and_then(|id| u32::try_from(id).ok()) else {
            return Err(malformed(path, format!("`{content}` has the id `{id}`, which is none")));
        };
        let token = AddedToken::from(content.as_str(), false);
        let is_bare = true;
        added.push(Added { token, id, is_bare });
    }
    added.sort_by_key(|added| added.id);
    Ok(added)
}

/// The texts of a list of special tokens, each a text or an object with `content`.
pub(crate) fn texts(list: &Value) -> Vec<String> {
    let text = |token: &Value| token.as_str().or_else(|| token["content"].as_str()).map(str::to_owned);
    list.as_array().into_iter().flatten().filter_map(text).collect()
}

/// Adds the tokens of a file; then each has the id that the file gives it.
pub(crate) fn add(tokenizer: &mut tokenizers::Tokenizer, path: &Path, added: &[Added]) -> Result<(), TextError> {
    for Added { token, id, is_bare } in added {
        if !is_bare || tokenizer.token_to_id(&token.content).is_none() {
            let fault = |error: tokenizers::Error| malformed(path, error.to_string());
            tokenizer.add_tokens([token.clone()]).map_err(fault)?;
        }
        let found = tokenizer.token_to_id(&token.content);
        if found != Some(*id) {
            let problem = format!(
                "`{}` has the id {id} there, but {} after `tokenizer.json`",
                token.content,
                found.unwrap_or_default()
            );
            return Err(malformed(path, problem));
        }
    }
    Ok(())
}

/// Makes these texts special tokens, with the flags that they have already.
pub(crate) fn make_special(
    tokenizer: &mut tokenizers::Tokenizer,
    path: &Path,
    texts: &[String],
) -> Result<(), TextError> {
    for text in texts {
        let described = tokenizer
            .token_to_id(text)
            .and_then(|id| tokenizer.get_added_tokens_decoder().get(&id).cloned());
        let token = match described {
            Some(token) if token.special => continue,
            Some(token) => AddedToken { special: true, ..token },
            None => AddedToken::from(text.as_str(), true),
        };
        let fault = |error: tokenizers::Error| malformed(path, error.to_string());
        tokenizer.add_special_tokens([token]).map_err(fault)?;
    }
    Ok(())
}
