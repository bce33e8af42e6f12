//! The conversation with an editor: one thread, one message after the other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use gen_lsp_types as lsp;
use lsp_server::{Connection, ErrorCode, Message, Notification, Request, RequestId, Response, ResponseError};
use rlpipe_core::kind::Kind;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::complete::{Wish, complete};
use crate::document::{Document, Documents, Role, Surroundings};
use crate::hover::hover;
use crate::navigate::{actions, definition, references, rename, renameable, symbols};
use crate::shapes::Shapes;
use crate::text::Encoding;

/// How far the conversation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Before,
    Open,
    ShutDown,
}

/// A server and what it knows.
pub struct Server<'a> {
    connection: &'a Connection,
    phase: Phase,
    shapes: Shapes,
    surroundings: Surroundings,
    documents: Documents,
    encoding: Encoding,
    snippets: bool,
    /// Documents whose diagnostics are to be sent, as soon as nothing else waits.
    stale: BTreeSet<String>,
    waiting: VecDeque<Message>,
}

/// The answer to a request, or why there is none.
type Answer = Result<Value, ResponseError>;

impl<'a> Server<'a> {
    /// One that has not said anything yet.
    pub fn new(connection: &'a Connection, kinds: &'static [Kind]) -> Server<'a> {
        Server {
            connection,
            phase: Phase::Before,
            shapes: Shapes::new(kinds),
            surroundings: Surroundings {
                kinds,
                variables: BTreeMap::new(),
            },
            documents: Documents::new(),
            encoding: Encoding::Utf16,
            snippets: false,
            stale: BTreeSet::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Answers until the editor says `exit` or goes away; whether it had asked for a shutdown before.
    pub fn run(&mut self) -> bool {
        while let Some(message) = self.next() {
            match message {
                Message::Request(request) => {
                    let id = request.id.clone();
                    let response_result = if self.take_cancelled(&id) {
                        Err(error(ErrorCode::RequestCanceled, "cancelled"))
                    } else {
                        self.answer_safely(request)
                    };
                    self.send(Message::Response(Response { id, response_result }));
                }
                Message::Notification(notification) if notification.method == "exit" => break,
                Message::Notification(notification) => self.note(notification),
                // This server asks nothing.
                Message::Response(_) => {}
            }
        }
        self.phase == Phase::ShutDown
    }

    /// The next message; none when the editor has gone. While none waits, diagnostics are sent.
    fn next(&mut self) -> Option<Message> {
        self.waiting.extend(self.connection.receiver.try_iter());
        if self.waiting.is_empty() {
            self.publish();
            self.waiting.push_back(self.connection.receiver.recv().ok()?);
        }
        self.waiting.pop_front()
    }

    /// Whether the editor no longer wants an answer: the cancellation waits behind the request.
    fn take_cancelled(&mut self, id: &RequestId) -> bool {
        self.waiting.extend(self.connection.receiver.try_iter());
        let wanted = json!(id);
        let is_cancel = |message: &Message| {
            matches!(message, Message::Notification(found)
                if found.method == "$/cancelRequest" && found.params.get("id") == Some(&wanted))
        };
        let found = self.waiting.iter().position(is_cancel);
        found.is_some_and(|at| self.waiting.remove(at).is_some())
    }

    fn send(&self, message: Message) {
        // When the editor has gone, the next receive says so.
        let _ = self.connection.sender.send(message);
    }

    /// A fault in this server is the answer to one request, not the end of the conversation.
    fn answer_safely(&mut self, request: Request) -> Answer {
        let method = request.method.clone();
        catch_unwind(AssertUnwindSafe(|| self.answer(request))).unwrap_or_else(|_| {
            Err(error(
                ErrorCode::InternalError,
                format!("`{method}` failed: this is a fault of rlpipe"),
            ))
        })
    }

    fn answer(&mut self, request: Request) -> Answer {
        match (self.phase, request.method.as_str()) {
            (Phase::Before, "initialize") => return Ok(self.initialize(&request.params)),
            (Phase::Before, _) => return Err(error(ErrorCode::ServerNotInitialized, "`initialize` comes first")),
            (Phase::ShutDown, _) => return Err(error(ErrorCode::InvalidRequest, "the server is shut down")),
            (Phase::Open, "initialize") => return Err(error(ErrorCode::InvalidRequest, "initialized already")),
            (Phase::Open, "shutdown") => {
                self.phase = Phase::ShutDown;
                return Ok(Value::Null);
            }
            (Phase::Open, _) => {}
        }
        let (shapes, surroundings) = (&self.shapes, &self.surroundings);
        match request.method.as_str() {
            "textDocument/completion" => {
                let params: lsp::CompletionParams = read(request.params)?;
                let typed = params.context.and_then(|context| context.trigger_character);
                let wish = Wish {
                    snippets: self.snippets,
                    after_blank: typed.as_deref() == Some(" "),
                };
                self.at(&params.text_document_position_params, Vec::new(), |document, offset| {
                    complete(document, shapes, offset, wish)
                })
            }
            "textDocument/hover" => {
                let params: lsp::HoverParams = read(request.params)?;
                self.at(&params.text_document_position_params, None, |document, offset| {
                    let outcome = document.outcome(&self.documents, surroundings);
                    hover(document, shapes, outcome, surroundings, offset)
                })
            }
            "textDocument/definition" => {
                let params: lsp::DefinitionParams = read(request.params)?;
                self.at(&params.text_document_position_params, None, |document, offset| {
                    definition(document, shapes, offset)
                })
            }
            "textDocument/references" => {
                let params: lsp::ReferenceParams = read(request.params)?;
                let declaration = params.context.include_declaration;
                self.at(&params.text_document_position_params, Vec::new(), |document, offset| {
                    references(document, shapes, offset, declaration)
                })
            }
            "textDocument/prepareRename" => {
                let params: lsp::TextDocumentPositionParams = read(request.params)?;
                self.at(&params, None, |document, offset| renameable(document, shapes, offset))
            }
            "textDocument/rename" => {
                let params: lsp::RenameParams = read(request.params)?;
                let place = &params.text_document_position_params;
                let Some(document) = self.known(&place.text_document.uri) else {
                    return Ok(Value::Null);
                };
                let offset = document.text.offset(place.position);
                let renamed = rename(document, shapes, offset, &params.new_name);
                written(renamed.map_err(|message| error(ErrorCode::RequestFailed, message))?)
            }
            "textDocument/documentSymbol" => {
                let params: lsp::DocumentSymbolParams = read(request.params)?;
                written(self.known(&params.text_document.uri).map(symbols))
            }
            "textDocument/codeAction" => {
                let params: lsp::CodeActionParams = read(request.params)?;
                let document = self.known(&params.text_document.uri);
                let document = document.filter(|document| document.role(shapes) == Role::Pipeline);
                let actions = document
                    .map(|document| actions(document, document.outcome(&self.documents, surroundings), &params));
                written(actions.unwrap_or_default())
            }
            other => Err(error(ErrorCode::MethodNotFound, format!("`{other}` is not known here"))),
        }
    }

    /// A document that is a pipeline or a part of one.
    fn known(&self, uri: &lsp::Uri) -> Option<&Document> {
        self.documents
            .get(&uri.0)
            .filter(|document| document.role(&self.shapes) != Role::Other)
    }

    /// What `ask` says of a position, or `nothing` where there is no pipeline.
    fn at<T: Serialize>(
        &self,
        place: &lsp::TextDocumentPositionParams,
        nothing: T,
        ask: impl FnOnce(&Document, usize) -> T,
    ) -> Answer {
        match self.known(&place.text_document.uri) {
            Some(document) => written(ask(document, document.text.offset(place.position))),
            None => written(nothing),
        }
    }

    /// Only what is needed is read of what the editor can, so that no odd editor is refused.
    fn initialize(&mut self, params: &Value) -> Value {
        let encodings = params
            .pointer("/capabilities/general/positionEncodings")
            .and_then(Value::as_array);
        // The first that both know: an editor lists what it likes best first.
        let known = encodings.into_iter().flatten().find_map(|name| match name.as_str() {
            Some("utf-8") => Some(Encoding::Utf8),
            Some("utf-16") => Some(Encoding::Utf16),
            _ => None,
        });
        self.encoding = known.unwrap_or(Encoding::Utf16);
        let snippets = params.pointer("/capabilities/textDocument/completion/completionItem/snippetSupport");
        self.snippets = snippets.and_then(Value::as_bool).unwrap_or(false);
        let variables = params
            .pointer("/initializationOptions/environment")
            .and_then(Value::as_object);
        for (name, value) in variables.into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            self.surroundings.variables.insert(name.clone(), value);
        }
        self.phase = Phase::Open;
        let encoding = match self.encoding {
            Encoding::Utf8 => "utf-8",
            Encoding::Utf16 => "utf-16",
        };
        json!({
            "capabilities": {
                "positionEncoding": encoding,
                "textDocumentSync": { "openClose": true, "change": lsp::TextDocumentSyncKind::Incremental },
                "completionProvider": { "triggerCharacters": [" ", ".", "{", "[", "\""] },
                "hoverProvider": true,
                "definitionProvider": true,
                "referencesProvider": true,
                "renameProvider": { "prepareProvider": true },
                "documentSymbolProvider": true,
                "codeActionProvider": { "codeActionKinds": ["quickfix", "source.fixAll"] },
            },
            "serverInfo": { "name": "rlpipe", "version": env!("CARGO_PKG_VERSION") },
        })
    }

