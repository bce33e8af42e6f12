//! Configurations: defaults of transformers, every spelling of rotary scaling, and what is refused by name.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use rlpipe_model::{Architecture, ModelConfig, Rope, joined, parameters, parse_config};
use serde_json::{Value, json};

fn base(model_type: &str) -> Value {
    json!({"model_type": model_type, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 20, "max_position_embeddings": 32})
}

fn with(model_type: &str, changes: Value) -> Result<ModelConfig, String> {
    let mut config = base(model_type);
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    parse_config(&config.to_string()).map_err(|faults| joined(&faults))
}

fn parsed(model_type: &str, changes: Value) -> ModelConfig {
    with(model_type, changes).unwrap()
}

fn refused(model_type: &str, changes: Value) -> String {
    with(model_type, changes).unwrap_err()
}

#[test]
fn absent_keys_have_transformers_defaults() {
    let bare = |model_type: &str| {
        let mut config = base(model_type);
        let keys = config.as_object_mut().unwrap();
        keys.retain(|key, _| !key.starts_with("max_") && key != "num_key_value_heads");
        keys.insert("num_attention_heads".into(), 32.into());
        parse_config(&config.to_string()).unwrap()
    };
    let llama = bare("llama");
    assert_eq!((llama.kv_heads, llama.head_dim, llama.max_positions), (32, 2, 2048));
    assert_eq!((llama.rope_theta, llama.rope), (10_000.0, Rope::Default));
    assert_eq!(
        (llama.norm_eps, llama.tied, llama.initializer_range),
        (1e-6, false, 0.02)
    );
    assert!(!llama.qkv_bias && !llama.output_bias && !llama.mlp_bias && !llama.query_key_norm);
    let qwen2 = bare("qwen2");
    assert_eq!((qwen2.kv_heads, qwen2.head_dim, qwen2.max_positions), (32, 2, 32_768));
    assert!(qwen2.qkv_bias && !qwen2.output_bias && !qwen2.mlp_bias && !qwen2.query_key_norm);
    let qwen3 = bare("qwen3");
    assert_eq!((qwen3.kv_heads, qwen3.head_dim, qwen3.max_positions), (32, 128, 32_768));
    assert!(!qwen3.qkv_bias && !qwen3.output_bias && !qwen3.mlp_bias && qwen3.query_key_norm);
    assert_eq!(parsed("qwen2", json!({"num_key_value_heads": null})).kv_heads, 4);
}

#[test]
fn biases_are_where_the_architecture_has_them() {
    let all = json!({"attention_bias": true, "mlp_bias": true, "head_dim": 16});
    let flags = |config: ModelConfig| (config.qkv_bias, config.output_bias, config.mlp_bias);
    assert_eq!(flags(parsed("llama", all.clone())), (true, true, true));
    // Qwen2's class does not ask, and Qwen3's has no `mlp_bias`.
    assert_eq!(flags(parsed("qwen2", all.clone())), (true, false, false));
    assert_eq!(flags(parsed("qwen3", all)), (true, true, false));
}

#[test]
fn parameters_have_hugging_face_names_and_shapes() {
    let shapes = |config: &ModelConfig| -> Vec<(String, Vec<i64>)> {
        let all = parameters(config).into_iter();
        all.filter(|parameter| !parameter.name.contains("layers.1"))
            .map(|parameter| (parameter.name.replace("model.layers.0.", ""), parameter.shape))
            .collect()
    };
    let expected = |list: &[(&str, &[i64])]| -> Vec<(String, Vec<i64>)> {
        list.iter()
            .map(|(name, shape)| ((*name).to_owned(), shape.to_vec()))
            .collect()
    };
    let config = parsed("qwen3", json!({"head_dim": 8, "attention_bias": true}));
    let list: &[(&str, &[i64])] = &[
        ("model.embed_tokens.weight", &[20, 64]),
        ("input_layernorm.weight", &[64]),
        ("self_attn.q_proj.weight", &[32, 64]),
        ("self_attn.k_proj.weight", &[16, 64]),
        ("self_attn.v_proj.weight", &[16, 64]),
        ("self_attn.q_proj.bias", &[32]),
        ("self_attn.k_proj.bias", &[16]),
        ("self_attn.v_proj.bias", &[16]),
        ("self_attn.q_norm.weight", &[8]),
        ("self_attn.k_norm.weight", &[8]),
        ("self_attn.o_proj.weight", &[64, 32]),
        ("self_attn.o_proj.bias", &[64]),
        ("post_attention_layernorm.weight", &[64]),
        ("mlp.gate_proj.weight", &[96, 64]),
        ("mlp.up_proj.weight", &[96, 64]),
        ("mlp.down_proj.weight", &[64, 96]),
        ("model.norm.weight", &[64]),
        ("lm_head.weight", &[20, 64]),
    ];
    assert_eq!(shapes(&config), expected(list));
    let tied = parsed("llama", json!({"tie_word_embeddings": true}));
    assert!(
        parameters(&tied)
            .iter()
            .all(|parameter| parameter.name != "lm_head.weight")
    );
}

