//! The model that is measured: a folder with weights, or sizes alone.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use rlpipe_model::{Fault, check_folder, joined, read_config};

use super::arguments::WorkerArguments;
use super::roofline::Sizes;

/// Sizes of a model without weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// SmolLM2-135M: 30 layers of width 576, 9 heads and 3 key heads of 64, 49152 tokens.
    #[value(name = "smollm2-135m")]
    Smollm2135m,
    /// A model of 131 thousand parameters, to try things out with.
    Tiny,
}

impl Shape {
    /// Its `config.json`.
    fn config(self) -> &'static str {
        match self {
            Self::Smollm2135m => {
                r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 576, "intermediate_size": 1536,
  "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
  "max_position_embeddings": 8192, "rope_theta": 100000, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
  "initializer_range": 0.041666666666666664}"#
            }
            Self::Tiny => {
                r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 192,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
  "max_position_embeddings": 2048, "tie_word_embeddings": true}"#
            }
        }
    }

    fn name(self) -> String {
        self.to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }
}

/// A model to load.
pub struct BenchModel {
    /// What it is called in results.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Set: weights are drawn.
    pub init_seed: Option<u64>,
    /// What work on it takes.
    pub sizes: Sizes,
}

impl BenchModel {
    /// The folder that was named, or one below `scratch` with the sizes that were.
    pub fn of(arguments: &WorkerArguments, scratch: &Path) -> Result<Self> {
        let (name, folder, init_seed) = match &arguments.model {
            Some(folder) => {
                let full = folder
                    .canonicalize()
                    .with_context(|| format!("cannot open the model folder `{}`", folder.display()))?;
                let name = full
                    .file_name()
                    .map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned());
                (name, full, None)
            }
            None => {
                let folder = scratch.join("model");
                std::fs::create_dir(&folder)
                    .and_then(|()| std::fs::write(folder.join("config.json"), arguments.shape.config()))
                    .with_context(|| format!("cannot write the model's sizes into `{}`", folder.display()))?;
                (arguments.shape.name(), folder, Some(1))
            }
        };
        let unusable = |faults: Vec<Fault>| anyhow::anyhow!("the model `{name}` cannot be used: {}", joined(&faults));
        let config = read_config(&folder).map_err(unusable)?;
        let faults = match init_seed {
            Some(_) => Vec::new(),
            None => check_folder(&folder),
        };
        if !faults.is_empty() {
            return Err(unusable(faults));
        }
        let sizes = Sizes::of(&config);
        Ok(Self {
            name,
            folder,
            init_seed,
            sizes,
        })
    }

    /// Where its weights are from, in a word.
    pub fn weights(&self) -> &'static str {
        match self.init_seed {
            Some(_) => "random",
            None => "folder",
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn shapes_are_those_of_the_models_that_they_are_named_after() {
        for (shape, parameters) in [(Shape::Smollm2135m, 134_515_008), (Shape::Tiny, 131_392)] {
            let config = rlpipe_model::parse_config(shape.config()).unwrap();
            assert_eq!(Sizes::of(&config).parameters, parameters, "{}", shape.name());
        }
    }
}
