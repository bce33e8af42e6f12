//! Reads a Hugging Face `config.json` and refuses, before anything is loaded, what the network cannot compute.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use crate::{Error, Result, fail};

/// Shape and constants of a Llama network.
#[derive(Debug, Clone, PartialEq)]
pub struct LlamaConfig {
    /// Width of the residual stream.
    pub hidden: i64,
    /// Width of the gated part.
    pub intermediate: i64,
    /// Transformer blocks.
    pub layers: i64,
    /// Query heads.
    pub heads: i64,
    /// Key and value heads; divides `heads`.
    pub kv_heads: i64,
    /// Width of a head, even.
    pub head_dim: i64,
    /// Token ids are below this.
    pub vocabulary: i64,
    /// Positions that the network was made for (`max_position_embeddings`).
    pub max_positions: i64,
    /// Base of the rotary embedding's wavelengths.
    pub rope_theta: f64,
    /// Added to the mean square in RMS norms.
    pub norm_eps: f64,
    /// The head is the token embedding.
    pub tied: bool,
    /// Standard deviation of fresh weights.
    pub initializer_range: f64,
}

/// Reads `folder/config.json`.
pub fn read(folder: &Path) -> Result<LlamaConfig> {
    let path = folder.join("config.json");
    let text = fs::read_to_string(&path).map_err(|error| Error::io("read", &path, &error))?;
    parse(&text).map_err(|Error(message)| Error(format!("`{}`: {message}", path.display())))
}

/// Reads the text of a `config.json`.
pub fn parse(text: &str) -> Result<LlamaConfig> {
    let document: Value = serde_json::from_str(text).map_err(|error| Error(format!("not JSON: {error}")))?;
    let Value::Object(keys) = document else {
        fail!("not a JSON object")
    };
    let keys = Keys(&keys);
    keys.refuse_unsupported()?;
    let heads = keys.count("num_attention_heads")?;
    let config = LlamaConfig {
        hidden: keys.count("hidden_size")?,
        intermediate: keys.count("intermediate_size")?,
        layers: keys.count("num_hidden_layers")?,
        heads,
        kv_heads: if keys.get("num_key_value_heads").is_some() {
            keys.count("num_key_value_heads")?
        } else {
            heads
        },
        head_dim: if keys.get("head_dim").is_some() {
            keys.count("head_dim")?
        } else {
            keys.count("hidden_size")? / heads
        },
        vocabulary: keys.count("vocab_size")?,
        max_positions: if keys.get("max_position_embeddings").is_some() {
            keys.count("max_position_embeddings")?
        } else {
            2048
        },
        rope_theta: keys.rope_theta()?,
        norm_eps: keys.number("rms_norm_eps")?.unwrap_or(1e-6),
        tied: keys.flag("tie_word_embeddings")?,
        initializer_range: keys.number("initializer_range")?.unwrap_or(0.02),
    };
    if config.heads % config.kv_heads != 0 {
        fail!(
            "`num_attention_heads` {} is not a multiple of `num_key_value_heads` {}",
            config.heads,
            config.kv_heads
        );
    }
    if config.head_dim == 0 || config.head_dim % 2 != 0 {
        fail!(
            "`head_dim` is {}, but rotary embeddings need an even one",
            config.head_dim
        );
    }
    Ok(config)
}

struct Keys<'a>(&'a Map<String, Value>);