    /// Notifications have no answer; one that is not understood is passed over.
    fn note(&mut self, notification: Notification) {
        if self.phase != Phase::Open {
            return;
        }
        match notification.method.as_str() {
            "textDocument/didOpen" => {
                let Ok(params) = read::<lsp::DidOpenTextDocumentParams>(notification.params) else {
                    return;
                };
                let document = Document::new(params.text_document, self.encoding);
                self.stale.insert(document.uri.0.clone());
                self.documents.insert(document.uri.0.clone(), document);
            }
            "textDocument/didChange" => {
                let Ok(params) = read::<lsp::DidChangeTextDocumentParams>(notification.params) else {
                    return;
                };
                let uri = params.text_document.text_document_identifier.uri.0;
                let Some(document) = self.documents.get_mut(&uri) else {
                    return;
                };
                document.version = params.text_document.version;
                for change in params.content_changes {
                    document.change(change, self.encoding);
                }
                self.stale.insert(uri);
            }
            "textDocument/didClose" => {
                let Ok(params) = read::<lsp::DidCloseTextDocumentParams>(notification.params) else {
                    return;
                };
                let uri = params.text_document.uri;
                if self.documents.remove(&uri.0).is_some() {
                    self.stale.remove(&uri.0);
                    self.send_diagnostics(uri, None, Vec::new());
                }
            }
            _ => {}
        }
    }

