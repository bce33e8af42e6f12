//! Reads a Hugging Face `config.json` and names, before anything is loaded, what the network cannot compute.
//!
//! Absent keys have the defaults of transformers' configuration classes, which differ between architectures.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::keys::Keys;
use crate::{Fault, Rope};

/// A family of networks. All are decoders with rotary positions, RMS norms and a gated feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Llama, SmolLM2 and others; biases where the configuration says so.
    Llama,
    /// Qwen2 and Qwen2.5: queries, keys and values have a bias.
    Qwen2,
    /// Qwen3 without experts: each head's query and key is normed.
    Qwen3,
}

impl Architecture {
    const ALL: [Self; 3] = [Self::Llama, Self::Qwen2, Self::Qwen3];

    /// Its `model_type`.
    pub fn model_type(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }

    /// Its name in `architectures`.
    pub fn class_name(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
        }
    }
}

/// Shape and constants of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Its family.
    pub architecture: Architecture,
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
    /// `max_position_embeddings`; see [`ModelConfig::positions`].
    pub max_positions: i64,
    /// Base of the rotary embedding's wavelengths.
    pub rope_theta: f64,
    /// How the wavelengths are stretched.
    pub rope: Rope,
    /// Added to the mean square in RMS norms.
    pub norm_eps: f64,
    /// Query, key and value projections have a bias.
    pub qkv_bias: bool,
    /// The projection after attention has a bias.
    pub output_bias: bool,
    /// The three projections of the gated part have a bias.
    pub mlp_bias: bool,
    /// Each head's query and key goes through an RMS norm before it is rotated.
    pub query_key_norm: bool,
    /// The head is the token embedding.
    pub tied: bool,
    /// Standard deviation of fresh weights.
    pub initializer_range: f64,
}

/// Reads `folder/config.json`.
pub fn read_config(folder: &Path) -> Result<ModelConfig, Vec<Fault>> {
    let path = folder.join("config.json");
    let text = fs::read_to_string(&path)
        .map_err(|error| vec![Fault::config(format!("cannot read `{}`: {error}", path.display()))])?;
    parse_config(&text).map_err(|faults| faults.into_iter().map(|fault| fault.at(&path)).collect())
}

/// Reads the text of a `config.json`; all its faults at once.
pub fn parse_config(text: &str) -> Result<ModelConfig, Vec<Fault>> {
    let one = |message: String| vec![Fault::config(message)];
    let object = match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return Err(one("not a JSON object".to_owned())),
        Err(error) => return Err(one(format!("not JSON: {error}"))),
    };
    let mut keys = Keys::new(&object, "");
    // Without it nothing else has a meaning.
    let architecture = architecture(&keys).map_err(one)?;
    refuse(&mut keys, architecture);
    let (hidden, heads) = (keys.count("hidden_size"), keys.count("num_attention_heads"));
    let qwen = architecture != Architecture::Llama;
    let kv_heads = match keys.optional_count("num_key_value_heads") {
        Some(count) => count,
        None if qwen && !keys.is_null("num_key_value_heads") => 32,
        None => heads,
    };
    let head_dim = match keys.optional_count("head_dim") {
        Some(width) => width,
        None if architecture == Architecture::Qwen3 => 128,
        None => {
            if hidden % heads != 0 {
                keys.fault(format!(
                    "`hidden_size` {hidden} is not a multiple of `num_attention_heads` {heads}, and there is no `head_dim`"
                ));
            }
            hidden / heads
        }
    };
    let max_positions = keys
        .optional_count("max_position_embeddings")
        .unwrap_or(if qwen { 32_768 } else { 2048 });
    let (rope_theta, rope) = Rope::read(&mut keys, max_positions);
    let attention_bias = architecture != Architecture::Qwen2 && keys.flag("attention_bias", false);
    let config = ModelConfig {
        architecture,
        hidden,
        intermediate: keys.count("intermediate_size"),
        layers: keys.count("num_hidden_layers"),
        heads,
        kv_heads,
        head_dim,
        vocabulary: keys.count("vocab_size"),
        max_positions,
        rope_theta,
        rope,
        norm_eps: keys.optional_number("rms_norm_eps").unwrap_or(1e-6),
        qkv_bias: attention_bias || architecture == Architecture::Qwen2,
        output_bias: attention_bias,
        mlp_bias: architecture == Architecture::Llama && keys.flag("mlp_bias", false),
        query_key_norm: architecture == Architecture::Qwen3,
        tied: keys.flag("tie_word_embeddings", false),
        initializer_range: keys.optional_number("initializer_range").unwrap_or(0.02),
    };
    if heads % kv_heads != 0 {
        keys.fault(format!(
            "`num_attention_heads` {heads} is not a multiple of `num_key_value_heads` {kv_heads}"
        ));
    }
    if head_dim == 0 || head_dim % 2 != 0 {
        keys.fault(format!(
            "`head_dim` is {head_dim}, but rotary embeddings need an even one"
        ));
    }
    if head_dim <= 2 && matches!(rope, Rope::Dynamic { .. }) {
        keys.fault(format!(
            "`head_dim` is {head_dim}, but `dynamic` rotary scaling needs more than 2"
        ));
    }
    if keys.faults.is_empty() {
        Ok(config)
    } else {
        Err(keys.faults)
    }
}

