//! Whatever the text is, and wherever one asks: an answer, and no fault.

use proptest::prelude::*;
use serde_json::json;

use crate::client::{Client, position};
use crate::fixture::pipeline;

/// Every request that has a position.
const REQUESTS: [&str; 6] = [
    "textDocument/completion",
    "textDocument/hover",
    "textDocument/definition",
    "textDocument/references",
    "textDocument/prepareRename",
    "textDocument/codeAction",
];

/// What is typed, pasted or left over: brackets, quotes, separators, line ends, other alphabets.
fn scrap() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ \\n\\r\\t:=#{}\\[\\],.\"'|>$&*!%@`-]{1,4}",
        "[a-zß😀\\u{feff}]{1,3}",
        Just("${".to_owned()),
        Just("\"\"\"".to_owned()),
        Just("type: trainer\n".to_owned()),
        Just("[nodes.x]\n".to_owned()),
        Just("\n    ".to_owned()),
        Just(String::new()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_edit_and_no_place_is_a_fault(
        toml: bool,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..40, scrap()), 1..12),
        places in prop::collection::vec(any::<prop::sample::Index>(), 4),
    ) {
        let name = if toml { "quickstart.toml" } else { "gsm8k.yaml" };
        let mut client = Client::start();
        let mut opened = client.open(name, &pipeline(name));
        for (at, length, scrap) in edits {
            let start = opened.text.floor_char_boundary(at.index(opened.text.len() + 1));
            let end = opened.text.floor_char_boundary((start + length).min(opened.text.len())).max(start);
            client.change(&mut opened, start..end, &scrap);
        }
        for place in places {
            let offset = opened.text.floor_char_boundary(place.index(opened.text.len() + 1));
            let place = position(&opened.text, offset);
            let params = json!({
                "textDocument": { "uri": opened.uri },
                "position": place,
                "range": { "start": place, "end": place },
                "context": { "triggerKind": 1, "includeDeclaration": true, "diagnostics": [] },
            });
            for request in REQUESTS {
                let answer = client.ask(request, params.clone());
                prop_assert!(answer.is_ok(), "{} of {:?}: {:?}", request, opened.text, answer);
            }
        }
        let document = json!({ "textDocument": { "uri": opened.uri } });
        let symbols = client.ask("textDocument/documentSymbol", document);
        prop_assert!(symbols.is_ok(), "{:?}", symbols);
        client.end();
    }
}

/// All places of a text that is cut off there, as it is while it is written from the top.
#[test]
fn a_text_that_grows_has_an_answer_everywhere() {
    for name in ["chain-sum-smollm2.yaml", "quickstart.toml"] {
        let text = pipeline(name);
        let mut client = Client::start();
        let mut opened = client.open(name, "");
        for (at, character) in text.char_indices() {
            let end = opened.text.len();
            client.change(&mut opened, end..end, &text[at..at + character.len_utf8()]);
            if at % 7 == 0 {
                for request in &REQUESTS[..3] {
                    client.at(request, &opened, opened.text.len());
                }
            }
        }
        client.end();
    }
}

#[test]
fn texts_beyond_the_limits_are_refused_by_the_compiler() {
    let mut client = Client::start();
    let long = format!("version: 1\nnodes: {{}}\nname: {}\n", "x".repeat(5 << 20));
    let head = "# yaml-language-server: $schema=../schemas/pipeline.schema.json\n";
    let opened = client.open("long.yaml", &format!("{head}{long}"));
    assert_eq!(client.codes(), ["RL0112"]);
    client.at("textDocument/completion", &opened, 100);
    for (name, deep) in [
        ("deep.yaml", format!("version: 1\nnodes: {}", "{ a: [".repeat(20_000))),
        (
            "deep-blocks.yaml",
            (0..2000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect(),
        ),
        ("deep.toml", format!("version = 1\n[nodes]\nx = {}", "[".repeat(20_000))),
        (
            "deep-keys.toml",
            format!("version = 1\n[nodes]\n[{}x]", "a.".repeat(20_000)),
        ),
    ] {
        let text = format!("{head}{deep}");
        let opened = client.open(name, &text);
        client.diagnostics();
        for request in REQUESTS.iter().take(5) {
            client.at(request, &opened, text.len());
            client.at(request, &opened, text.len() / 2);
        }
    }
    client.end();
}
