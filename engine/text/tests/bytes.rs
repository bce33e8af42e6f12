//! What tokens stand for, against the tokenizer's own decoding; special and added tokens.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use rlpipe_core::data::Message;
use rlpipe_text::{Chat, InitSpec, InitTokenizer, Tokenizer, init_folder};
use serde_json::{Value, json};

fn edit(folder: &Path, name: &str, change: impl FnOnce(&mut Value)) {
    let mut file: Value = serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap();
    change(&mut file);
    fs::write(folder.join(name), file.to_string()).unwrap();
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    init_folder(folder.path(), &InitSpec::new(8, 1, 2, 8, 64, InitTokenizer::Bytes)).unwrap();
    folder
}

/// Byte-level tokens, some of several bytes that end inside characters, and added ones: `<think>` is no special token.
fn byte_level() -> Tokenizer {
    let folder = folder();
    edit(folder.path(), "tokenizer.json", |file| {
        let vocabulary = file["model"]["vocab"].as_object_mut().unwrap();
        // The bytes of `é` are `Ã` and `©` in GPT-2's table, those of a space and a line break `Ġ` and `Ċ`.
        for token in ["aÃ", "©b", "ĊĊ", "Ġa", "Ã©Ã"] {
            vocabulary.insert(token.to_owned(), vocabulary.len().into());
        }
        file["model"]["merges"] = json!(["a Ã", "© b", "Ċ Ċ", "Ġ a"]);
        let id = file["model"]["vocab"].as_object().unwrap().len();
        let token = |id: usize, text: &str, special: bool| {
            json!({ "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": special })
        };
        let added = file["added_tokens"].as_array_mut().unwrap();
        added.extend([
            token(id, "<think>", false),
            token(id + 1, "né ", false),
            token(id + 2, "<|im_end|>", true),
        ]);
        // As Llama's: a text is begun by a special token where special tokens are asked for.
        file["post_processor"] = json!({
            "type": "TemplateProcessing",
            "single": [{ "SpecialToken": { "id": "<|end|>", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
            "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
            "special_tokens": { "<|end|>": { "id": "<|end|>", "ids": [1], "tokens": ["<|end|>"] } },
        });
    });
    edit(folder.path(), "tokenizer_config.json", |file| {
        file["add_bos_token"] = json!(true);
        file["add_eos_token"] = json!(true);
        file["bos_token"] = json!("<|end|>");
    });
    Tokenizer::load(folder.path()).unwrap()
}

/// As Llama 2's: `▁` is a space, the first is left out, and what has no token is written in bytes.
fn byte_fallback() -> Tokenizer {
    let folder = folder();
    edit(folder.path(), "tokenizer.json", |file| {
        let mut tokens: Vec<String> = ["<|pad|>", "<|end|>"].map(String::from).into();
        tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
        tokens.extend(["▁", "a", "b", "▁a", "a▁b", "é", "\n"].map(String::from));
        file["model"]["vocab"] = tokens
            .iter()
            .enumerate()
            .map(|(id, token)| (token.clone(), json!(id)))
            .collect();
        file["model"]["byte_fallback"] = json!(true);
        file["normalizer"] = json!({ "type": "Sequence", "normalizers": [
            { "type": "Prepend", "prepend": "▁" },
            { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
        ] });
        file["pre_tokenizer"] = Value::Null;
        file["decoder"] = json!({ "type": "Sequence", "decoders": [
            { "type": "Replace", "pattern": { "String": "▁" }, "content": " " },
            { "type": "ByteFallback" },
            { "type": "Fuse" },
            { "type": "Strip", "content": " ", "start": 1, "stop": 0 },
        ] });
    });
    Tokenizer::load(folder.path()).unwrap()
}

/// The same with the older decoder.
fn metaspace() -> Tokenizer {
    let folder = folder();
    edit(folder.path(), "tokenizer.json", |file| {
        let tokens = ["<|pad|>", "<|end|>", "▁", "a", "b", "▁a", "é", "▁▁"];
        file["model"]["vocab"] = tokens
            .iter()
            .enumerate()
            .map(|(id, &token)| (token.to_owned(), json!(id)))
            .collect();
        let metaspace = json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true });
        file["pre_tokenizer"] = metaspace.clone();
        file["decoder"] = metaspace;
    });
    Tokenizer::load(folder.path()).unwrap()
}

fn bytes(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap()).collect()
}

/// Tokens drawn at random, some of which the tokenizer does not have.
fn drawn(tokenizer: &Tokenizer, picks: &[prop::sample::Index]) -> Vec<u32> {
    // The rarer tokens of several characters come last.
    let size = tokenizer.vocabulary_size() + 2;
    picks
        .iter()
        .map(|pick| (size - 1 - pick.index(size) % (size.min(40))) as u32)
        .collect()
}

#[test]
fn special_tokens_stand_for_nothing_and_added_ones_for_their_text() {
    let tokenizer = byte_level();
    let ids = tokenizer.encode("a<think>b<|im_end|>né ").unwrap();
    assert_eq!(ids.len(), 5, "{ids:?}");
    let texts: Vec<Vec<u8>> = ids.iter().map(|&id| tokenizer.token_bytes(id).unwrap()).collect();
    assert_eq!(texts, [&b"a"[..], b"<think>", b"b", b"", "né ".as_bytes()]);
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), "a<think>bné ");
    let special: Vec<String> = tokenizer.special_tokens().into_iter().map(|(_, token)| token).collect();
    assert_eq!(special, ["<|pad|>", "<|end|>", "<|im_end|>"]);
    // Rows of the embedding beyond the tokenizer.
    assert_eq!(tokenizer.token_bytes(70_000), Some(vec![]));
    assert_eq!(tokenizer.decode(&[70_000, ids[0]], true).unwrap(), "a");
}

