//! What is offered at marked places of the project's own pipelines.

use serde_json::Value;

use crate::client::{Client, edited};
use crate::fixture::{labels, offered, open_marked, pipeline};

const YAML: &str = "gsm8k.yaml";
const TOML: &str = "quickstart.toml";

#[track_caller]
fn has(found: &[String], wanted: &[&str], unwanted: &[&str]) {
    for name in wanted {
        assert!(found.iter().any(|found| found == name), "`{name}` is not in {found:?}");
    }
    for name in unwanted {
        assert!(!found.iter().any(|found| found == name), "`{name}` is in {found:?}");
    }
}

#[track_caller]
fn offers(name: &str, from: &str, to: &str, wanted: &[&str], unwanted: &[&str]) {
    let mut client = Client::start();
    let found = offered(&mut client, name, from, to);
    has(&found, wanted, unwanted);
    client.end();
}

#[test]
fn keys_of_a_node_by_its_type() {
    // `pool` and `model` are there already, `judge` is of another kind.
    let wanted = ["old_logprobs", "optimizer_steps", "cpu_offload"];
    let line = "    max_grad_norm: 1.0\n";
    offers(
        YAML,
        line,
        "    |\n",
        &["max_grad_norm"],
        &["pool", "model", "judge", "type"],
    );
    offers(YAML, line, "    max|\n", &["max_grad_norm"], &["max_tokens_per_pack"]);
    offers(TOML, "max_tokens_per_pack = 4096\n", "|\n", &wanted, &["pool", "judge"]);
    offers(
        TOML,
        "max_tokens_per_pack = 4096\n",
        "max|\n",
        &["max_tokens_per_pack"],
        &["pool"],
    );
}

#[test]
fn a_node_with_its_type_alone() {
    let mut client = Client::start();
    let text = "version: 1\nnodes:\n  new:\n    type: trainer\n    ";
    let opened = client.open("new.yaml", text);
    let items = client.at("textDocument/completion", &opened, text.len());
    let found = labels(&items);
    has(
        &found,
        &["inputs", "pool", "model", "optimizer", "loss"],
        &["judge", "type"],
    );
    // What must be given comes first, and a mapping opens with what must be in it.
    assert!(found.iter().position(|name| name == "optimizer") < found.iter().position(|name| name == "loss"));
    let inputs = items
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["label"] == "inputs")
        .unwrap();
    assert_eq!(inputs["textEdit"]["newText"], "inputs: { batch: $1 }");
    client.end();
}

#[test]
fn keys_within_settings() {
    offers(YAML, "      kl: none", "      |", &["kl"], &["policy", "reduction"]);
    offers(
        YAML,
        "{ clip: { low: 0.2, high: 0.28, dual: 10.0, log_ratio_clamp: [-20.0, 20.0] } }",
        "{ | }",
        &["clip"],
        &[],
    );
    offers(
        YAML,
        "{ clip: { low: 0.2, high: 0.28,",
        "{ clip: { low: 0.2, |,",
        &["high"],
        &["low", "dual"],
    );
    offers(
        YAML,
        "inputs: { prompts: prompts, engine: engine }",
        "inputs: { ",
        &[],
        &[],
    );
    offers(
        YAML,
        "inputs: { prompts: prompts, engine: engine }",
        "inputs: { |",
        &["prompts", "engine"],
        &["groups"],
    );
    offers(
        TOML,
        "loss = { policy",
        "loss = { |, policy",
        &["kl", "reduction"],
        &["policy"],
    );
    offers(
        TOML,
        "loss = { policy = { clip = { low = 0.2, high = 0.28 } } }",
        "loss.|",
        &["kl", "policy"],
        &["pool"],
    );
}

#[test]
fn keys_of_sections() {
    offers(YAML, "name: grpo_gsm8k\n", "|\n", &["name"], &["version", "nodes"]);
    offers(
        YAML,
        "  seed: 123\n",
        "  |\n",
        &["seed", "total_epochs", "checkpoint"],
        &["work_dir"],
    );
    offers(
        YAML,
        "    nodes: ${WORLD_SIZE}\n",
        "    |\n",
        &["nodes"],
        &["accelerator"],
    );
    offers(
        YAML,
        "    dtype: bfloat16\n",
        "    |\n",
        &["dtype", "chat_template"],
        &["path"],
    );
    offers(
        YAML,
        "{ kind: path }",
        "{ kind: path, | }",
        &["help", "default"],
        &["kind"],
    );
    offers(TOML, "[pools.local]", "[po|", &["pools", "nodes"], &[]);
    offers(TOML, "seed = 1\n", "se|\n", &["seed", "total_epochs"], &["work_dir"]);
}

