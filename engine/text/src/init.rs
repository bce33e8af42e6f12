//! Writes the model folder of a small model from nothing: configuration, tokenizer and chat template, no weights.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rlpipe_model::{Architecture, ModelConfig};
use serde_json::{Map, Value, json};

use crate::TextError;

const PAD: &str = "<|pad|>";
const END: &str = "<|end|>";
const UNKNOWN: &str = "<|unknown|>";
const CHAT_TEMPLATE: &str = "{% for message in messages %}{{ message['content'] }}{% endfor %}";

/// The architecture and sizes of a model, and its tokenizer.
#[derive(Debug, Clone, PartialEq)]
pub struct InitSpec {
    /// Its family.
    pub architecture: Architecture,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Number of transformer blocks.
    pub layers: usize,
    /// Attention heads; divides `hidden_size`, with an even quotient.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub key_value_heads: usize,
    /// Width inside the feed-forward layer.
    pub intermediate_size: usize,
    /// The longest sequence, in tokens.
    pub max_position_embeddings: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Added to the mean square in RMSNorm.
    pub rms_norm_eps: f64,
    /// Whether the output layer is the embedding.
    pub tied: bool,
    /// What a token is.
    pub tokenizer: InitTokenizer,
}

/// The tokenizer of a model from nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InitTokenizer {
    /// One token a character of this text, which has each once; any other character becomes `<|unknown|>`.
    Characters(String),
    /// One token a byte of UTF-8: every text can be written.
    Bytes,
}

impl InitSpec {
    /// A Llama with as many key and value heads as heads, a rotary base of 10,000, an epsilon of 1e-5 and
    /// a tied output layer.
    pub fn new(
        hidden_size: usize,
        layers: usize,
        heads: usize,
        intermediate_size: usize,
        max_position_embeddings: usize,
        tokenizer: InitTokenizer,
    ) -> InitSpec {
        InitSpec {
            architecture: Architecture::Llama,
            hidden_size,
            layers,
            heads,
            key_value_heads: heads,
            intermediate_size,
            max_position_embeddings,
            rope_theta: 10_000.0,
            rms_norm_eps: 1e-5,
            tied: true,
            tokenizer,
        }
    }

    /// Whether the numbers fit each other; [`init_folder`] checks this too.
    pub fn check(&self) -> Result<(), TextError> {
        let sizes = [
            ("hidden_size", self.hidden_size),
            ("layers", self.layers),
            ("heads", self.heads),
            ("key_value_heads", self.key_value_heads),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        for (name, size) in sizes {
            if size == 0 {
                return fault(format!("`{name}` is 0; it must be at least 1"));
            }
        }
        for (name, number) in [("rope_theta", self.rope_theta), ("rms_norm_eps", self.rms_norm_eps)] {
            if !(number.is_finite() && number > 0.0) {
                return fault(format!("`{name}` is {number}; it must be a number above 0"));
            }
        }
        let (hidden, heads, groups) = (self.hidden_size, self.heads, self.key_value_heads);
        if !hidden.is_multiple_of(heads) {
            return fault(format!(
                "`hidden_size` {hidden} is no multiple of `heads` {heads}; change one of them"
            ));
        }
        if !(hidden / heads).is_multiple_of(2) {
            return fault(format!(
                "`hidden_size` {hidden} over `heads` {heads} gives {} values a head, \
                 and rotary positions need an even number; change one of them",
                hidden / heads
            ));
        }
        if !heads.is_multiple_of(groups) {
            return fault(format!(
                "`heads` {heads} is no multiple of `key_value_heads` {groups}; change one of them"
            ));
        }
        self.vocabulary().map(|_| ())
    }

    /// The network that the folder's `config.json` describes, without writing it.
    pub fn model_config(&self) -> Result<ModelConfig, TextError> {
        self.check()?;
        let text = config(self, self.vocabulary()?.len()).to_string();
        rlpipe_model::parse_config(&text).map_err(|faults| TextError::Spec(rlpipe_model::joined(&faults)))
    }

    /// Every token in the order of its id, special ones first.
    fn vocabulary(&self) -> Result<Vec<String>, TextError> {
        let special = self.tokenizer.special_tokens().iter().map(|token| token.to_string());
        match &self.tokenizer {
            InitTokenizer::Bytes => Ok(special
                .chain((0..=255).map(|byte| byte_character(byte).to_string()))
                .collect()),
            InitTokenizer::Characters(characters) => {
                if characters.is_empty() {
                    return fault("the tokenizer's `characters` are empty; list every character of the data".into());
                }
                if let Some(token) = [PAD, END, UNKNOWN].into_iter().find(|token| characters.contains(token)) {
                    return fault(format!(
                        "the tokenizer's `characters` contain `{token}`, a special token that is there anyway; remove it"
                    ));
                }
                let mut seen = HashSet::new();
                if let Some(twice) = characters.chars().find(|&character| !seen.insert(character)) {
                    return fault(format!("the tokenizer's `characters` have {twice:?} twice; remove one"));
                }
                Ok(special.chain(characters.chars().map(String::from)).collect())
            }
        }
    }
}

impl InitTokenizer {
    /// Special tokens by id. Bytes can spell everything, so they have no unknown token.
    fn special_tokens(&self) -> &'static [&'static str] {
        match self {
            InitTokenizer::Characters(_) => &[PAD, END, UNKNOWN],
            InitTokenizer::Bytes => &[PAD, END],
        }
    }
}

