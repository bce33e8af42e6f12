//! The parameters of a network by their Hugging Face names.

use crate::ModelConfig;

/// One tensor of a Hugging Face folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, such as `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Its shape; one dimension for norms and biases.
    pub shape: Vec<i64>,
}

/// All parameters in the order of the forward pass. The weights of projections that read the same follow each other
/// (query, key, value; gate, up), then their biases.
pub fn parameters(config: &ModelConfig) -> Vec<Parameter> {
    let (hidden, gated) = (config.hidden, config.intermediate);
    let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
    let mut all = Vec::new();
    add(&mut all, "model.embed_tokens.weight", &[config.vocabulary, hidden]);
    for layer in 0..config.layers {
        let at = format!("model.layers.{layer}.");
        add(&mut all, &format!("{at}input_layernorm.weight"), &[hidden]);
        let inputs = [("q_proj", queries), ("k_proj", keys), ("v_proj", keys)];
        project(&mut all, &format!("{at}self_attn."), &inputs, hidden, config.qkv_bias);
        if config.query_key_norm {
            add(&mut all, &format!("{at}self_attn.q_norm.weight"), &[config.head_dim]);
            add(&mut all, &format!("{at}self_attn.k_norm.weight"), &[config.head_dim]);
        }
        let output = [("o_proj", hidden)];
        project(
            &mut all,
            &format!("{at}self_attn."),
            &output,
            queries,
            config.output_bias,
        );
        add(&mut all, &format!("{at}post_attention_layernorm.weight"), &[hidden]);
        let (gates, down) = ([("gate_proj", gated), ("up_proj", gated)], [("down_proj", hidden)]);
        project(&mut all, &format!("{at}mlp."), &gates, hidden, config.mlp_bias);
        project(&mut all, &format!("{at}mlp."), &down, gated, config.mlp_bias);
    }
    add(&mut all, "model.norm.weight", &[hidden]);
    if !config.tied {
        add(&mut all, "lm_head.weight", &[config.vocabulary, hidden]);
    }
    all
}

fn add(all: &mut Vec<Parameter>, name: &str, shape: &[i64]) {
    all.push(Parameter {
        name: name.to_owned(),
        shape: shape.to_vec(),
    });
}

fn project(all: &mut Vec<Parameter>, within: &str, parts: &[(&str, i64)], columns: i64, bias: bool) {
    for (part, rows) in parts {
        add(all, &format!("{within}{part}.weight"), &[*rows, columns]);
    }
    for (part, rows) in parts.iter().filter(|_| bias) {
        add(all, &format!("{within}{part}.bias"), &[*rows]);
    }
}