#[test]
fn choices_and_switches() {
    offers(YAML, "kl: none  ", "kl: |", &["none", "k1", "k2", "k3"], &["clip"]);
    offers(
        YAML,
        "accelerator: cuda ",
        "accelerator: c|",
        &["none", "cpu", "cuda", "auto"],
        &[],
    );
    offers(YAML, "cpu_offload: false", "cpu_offload: |", &["true", "false"], &[]);
    offers(YAML, "{ kind: path }", "{ kind: | }", &["dir", "file", "choice"], &[]);
    offers(
        YAML,
        "judge: gsm8k  ",
        "judge: |",
        &["gsm8k", "number", "exact", "command", "route"],
        &[],
    );
    offers(YAML, "default: torch }", "default: | }", &["torch", "sglang"], &[]);
    offers(TOML, "judge = \"number\"", "judge = \"|\"", &["gsm8k", "number"], &[]);
    offers(
        TOML,
        "judge = \"number\"",
        "judge = |",
        &["gsm8k", "number", "command"],
        &[],
    );
}

#[test]
fn nodes_that_fit_the_port() {
    offers(
        YAML,
        "{ groups: answers }",
        "{ groups: | }",
        &["answers", "eval_answers"],
        &["engine", "buffer", "scored"],
    );
    offers(
        YAML,
        "{ groups: [scored] }",
        "{ groups: [|] }",
        &["scored", "answers"],
        &["advantages", "buffer"],
    );
    offers(
        YAML,
        "{ batch: advantages }",
        "{ batch: | }",
        &["advantages", "buffer"],
        &["trainer", "scored"],
    );
    offers(YAML, "to: engine ", "to: |", &["engine"], &["trainer", "prompts"]);
    // A node with several outputs, by port.
    offers(
        TOML,
        "\"prompts.prompts\"",
        "\"prompts.|\"",
        &["prompts.prompts", "held_out"],
        &["prompts.examples"],
    );
    offers(
        TOML,
        "\"lessons.examples\"",
        "\"|\"",
        &["lessons", "lessons.examples"],
        &["lessons.prompts", "engine"],
    );
}

#[test]
fn nodes_as_keys() {
    let line = "    prompts_per_step: 64\n";
    offers(YAML, line, "    mix: { | }\n", &["scored", "prompts"], &["buffer"]);
    offers(
        "quickstart.yaml",
        "    feed:\n",
        "    settings: { | }\n    feed:\n",
        &["scored", "sync"],
        &[],
    );
    offers(TOML, "prompts_per_step = 32\n", "mix = { va| }\n", &["varied"], &[]);
}

#[test]
fn names_of_other_sections() {
    offers(YAML, "pool: judges\n", "pool: |\n", &["gpu", "judges"], &["policy"]);
    offers(YAML, "model: policy\n", "model: |\n", &["policy"], &["gpu"]);
    offers(YAML, "[XTUNER_USE_SGLANG, ", "[|, ", &["WORK_DIR", "SP_SIZE"], &["gpu"]);
    offers(TOML, "pool = \"local\"", "pool = \"|\"", &["local"], &[]);
    offers(TOML, "model = \"tiny\"", "model = |", &["tiny"], &[]);
}

#[test]
fn variables_in_references() {
    offers(YAML, "${WORK_DIR}", "${|", &["WORK_DIR", "SP_SIZE"], &["gpu"]);
    offers(YAML, "\"${SP_SIZE}\"", "\"${S|}\"", &["SP_SIZE"], &["none"]);
    offers(YAML, "\"${DATA_PATH}\"", "\"${|\"", &["DATA_PATH"], &[]);
}

#[test]
fn nothing_in_comments_and_free_text() {
    for (from, to) in [
        ("name: grpo_gsm8k", "name: grpo|"),
        ("# rows: prompt,", "# rows: |"),
        ("help: number of machines", "help: number |"),
    ] {
        let mut client = Client::start();
        assert_eq!(offered(&mut client, YAML, from, to), Vec::<String>::new(), "{to}");
        client.end();
    }
}

