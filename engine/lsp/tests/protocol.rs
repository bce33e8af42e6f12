//! The conversation itself.

use serde_json::{Value, json};

use crate::client::{Client, position};
use crate::fixture::{open_marked, pipeline};

#[test]
fn faults_come_as_one_types_and_go_when_mended() {
    let mut client = Client::start();
    let mut opened = client.open("quickstart.yaml", &pipeline("quickstart.yaml"));
    assert_eq!(client.codes(), Vec::<String>::new());
    let at = opened.text.find("[varied]").unwrap() + 1;
    client.change(&mut opened, at..at + 6, "vraied");
    let published = client.diagnostics();
    assert_eq!(published["version"], 2);
    let fault = &published["diagnostics"][0];
    assert_eq!(fault["code"], "RL0301");
    assert_eq!(fault["range"]["start"], position(&opened.text, at));
    assert_eq!(fault["range"]["end"], position(&opened.text, at + 6));
    client.change(&mut opened, at..at + 6, "varied");
    assert_eq!(client.codes(), Vec::<String>::new());
    client.tell(
        "textDocument/didClose",
        json!({ "textDocument": { "uri": opened.uri } }),
    );
    assert_eq!(client.codes(), Vec::<String>::new());
    client.end();
}

#[test]
fn other_ends_are_related_information() {
    let mut client = Client::start();
    let (opened, _) = open_marked(
        &mut client,
        "gsm8k.yaml",
        "    optimizer_steps: 1\n",
        "    optimizer_steps: 3\n",
    );
    let published = client.diagnostics();
    let faults = published["diagnostics"].as_array().unwrap();
    let fault = faults
        .iter()
        .find(|found| found["code"] == "RL0503")
        .unwrap_or_else(|| panic!("{published}"));
    let related = &fault["relatedInformation"][0];
    assert_eq!(related["location"]["uri"], opened.uri.as_str());
    let line = related["location"]["range"]["start"]["line"].as_u64().unwrap() as usize;
    assert!(
        opened.text.lines().nth(line).unwrap().contains("prompts_per_step"),
        "{related}"
    );
    client.end();
}

#[test]
fn variables_that_only_the_run_has_are_no_errors() {
    let mut client = Client::start();
    client.open("gsm8k.yaml", &pipeline("gsm8k.yaml"));
    let published = client.diagnostics();
    let faults = published["diagnostics"].as_array().unwrap();
    assert!(faults.iter().any(|found| found["code"] == "RL0602"), "{published}");
    assert!(faults.iter().all(|found| found["severity"] == 3), "{published}");
    client.end();
}

#[test]
fn what_is_no_pipeline_is_left_alone() {
    let mut client = Client::start();
    for (name, text) in [
        ("compose.yaml", "services:\n  web: { image: x }\nversion: '3'\n"),
        ("empty.yaml", ""),
        ("list.yaml", "- a\n- b\n"),
        ("broken.yaml", "a: [\n"),
        ("Cargo.toml", "[package]\nname = \"x\"\n"),
        ("overlay.yaml", "run: { total_steps: 5 }\n"),
    ] {
        let opened = client.open(name, text);
        assert_eq!(client.codes(), Vec::<String>::new(), "{name}");
        let offered = client.at("textDocument/completion", &opened, 0);
        assert_eq!(
            offered.as_array().unwrap().is_empty(),
            name != "overlay.yaml",
            "{name}: {offered}"
        );
        assert_eq!(
            client.at("textDocument/hover", &opened, 0).is_null(),
            name != "overlay.yaml",
            "{name}"
        );
    }
    // A new file with nothing but the line that names the schema is a pipeline that lacks everything.
    client.open(
        "new.yaml",
        "# yaml-language-server: $schema=../schemas/pipeline.schema.json\n",
    );
    assert!(!client.codes().is_empty());
    client.open("new.toml", "#:schema ../schemas/pipeline.schema.json\n");
    assert!(!client.codes().is_empty());
    client.end();
}

