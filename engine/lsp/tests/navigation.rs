//! Hover, names, outline and fixes.

use serde_json::{Value, json};

use crate::client::{Client, Opened, edited, offset, position};
use crate::fixture::{open_marked, pipeline};

const YAML: &str = "gsm8k.yaml";
const TOML: &str = "quickstart.toml";

/// The hover at the cursor of a pipeline with a part replaced.
fn hovered(name: &str, from: &str, to: &str) -> String {
    let mut client = Client::start();
    let (opened, cursor) = open_marked(&mut client, name, from, to);
    let found = client.at("textDocument/hover", &opened, cursor);
    client.end();
    found["contents"]["value"].as_str().unwrap_or_default().to_owned()
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
}

#[test]
fn a_setting_has_its_type_default_and_value() {
    let text = hovered(YAML, "    optimizer_steps: 1\n", "    opti|mizer_steps: 1\n");
    says(
        &text,
        &[
            "whole number, at least 1",
            "default `1`",
            "a divisor of `prompts_per_step`",
            "resolved: `1`, written here",
        ],
    );
    // By a variable's default, and in TOML.
    let text = hovered(
        YAML,
        "    workers_per_node: ${GPUS_PER_NODE}",
        "    work|ers_per_node: ${GPUS_PER_NODE}",
    );
    says(&text, &["resolved: `8`, by the default of `${GPUS_PER_NODE}`"]);
    let text = hovered(TOML, "max_tokens_per_pack = 4096", "max|_tokens_per_pack = 4096");
    says(&text, &["resolved: `4096`, written here", "default `32768`"]);
    // A whole that was left out in part.
    let text = hovered(TOML, "loss = {", "lo|ss = {");
    says(&text, &["What is minimised", "token_mean"]);
}

#[test]
fn kinds_and_choices_say_what_they_are() {
    says(
        &hovered(YAML, "type: weight_sync", "type: weight|_sync"),
        &["**weight_sync**", "inputs", "weights"],
    );
    says(&hovered(YAML, "kl: none", "kl: no|ne"), &["There is no such term"]);
    says(&hovered(YAML, "over_long: skip", "over_long: sk|ip"), &["**skip**"]);
}

#[test]
fn nodes_show_their_ports() {
    let wanted = ["node `scored`: **judger**", "groups", "adds reward, parsed"];
    says(&hovered(YAML, "[scored]", "[sco|red]"), &wanted);
    says(&hovered(YAML, "  scored:\n", "  sco|red:\n"), &wanted);
    says(
        &hovered(TOML, "\"prompts.prompts\"", "\"prom|pts.prompts\""),
        &["node `prompts`: **sampler**"],
    );
    says(
        &hovered(YAML, "    pool: judges\n", "    pool: jud|ges\n"),
        &["pool `judges`", "accelerator: none"],
    );
}

