//! Models from nothing, and where the folders of models are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rlpipe_text::{ChatTemplateChoice, InitSpec, Tokenizer, init_folder};

use crate::compile::config::{Architecture, InitConfig, InitTokenizer, ModelConfig};
use crate::compile::hub::HubCache;

/// The tokenizer of a model from nothing, by way of a folder that is gone afterwards.
pub fn scratch(init: &InitConfig, choice: &ChatTemplateChoice) -> Result<Tokenizer, String> {
    let folder = tempfile::tempdir().map_err(|error| {
        format!("no temporary folder can be made: {error}; set `TMPDIR` to a folder that can be written")
    })?;
    let model = folder.path().join("model");
    init_folder(&model, &init_spec(init)).map_err(|error| error.to_string())?;
    Tokenizer::load_with(&model, choice).map_err(|error| error.to_string())
}

/// A model from nothing, in the terms of the text crate.
pub fn init_spec(init: &InitConfig) -> InitSpec {
    let tokenizer = match &init.tokenizer.0 {
        InitTokenizer::Characters(characters) => rlpipe_text::InitTokenizer::Characters(characters.clone()),
        InitTokenizer::Bytes => rlpipe_text::InitTokenizer::Bytes,
    };
    InitSpec {
        architecture: match init.architecture {
            Architecture::Llama => rlpipe_model::Architecture::Llama,
            Architecture::Qwen2 => rlpipe_model::Architecture::Qwen2,
            Architecture::Qwen3 => rlpipe_model::Architecture::Qwen3,
        },
        hidden_size: init.hidden_size.get() as usize,
        layers: init.layers.get() as usize,
        heads: init.heads.get() as usize,
        key_value_heads: init.key_value_heads.unwrap_or(init.heads).get() as usize,
        intermediate_size: init.intermediate_size.get() as usize,
        max_position_embeddings: init.max_position_embeddings.get() as usize,
        rope_theta: init.rope_theta.get(),
        rms_norm_eps: init.rms_norm_eps.get(),
        tied: init.tied_embeddings,
        tokenizer,
    }
}

/// Writes the folder of a model from nothing, unless it is there already.
pub fn init_model(folder: &Path, init: &InitConfig) -> Result<(), String> {
    if folder.is_dir() {
        return Ok(());
    }
    let partial = folder.with_extension("partial");
    crate::run::fresh_folder(&partial).map_err(|error| error.to_string())?;
    init_folder(&partial, &init_spec(init)).map_err(|error| error.to_string())?;
    crate::run::publish_folder(&partial, folder).map_err(|error| error.to_string())
}

/// Where a model's folder is: its path, its snapshot in the cache, or the folder in which a model from nothing is to be
/// written.
///
/// # Errors
/// The model of a hub is not here.
pub fn model_folder(config: &ModelConfig, init_folder: PathBuf, cache: &HubCache) -> Result<PathBuf, String> {
    match (&config.path, &config.hub) {
        (Some(path), _) => Ok(path.as_path().to_owned()),
        (None, Some(hub)) => cache
            .find(hub)
            .map(|snapshot| snapshot.folder)
            .ok_or_else(|| format!("`{hub}` is not in `{}`", cache.repository(&hub.repository).display())),
        (None, None) => Ok(init_folder),
    }
}

/// The files that a model folder lacks: without them it cannot be run.
pub fn missing_files(folder: &Path) -> Vec<String> {
    let has = |file: &str| folder.join(file).is_file();
    let mut missing: Vec<String> = ["config.json", "tokenizer.json", "tokenizer_config.json"]
        .into_iter()
        .filter(|file| !has(file))
        .map(str::to_owned)
        .collect();
    if !has("model.safetensors") {
        let index = std::fs::read_to_string(folder.join("model.safetensors.index.json"));
        match index {
            Ok(index) => missing.extend(shards(&index).into_iter().filter(|shard| !has(shard))),
            Err(_) => missing.push("model.safetensors".to_owned()),
        }
    }
    missing
}

/// The files that an index of safetensors names; none where it cannot be read, which the worker reports.
fn shards(index: &str) -> BTreeSet<String> {
    let index: serde_json::Value = serde_json::from_str(index).unwrap_or_default();
    let files = index["weight_map"].as_object().into_iter().flatten();
    files.filter_map(|(_, file)| file.as_str().map(str::to_owned)).collect()
}
