//! `rlpipe lsp` as an editor starts it: the program itself, spoken to over its standard input and output.
#![allow(clippy::unwrap_used)]

use std::io::{BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use lsp_server::{Message, Notification, Request, ResponseError};
use serde_json::{Value, json};

/// A pipeline with one fault: `trainer` takes from `buffr`.
const PIPELINE: &str = include_str!("pipeline.yaml");

struct Editor {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    id: i32,
}

impl Editor {
    fn start() -> Editor {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rlpipe"));
        let streams = command
            .arg("lsp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = streams.spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        Editor {
            child,
            input,
            output: BufReader::new(output),
            id: 0,
        }
    }

    fn send(&mut self, message: Message) {
        message.write(self.input.as_mut().unwrap()).unwrap();
    }

    fn tell(&mut self, method: &str, params: Value) {
        let method = method.to_owned();
        self.send(Message::Notification(Notification { method, params }));
    }

    /// Asks, and waits; what is published meanwhile is passed over.
    fn ask(&mut self, method: &str, params: Value) -> Result<Value, ResponseError> {
        self.id += 1;
        let (id, method) = (self.id, method.to_owned());
        self.send(Message::Request(Request {
            id: id.into(),
            method,
            params,
        }));
        loop {
            match Message::read(&mut self.output).unwrap().unwrap() {
                Message::Response(response) if response.id == id.into() => return response.response_result,
                Message::Notification(_) => {}
                other => panic!("not what was asked for: {other:?}"),
            }
        }
    }

    fn codes(&mut self) -> Vec<String> {
        match Message::read(&mut self.output).unwrap().unwrap() {
            Message::Notification(published) => {
                let list = published.params["diagnostics"].as_array().unwrap().iter();
                list.map(|found| found["code"].as_str().unwrap().to_owned()).collect()
            }
            other => panic!("not what was expected: {other:?}"),
        }
    }

    /// Waits for the end: its code, and what was said on standard error.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.input.take());
        let ended = self.child.wait_with_output().unwrap();
        (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
    }
}

#[test]
fn a_session_of_an_editor() {
    let mut editor = Editor::start();
    let result = editor
        .ask(
            "initialize",
            json!({ "processId": null, "rootUri": null, "capabilities": {} }),
        )
        .unwrap();
    assert_eq!(result["serverInfo"]["name"], "rlpipe");
    assert_eq!(result["capabilities"]["hoverProvider"], true);
    editor.tell("initialized", json!({}));

    let uri = "file:///project/pipelines/mine.yaml";
    let document = json!({ "uri": uri, "languageId": "yaml", "version": 1, "text": PIPELINE });
    editor.tell("textDocument/didOpen", json!({ "textDocument": document }));
    assert_eq!(editor.codes(), ["RL0301"]);

    // The fault's own fix is taken.
    let line = PIPELINE.lines().position(|line| line.contains("buffr")).unwrap();
    let column = PIPELINE.lines().nth(line).unwrap().find("buffr").unwrap();
    let place = json!({ "line": line, "character": column });
    let params = json!({
        "textDocument": { "uri": uri }, "range": { "start": place, "end": place }, "context": { "diagnostics": [] },
    });
    let actions = editor.ask("textDocument/codeAction", params).unwrap();
    let edit = actions[0]["edit"]["changes"][uri][0].clone();
    assert_eq!(edit["newText"], "buffer");
    let change = json!({ "range": edit["range"], "text": edit["newText"] });
    let document = json!({ "uri": uri, "version": 2 });
    editor.tell(
        "textDocument/didChange",
        json!({ "textDocument": document, "contentChanges": [change] }),
    );
    assert_eq!(editor.codes(), Vec::<String>::new());

    let at = json!({ "textDocument": { "uri": uri }, "position": place });
    let offered = editor.ask("textDocument/completion", at.clone()).unwrap();
    let labels: Vec<&str> = offered
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["label"].as_str().unwrap())
        .collect();
    assert_eq!(labels, ["buffer"]);
    let hover = editor.ask("textDocument/hover", at.clone()).unwrap();
    assert!(hover["contents"]["value"].as_str().unwrap().contains("replay_buffer"));
    let found = editor.ask("textDocument/definition", at).unwrap();
    let declared = PIPELINE.lines().position(|line| line.trim() == "buffer:").unwrap();
    assert_eq!(found["range"]["start"]["line"], declared);
    let document = json!({ "textDocument": { "uri": uri } });
    let symbols = editor.ask("textDocument/documentSymbol", document.clone()).unwrap();
    assert!(
        symbols
            .as_array()
            .unwrap()
            .iter()
            .any(|symbol| symbol["name"] == "nodes")
    );

    editor.tell("textDocument/didClose", document);
    assert_eq!(editor.codes(), Vec::<String>::new());
    assert_eq!(editor.ask("shutdown", Value::Null).unwrap(), Value::Null);
    editor.tell("exit", Value::Null);
    assert_eq!(editor.end(), (Some(0), String::new()));
}

#[test]
fn an_editor_that_dies_takes_the_server_with_it() {
    let mut editor = Editor::start();
    editor.ask("initialize", json!({ "capabilities": {} })).unwrap();
    let (code, said) = editor.end();
    assert_eq!(code, Some(1));
    assert!(said.contains("without `shutdown`"), "{said}");
}

#[test]
fn what_is_no_message_ends_the_conversation() {
    let mut editor = Editor::start();
    editor.input.as_mut().unwrap().write_all(b"hello\r\n\r\n").unwrap();
    let (code, said) = editor.end();
    assert_eq!(code, Some(1));
    assert!(
        said.contains("cannot speak with the editor") && !said.contains("panicked"),
        "{said}"
    );
}
