//! Documents that are open in the editor, and what the compiler says of them.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use gen_lsp_types as lsp;
use rlpipe_core::diagnostic::Severity;
use rlpipe_core::document::{Format, Range as TextRange, SourceId, Sources, Tree, Value};
use rlpipe_core::kind::Kind;
use rlpipe_runtime::compile::{Outcome, Request, compile, read_file};
use url::Url;

use crate::names::bytes;
use crate::scan::{Scan, scan};
use crate::shapes::Shapes;
use crate::text::{Encoding, Text};

/// Faults that the variables of the editor's environment have, and those of the run may not.
const OF_THE_ENVIRONMENT: &[&str] = &["RL0602", "RL0604"];

/// What a document is to this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A pipeline, which is checked.
    Pipeline,
    /// A part of one, such as an overlay: everything is offered, but alone it is not checked.
    Part,
    /// Something else, which is left alone.
    Other,
}

/// One open document.
pub struct Document {
    /// As the editor names it.
    pub uri: lsp::Uri,
    /// Its file, which need not exist.
    pub path: PathBuf,
    /// How it is written.
    pub format: Format,
    /// Its text, as it is typed.
    pub text: Text,
    /// The editor's count of changes.
    pub version: i32,
    role: OnceCell<Role>,
    scan: OnceCell<Scan>,
    outcome: OnceCell<Outcome>,
}

/// All open documents, by what the editor calls them.
pub type Documents = BTreeMap<String, Document>;

/// What checking needs beside documents.
pub struct Surroundings {
    /// All kinds.
    pub kinds: &'static [Kind],
    /// Variables that the editor sets, over those of the server's own environment.
    pub variables: BTreeMap<String, String>,
}

impl Surroundings {
    /// The value of an environment variable.
    pub fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned().or_else(|| std::env::var(name).ok())
    }
}

impl Document {
    /// A document that was opened.
    pub fn new(item: lsp::TextDocumentItem, encoding: Encoding) -> Document {
        let path = path_of(&item.uri);
        let is_toml = serde_json::to_value(&item.language_id).is_ok_and(|language| language == "toml");
        Document {
            format: if is_toml { Format::Toml } else { Format::of_file(&path) },
            path,
            uri: item.uri,
            text: Text::new(item.text, encoding),
            version: item.version,
            role: OnceCell::new(),
            scan: OnceCell::new(),
            outcome: OnceCell::new(),
        }
    }

    /// Takes over a change. What was found in the old text is forgotten.
    pub fn change(&mut self, change: lsp::TextDocumentContentChangeEvent, encoding: Encoding) {
        match change {
            lsp::TextDocumentContentChangeEvent::TextDocumentContentChangePartial(part) => {
                self.text.replace(part.range, &part.text);
            }
            lsp::TextDocumentContentChangeEvent::TextDocumentContentChangeWholeDocument(whole) => {
                self.text = Text::new(whole.text, encoding);
            }
        }
        (self.role, self.scan, self.outcome) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
    }

    /// The text as far as it can be understood.
    pub fn scan(&self) -> &Scan {
        self.scan.get_or_init(|| scan(self.text.as_str(), self.format, None))
    }

    /// What it is: it has our schema, or keys that only pipelines have together.
    pub fn role(&self, shapes: &Shapes) -> Role {
        *self.role.get_or_init(|| {
            let tree = &self.scan().tree;
            let has = |key: &str| tree.get(key).is_some();
            if names_schema(self.text.as_str()) || has("version") && has("nodes") {
                return Role::Pipeline;
            }
            let ours = |key: &str| shapes.top_level().iter().any(|known| known == key);
            let entries = tree.entries();
            let telling = entries.iter().any(|entry| entry.key != "name");
            if telling && entries.iter().all(|entry| ours(&entry.key)) {
                Role::Part
            } else {
                Role::Other
            }
        })
    }

    /// What the compiler says, with the texts of other open documents in place of their files.
    pub fn outcome(&self, documents: &Documents, surroundings: &Surroundings) -> &Outcome {
        self.outcome.get_or_init(|| {
            let read = |path: &Path| -> io::Result<String> {
                if path == self.path {
                    return Ok(self.text.as_str().to_owned());
                }
                match documents.values().find(|document| document.path == path) {
                    Some(document) => Ok(document.text.as_str().to_owned()),
                    None => read_file(path),
                }
            };
            compile(&Request {
                files: vec![self.path.clone()],
                overrides: Vec::new(),
                environment: &|name| surroundings.variable(name),
                working_folder: self.path.parent().unwrap_or(Path::new("")).to_owned(),
                read: &read,
                kinds: surroundings.kinds,
            })
        })
    }