/// The text after an item was taken, with what stands at its stops.
fn taken(text: &str, items: &Value, label: &str, kind: u64) -> String {
    let mut items = items.as_array().unwrap().iter();
    let item = items
        .find(|item| item["label"] == label && item["kind"] == kind)
        .unwrap();
    let mut plain = String::new();
    let mut inserted = item["textEdit"]["newText"].as_str().unwrap();
    while let Some(stop) = inserted.find('$') {
        plain.push_str(&inserted[..stop]);
        inserted = &inserted[stop + 1..];
        if let Some(braced) = inserted.strip_prefix('{') {
            let (_, rest) = braced.split_once(':').unwrap();
            let (placeholder, rest) = rest.split_once('}').unwrap();
            plain.push_str(placeholder);
            inserted = rest;
        } else {
            inserted = inserted.trim_start_matches(|c: char| c.is_ascii_digit());
        }
    }
    plain.push_str(inserted);
    let mut edit = item["textEdit"].clone();
    // An editor indents what it inserts as the line is where it inserts.
    let start = crate::client::offset(text, &edit["range"]["start"]);
    let line = &text[text[..start].rfind('\n').map_or(0, |at| at + 1)..start];
    let indent: String = line.chars().take_while(|c| *c == ' ').collect();
    edit["newText"] = plain.replace('\n', &format!("\n{indent}")).into();
    edited(text, &[edit])
}

/// Each kind's snippet, taken in a pipeline that has all that it can name, is a node without a fault of its own.
#[test]
fn a_kind_comes_with_what_it_needs() {
    for (name, place) in [(YAML, "  evaluator:\n"), (TOML, "[nodes.evaluator]\n")] {
        let whole = pipeline(name);
        let is_toml = name == TOML;
        let kinds = rlpipe_stages::KINDS.iter().filter(|kind| kind.name != "evaluator");
        for kind in kinds {
            let mut client = Client::start();
            let node = if is_toml {
                "[nodes.new]\ntype = |\n\n"
            } else {
                "  new:\n    type: |\n"
            };
            let (opened, cursor) = open_marked(&mut client, name, place, &format!("{node}{place}"));
            let items = client.at("textDocument/completion", &opened, cursor);
            let text = taken(&opened.text, &items, kind.name, 7);
            assert!(text.len() > whole.len() + 10, "{text}");
            client.diagnostics();
            let second = client.open(&format!("taken-{name}"), &text);
            let published = client.diagnostics();
            assert_eq!(published["uri"], second.uri.as_str());
            let of_decoding = published["diagnostics"].as_array().unwrap().iter().filter(|found| {
                let code = found["code"].as_str().unwrap();
                code.starts_with("RL01") || code.starts_with("RL02") || ["RL0301", "RL0304", "RL0310"].contains(&code)
            });
            assert_eq!(
                of_decoding.collect::<Vec<_>>(),
                Vec::<&Value>::new(),
                "`{}` in:\n{text}",
                kind.name
            );
            client.end();
        }
    }
}

#[test]
fn a_whole_node_below_nodes() {
    let mut client = Client::start();
    let (opened, cursor) = open_marked(&mut client, YAML, "  sync:\n", "  |\n  sync:\n");
    let items = client.at("textDocument/completion", &opened, cursor);
    let text = taken(&opened.text, &items, "filter", 15);
    assert!(
        text.contains("\n  filter:\n    type: filter\n    inputs: { groups: "),
        "{text}"
    );
    client.end();
}

#[test]
fn items_are_written_as_the_format_wants() {
    let mut client = Client::start();
    let (opened, cursor) = open_marked(&mut client, TOML, "judge = \"number\"", "judge = |");
    let items = client.at("textDocument/completion", &opened, cursor);
    let exact = items
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["label"] == "exact")
        .unwrap();
    assert_eq!(exact["textEdit"]["newText"], "\"exact\"");
    let (opened, cursor) = open_marked(&mut client, YAML, "    pool: judges\n", "|\n");
    let items = client.at("textDocument/completion", &opened, cursor);
    let pool = items
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["label"] == "pool")
        .unwrap();
    // The line is empty: its indentation comes with the key.
    assert_eq!(pool["textEdit"]["newText"], "    pool: ");
    client.end();
}

#[test]
fn an_editor_without_snippets_gets_none() {
    let mut client = Client::start_with(serde_json::json!({ "capabilities": {} }));
    let (opened, cursor) = open_marked(&mut client, YAML, "    type: evaluator\n", "    type: |\n");
    let items = client.at("textDocument/completion", &opened, cursor);
    for item in items.as_array().unwrap() {
        assert_eq!(item["insertTextFormat"], 1, "{item}");
        assert!(!item["textEdit"]["newText"].as_str().unwrap().contains('\n'));
    }
    client.end();
}
