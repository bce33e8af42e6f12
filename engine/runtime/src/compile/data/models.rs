//! Models from nothing, and where the folders of models are.

use std::path::{Path, PathBuf};

use rlpipe_text::{InitSpec, Tokenizer, init_folder};

use crate::compile::config::{InitConfig, InitTokenizer, ModelConfig};

/// The tokenizer of a model from nothing, by way of a folder that is gone afterwards.
pub fn scratch(init: &InitConfig) -> Result<Tokenizer, String> {
    let folder = tempfile::tempdir().map_err(|error| {
        format!("no temporary folder can be made: {error}; set `TMPDIR` to a folder that can be written")
    })?;
    let model = folder.path().join("model");
    init_folder(&model, &init_spec(init)).map_err(|error| error.to_string())?;
    Tokenizer::load(&model).map_err(|error| error.to_string())
}

/// A model from nothing, in the terms of the text crate.
fn init_spec(init: &InitConfig) -> InitSpec {
    let tokenizer = match &init.tokenizer.0 {
        InitTokenizer::Characters(characters) => rlpipe_text::InitTokenizer::Characters(characters.clone()),
        InitTokenizer::Bytes => rlpipe_text::InitTokenizer::Bytes,
    };
    InitSpec {
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

/// Where a model's folder is: its path, or the folder in which a model from nothing is to be written.
pub fn model_folder(config: &ModelConfig, init_folder: PathBuf) -> PathBuf {
    config
        .path
        .as_ref()
        .map_or(init_folder, |path| path.as_path().to_owned())
}
