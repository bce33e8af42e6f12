//! Reads the text side of a Hugging Face model folder into plain data.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::added::{self, Added};
use crate::{ChatTemplateChoice, TextError};

const NAME_A_TEMPLATE: &str = "name a file with a chat template (Jinja) in the model's `chat_template`";
const COPY_AGAIN: &str = "copy the file from the model's release again";

/// The files that concern text, before anything is built from them.
pub(crate) struct Folder {
    /// `tokenizer.json` as it is.
    pub tokenizer: String,
    /// The chat template and the file it comes from.
    pub template: Option<(PathBuf, String)>,
    /// `bos_token`, `eos_token`, ... to their text: what a template sees as variables.
    pub special_tokens: BTreeMap<String, String>,
    /// Tokens beside those of `tokenizer.json`, by the file that has them.
    pub added: Vec<(PathBuf, Vec<Added>)>,
    /// Texts that are special tokens without a name.
    pub more_special: Vec<String>,
    /// The ids that end a generation as the model's configuration lists them, and the file that does.
    pub stop_ids: Option<(PathBuf, Vec<u32>)>,
}

impl Folder {
    pub fn read(path: &Path, choice: &ChatTemplateChoice) -> Result<Folder, TextError> {
        let tokenizer = require(
            &path.join("tokenizer.json"),
            "point the model's `path` at a Hugging Face folder with a fast tokenizer",
        )?;
        let config_path = path.join("tokenizer_config.json");
        let config = parse(&config_path, &require(&config_path, COPY_AGAIN)?)?;
        let map_path = path.join("special_tokens_map.json");
        let map = optional(&map_path)?.map_or(Ok(Value::Null), |text| parse(&map_path, &text))?;
        let mut special_tokens = named_tokens(&map_path, &map)?;
        special_tokens.append(&mut named_tokens(&config_path, &config)?);
        for (name, text) in config["extra_special_tokens"].as_object().into_iter().flatten() {
            if let Some(text) = text.as_str() {
                special_tokens.entry(name.clone()).or_insert_with(|| text.to_owned());
            }
        }
        let lists = [
            &config["additional_special_tokens"],
            &config["extra_special_tokens"],
            &map["additional_special_tokens"],
        ];
        let list_path = path.join("added_tokens.json");
        let list = optional(&list_path)?.map_or(Ok(Value::Null), |text| parse(&list_path, &text))?;
        Ok(Folder {
            tokenizer,
            added: vec![
                (config_path.clone(), added::decoder(&config_path, &config)?),
                (list_path.clone(), added::list(&list_path, &list)?),
            ],
            more_special: lists.into_iter().flat_map(added::texts).collect(),
            template: match &choice.file {
                Some(file) => Some((file.clone(), require(file, NAME_A_TEMPLATE)?)),
                None => template(path, &config_path, &config)?,
            },
            special_tokens,
            stop_ids: stop_ids(path)?,
        })
    }
}

fn require(path: &Path, remedy: &'static str) -> Result<String, TextError> {
    fs::read_to_string(path).map_err(|source| TextError::Read {
        path: path.to_owned(),
        source,
        remedy,
    })
}

fn optional(path: &Path) -> Result<Option<String>, TextError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(source) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TextError::Read {
            path: path.to_owned(),
            source,
            remedy: COPY_AGAIN,
        }),
    }
}

/// A JSON object.
fn parse(path: &Path, text: &str) -> Result<Value, TextError> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(other) => Err(malformed(
            path,
            format!("expected an object, found `{}`", excerpt(&other)),
        )),
        Err(error) => Err(malformed(path, error.to_string())),
    }
}

pub(crate) fn malformed(path: &Path, problem: String) -> TextError {
    TextError::Malformed {
        path: path.to_owned(),
        problem,
        remedy: COPY_AGAIN,
    }
}

fn excerpt(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 {
        text
    } else {
        text.chars().take(60).chain("...".chars()).collect()
    }
}

/// Every `NAME_token` of a configuration, given as its text or as `{ content: text }`.
fn named_tokens(path: &Path, config: &Value) -> Result<BTreeMap<String, String>, TextError> {
    let mut tokens = BTreeMap::new();
    for (name, value) in config.as_object().into_iter().flatten() {
        // `add_bos_token` and its like are switches, not tokens.
        if !name.ends_with("_token") || value.is_null() || value.is_boolean() {
            continue;
        }
        let text = value
            .as_str()
            .or_else(|| value.get("content")?.as_str())
            .ok_or_else(|| {
                malformed(
                    path,
                    format!("`{name}` is neither a text nor has `content`: `{}`", excerpt(value)),
                )
            })?;
        tokens.insert(name.clone(), text.to_owned());
    }
    Ok(tokens)
}

fn template(folder: &Path, config_path: &Path, config: &Value) -> Result<Option<(PathBuf, String)>, TextError> {
    let own_file = folder.join("chat_template.jinja");
    if let Some(text) = optional(&own_file)? {
        return Ok(Some((own_file, text)));
    }
    let text = match &config["chat_template"] {
        Value::Null => return Ok(None),
        Value::String(text) => text.clone(),
        Value::Array(named) => {
            let default = named.iter().find(|entry| entry["name"] == "default");
            default
                .and_then(|entry| entry["template"].as_str())
                .map(str::to_owned)
                .ok_or_else(|| {
                    let names: Vec<_> = named.iter().filter_map(|entry| entry["name"].as_str()).collect();
                    malformed(
                        config_path,
                        format!(
                            "`chat_template` has no template named `default`, only `{}`",
                            names.join("`, `")
                        ),
                    )
                })?
        }
        other => {
            let problem = format!(
                "`chat_template` is neither a text nor a list of templates: `{}`",
                excerpt(other)
            );
            return Err(malformed(config_path, problem));
        }
    };
    Ok(Some((config_path.to_owned(), text)))
}

/// `eos_token_id` of `generation_config.json`, else of `config.json`.
fn stop_ids(folder: &Path) -> Result<Option<(PathBuf, Vec<u32>)>, TextError> {
    for name in ["generation_config.json", "config.json"] {
        let path = folder.join(name);
        let Some(text) = optional(&path)? else { continue };
        let config = parse(&path, &text)?;
        let listed = match &config["eos_token_id"] {
            Value::Null => continue,
            Value::Array(ids) => ids.clone(),
            id => vec![id.clone()],
        };
        let ids = listed
            .iter()
            .map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()))
            .collect::<Option<Vec<_>>>();
        return match ids {
            Some(ids) if ids.is_empty() => continue,
            Some(ids) => Ok(Some((path, ids))),
            None => {
                let problem = format!(
                    "`eos_token_id` is not a token id or a list of them: `{}`",
                    config["eos_token_id"]
                );
                Err(malformed(&path, problem))
            }
        };
    }
    Ok(None)
}