impl Keys<'_> {
    /// `null` means absent, as in transformers.
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn count(&self, key: &str) -> Result<i64> {
        match self.get(key).map(|value| (value, value.as_i64())) {
            Some((_, Some(count @ 1..=0x7fff_ffff))) => Ok(count),
            Some((value, _)) => fail!("`{key}` is {value}, but a positive whole number is needed"),
            None => fail!("`{key}` is missing"),
        }
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        match self.get(key).map(|value| (value, value.as_f64())) {
            Some((_, Some(number))) if number > 0.0 => Ok(Some(number)),
            Some((value, _)) => fail!("`{key}` is {value}, but a positive number is needed"),
            None => Ok(None),
        }
    }

    fn flag(&self, key: &str) -> Result<bool> {
        match self.get(key) {
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => fail!("`{key}` is {value}, but true or false is needed"),
            None => Ok(false),
        }
    }

    /// At the top in older files, in `rope_parameters` in newer ones.
    fn rope_theta(&self) -> Result<f64> {
        if let Some(Value::Object(rope)) = self.get("rope_parameters")
            && let Some(theta) = Keys(rope).number("rope_theta")?
        {
            return Ok(theta);
        }
        Ok(self.number("rope_theta")?.unwrap_or(10_000.0))
    }

    fn refuse_unsupported(&self) -> Result<()> {
        let architecture = self
            .get("architectures")
            .and_then(|list| list.get(0))
            .and_then(Value::as_str);
        let model_type = self.get("model_type").and_then(Value::as_str);
        match architecture.or(model_type) {
            Some("LlamaForCausalLM" | "llama") => {}
            Some(other) => fail!("architecture `{other}` is not supported; this version has: `LlamaForCausalLM`"),
            None => fail!("neither `architectures` nor `model_type` says what the model is"),
        }
        for key in ["rope_scaling", "rope_parameters"] {
            let Some(rope) = self.get(key) else { continue };
            let kind = rope
                .get("rope_type")
                .or_else(|| rope.get("type"))
                .and_then(Value::as_str)
                .unwrap_or("default");
            if kind != "default" {
                fail!("`{key}` of type `{kind}` is not supported; this version has: `default`");
            }
        }
        for key in ["attention_bias", "mlp_bias"] {
            if self.flag(key)? {
                fail!("`{key}` is true, but this version has linear layers without bias only");
            }
        }
        match self.get("hidden_act").map(|act| act.as_str().unwrap_or_default()) {
            None | Some("silu") => {}
            Some(other) => fail!("`hidden_act` is `{other}`; this version has: `silu`"),
        }
        if let Some(quantized) = self.get("quantization_config") {
            let method = quantized
                .get("quant_method")
                .and_then(Value::as_str)
                .unwrap_or("unknown");
            fail!("`quantization_config` ({method}) is not supported; give a model in float32, bfloat16 or float16");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const GOOD: &str = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 20, "max_position_embeddings": 32}"#;

    fn with(key: &str, value: Value) -> Result<LlamaConfig> {
        let mut document: Value = serde_json::from_str(GOOD).unwrap();
        document[key] = value;
        parse(&document.to_string())
    }

    #[test]
    fn absent_keys_have_transformers_defaults() {
        let config = parse(GOOD).unwrap();
        assert_eq!((config.kv_heads, config.head_dim, config.rope_theta), (4, 16, 10_000.0));
        assert_eq!(
            (config.norm_eps, config.tied, config.initializer_range),
            (1e-6, false, 0.02)
        );
    }

    #[test]
    fn theta_is_read_from_either_place() {
        assert_eq!(with("rope_theta", 5e5.into()).unwrap().rope_theta, 5e5);
        let newer = serde_json::json!({"rope_type": "default", "rope_theta": 250.0});
        assert_eq!(with("rope_parameters", newer).unwrap().rope_theta, 250.0);
    }

    #[test]
    fn what_cannot_be_computed_is_named() {
        let refused = |key, value| with(key, value).unwrap_err().0;
        assert_eq!(
            refused("architectures", serde_json::json!(["MambaForCausalLM"])),
            "architecture `MambaForCausalLM` is not supported; this version has: `LlamaForCausalLM`"
        );
        assert!(refused("rope_scaling", serde_json::json!({"rope_type": "yarn"})).contains("`yarn`"));
        assert!(refused("rope_scaling", serde_json::json!({"type": "linear"})).contains("`linear`"));
        assert!(refused("attention_bias", true.into()).contains("`attention_bias`"));
        assert!(refused("hidden_act", "gelu".into()).contains("`gelu`"));
        assert!(refused("quantization_config", serde_json::json!({"quant_method": "awq"})).contains("awq"));
        assert!(refused("num_key_value_heads", 3.into()).contains("not a multiple"));
        assert!(refused("head_dim", 15.into()).contains("even"));
        assert!(refused("hidden_size", (-1).into()).contains("`hidden_size` is -1"));
        assert!(refused("vocab_size", Value::Null).contains("`vocab_size` is missing"));
        assert!(parse("[1]").unwrap_err().0.contains("not a JSON object"));
        assert!(parse("{").unwrap_err().0.contains("not JSON"));
    }
}
