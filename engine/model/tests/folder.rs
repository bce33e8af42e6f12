//! Folders: every way in which weights may not be those of the configuration, each named from headers alone.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rlpipe_model::{Part, check_export, check_folder, joined, read_config, read_header};
use serde_json::{Value, json};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/models")
        .join(name)
}

/// A copy of a golden model.
fn copy(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(golden(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

/// Rewrites the header of a file; the data stay.
fn edit(path: &Path, change: impl FnOnce(&mut serde_json::Map<String, Value>)) {
    let bytes = fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    change(&mut header);
    let text = serde_json::to_vec(&header).unwrap();
    let file = [&(text.len() as u64).to_le_bytes()[..], &text, &bytes[8 + length..]].concat();
    fs::write(path, file).unwrap();
}

fn faults(folder: &Path) -> String {
    let faults = check_folder(folder);
    assert!(faults.iter().all(|fault| fault.part == Part::Weights), "{faults:?}");
    joined(&faults)
}

#[test]
fn every_golden_model_is_whole() {
    let mut models = 0;
    for entry in fs::read_dir(golden("")).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            assert_eq!(check_folder(&entry), [], "{}", entry.display());
            models += 1;
        }
    }
    assert_eq!(models, 13);
}

#[test]
fn names_shapes_and_types_are_checked_together() {
    let folder = copy("qwen3-biases");
    edit(&folder.path().join("model.safetensors"), |header| {
        let norm = header.remove("model.norm.weight").unwrap();
        header.insert("model.norm.bias".to_owned(), norm);
        header["model.layers.0.self_attn.q_norm.weight"]["shape"] = json!([2, 4]);
        header["model.layers.1.self_attn.k_proj.bias"]["dtype"] = "I32".into();
    });
    let text = faults(folder.path());
    assert!(text.contains("lacks `model.norm.weight`"), "{text}");
    assert!(text.contains("has unexpected `model.norm.bias`"), "{text}");
    assert!(
        text.contains("`model.layers.0.self_attn.q_norm.weight` has shape [2, 4], but [8] is needed"),
        "{text}"
    );
    assert!(
        text.contains("`model.layers.1.self_attn.k_proj.bias` has type I32"),
        "{text}"
    );
}

#[test]
fn a_wrong_configuration_is_a_fault_of_its_own() {
    let folder = copy("tied");
    fs::write(folder.path().join("config.json"), r#"{"model_type": "mamba"}"#).unwrap();
    fs::write(folder.path().join("model.safetensors"), "x").unwrap();
    let parts: Vec<Part> = check_folder(folder.path())
        .into_iter()
        .map(|fault| fault.part)
        .collect();
    assert_eq!(parts, [Part::Config]);
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let parts: Vec<Part> = check_folder(folder.path())
        .into_iter()
        .map(|fault| fault.part)
        .collect();
    assert_eq!(parts, [Part::Config, Part::Weights]);
}

#[test]
fn cut_and_foreign_files_are_named() {
    let folder = copy("tied");
    let path = folder.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    let cases: [(&[u8], &str); 6] = [
        (&whole[..whole.len() - 3], "3 bytes are missing at its end"),
        (&[&whole[..], b"12"].concat(), "2 bytes too many"),
        (&whole[..200], "it ends within the header"),
        (
            b"version https://git-lfs.github.com/spec/v1",
            "its header has no sensible length",
        ),
        (b"abc", "too short"),
        (b"\x02\0\0\0\0\0\0\0[]", "its header is not as it should be"),
    ];
    for (bytes, reason) in cases {
        fs::write(&path, bytes).unwrap();
        let text = faults(folder.path());
        assert!(
            text.contains("is not a whole safetensors file") && text.contains(reason),
            "{text}"
        );
    }
    fs::write(&path, &whole).unwrap();
    edit(&path, |header| {
        let place = header["model.norm.weight"]["data_offsets"].clone();
        header["model.embed_tokens.weight"]["data_offsets"] = place;
    });
    assert!(faults(folder.path()).contains("does not fit its shape and its neighbours"));
}

#[test]
fn shards_and_their_index_are_read() {
    let folder = copy("untied");
    let index = folder.path().join("model.safetensors.index.json");
    let text = fs::read_to_string(&index).unwrap();
    let map: Value = serde_json::from_str(&text).unwrap();
    let shards: BTreeMap<String, String> = serde_json::from_value(map["weight_map"].clone()).unwrap();
    let last = folder.path().join(&shards["model.norm.weight"]);
    let bytes = fs::read(&last).unwrap();
    fs::remove_file(&last).unwrap();
    let missing = faults(folder.path());
    // Not also all that the shard would hold.
    assert!(
        missing.contains("cannot read") && !missing.contains("lacks"),
        "{missing}"
    );
    fs::write(&last, bytes).unwrap();
    let first = folder.path().join(&shards["model.embed_tokens.weight"]);
    fs::copy(first, folder.path().join("copy.safetensors")).unwrap();
    let doubled = text.replacen("\"weight_map\": {", "\"weight_map\": { \"x\": \"copy.safetensors\",", 1);
    fs::write(&index, doubled).unwrap();
    assert!(faults(folder.path()).contains("`model.embed_tokens.weight` is in"));
    for (index_text, reason) in [
        (r#"{"weight_map": {"a": "../model.safetensors"}}"#, "is not a file name"),
        (r#"{"weight_map": {}}"#, "names no tensor"),
        ("{}", "weight_map"),
    ] {
        fs::write(&index, index_text).unwrap();
        assert!(faults(folder.path()).contains(reason), "{}", faults(folder.path()));
    }
}

/// The weights of a tied model, with the embedding once more as the head, one byte of it changed or not.
fn with_head(folder: &Path, changed: bool) {
    let path = folder.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: serde_json::Map<String, Value> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let mut data = bytes[8 + length..].to_vec();
    let mut head = header["model.embed_tokens.weight"].clone();
    let place = |end: usize| head["data_offsets"][end].as_u64().unwrap() as usize;
    let mut copied = data[place(0)..place(1)].to_vec();
    let last = copied.len() - 1;
    copied[last] ^= u8::from(changed);
    head["data_offsets"] = json!([data.len(), data.len() + copied.len()]);
    header.insert("lm_head.weight".to_owned(), head);
    data.extend(copied);
    let text = serde_json::to_vec(&header).unwrap();
    fs::write(&path, [&(text.len() as u64).to_le_bytes()[..], &text, &data].concat()).unwrap();
}

#[test]
fn a_tied_model_may_repeat_its_embedding_as_the_head() {
    let folder = copy("tied");
    with_head(folder.path(), false);
    assert_eq!(check_folder(folder.path()), []);
}

#[test]
fn a_tied_model_with_another_head_is_refused() {
    let folder = copy("tied");
    with_head(folder.path(), true);
    let said = faults(folder.path());
    assert!(said.contains("`lm_head.weight` differs from the embedding"), "{said}");
}

#[test]
fn a_stop_id_beyond_the_vocabulary_is_named() {
    let folder = copy("tied");
    let vocabulary = read_config(folder.path()).unwrap().vocabulary;
    for (ids, beyond) in [
        (json!([1, vocabulary]), Some(vocabulary)),
        (json!(vocabulary - 1), None),
        (json!(vocabulary + 7), Some(vocabulary + 7)),
    ] {
        let text = json!({ "eos_token_id": ids }).to_string();
        fs::write(folder.path().join("generation_config.json"), text).unwrap();
        let said = check_folder(folder.path());
        match beyond {
            None => assert_eq!(said, []),
            Some(beyond) => {
                assert_eq!(said.len(), 1, "{said:?}");
                assert_eq!(said[0].part, Part::Stop);
                assert!(
                    said[0]
                        .message
                        .contains(&format!("names {beyond}, but `vocab_size` is {vocabulary}")),
                    "{said:?}"
                );
            }
        }
    }
}

#[test]
fn i25d_an_export_that_lacks_a_tensor_is_named_with_both_counts() {
    let (source, folder) = (golden("qwen2-untied"), copy("qwen2-untied"));
    let (config, file) = (read_config(&source).unwrap(), folder.path().join("model.safetensors"));
    assert_eq!(check_export(&source, &config, &file), []);
    let parameters = read_header(&file)
        .unwrap()
        .values()
        .map(|entry| entry.shape.iter().product::<i64>())
        .sum::<i64>();
    // The norm's numbers become part of a tensor before or after it: the file itself stays whole.
    edit(&file, |header| {
        let gone = header.remove("model.norm.weight").unwrap();
        header.insert("x.rotary_emb.inv_freq".to_owned(), gone);
    });
    let text = joined(&check_export(&source, &config, &file));
    assert!(text.contains("lacks `model.norm.weight`"), "{text}");
    let counts = format!("has {} parameters in 26 tensors, but the model", parameters - 24);
    assert!(
        text.contains(&counts) && text.contains(&format!("has {parameters} in 27")),
        "{text}"
    );
    assert!(text.ends_with("they differ in `model.norm.weight`"), "{text}");
}

#[test]
fn a_tokenizer_beyond_the_vocabulary_is_named() {
    let folder = copy("tied");
    let tokenizer = folder.path().join("tokenizer.json");
    let write = |added: u64, vocabulary: Value| {
        let added = json!([{"id": added, "content": "<pad>"}]);
        fs::write(
            &tokenizer,
            json!({"added_tokens": added, "model": {"vocab": vocabulary}}).to_string(),
        )
        .unwrap();
        check_folder(folder.path())
    };
    assert_eq!(write(60, json!({"a": 0, "b": 59})), []);
    let faults = write(61, json!({"a": 0}));
    assert_eq!(faults[0].part, Part::Tokenizer);
    assert!(
        faults[0]
            .message
            .contains("goes up to id 61 (`<pad>`), but `vocab_size` is 61"),
        "{}",
        faults[0]
    );
    assert!(write(3, json!({"a": 99}))[0].message.contains("id 99 (`a`)"));
    let pieces = |count: usize| json!(vec![json!(["a", -1.5]); count]);
    assert_eq!(write(3, pieces(61)), []);
    assert!(write(3, pieces(62))[0].message.contains("id 61"));
    fs::write(&tokenizer, "{").unwrap();
    assert_eq!(check_folder(folder.path()), []);
}
