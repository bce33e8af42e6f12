//! Folders written from nothing, their tokenizers, and ill-formed folders.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use rlpipe_core::data::Message;
use rlpipe_model::Architecture;
use rlpipe_text::{Chat, InitSpec, InitTokenizer, TextError, Tokenizer, init_folder};
use serde_json::{Value, json};

const SUMS: &str = "0123456789+-= ";

fn spec(tokenizer: InitTokenizer) -> InitSpec {
    InitSpec::new(128, 4, 4, 384, 32, tokenizer)
}

fn characters(text: &str) -> InitTokenizer {
    InitTokenizer::Characters(text.into())
}

fn written(tokenizer: InitTokenizer) -> (tempfile::TempDir, Tokenizer) {
    let folder = tempfile::tempdir().unwrap();
    init_folder(folder.path(), &spec(tokenizer)).unwrap();
    let tokenizer = Tokenizer::load(folder.path()).unwrap();
    (folder, tokenizer)
}

fn read(folder: &Path, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
}

fn set(folder: &Path, name: &str, key: &str, value: Value) {
    let mut file = read(folder, name);
    file[key] = value;
    fs::write(folder.join(name), file.to_string()).unwrap();
}

fn load_error(folder: &Path) -> String {
    Tokenizer::load(folder).unwrap_err().to_string()
}