#[test]
fn columns_are_counted_as_agreed() {
    let text = "version: 1\r\nname: 'ß😀' # a name with other characters\r\nnodes: {}\r\n";
    for (encodings, agreed, end) in [
        (json!(["utf-8", "utf-16"]), "utf-8", 14),
        (json!(["utf-16", "utf-8"]), "utf-16", 11),
        (json!(["utf-32"]), "utf-16", 11),
        (Value::Null, "utf-16", 11),
    ] {
        let mut client = Client::raw();
        let capabilities = json!({ "general": { "positionEncodings": encodings } });
        let result = client
            .ask("initialize", json!({ "capabilities": capabilities }))
            .unwrap();
        assert_eq!(result["capabilities"]["positionEncoding"], agreed);
        client.tell("initialized", json!({}));
        client.open("name.yaml", text);
        let published = client.diagnostics();
        let faults = published["diagnostics"].as_array().unwrap();
        let fault = faults
            .iter()
            .find(|found| found["message"].as_str().unwrap().contains("`name`"))
            .unwrap();
        assert_eq!(fault["range"]["start"], json!({ "line": 1, "character": 6 }));
        assert_eq!(
            fault["range"]["end"],
            json!({ "line": 1, "character": end }),
            "{agreed}"
        );
        client.end();
    }
}

#[test]
fn requests_have_their_time() {
    let mut client = Client::raw();
    assert_eq!(client.ask("textDocument/hover", json!({})).unwrap_err().code, -32002);
    client.ask("initialize", json!({ "capabilities": {} })).unwrap();
    assert_eq!(
        client
            .ask("initialize", json!({ "capabilities": {} }))
            .unwrap_err()
            .code,
        -32600
    );
    assert_eq!(
        client.ask("textDocument/formatting", json!({})).unwrap_err().code,
        -32601
    );
    assert_eq!(client.ask("rlpipe/nothing", Value::Null).unwrap_err().code, -32601);
    assert_eq!(
        client
            .ask("textDocument/hover", json!({ "position": 3 }))
            .unwrap_err()
            .code,
        -32602
    );
    client.tell("$/unknown", json!({}));
    client.tell("textDocument/didChange", json!({ "odd": true }));
    let nowhere =
        json!({ "textDocument": { "uri": "file:///nowhere.yaml" }, "position": { "line": 0, "character": 0 } });
    assert_eq!(client.ask("textDocument/hover", nowhere).unwrap(), Value::Null);
    client.ask("shutdown", Value::Null).unwrap();
    assert_eq!(client.ask("textDocument/hover", json!({})).unwrap_err().code, -32600);
    client.tell("exit", Value::Null);
    client.vanish().unwrap();
}

#[test]
fn leaving_without_shutdown_is_a_failure() {
    let client = Client::start();
    client.tell("exit", Value::Null);
    assert!(client.vanish().is_err());
    assert!(Client::start().vanish().is_err());
}

/// Requests wait behind each other; one that is cancelled meanwhile is answered with that.
#[test]
fn what_is_cancelled_is_not_computed() {
    let mut client = Client::start();
    let opened = client.open("gsm8k.yaml", &pipeline("gsm8k.yaml"));
    let params = json!({ "textDocument": { "uri": opened.uri } });
    let mut cancelled = 0;
    for _ in 0..50 {
        let busy: Vec<i32> = (0..20)
            .map(|_| client.send("textDocument/documentSymbol", params.clone()))
            .collect();
        let last = *busy.last().unwrap();
        client.tell("$/cancelRequest", json!({ "id": last }));
        for id in busy {
            match client.answer(id) {
                Ok(found) => assert!(found.is_array()),
                Err(error) => {
                    assert_eq!((error.code, id), (-32800, last));
                    cancelled += 1;
                }
            }
        }
    }
    // Which comes first is up to the threads; that none of fifty does would be a fault.
    assert!(cancelled > 0);
    client.end();
}
