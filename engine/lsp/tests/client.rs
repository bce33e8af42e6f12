//! An editor, as far as a test needs one.

use std::collections::VecDeque;
use std::thread::{JoinHandle, spawn};

use lsp_server::{Connection, Message, Notification, Request, ResponseError};
use rlpipe_lsp::{ServeError, serve};
use rlpipe_stages::KINDS;
use serde_json::{Value, json};

pub struct Client {
    connection: Connection,
    server: JoinHandle<Result<(), ServeError>>,
    next_id: i32,
    published: VecDeque<Value>,
}

/// A document that is open in the client.
#[derive(Clone)]
pub struct Opened {
    pub uri: String,
    pub text: String,
    version: i32,
}

/// Line and column of a byte, columns in UTF-16.
pub fn position(text: &str, offset: usize) -> Value {
    let before = &text[..offset];
    let line = before.matches('\n').count();
    let column = before[before.rfind('\n').map_or(0, |at| at + 1)..]
        .encode_utf16()
        .count();
    json!({ "line": line, "character": column })
}

/// The byte of a position.
pub fn offset(text: &str, position: &Value) -> usize {
    let (line, column) = (
        position["line"].as_u64().unwrap(),
        position["character"].as_u64().unwrap(),
    );
    let start: usize = text.split_inclusive('\n').take(line as usize).map(str::len).sum();
    let mut units = 0;
    for (at, character) in text[start..].char_indices() {
        if units >= column {
            return start + at;
        }
        units += character.len_utf16() as u64;
    }
    text.len()
}

/// A text with edits of the protocol applied.
pub fn edited(text: &str, edits: &[Value]) -> String {
    let mut edits: Vec<(usize, usize, &str)> = edits
        .iter()
        .map(|edit| {
            let at = |end: &str| offset(text, &edit["range"][end]);
            (at("start"), at("end"), edit["newText"].as_str().unwrap())
        })
        .collect();
    edits.sort_by_key(|(start, _, _)| std::cmp::Reverse(*start));
    let mut text = text.to_owned();
    for (start, end, new_text) in edits {
        text.replace_range(start..end, new_text);
    }
    text
}

impl Client {
    /// Starts a server; it knows snippets, as most editors do.
    pub fn start() -> Client {
        Client::start_with(json!({
            "capabilities": { "textDocument": { "completion": { "completionItem": { "snippetSupport": true } } } },
            "initializationOptions": { "environment": { "RLPIPE_LSP_TEST": "from the editor", "API_TOKEN": "hush" } },
        }))
    }

    pub fn start_with(params: Value) -> Client {
        let mut client = Client::raw();
        client.ask("initialize", params).unwrap();
        client.tell("initialized", json!({}));
        client
    }

    /// One that has said nothing yet.
    pub fn raw() -> Client {
        let (server, client) = Connection::memory();
        let server = spawn(move || serve(&server, KINDS));
        Client {
            connection: client,
            server,
            next_id: 0,
            published: VecDeque::new(),
        }
    }

    pub fn tell(&self, method: &str, params: Value) {
        let method = method.to_owned();
        self.connection
            .sender
            .send(Message::Notification(Notification { method, params }))
            .unwrap();
    }

    /// Sends a request without waiting.
    pub fn send(&mut self, method: &str, params: Value) -> i32 {
        self.next_id += 1;
        let (id, method) = (self.next_id, method.to_owned());
        self.connection
            .sender
            .send(Message::Request(Request {
                id: id.into(),
                method,
                params,
            }))
            .unwrap();
        id
    }

    /// Waits for the answer to a request.
    pub fn answer(&mut self, id: i32) -> Result<Value, ResponseError> {
        loop {
            match self.connection.receiver.recv().unwrap() {
                Message::Response(response) if response.id == id.into() => return response.response_result,
                Message::Notification(published) => self.published.push_back(published.params),
                other => panic!("not what was asked for: {other:?}"),
            }
        }
    }

    pub fn ask(&mut self, method: &str, params: Value) -> Result<Value, ResponseError> {
        let id = self.send(method, params);
        self.answer(id)
    }

    pub fn open(&self, name: &str, text: &str) -> Opened {
        let uri = format!("file:///project/{name}");
        let language = if name.ends_with(".toml") { "toml" } else { "yaml" };
        let document = json!({ "uri": uri, "languageId": language, "version": 1, "text": text });
        self.tell("textDocument/didOpen", json!({ "textDocument": document }));
        Opened {
            uri,
            text: text.to_owned(),
            version: 1,
        }
    }

    /// Puts a text in place of some bytes.
    pub fn change(&self, opened: &mut Opened, bytes: std::ops::Range<usize>, with: &str) {
        let range = json!({ "start": position(&opened.text, bytes.start), "end": position(&opened.text, bytes.end) });
        opened.version += 1;
        let document = json!({ "uri": opened.uri, "version": opened.version });
        let changes = json!([{ "range": range, "text": with }]);
        self.tell(
            "textDocument/didChange",
            json!({ "textDocument": document, "contentChanges": changes }),
        );
        opened.text.replace_range(bytes, with);
    }

    /// The next diagnostics that are published.
    pub fn diagnostics(&mut self) -> Value {
        if let Some(published) = self.published.pop_front() {
            return published;
        }
        match self.connection.receiver.recv().unwrap() {
            Message::Notification(published) => published.params,
            other => panic!("not what was expected: {other:?}"),
        }
    }

    /// Codes of the next diagnostics.
    pub fn codes(&mut self) -> Vec<String> {
        let published = self.diagnostics();
        let list = published["diagnostics"].as_array().unwrap().iter();
        list.map(|found| found["code"].as_str().unwrap().to_owned()).collect()
    }

    pub fn at(&mut self, method: &str, opened: &Opened, offset: usize) -> Value {
        let place = json!({
            "textDocument": { "uri": opened.uri },
            "position": position(&opened.text, offset),
            "context": { "triggerKind": 1, "includeDeclaration": true },
        });
        self.ask(method, place).unwrap()
    }

    /// Ends the conversation as it should be ended.
    pub fn end(mut self) {
        assert_eq!(self.ask("shutdown", Value::Null).unwrap(), Value::Null);
        self.tell("exit", Value::Null);
        self.server.join().unwrap().unwrap();
    }

    /// Goes away without a word.
    pub fn vanish(self) -> Result<(), ServeError> {
        drop(self.connection);
        self.server.join().unwrap()
    }
}