    /// The range of something in this document's own text.
    pub fn range(&self, range: TextRange) -> lsp::Range {
        self.text.range(bytes(range))
    }

    /// What was found, as the editor shows it.
    pub fn diagnostics(&self, outcome: &Outcome) -> Vec<lsp::Diagnostic> {
        let sorted = outcome.diagnostics.sorted();
        sorted
            .into_iter()
            .map(|diagnostic| self.diagnostic(diagnostic, &outcome.sources))
            .collect()
    }

    /// One of them.
    pub fn diagnostic(&self, found: &rlpipe_core::diagnostic::Diagnostic, sources: &Sources) -> lsp::Diagnostic {
        let severity = match found.severity {
            _ if OF_THE_ENVIRONMENT.contains(&found.code.id) => lsp::DiagnosticSeverity::Information,
            Severity::Error => lsp::DiagnosticSeverity::Error,
            Severity::Warning => lsp::DiagnosticSeverity::Warning,
        };
        let mut message = found.message.clone();
        // In a terminal the label stands apart from the headline; here it would only say again what that says.
        if !found.message.contains(&found.primary.text) {
            message = format!("{message}: {}", found.primary.text);
        }
        for note in &found.notes {
            message = format!("{message}\nnote: {note}");
        }
        if let Some(fix) = &found.fix {
            message = format!("{message}\nhelp: {}", fix.title);
        }
        let related: Vec<lsp::DiagnosticRelatedInformation> = found
            .labels
            .iter()
            .filter(|label| !label.text.is_empty())
            .filter_map(|label| {
                let location = self.location(label.range, sources)?;
                Some(lsp::DiagnosticRelatedInformation {
                    location,
                    message: label.text.clone(),
                })
            })
            .collect();
        lsp::Diagnostic {
            range: self.own_range(found.primary.range, sources).unwrap_or_default(),
            severity: Some(severity),
            code: Some(lsp::Code::String(found.code.id.to_owned())),
            source: Some("rlpipe".to_owned()),
            message: lsp::Message::String(message),
            related_information: Some(related).filter(|related| !related.is_empty()),
            ..lsp::Diagnostic::default()
        }
    }

    /// The range of what lies in this document; a fault of something else is shown at its beginning.
    fn own_range(&self, range: TextRange, sources: &Sources) -> Option<lsp::Range> {
        let is_own = range.source == SourceId(0) && !sources.get(range.source).text.is_empty();
        is_own.then(|| self.range(range))
    }

    /// The place of something in this document or in another file.
    fn location(&self, range: TextRange, sources: &Sources) -> Option<lsp::Location> {
        if let Some(range) = self.own_range(range, sources) {
            return Some(lsp::Location {
                uri: self.uri.clone(),
                range,
            });
        }
        let source = sources.get(range.source);
        let uri = Url::from_file_path(&source.name).ok()?;
        let text = Text::new(source.text.to_string(), self.text.encoding());
        Some(lsp::Location {
            uri: lsp::Uri(uri.into()),
            range: text.range(bytes(range)),
        })
    }
}

/// Whether comments at the top name the schema of pipelines, as editors read it.
fn names_schema(text: &str) -> bool {
    let lines = text.lines().map(|line| line.trim_start_matches('\u{feff}').trim());
    let mut top = lines.take_while(|line| line.is_empty() || line.starts_with('#'));
    top.any(|line| line.contains("schema") && line.ends_with("pipeline.schema.json"))
}

/// The file of a document; one that was never saved gets a name of its own in the working folder.
fn path_of(uri: &lsp::Uri) -> PathBuf {
    let url = Url::parse(&uri.0).ok();
    let path = url
        .as_ref()
        .filter(|url| url.scheme() == "file")
        .and_then(|url| url.to_file_path().ok());
    path.unwrap_or_else(|| {
        let folder = std::env::current_dir().unwrap_or_default();
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '_'
            }
        };
        folder.join(uri.0.chars().map(plain).collect::<String>())
    })
}

/// Whether a value is a mapping.
pub fn is_map(tree: &Tree) -> bool {
    matches!(tree.value, Value::Map(_))
}
