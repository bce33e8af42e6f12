//! Chat templates of model families against what transformers renders (`tests/golden/templates/make.py`).
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rlpipe_core::data::Message;
use rlpipe_text::{Chat, ChatTemplateChoice, InitSpec, InitTokenizer, TextError, Tokenizer, init_folder};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// 2024-07-04 05:06:07, the goldens' clock.
const MOMENT_SECS: u64 = 1_720_069_567;

#[derive(Deserialize)]
struct GoldenChat {
    messages: Vec<Message>,
    #[serde(default)]
    add_generation_prompt: bool,
    tools: Option<Vec<Value>>,
    documents: Option<Vec<Value>>,
    #[serde(default)]
    variables: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Golden {
    Text(String),
    /// By the template itself.
    Raises(String),
    /// By jinja2, in its words.
    Fails(String),
}

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/templates")
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// A byte-level folder whose special tokens are `<s>` and `</s>`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    init_folder(folder.path(), &InitSpec::new(8, 1, 2, 8, 64, InitTokenizer::Bytes)).unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"] {
        let path = folder.path().join(name);
        fs::write(&path, fs::read_to_string(&path).unwrap().replace("<|end|>", "</s>")).unwrap();
    }
    let path = folder.path().join("tokenizer_config.json");
    let mut config: Value = read(&path);
    config["bos_token"] = json!("<s>");
    fs::write(&path, config.to_string()).unwrap();
    folder
}

/// Where two texts part, or what was said instead.
fn difference(golden: &Golden, rendered: &Result<String, TextError>) -> String {
    match (golden, rendered) {
        (Golden::Text(text), Ok(rendered)) => {
            let same = text
                .chars()
                .zip(rendered.chars())
                .take_while(|(left, right)| left == right)
                .count();
            let from = |text: &str| text.chars().skip(same.saturating_sub(20)).take(60).collect::<String>();
            format!("{:?} and not {:?}", from(rendered), from(text))
        }
        (golden, rendered) => format!("{golden:?} and not {rendered:?}").chars().take(400).collect(),
    }
}

#[test]
fn templates_of_model_families_render_as_in_transformers() {
    let (folder, chats) = (
        folder(),
        read::<BTreeMap<String, GoldenChat>>(&goldens().join("chats.json")),
    );
    let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(MOMENT_SECS);
    let (mut families, mut texts, mut wrong) = (0, 0, Vec::new());
    let mut files: Vec<PathBuf> = fs::read_dir(goldens())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    for file in files
        .into_iter()
        .filter(|file| file.extension().is_some_and(|name| name == "jinja"))
    {
        families += 1;
        let expected: BTreeMap<String, Golden> = read(&file.with_extension("json"));
        assert!(expected.keys().eq(chats.keys()), "{}", file.display());
        for (name, golden) in expected {
            let chat = &chats[&name];
            let choice = ChatTemplateChoice {
                file: Some(file.clone()),
                variables: chat.variables.clone(),
            };
            let tokenizer = Tokenizer::load_with(folder.path(), &choice)
                .unwrap()
                .with_moment(moment);
            let rendered = tokenizer.render(&Chat {
                messages: &chat.messages,
                add_generation_prompt: chat.add_generation_prompt,
                tools: chat.tools.as_deref(),
                documents: chat.documents.as_deref(),
            });
            let is_right = match (&golden, &rendered) {
                (Golden::Text(text), Ok(rendered)) => text == rendered,
                (Golden::Raises(said), Err(TextError::TemplateRejects { message, .. })) => said == message,
                (Golden::Fails(_), Err(TextError::TemplateFails { .. })) => true,
                // Here a loop over None has no turns.
                (Golden::Fails(said), Ok(_)) => said == "'NoneType' object is not iterable",
                _ => false,
            };
            texts += usize::from(matches!(golden, Golden::Text(_)));
            if !is_right {
                let family = file.file_stem().unwrap().to_string_lossy().into_owned();
                wrong.push(format!("{family}, {name}: {}", difference(&golden, &rendered)));
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong\n{}", wrong.len(), wrong.join("\n"));
    assert!(families >= 10 && texts > 300, "{families} families, {texts} texts");
}