#[test]
fn special_tokens_are_there_only_where_the_text_has_them() {
    let tokenizer = byte_level();
    assert_eq!(tokenizer.bos_id(), Some(1));
    // Neither `add_bos_token` nor the post-processor of `tokenizer.json` adds to a text that a template wrote.
    assert_eq!(tokenizer.encode("ab").unwrap().len(), 2);
    assert_eq!(
        tokenizer.encode_lossless("ab").unwrap(),
        tokenizer.encode("ab").unwrap()
    );
    assert_eq!(
        tokenizer
            .encode("<|end|>ab<|end|>")
            .unwrap()
            .iter()
            .filter(|&&id| id == 1)
            .count(),
        2
    );
    let chat = [Message::new("user", "<|end|>ab")];
    assert_eq!(
        tokenizer
            .encode_chat(&Chat::prompt(&chat))
            .unwrap()
            .iter()
            .filter(|&&id| id == 1)
            .count(),
        1
    );
}

#[test]
fn decoders_that_join_words_have_no_bytes() {
    for decoder in [
        json!({ "type": "WordPiece", "prefix": "##", "cleanup": true }),
        Value::Null,
    ] {
        let folder = folder();
        edit(folder.path(), "tokenizer.json", |file| file["decoder"] = decoder);
        assert_eq!(Tokenizer::load(folder.path()).unwrap().token_bytes(5), None);
    }
}

#[test]
fn a_response_ends_before_its_stop_string() {
    let tokenizer = byte_fallback();
    let ids = tokenizer.encode(" a b\n").unwrap();
    let whole = bytes(&tokenizer, &ids);
    assert_eq!(String::from_utf8_lossy(&whole), "  a b\n");
    // The decoder leaves out the first space, with a stop string and without one.
    assert_eq!(tokenizer.decode_start(&ids, 0).unwrap(), " a b\n");
    assert_eq!(tokenizer.decode_start(&ids, 2).unwrap(), " a ");
    assert_eq!(tokenizer.decode_start(&ids, whole.len()).unwrap(), "");
    assert_eq!(tokenizer.decode_start(&ids, whole.len() + 9).unwrap(), "");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn bytes_of_tokens_are_their_decoding(picks in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        for tokenizer in [byte_level(), byte_fallback(), metaspace()] {
            let ids = drawn(&tokenizer, &picks);
            let (bytes, decoded) = (bytes(&tokenizer, &ids), tokenizer.decode(&ids, true).unwrap());
            prop_assert_eq!(&tokenizer.decode_start(&ids, 0).unwrap(), &decoded);
            // What is no UTF-8 is shown differently by different decoders.
            if let Ok(text) = String::from_utf8(bytes) {
                let left_out = text.len() - decoded.len();
                prop_assert!(text[left_out..] == decoded && left_out <= 2, "{text:?} {decoded:?} {ids:?}");
                prop_assert!(text[..left_out].trim().is_empty(), "{text:?} {decoded:?} {ids:?}");
            }
        }
    }

    /// What a response has before a stop string, by bytes and by searching the text.
    #[test]
    fn cutting_bytes_is_cutting_text(
        text in "[ab \n\u{e9}]{0,12}",
        stop in "[ab \n\u{e9}]{1,3}",
        rest in "[ab \n\u{e9}]{0,4}",
    ) {
        for tokenizer in [byte_level(), byte_fallback()] {
            let ids = tokenizer.encode(&format!("{text}{stop}{rest}")).unwrap();
            prop_assert_eq!(tokenizer.decode_start(&ids, stop.len() + rest.len()).unwrap(), text.as_str());
        }
    }
}