#[test]
fn rotary_frequencies_are_those_of_transformers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models/rotary.json");
    let cases: Vec<Value> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!(cases.len(), 10);
    for case in cases {
        let mut config = case["config"].clone();
        for (key, value) in [("intermediate_size", 8), ("num_hidden_layers", 1), ("vocab_size", 8)] {
            config[key] = value.into();
        }
        let rotary = parse_config(&config.to_string())
            .unwrap()
            .rotary(case["length"].as_i64().unwrap());
        let number = |value: &Value| value.as_f64().unwrap();
        assert!(
            (f64::from(rotary.scale) - number(&case["scale"])).abs() < 1e-6,
            "{config}"
        );
        let expected = case["frequencies"].as_array().unwrap();
        assert_eq!(expected.len(), rotary.frequencies.len());
        for (found, expected) in rotary.frequencies.iter().zip(expected) {
            let (found, expected) = (f64::from(*found), number(expected));
            assert!(
                (found - expected).abs() <= 3e-7 * expected,
                "{config}: {found} {expected}"
            );
        }
    }
}

#[test]
fn both_places_and_all_spellings_of_rotary_settings_are_read() {
    let linear = Rope::Linear { factor: 2.0 };
    for spelling in [
        json!({"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 5e5}),
        json!({"rope_scaling": {"rope_type": "linear", "factor": 2}, "rope_theta": 5e5}),
        json!({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}}),
        json!({"rope_parameters": {"rope_type": "linear", "factor": 2.0}, "rope_theta": 5e5}),
        json!({"rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}}),
        json!({"rope_scaling": {"type": "linear", "factor": 2.0, "rope_theta": 5e5}, "rope_theta": 1.0}),
    ] {
        let config = parsed("llama", spelling.clone());
        assert_eq!((config.rope, config.rope_theta), (linear, 5e5), "{spelling}");
    }
    assert_eq!(parsed("llama", json!({"rope_scaling": null})).rope, Rope::Default);
    // Without an original length the configured one is it; one at the top level comes first.
    let yarn = |top: Value| match parsed(
        "qwen2",
        json!({"original_max_position_embeddings": top,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}}),
    )
    .rope
    {
        Rope::Yarn { original, .. } => original,
        other => panic!("{other:?}"),
    };
    assert_eq!((yarn(Value::Null), yarn(16.into())), (24, 16));
}

#[test]
fn positions_count_the_factor() {
    let positions = |rope: Value| {
        let config = parsed("llama", json!({"rope_scaling": rope}));
        (config.positions(), config.generated_positions())
    };
    assert_eq!(positions(Value::Null), (32, 32));
    assert_eq!(positions(json!({"type": "linear", "factor": 4.0})), (128, 128));
    assert_eq!(positions(json!({"type": "dynamic", "factor": 4.0})), (128, 32));
    let llama3 = json!({"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8});
    assert_eq!(positions(llama3), (32, 32));
    let yarn = |original: i64| json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": original});
    assert_eq!((positions(yarn(16)), positions(yarn(4))), ((64, 64), (32, 32)));
}

#[test]
fn what_cannot_be_computed_is_named() {
    let architecture =
        |class: &str, model_type: &str| refused("llama", json!({"architectures": [class], "model_type": model_type}));
    assert_eq!(
        architecture("MambaForCausalLM", "mamba"),
        "architecture `MambaForCausalLM` is not supported; \
         this version has: `LlamaForCausalLM`, `Qwen2ForCausalLM`, `Qwen3ForCausalLM`"
    );
    assert!(architecture("Qwen3MoeForCausalLM", "qwen3_moe").contains("(mixture of experts)"));
    assert!(architecture("LlamaForSequenceClassification", "llama").contains("`LlamaForSequenceClassification`"));
    assert!(architecture("LlamaForCausalLM", "mistral").contains("`model_type` says `mistral`"));
    assert!(refused("gemma3", json!({})).contains("`gemma3`"));
    assert_eq!(
        parsed("qwen3", json!({"head_dim": 4})).architecture,
        Architecture::Qwen3
    );
    let llama = |changes: Value| refused("llama", changes);
    assert!(llama(json!({"model_type": null})).contains("neither"));
    assert!(llama(json!({"rope_scaling": {"type": "longrope"}})).contains("`rope_scaling` of type `longrope`"));
    assert!(llama(json!({"rope_parameters": {"rope_type": "llama3"}})).contains("`rope_parameters.factor` is missing"));
    assert!(llama(json!({"rope_scaling": {"type": "yarn", "factor": -1}})).contains("`rope_scaling.factor` is -1"));
    assert!(llama(json!({"rope_scaling": "yarn"})).contains("an object is needed"));
    assert!(llama(json!({"rope_parameters": {"full_attention": {}}})).contains("differs between layers"));
    assert!(llama(json!({"rope_scaling": {"type": "default", "partial_rotary_factor": 0.5}})).contains("is not 1"));
    assert!(llama(json!({"head_dim": 2, "rope_scaling": {"type": "dynamic", "factor": 2}})).contains("more than 2"));
    assert!(llama(json!({"hidden_act": "gelu"})).contains("`gelu`"));
    assert!(llama(json!({"quantization_config": {"quant_method": "awq"}})).contains("awq"));
    assert!(llama(json!({"num_local_experts": 8})).contains("mixture of experts"));
    assert!(llama(json!({"num_key_value_heads": 3})).contains("not a multiple"));
    assert!(llama(json!({"num_attention_heads": 6})).contains("there is no `head_dim`"));
    assert!(llama(json!({"head_dim": 15})).contains("even"));
    assert!(llama(json!({"hidden_size": -1})).contains("`hidden_size` is -1"));
    assert!(llama(json!({"vocab_size": null})).contains("`vocab_size` is missing"));
    assert!(llama(json!({"tie_word_embeddings": 1})).contains("true or false"));
    assert!(joined(&parse_config("[1]").unwrap_err()).contains("not a JSON object"));
    assert!(joined(&parse_config("{").unwrap_err()).contains("not JSON"));
    // All at once.
    let all = llama(json!({"hidden_act": "relu", "vocab_size": 0, "head_dim": 3}));
    assert!(
        all.contains("relu") && all.contains("vocab_size") && all.contains("head_dim"),
        "{all}"
    );
}

#[test]
fn windows_are_refused_where_a_layer_has_one() {
    let windows = |changes: Value| with("qwen2", changes).err();
    assert_eq!(
        windows(json!({"use_sliding_window": false, "sliding_window": 8, "max_window_layers": 0})),
        None
    );
    assert_eq!(
        windows(json!({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2})),
        None
    );
    let slides = windows(json!({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1}));
    assert!(
        slides
            .unwrap()
            .contains("`use_sliding_window` is true, and layers from 1 on of 2")
    );
    let kinds = windows(json!({"layer_types": ["full_attention", "sliding_attention"]}));
    assert!(kinds.unwrap().contains("`layer_types` has \"sliding_attention\""));
    assert_eq!(
        windows(json!({"layer_types": ["full_attention", "full_attention"]})),
        None
    );
}