#[test]
fn variables_show_their_value_but_no_secret() {
    says(
        &hovered(YAML, "\"${SP_SIZE}\"", "\"${SP_|SIZE}\""),
        &["variable `SP_SIZE`: int", "`1`, its default"],
    );
    says(
        &hovered(YAML, "${WORLD_SIZE}", "${WORLD|_SIZE}"),
        &["number of machines"],
    );
    let declare =
        "    RLPIPE_LSP_TEST: { kind: text }\n    API_TOKEN: { kind: text }\n    WORK_DIR:        { kind: path }\n";
    let mut client = Client::start();
    let (mut opened, _) = open_marked(&mut client, YAML, "    WORK_DIR:        { kind: path }\n", declare);
    let text = |client: &mut Client, opened: &Opened, name: &str| {
        let at = opened.text.find(name).unwrap();
        client.at("textDocument/hover", opened, at)["contents"]["value"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    says(
        &text(&mut client, &opened, "RLPIPE_LSP_TEST"),
        &["from the editor", "of the editor"],
    );
    let secret = text(&mut client, &opened, "API_TOKEN");
    says(&secret, &["not shown"]);
    assert!(!secret.contains("hush"), "{secret}");
    // Nor is it shown where it is used.
    let at = opened.text.find("${WORK_DIR}").unwrap();
    client.change(&mut opened, at..at + 11, "${API_TOKEN}");
    let at = opened.text.find("work_dir").unwrap();
    let found = client.at("textDocument/hover", &opened, at)["contents"]["value"]
        .as_str()
        .unwrap()
        .to_owned();
    says(&found, &["resolved: not shown", "`${API_TOKEN}`"]);
    assert!(!found.contains("hush"), "{found}");
    client.end();
}

#[test]
fn names_lead_to_where_they_are_declared() {
    for (name, from, to, declared) in [
        (YAML, "{ groups: answers }", "{ groups: ans|wers }", "\n  answers:"),
        (YAML, "to: engine ", "to: engi|ne ", "\n  engine:"),
        (YAML, "pool: judges\n", "pool: |judges\n", "\n  judges:"),
        (YAML, "model: policy\n", "model: policy|\n", "\n  policy:"),
        (
            YAML,
            "${ROLLOUT_BACKEND}",
            "${ROLL|OUT_BACKEND}",
            "\n    ROLLOUT_BACKEND:",
        ),
        (
            YAML,
            "[XTUNER_USE_SGLANG,",
            "[XTUNER|_USE_SGLANG,",
            "\n    XTUNER_USE_SGLANG:",
        ),
        (
            TOML,
            "\"lessons.examples\"",
            "\"less|ons.examples\"",
            "\n[nodes.lessons]",
        ),
    ] {
        let mut client = Client::start();
        let (opened, cursor) = open_marked(&mut client, name, from, to);
        let found = client.at("textDocument/definition", &opened, cursor);
        let line = opened.text[..opened.text.find(declared).unwrap() + 1]
            .matches('\n')
            .count();
        assert_eq!(found["range"]["start"]["line"], line, "{to}: {found}");
        assert_eq!(found["uri"], opened.uri.as_str());
        client.end();
    }
}

#[test]
fn a_node_is_renamed_wherever_it_is_named() {
    for (name, node, count) in [(YAML, "engine", 4), (TOML, "prompts", 2)] {
        let mut client = Client::start();
        let text = pipeline(name);
        let opened = client.open(name, &text);
        assert_eq!(
            client.codes().iter().filter(|code| code.as_str() != "RL0602").count(),
            0
        );
        let key = if name == TOML {
            format!("[nodes.{node}]")
        } else {
            format!("\n  {node}:")
        };
        let cursor = text.find(&key).unwrap() + key.find(node).unwrap();
        let found = client.at("textDocument/references", &opened, cursor);
        assert_eq!(found.as_array().unwrap().len(), count, "{found}");
        let place = json!({
            "textDocument": { "uri": opened.uri }, "position": position(&text, cursor), "newName": "other",
        });
        let renamed = client.ask("textDocument/rename", place.clone()).unwrap();
        let edits = renamed["changes"][&opened.uri].as_array().unwrap().clone();
        client.open(&format!("renamed-{name}"), &edited(&text, &edits));
        assert_eq!(
            client.codes().iter().filter(|code| code.as_str() != "RL0602").count(),
            0,
            "{edits:?}"
        );
        for bad in ["", "a b", "sync", "a.b"] {
            let mut place = place.clone();
            place["newName"] = bad.into();
            assert!(client.ask("textDocument/rename", place).is_err(), "{bad}");
        }
        client.end();
    }
}

#[test]
fn the_outline_has_nodes_with_their_kinds() {
    for name in [YAML, TOML] {
        let mut client = Client::start();
        let text = pipeline(name);
        let opened = client.open(name, &text);
        let found = client
            .ask(
                "textDocument/documentSymbol",
                json!({ "textDocument": { "uri": opened.uri } }),
            )
            .unwrap();
        let found = found.as_array().unwrap();
        let nodes = found.iter().find(|symbol| symbol["name"] == "nodes").unwrap();
        let trainer = nodes["children"]
            .as_array()
            .unwrap()
            .iter()
            .find(|node| node["name"] == "trainer")
            .unwrap();
        assert_eq!(trainer["detail"], "trainer");
        let selected = offset(&text, &trainer["selectionRange"]["start"]);
        assert!(text[selected..].starts_with("trainer"));
        let whole = offset(&text, &trainer["range"]["start"])..offset(&text, &trainer["range"]["end"]);
        assert!(text[whole].contains("clip"));
        assert!(
            found
                .iter()
                .any(|symbol| symbol["name"] == "version" && symbol["detail"] == "1")
        );
        client.end();
    }
}

#[test]
fn a_fix_that_is_taken_leaves_no_fault() {
    for (name, from, to, code) in [
        (YAML, "{ groups: answers }", "{ groups: |anwsers }", "RL0301"),
        (YAML, "    max_grad_norm: 1.0", "    |max_grad_nrom: 1.0", "RL0201"),
        (TOML, "judge = \"number\"", "judge = \"|nubmer\"", "RL0202"),
        (TOML, "version = 1", "version = |2", "RL0107"),
    ] {
        let mut client = Client::start();
        let (mut opened, cursor) = open_marked(&mut client, name, from, to);
        let published = client.diagnostics();
        let faults = published["diagnostics"].as_array().unwrap();
        let fault = faults
            .iter()
            .find(|found| found["code"] == code)
            .unwrap_or_else(|| panic!("{published}"));
        assert_eq!((&fault["severity"], &fault["source"]), (&json!(1), &json!("rlpipe")));
        assert!(fault["message"].as_str().unwrap().contains("\nhelp: "), "{fault}");
        let at = position(&opened.text, cursor);
        let params = json!({
            "textDocument": { "uri": opened.uri }, "range": { "start": at, "end": at }, "context": { "diagnostics": [fault] },
        });
        let actions = client.ask("textDocument/codeAction", params).unwrap();
        let actions = actions.as_array().unwrap();
        let action = actions.iter().find(|action| action["kind"] == "quickfix").unwrap();
        assert_eq!(&action["diagnostics"][0], fault);
        assert!(actions.iter().any(|action| action["kind"] == "source.fixAll"));
        let edit = &action["edit"]["changes"][&opened.uri][0];
        let bytes = offset(&opened.text, &edit["range"]["start"])..offset(&opened.text, &edit["range"]["end"]);
        client.change(&mut opened, bytes, edit["newText"].as_str().unwrap());
        let left: Vec<String> = client.codes().into_iter().filter(|code| code != "RL0602").collect();
        assert_eq!(left, Vec::<String>::new(), "{to}");
        client.end();
    }
}

#[test]
fn only_wanted_kinds_of_action_are_given() {
    let mut client = Client::start();
    let (opened, _) = open_marked(&mut client, TOML, "version = 1", "version = 2");
    let start = json!({ "line": 0, "character": 0 });
    let ask = |only: Value| {
        let range = json!({ "start": start, "end": { "line": 5, "character": 0 } });
        json!({ "textDocument": { "uri": opened.uri }, "range": range, "context": { "diagnostics": [], "only": only } })
    };
    for (only, kinds) in [
        (json!(["source"]), vec!["source.fixAll"]),
        (json!(["quickfix"]), vec!["quickfix"]),
        (json!(["refactor"]), vec![]),
    ] {
        let found = client.ask("textDocument/codeAction", ask(only)).unwrap();
        let found: Vec<&str> = found
            .as_array()
            .unwrap()
            .iter()
            .map(|action| action["kind"].as_str().unwrap())
            .collect();
        assert_eq!(found, kinds);
    }
    client.end();
}