    /// Checks what has changed, and says what was found.
    fn publish(&mut self) {
        for uri in std::mem::take(&mut self.stale) {
            let Some(document) = self.documents.get(&uri) else {
                continue;
            };
            let found = catch_unwind(AssertUnwindSafe(|| match document.role(&self.shapes) {
                Role::Pipeline => document.diagnostics(document.outcome(&self.documents, &self.surroundings)),
                Role::Part | Role::Other => Vec::new(),
            }));
            // A fault in a check is on standard error already; what was shown before stays.
            if let Ok(found) = found {
                self.send_diagnostics(document.uri.clone(), Some(document.version), found);
            }
        }
    }

    fn send_diagnostics(&self, uri: lsp::Uri, version: Option<i32>, diagnostics: Vec<lsp::Diagnostic>) {
        let params = lsp::PublishDiagnosticsParams {
            uri,
            version,
            diagnostics,
        };
        let Ok(params) = serde_json::to_value(params) else {
            return;
        };
        let method = "textDocument/publishDiagnostics".to_owned();
        self.send(Message::Notification(Notification { method, params }));
    }
}

fn read<T: DeserializeOwned>(params: Value) -> Result<T, ResponseError> {
    serde_json::from_value(params).map_err(|fault| error(ErrorCode::InvalidParams, fault.to_string()))
}

fn written(result: impl Serialize) -> Answer {
    serde_json::to_value(result).map_err(|fault| error(ErrorCode::InternalError, fault.to_string()))
}

fn error(code: ErrorCode, message: impl Into<String>) -> ResponseError {
    ResponseError {
        code: code as i32,
        message: message.into(),
        data: None,
    }
}