#[test]
fn a_character_is_a_token() {
    let (folder, tokenizer) = written(characters(SUMS));
    assert_eq!(tokenizer.encode("12+3= 15").unwrap(), [4, 5, 13, 6, 15, 16, 4, 8]);
    assert_eq!(
        tokenizer.decode(&[4, 5, 13, 6, 15, 16, 4, 8, 1], true).unwrap(),
        "12+3= 15"
    );
    assert_eq!(
        tokenizer.decode(&[4, 1, 0, 2], false).unwrap(),
        "1<|end|><|pad|><|unknown|>"
    );
    assert_eq!(tokenizer.encode("1<|end|>").unwrap(), [4, 1]);
    assert_eq!(tokenizer.encode("1é2").unwrap(), [4, 2, 5]);
    assert_eq!(
        (tokenizer.pad_id(), tokenizer.eos_id(), tokenizer.unknown_id()),
        (0, 1, Some(2))
    );
    assert_eq!(tokenizer.stop_ids(), [1]);
    assert_eq!(tokenizer.vocabulary_size(), 17);
    let turns = [Message::new("user", "1+1="), Message::new("assistant", "2")];
    assert_eq!(tokenizer.render(&Chat::prompt(&turns)).unwrap(), "1+1=2");
    assert_eq!(
        tokenizer.encode_chat(&Chat::prompt(&turns)).unwrap(),
        tokenizer.encode("1+1=2").unwrap()
    );

    let config = read(folder.path(), "config.json");
    assert_eq!(config["architectures"], json!(["LlamaForCausalLM"]));
    assert_eq!(
        (&config["vocab_size"], &config["num_key_value_heads"]),
        (&json!(17), &json!(4))
    );
    assert_eq!(config["rope_theta"], json!(10000.0));
    assert_eq!(
        read(folder.path(), "special_tokens_map.json")["unk_token"],
        "<|unknown|>"
    );
    let names: BTreeSet<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let expected = [
        "config.json",
        "generation_config.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    assert_eq!(names, expected.map(String::from).into());
}

#[test]
fn a_byte_is_a_token() {
    let (_folder, tokenizer) = written(InitTokenizer::Bytes);
    assert_eq!(
        tokenizer.encode("A é").unwrap(),
        [2 + 0x41, 2 + 0x20, 2 + 0xC3, 2 + 0xA9]
    );
    assert_eq!(tokenizer.encode("\0\u{7f}<|end|>").unwrap(), [2, 2 + 0x7F, 1]);
    assert_eq!((tokenizer.vocabulary_size(), tokenizer.unknown_id()), (258, None));
    // A character that is cut off in the middle is shown as such, not an error.
    assert_eq!(tokenizer.decode(&[2 + 0x41, 2 + 0xC3], true).unwrap(), "A\u{FFFD}");
    // An embedding may have more rows than the tokenizer has tokens.
    assert_eq!(tokenizer.decode(&[2 + 0x41, 70_000], true).unwrap(), "A");
}

#[test]
fn text_without_a_token_is_named() {
    let (_folder, tokenizer) = written(characters(SUMS));
    assert_eq!(
        tokenizer.encode_lossless("1+1=").unwrap(),
        tokenizer.encode("1+1=").unwrap()
    );
    assert_eq!(tokenizer.encode_lossless("1<|unknown|>").unwrap(), [4, 2]);
    match tokenizer.encode_lossless("12🙂3é").unwrap_err() {
        TextError::Unrepresentable {
            character, position, ..
        } => assert_eq!((character, position), ('🙂', 3)),
        other => panic!("{other}"),
    }
    let error = tokenizer.encode_lossless("1\n").unwrap_err().to_string();
    assert!(
        error.contains(r#"no token for '\n' (U+000A), character 2 of "1\n""#),
        "{error}"
    );
}

#[test]
fn text_that_a_tokenizer_drops_is_named() {
    let (folder, _) = written(characters(SUMS));
    let mut file = read(folder.path(), "tokenizer.json");
    file["model"]["unk_token"] = Value::Null;
    fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
    let tokenizer = Tokenizer::load(folder.path()).unwrap();
    assert_eq!(tokenizer.unknown_id(), None);
    assert_eq!(tokenizer.encode("1x2").unwrap(), [4, 5]);
    assert!(matches!(
        tokenizer.encode_lossless("1x2"),
        Err(TextError::Unrepresentable { character: 'x', .. })
    ));
}

#[test]
fn stop_ids_come_from_the_configurations() {
    let (folder, _) = written(InitTokenizer::Bytes);
    let stop_ids = || Tokenizer::load(folder.path()).unwrap().stop_ids().to_vec();
    set(
        folder.path(),
        "generation_config.json",
        "eos_token_id",
        json!([7, 1, 7, 9]),
    );
    assert_eq!(stop_ids(), [1, 7, 9]);
    // The token that ends answers in training is a stop even if it is not listed.
    set(folder.path(), "generation_config.json", "eos_token_id", json!(7));
    assert_eq!(stop_ids(), [1, 7]);
    set(folder.path(), "config.json", "eos_token_id", json!(5));
    set(folder.path(), "generation_config.json", "eos_token_id", Value::Null);
    assert_eq!(stop_ids(), [1, 5]);
    fs::remove_file(folder.path().join("generation_config.json")).unwrap();
    assert_eq!(stop_ids(), [1, 5]);
    fs::remove_file(folder.path().join("config.json")).unwrap();
    assert_eq!(stop_ids(), [1]);
    // Newer folders have no map of their own.
    fs::remove_file(folder.path().join("special_tokens_map.json")).unwrap();
    assert_eq!(stop_ids(), [1]);
}

#[test]
fn ill_formed_folders_say_which_file_and_what_to_do() {
    let (folder, _) = written(InitTokenizer::Bytes);
    let path = folder.path();
    let assert_error = |parts: &[&str]| {
        let error = load_error(path);
        for part in parts {
            assert!(error.contains(part), "no `{part}` in: {error}");
        }
    };
    for (name, key, value, parts) in [
        (
            "generation_config.json",
            "eos_token_id",
            json!(999),
            ["`eos_token_id` names 999", "has 258 tokens"],
        ),
        (
            "generation_config.json",
            "eos_token_id",
            json!("end"),
            ["generation_config.json` is ill-formed", "`\"end\"`"],
        ),
        (
            "generation_config.json",
            "eos_token_id",
            json!([1, -1]),
            ["generation_config.json`", "`[1,-1]`"],
        ),
        (
            "tokenizer_config.json",
            "eos_token",
            json!("</s>"),
            ["its `eos_token` is `</s>`", "`tokenizer.json` does not"],
        ),
        (
            "tokenizer_config.json",
            "bos_token",
            json!(3),
            ["`bos_token` is neither a text nor has `content`", "`3`"],
        ),
    ] {
        let before = fs::read_to_string(path.join(name)).unwrap();
        set(path, name, key, value);
        assert_error(&parts);
        fs::write(path.join(name), before).unwrap();
    }
    for name in ["config.json", "generation_config.json", "special_tokens_map.json"] {
        fs::remove_file(path.join(name)).unwrap();
    }
    set(path, "tokenizer_config.json", "eos_token", Value::Null);
    assert_error(&["names no `eos_token`", "nothing ends an answer"]);
    for (name, text, parts) in [
        ("config.json", "{", ["config.json` is ill-formed", "EOF"]),
        (
            "tokenizer_config.json",
            "[]",
            ["tokenizer_config.json` is ill-formed", "expected an object, found `[]`"],
        ),
        (
            "tokenizer.json",
            "{}",
            [
                "tokenizer.json` is ill-formed",
                "copy the file from the model's release again",
            ],
        ),
        ("tokenizer.json", "\u{FEFF}", ["tokenizer.json` is ill-formed", ""]),
    ] {
        let before = fs::read_to_string(path.join(name)).ok();
        fs::write(path.join(name), text).unwrap();
        assert_error(&parts);
        match before {
            Some(before) => fs::write(path.join(name), before).unwrap(),
            None => fs::remove_file(path.join(name)).unwrap(),
        }
    }
    fs::write(path.join("tokenizer.json"), [0xFF, 0xFE]).unwrap();
    assert_error(&["cannot read", "tokenizer.json", "UTF-8"]);
    fs::remove_file(path.join("tokenizer.json")).unwrap();
    assert_error(&[
        "cannot read",
        "tokenizer.json",
        "point the model's `path` at a Hugging Face folder",
    ]);
}

#[test]
fn every_architecture_from_nothing_is_one_that_can_be_read() {
    for architecture in [Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3] {
        let folder = tempfile::tempdir().unwrap();
        let spec = InitSpec {
            architecture,
            key_value_heads: 2,
            ..spec(InitTokenizer::Bytes)
        };
        init_folder(folder.path(), &spec).unwrap();
        let config = rlpipe_model::read_config(folder.path()).unwrap();
        assert_eq!(config.architecture, architecture);
        assert_eq!(
            (config.hidden, config.layers, config.heads, config.kv_heads),
            (128, 4, 4, 2)
        );
        assert_eq!(
            (config.head_dim, config.intermediate, config.max_positions),
            (32, 384, 32)
        );
        assert!(config.tied && !config.output_bias && !config.mlp_bias);
        assert_eq!(config.qkv_bias, architecture == Architecture::Qwen2);
    }
}

#[test]
fn contradictory_specifications_name_both_numbers() {
    let errors = |change: fn(&mut InitSpec)| {
        let mut changed = spec(characters(SUMS));
        change(&mut changed);
        changed.check().unwrap_err().to_string()
    };
    for (error, parts) in [
        (errors(|spec| spec.heads = 3), ["`hidden_size` 128", "`heads` 3"]),
        (
            errors(|spec| spec.heads = 128),
            ["`hidden_size` 128 over `heads` 128 gives 1", "even"],
        ),
        (
            errors(|spec| spec.key_value_heads = 3),
            ["`heads` 4", "`key_value_heads` 3"],
        ),
        (errors(|spec| spec.layers = 0), ["`layers` is 0", "at least 1"]),
        (
            errors(|spec| spec.rope_theta = f64::NAN),
            ["`rope_theta` is NaN", "above 0"],
        ),
        (
            errors(|spec| spec.rms_norm_eps = 0.0),
            ["`rms_norm_eps` is 0", "above 0"],
        ),
        (
            errors(|spec| spec.tokenizer = characters("")),
            ["`characters` are empty", "list"],
        ),
        (
            errors(|spec| spec.tokenizer = characters("0120")),
            ["have '0' twice", "remove"],
        ),
        (
            errors(|spec| spec.tokenizer = characters("01<|end|>")),
            ["contain `<|end|>`", "remove"],
        ),
    ] {
        for part in parts {
            assert!(error.contains(part), "no `{part}` in: {error}");
        }
    }
}

#[test]
fn nothing_is_overwritten() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("deep/model");
    init_folder(&folder, &spec(InitTokenizer::Bytes)).unwrap();
    let before = fs::read_to_string(folder.join("tokenizer.json")).unwrap();
    let error = init_folder(&folder, &spec(characters(SUMS))).unwrap_err();
    assert!(matches!(error, TextError::NotEmpty { .. }), "{error}");
    assert_eq!(fs::read_to_string(folder.join("tokenizer.json")).unwrap(), before);
    assert_eq!(fs::read_dir(parent.path().join("deep")).unwrap().count(), 1);

    let file = folder.join("config.json");
    assert!(matches!(
        init_folder(&file, &spec(InitTokenizer::Bytes)),
        Err(TextError::NotEmpty { .. })
    ));
    let below_file = file.join("model");
    assert!(init_folder(&below_file, &spec(InitTokenizer::Bytes)).is_err());

    // What an attempt that was cut off left beside the folder is replaced.
    fs::create_dir(parent.path().join(".next.partial")).unwrap();
    fs::write(parent.path().join(".next.partial/stale"), "").unwrap();
    init_folder(&parent.path().join("next"), &spec(InitTokenizer::Bytes)).unwrap();
    assert!(!parent.path().join("next/stale").exists());
}

#[test]
fn equal_folders_have_equal_fingerprints() {
    let (folder, tokenizer) = written(characters(SUMS));
    let (_, same) = written(characters(SUMS));
    let (_, other) = written(characters("0123456789+-=_"));
    assert_eq!(tokenizer.fingerprint(), same.fingerprint());
    assert_eq!(tokenizer.fingerprint().len(), 64);
    assert_ne!(tokenizer.fingerprint(), other.fingerprint());
    fs::write(folder.path().join("chat_template.jinja"), "{{ messages }}").unwrap();
    assert_ne!(
        Tokenizer::load(folder.path()).unwrap().fingerprint(),
        tokenizer.fingerprint()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_set_of_characters_round_trips(set in "\\PC{1,40}", picks in prop::collection::vec(any::<prop::sample::Index>(), 0..60)) {
        let distinct: BTreeSet<char> = set.chars().chain("\n \t".chars()).collect();
        let alphabet: Vec<char> = distinct.into_iter().collect();
        let (_folder, tokenizer) = written(InitTokenizer::Characters(alphabet.iter().collect()));
        let text: String = picks.iter().map(|pick| *pick.get(&alphabet)).collect();
        let ids = tokenizer.encode_lossless(&text).unwrap();
        prop_assert_eq!(ids.len(), text.chars().count());
        prop_assert_eq!(tokenizer.decode(&ids, true).unwrap(), text);
    }

    #[test]
    fn any_text_is_bytes(text in any::<String>()) {
        let (_folder, tokenizer) = written(InitTokenizer::Bytes);
        let ids = tokenizer.encode_lossless(&text).unwrap();
        prop_assert_eq!(&ids, &text.bytes().map(|byte| u32::from(byte) + 2).collect::<Vec<_>>());
        prop_assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    }
}

/// What transformers' fast tokenizers add when they load a folder: without it a control token would become pieces, and the
/// prompt one that the model has never seen.
#[test]
fn tokens_that_stand_beside_the_tokenizer_are_tokens() {
    let (folder, plain) = written(characters(SUMS));
    let (config, next) = ("tokenizer_config.json", plain.vocabulary_size() as u32);
    let think = json!({"content": "<think>", "special": false, "normalized": false});
    let load = || Tokenizer::load(folder.path()).unwrap();
    set(
        folder.path(),
        config,
        "added_tokens_decoder",
        json!({ next.to_string(): think }),
    );
    assert_eq!(load().encode("1<think>2").unwrap(), [4, next, 5]);
    assert_eq!(load().decode(&[4, next], true).unwrap(), "1<think>");
    assert_ne!(load().fingerprint(), plain.fingerprint());

    // An id that cannot be kept is no guess.
    set(
        folder.path(),
        config,
        "added_tokens_decoder",
        json!({ (next + 3).to_string(): think }),
    );
    assert!(
        load_error(folder.path()).contains("`<think>` has the id"),
        "{}",
        load_error(folder.path())
    );

    set(folder.path(), config, "added_tokens_decoder", Value::Null);
    set(folder.path(), config, "additional_special_tokens", json!(["<|tool|>"]));
    assert_eq!(load().encode("1<|tool|>").unwrap(), [4, next]);
    assert_eq!(
        load().decode(&[4, next], true).unwrap(),
        "1",
        "special ones are no text"
    );

    set(folder.path(), config, "additional_special_tokens", Value::Null);
    fs::write(
        folder.path().join("added_tokens.json"),
        json!({ "<x>": next }).to_string(),
    )
    .unwrap();
    assert_eq!(load().encode("<x>").unwrap(), [next]);
}

#[test]
fn flags_beside_the_tokenizer_count_and_named_tokens_are_special() {
    let (folder, plain) = written(characters(SUMS));
    let end = plain.eos_id();
    let entry = json!({"content": "<|end|>", "special": true, "normalized": false, "rstrip": true});
    set(
        folder.path(),
        "tokenizer_config.json",
        "added_tokens_decoder",
        json!({ end.to_string(): entry }),
    );
    let strips = Tokenizer::load(folder.path()).unwrap();
    assert_eq!(strips.encode("<|end|> 1").unwrap(), [end, 4]);
    assert_eq!(plain.encode("<|end|> 1").unwrap().len(), 3);

    set(
        folder.path(),
        "tokenizer_config.json",
        "added_tokens_decoder",
        Value::Null,
    );
    let mut file = read(folder.path(), "tokenizer.json");
    for token in file["added_tokens"].as_array_mut().unwrap() {
        token["special"] = json!(false);
    }
    fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
    let named = Tokenizer::load(folder.path()).unwrap();
    assert_eq!(named.decode(&[4, end], true).unwrap(), "1");
}
