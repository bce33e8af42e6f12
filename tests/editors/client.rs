//! A small client of any language server over its standard input and output.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// A server that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running server, and what it has said.
pub struct Client {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    requests: i64,
    /// What it is told when it asks for its settings, by section.
    settings: Value,
    /// The newest faults of each document that it has told of by itself.
    published: BTreeMap<String, Value>,
    /// What it can do.
    pub capabilities: Value,
}

impl Client {
    /// Starts a server for a folder, and waits until it is ready.
    pub fn start(command: &mut Command, folder: &Path, settings: Value) -> Client {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let input = child.stdin.take().unwrap();
        let output = child.stdout.take().unwrap();
        let (sender, messages) = channel();
        std::thread::spawn(move || read_all(output, &sender));
        let mut client = Client {
            child,
            input,
            messages,
            requests: 0,
            settings,
            published: BTreeMap::new(),
            capabilities: Value::Null,
        };
        let item = json!({ "snippetSupport": true, "documentationFormat": ["markdown"] });
        let ready = client.request(
            "initialize",
            json!({
                "processId": std::process::id(),
                "rootUri": uri(folder),
                "workspaceFolders": [{ "uri": uri(folder), "name": "project" }],
                "capabilities": {
                    "workspace": { "configuration": true },
                    "textDocument": {
                        "completion": { "completionItem": item },
                        "hover": { "contentFormat": ["markdown"] },
                        "publishDiagnostics": {},
                        "diagnostic": {},
                    },
                },
            }),
        );
        client.capabilities = ready["capabilities"].clone();
        client.notify("initialized", json!({}));
        client
    }

    /// Asks, and waits for the answer.
    pub fn request(&mut self, method: &str, parameters: Value) -> Value {
        self.requests += 1;
        let id = json!(self.requests);
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": parameters }));
        loop {
            let message = self.receive();
            if message.get("method").is_some() {
                self.answer(&message);
            } else if message["id"] == id {
                assert!(message.get("error").is_none(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
        }
    }

    /// Tells, without an answer.
    pub fn notify(&mut self, method: &str, parameters: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": parameters }));
    }

    /// Opens a document, which need not be a file.
    pub fn open(&mut self, path: &Path, language: &str, text: &str) {
        let document = json!({ "uri": uri(path), "languageId": language, "version": 1, "text": text });
        self.notify("textDocument/didOpen", json!({ "textDocument": document }));
    }

    /// What is wrong with an open document: asked for where the server can be asked, else waited for.
    pub fn faults(&mut self, path: &Path) -> Vec<Value> {
        let list = if self.capabilities.get("diagnosticProvider").is_some() {
            let document = json!({ "textDocument": { "uri": uri(path) } });
            self.request("textDocument/diagnostic", document)["items"].clone()
        } else {
            while !self.published.contains_key(&uri(path)) {
                let message = self.receive();
                self.answer(&message);
            }
            self.published[&uri(path)].clone()
        };
        list.as_array().cloned().unwrap_or_default()
    }

    /// Labels of what is offered at a line and column, both from 0.
    pub fn completion(&mut self, path: &Path, (line, column): (usize, usize)) -> Vec<String> {
        let found = self.request("textDocument/completion", place(path, line, column));
        let items = found
            .get("items")
            .unwrap_or(&found)
            .as_array()
            .cloned()
            .unwrap_or_default();
        let labels = items.iter().filter_map(|item| item["label"].as_str());
        labels.map(str::to_owned).collect()
    }

    /// What is shown of the word at a line and column, both from 0.
    pub fn hover(&mut self, path: &Path, (line, column): (usize, usize)) -> String {
        let found = self.request("textDocument/hover", place(path, line, column));
        found["contents"]["value"].as_str().unwrap_or_default().to_owned()
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        let sent = write!(self.input, "Content-Length: {}\r\n\r\n{text}", text.len()).and_then(|()| self.input.flush());
        assert!(sent.is_ok(), "the server is gone: {sent:?}");
    }

    fn receive(&mut self) -> Value {
        let message = self.messages.recv_timeout(PATIENCE);
        message.unwrap_or_else(|error| panic!("the server has ended or hangs: {error}"))
    }

    /// Answers what the server asks, and keeps what it tells of documents.
    fn answer(&mut self, message: &Value) {
        if message["method"] == "textDocument/publishDiagnostics" {
            let document = message["params"]["uri"].as_str().unwrap_or_default().to_owned();
            self.published
                .insert(document, message["params"]["diagnostics"].clone());
        }
        let Some(id) = message.get("id") else { return };
        let result = match message["method"].as_str() {
            Some("workspace/configuration") => {
                let items = message["params"]["items"].as_array().cloned().unwrap_or_default();
                let settings = items.iter().map(|item| match item["section"].as_str() {
                    Some(section) => self.settings.get(section).cloned().unwrap_or_default(),
                    None => self.settings.clone(),
                });
                settings.collect()
            }
            _ => Value::Null,
        };
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address of a file.
fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

fn place(path: &Path, line: usize, column: usize) -> Value {
    json!({ "textDocument": { "uri": uri(path) }, "position": { "line": line, "character": column } })
}

fn read_all(output: ChildStdout, messages: &Sender<Value>) {
    let mut output = BufReader::new(output);
    while let Some(message) = read(&mut output) {
        if messages.send(message).is_err() {
            return;
        }
    }
}

/// The next message; none at the end.
fn read(output: &mut BufReader<ChildStdout>) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if output.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((_, value)) = line
            .split_once(':')
            .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    output.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}