fn architecture(keys: &Keys<'_>) -> Result<Architecture, String> {
    let class = keys
        .get("architectures")
        .and_then(|list| list.get(0))
        .and_then(Value::as_str);
    let model_type = keys.get("model_type").and_then(Value::as_str);
    let have = Architecture::ALL
        .map(|known| format!("`{}`", known.class_name()))
        .join(", ");
    let Some(name) = class.or(model_type) else {
        return Err("neither `architectures` nor `model_type` says what the model is".to_owned());
    };
    let known = Architecture::ALL
        .into_iter()
        .find(|known| name == known.class_name() || (class.is_none() && name == known.model_type()));
    let Some(known) = known else {
        let experts = if name.to_lowercase().contains("moe") || name.starts_with("Mixtral") {
            " (mixture of experts)"
        } else {
            ""
        };
        return Err(format!(
            "architecture `{name}`{experts} is not supported; this version has: {have}"
        ));
    };
    match model_type {
        Some(other) if other != known.model_type() => Err(format!(
            "`architectures` says `{name}`, but `model_type` says `{other}`; this version has: {have}"
        )),
        _ => Ok(known),
    }
}

/// What changes the computation and is not computed here.
fn refuse(keys: &mut Keys<'_>, architecture: Architecture) {
    match keys.text("hidden_act") {
        None | Some("silu" | "swish") => {}
        Some(other) => keys.fault(format!("`hidden_act` is `{other}`; this version has: `silu`")),
    }
    if let Some(quantized) = keys.get("quantization_config") {
        let method = quantized
            .get("quant_method")
            .and_then(Value::as_str)
            .unwrap_or("unknown");
        keys.fault(format!(
            "`quantization_config` ({method}) is not supported; give a model in float32, bfloat16 or float16"
        ));
    }
    for key in ["num_experts", "num_local_experts", "n_routed_experts"] {
        if let Some(experts) = keys.get(key).and_then(Value::as_i64).filter(|experts| *experts > 1) {
            keys.fault(format!(
                "`{key}` is {experts}: a mixture of experts is not supported; this version has dense models"
            ));
        }
    }
    if architecture != Architecture::Llama {
        refuse_windows(keys);
    }
}

/// In Qwen's configurations layers from `max_window_layers` on look back `sliding_window` tokens only, unless
/// `layer_types` says otherwise for each.
fn refuse_windows(keys: &mut Keys<'_>) {
    let has = "this version has: full attention";
    if let Some(types) = keys.get("layer_types") {
        let other = types
            .as_array()
            .into_iter()
            .flatten()
            .find(|kind| *kind != "full_attention");
        if let Some(kind) = other {
            keys.fault(format!("`layer_types` has {kind}; {has}"));
        }
        return;
    }
    if !keys.flag("use_sliding_window", false) || keys.is_null("sliding_window") {
        return;
    }
    let layers = keys.get("num_hidden_layers").and_then(Value::as_i64).unwrap_or(32);
    let full = keys.get("max_window_layers").and_then(Value::as_i64).unwrap_or(28);
    if full < layers {
        keys.fault(format!(
            "`use_sliding_window` is true, and layers from {full} on of {layers} would use it; {has}"
        ));
    }
}