fn fault<T>(problem: String) -> Result<T, TextError> {
    Err(TextError::Spec(problem))
}

/// Writes `config.json`, `generation_config.json`, `tokenizer.json`, `tokenizer_config.json` and
/// `special_tokens_map.json` into `folder`, which must be empty or not exist. The folder appears whole or not at all.
pub fn init_folder(folder: &Path, spec: &InitSpec) -> Result<(), TextError> {
    spec.check()?;
    let vocabulary = spec.vocabulary()?;
    let files = [
        ("config.json", config(spec, vocabulary.len())),
        (
            "generation_config.json",
            json!({ "eos_token_id": 1, "pad_token_id": 0 }),
        ),
        ("tokenizer.json", tokenizer(&spec.tokenizer, &vocabulary)),
        ("tokenizer_config.json", tokenizer_config(spec)),
        (
            "special_tokens_map.json",
            Value::Object(special_tokens_map(&spec.tokenizer)),
        ),
    ];
    refuse_content(folder)?;
    let partial = partial_path(folder);
    remove_partial(&partial)?;
    write(&partial, fs::create_dir_all(&partial))?;
    for (name, value) in &files {
        let path = partial.join(name);
        write(&path, fs::write(&path, format!("{value:#}\n")))?;
    }
    write(folder, fs::rename(&partial, folder))
}

fn write<T>(path: &Path, result: std::io::Result<T>) -> Result<T, TextError> {
    result.map_err(|source| TextError::Write {
        path: path.to_owned(),
        source,
    })
}

fn refuse_content(folder: &Path) -> Result<(), TextError> {
    match fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(TextError::NotEmpty {
                folder: folder.to_owned(),
            }),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Err(TextError::NotEmpty {
            folder: folder.to_owned(),
        }),
        Err(source) => Err(TextError::Write {
            path: folder.to_owned(),
            source,
        }),
    }
}

fn partial_path(folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!(".{name}.partial"))
}

/// What an attempt that was cut off left behind.
fn remove_partial(partial: &Path) -> Result<(), TextError> {
    match fs::remove_dir_all(partial) {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(TextError::Write {
            path: partial.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

fn config(spec: &InitSpec, vocabulary_size: usize) -> Value {
    let mut config = json!({
        "architectures": [spec.architecture.class_name()],
        "model_type": spec.architecture.model_type(),
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.key_value_heads,
        "head_dim": spec.hidden_size / spec.heads,
        "max_position_embeddings": spec.max_position_embeddings,
        "rope_theta": spec.rope_theta,
        "rms_norm_eps": spec.rms_norm_eps,
        "initializer_range": 0.02,
        "vocab_size": vocabulary_size,
        "tie_word_embeddings": spec.tied,
        "bos_token_id": null,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "torch_dtype": "float32",
        "use_cache": true,
    });
    let own: &[&str] = match spec.architecture {
        Architecture::Llama => &["attention_bias", "mlp_bias"],
        Architecture::Qwen2 => &["use_sliding_window"],
        Architecture::Qwen3 => &["attention_bias", "use_sliding_window"],
    };
    for key in own {
        config[key] = false.into();
    }
    config
}

fn special_tokens_map(tokenizer: &InitTokenizer) -> Map<String, Value> {
    let names = ["pad_token", "eos_token", "unk_token"];
    let tokens = tokenizer.special_tokens().iter();
    names
        .into_iter()
        .zip(tokens)
        .map(|(name, &token)| (name.to_owned(), token.into()))
        .collect()
}

fn tokenizer_config(spec: &InitSpec) -> Value {
    let mut config = special_tokens_map(&spec.tokenizer);
    config.insert("tokenizer_class".into(), "PreTrainedTokenizerFast".into());
    config.insert("model_max_length".into(), spec.max_position_embeddings.into());
    config.insert("clean_up_tokenization_spaces".into(), false.into());
    config.insert("chat_template".into(), CHAT_TEMPLATE.into());
    Value::Object(config)
}

/// A byte-pair model without merges, so that each entry of the vocabulary is one symbol.
fn tokenizer(kind: &InitTokenizer, vocabulary: &[String]) -> Value {
    let special = kind.special_tokens();
    let added: Vec<Value> = special
        .iter()
        .enumerate()
        .map(|(id, token)| {
            json!({
                "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true,
            })
        })
        .collect();
    let byte_level =
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false });
    let (pre_tokenizer, decoder) = match kind {
        InitTokenizer::Characters(_) => (Value::Null, json!({ "type": "Fuse" })),
        InitTokenizer::Bytes => (byte_level.clone(), byte_level),
    };
    let ids: Map<String, Value> = vocabulary
        .iter()
        .enumerate()
        .map(|(id, token)| (token.clone(), id.into()))
        .collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": null,
        "decoder": decoder,
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": special.get(2),
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": false,
            "vocab": ids,
            "merges": [],
        },
    })
}

/// The printable character that byte-level tokenizers write for a byte (GPT-2's table): bytes that print stand for
/// themselves, the others follow from U+0100 in order.
pub(crate) fn byte_character(byte: u8) -> char {
    let prints = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if prints(byte) {
        return char::from(byte);
    }
    let earlier = (0..byte).filter(|&other| !prints(other)).count() as u32;
    char::from_u32(0x100 + earlier).unwrap_or(char::REPLACEMENT_CHARACTER)
}
