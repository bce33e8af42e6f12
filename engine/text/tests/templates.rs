//! Chat templates against goldens that transformers rendered (`goldens.py`).
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rlpipe_core::data::Message;
use rlpipe_text::{Chat, InitSpec, InitTokenizer, TextError, Tokenizer, init_folder};
use serde::Deserialize;

/// 2024-07-04 05:06:07, the goldens' clock.
const MOMENT_SECS: u64 = 1_720_069_567;

#[derive(Deserialize)]
struct Case {
    template: String,
    messages: Vec<Message>,
    add_generation_prompt: bool,
    text: Option<String>,
    error: Option<String>,
}

/// A byte-level folder whose special tokens are `<s>` and `</s>`, with this template.
fn folder(template: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    init_folder(folder.path(), &InitSpec::new(8, 1, 2, 8, 64, InitTokenizer::Bytes)).unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"] {
        let path = folder.path().join(name);
        fs::write(&path, fs::read_to_string(&path).unwrap().replace("<|end|>", "</s>")).unwrap();
    }
    edit(
        folder.path(),
        "tokenizer_config.json",
        "{",
        r#"{ "bos_token": { "content": "<s>", "special": true }, "#,
    );
    fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    folder
}

fn edit(folder: &Path, name: &str, from: &str, to: &str) {
    let path = folder.join(name);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{name} has no {from}");
    fs::write(&path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn templates_render_as_in_transformers() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let cases: Vec<Case> = serde_json::from_str(&fs::read_to_string(tests.join("goldens.json")).unwrap()).unwrap();
    assert_eq!(cases.len(), 60);
    for case in cases {
        let template = fs::read_to_string(tests.join("templates").join(&case.template)).unwrap();
        let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(MOMENT_SECS);
        let tokenizer = Tokenizer::load(folder(&template).path()).unwrap().with_moment(moment);
        let chat = Chat {
            messages: &case.messages,
            add_generation_prompt: case.add_generation_prompt,
            ..Chat::default()
        };
        let rendered = tokenizer.render(&chat);
        match (case.text, case.error) {
            (Some(text), None) => {
                assert_eq!(rendered.unwrap(), text, "{}", case.template);
                let ids = tokenizer.encode_chat(&chat).unwrap();
                assert_eq!(ids, tokenizer.encode(&text).unwrap());
                assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
            }
            (None, Some(said)) => match rendered.unwrap_err() {
                TextError::TemplateRejects { message, .. } => assert_eq!(message, said),
                other => panic!("{}: {other}", case.template),
            },
            _ => panic!("a golden has either a text or an error"),
        }
    }
}

#[test]
fn faults_of_a_template_say_where_they_are() {
    let syntax = Tokenizer::load(folder("line\n{% for message in %}").path())
        .unwrap_err()
        .to_string();
    assert!(
        syntax.contains("chat_template.jinja` is ill-formed: its chat template does not parse"),
        "{syntax}"
    );
    assert!(syntax.contains(":2)"), "{syntax}");

    let user = [Message::new("user", "hello")];
    let render = |template: &str| {
        Tokenizer::load(folder(template).path())
            .unwrap()
            .render(&Chat::prompt(&user))
    };
    for (template, part) in [
        ("{{ messages[0].tool.name }}", "undefined"),
        (
            "{{ strftime_now('%Q') }}",
            "`strftime_now` does not know the format `%Q`",
        ),
        (
            "{{ messages | tojson(separators=[':']) }}",
            "`separators` of `tojson` takes two texts",
        ),
        ("{{ messages | tojson(colour='red') }}", "colour"),
        ("{{ messages[0].content.frobnicate() }}", "frobnicate"),
    ] {
        let error = render(template).unwrap_err();
        assert!(matches!(error, TextError::TemplateFails { .. }), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(
        render("{{ raise_exception('no') }}")
            .unwrap_err()
            .to_string()
            .split("messages: ")
            .nth(1),
        Some("no")
    );
}

#[test]
fn a_template_is_taken_from_its_file_then_from_the_configuration() {
    let folder = folder("from the file");
    let render = || Tokenizer::load(folder.path()).and_then(|tokenizer| tokenizer.render(&Chat::default()));
    assert_eq!(render().unwrap(), "from the file");

    fs::remove_file(folder.path().join("chat_template.jinja")).unwrap();
    assert_eq!(render().unwrap(), "");

    let path = folder.path().join("tokenizer_config.json");
    let plain: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let with = |template: serde_json::Value| {
        let mut config = plain.clone();
        config["chat_template"] = template;
        fs::write(&path, config.to_string()).unwrap();
    };
    with(serde_json::json!([
        { "name": "tool_use", "template": "tools" },
        { "name": "default", "template": "{{ eos_token }}{{ add_generation_prompt }}" },
    ]));
    assert_eq!(render().unwrap(), "</s>False");

    with(serde_json::json!([{ "name": "tool_use", "template": "tools" }]));
    let error = render().unwrap_err().to_string();
    assert!(
        error.contains("no template named `default`, only `tool_use`"),
        "{error}"
    );

    with(serde_json::json!(7));
    assert!(
        render()
            .unwrap_err()
            .to_string()
            .contains("neither a text nor a list of templates: `7`")
    );

    with(serde_json::Value::Null);
    let error = render().unwrap_err();
    assert!(matches!(error, TextError::NoTemplate { .. }), "{error}");
    assert!(
        error.to_string().contains("put one into `chat_template.jinja`"),
        "{error}"
    );
}
