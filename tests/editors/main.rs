//! The schema in the language servers that editors run: what they offer, what they mark, and that they mark nothing in
//! the pipelines that come with the project. `scripts/editor_tools.sh` puts the servers in place.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod client;
mod toml;
mod yaml;

use std::path::{Path, PathBuf};

use client::Client;
use rlpipe_tests::{project, shipped_pipelines};
use serde_json::Value;

/// Where a server was installed; none where it is not, which continuous integration does not let pass.
fn installed(path: &str) -> Option<PathBuf> {
    let full = project().join("target/tools/editors").join(path);
    if full.exists() {
        return Some(full);
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "`{}` is missing: `scripts/editor_tools.sh` installs it",
        full.display()
    );
    eprintln!(
        "skipped: `{}` is missing; `scripts/editor_tools.sh` installs it",
        full.display()
    );
    None
}

/// Texts in an editor, each as a new document beside the shipped pipelines, with the schema that those name.
struct Editor {
    client: Client,
    extension: &'static str,
    /// What every text begins with.
    head: &'static str,
    opened: usize,
}

impl Editor {
    fn new(client: Client, extension: &'static str, head: &'static str) -> Editor {
        Editor {
            client,
            extension,
            head,
            opened: 0,
        }
    }

    /// Opens a text; where its `|` stands, as line and column.
    fn open(&mut self, text: &str) -> (PathBuf, (usize, usize)) {
        self.opened += 1;
        let path = project().join(format!("pipelines/new-{}.{}", self.opened, self.extension));
        let text = format!("{}{text}", self.head);
        let cursor = text.find('|').unwrap_or(text.len());
        let before = &text[..cursor];
        let line = before.matches('\n').count();
        let column = cursor - before.rfind('\n').map_or(0, |newline| newline + 1);
        self.client.open(&path, self.extension, &text.replacen('|', "", 1));
        // A server that has looked for faults has loaded the schema.
        self.client.faults(&path);
        (path, (line, column))
    }

    /// What is offered at the `|`.
    fn offered(&mut self, text: &str) -> Vec<String> {
        let (path, cursor) = self.open(text);
        let labels = self.client.completion(&path, cursor);
        labels.iter().map(|label| label.trim_matches('"').to_owned()).collect()
    }

    /// What is shown of the word at the `|`.
    fn shown(&mut self, text: &str) -> String {
        let (path, cursor) = self.open(text);
        self.client.hover(&path, cursor)
    }

    /// What is marked: the marked text and the message of each fault.
    fn marked(&mut self, text: &str) -> Vec<(String, String)> {
        let (path, _) = self.open(text);
        let text = format!("{}{text}", self.head);
        let faults = self.client.faults(&path);
        faults
            .iter()
            .map(|fault| (under(&text, fault), message(fault)))
            .collect()
    }
}

fn message(fault: &Value) -> String {
    fault["message"].as_str().unwrap_or_default().to_owned()
}

/// The text under a fault, which is in one line.
fn under(text: &str, fault: &Value) -> String {
    let at = |end: &str, key: &str| fault["range"][end][key].as_u64().unwrap_or_default() as usize;
    let line = text.lines().nth(at("start", "line")).unwrap_or_default();
    let end = if at("end", "line") == at("start", "line") {
        at("end", "character")
    } else {
        line.len()
    };
    line.get(at("start", "character")..end)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Asserts that all that is wanted is offered, and nothing that is not.
fn assert_offers(place: &str, offered: &[String], wanted: &[&str], unwanted: &[&str]) {
    let has = |name: &&&str| offered.iter().any(|label| label == **name);
    let missing: Vec<_> = wanted.iter().filter(|name| !has(name)).collect();
    let wrong: Vec<_> = unwanted.iter().filter(has).collect();
    assert!(
        missing.is_empty() && wrong.is_empty(),
        "{place}: {missing:?} missing, {wrong:?} wrong, of {offered:?}"
    );
}

/// Asserts that this text alone is marked, with a message that names what is wrong.
fn assert_marks(editor: &mut Editor, text: &str, marked: &str, named: &str) {
    let found = editor.marked(text);
    let about: Vec<_> = found.iter().filter(|(under, _)| under.contains(marked)).collect();
    assert!(
        found.len() == about.len() && about.iter().any(|(_, message)| message.contains(named)),
        "{text}: `{marked}` is to be marked for `{named}`, and there is {found:?}"
    );
}

/// Asserts that nothing is marked in the shipped pipelines of a form.
fn assert_shipped_are_clean(editor: &mut Editor, suffix: &str) {
    let shipped: Vec<PathBuf> = shipped_pipelines();
    let shipped: Vec<&PathBuf> = shipped
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == suffix))
        .collect();
    assert!(!shipped.is_empty(), "no pipeline is `.{suffix}`");
    for path in shipped {
        let full = project().join(path);
        let text = std::fs::read_to_string(&full).unwrap();
        assert!(
            text.contains("schemas/pipeline.schema.json"),
            "{path:?} names no schema"
        );
        editor.client.open(&full, suffix, &text);
        let found: Vec<String> = editor.client.faults(&full).iter().map(message).collect();
        assert_eq!(found, [] as [&str; 0], "{path:?}");
    }
}

fn kinds() -> Vec<&'static str> {
    rlpipe_stages::KINDS.iter().map(|kind| kind.name).collect()
}

/// The project's folder, as a server is told it.
fn folder() -> PathBuf {
    let folder = project();
    folder.canonicalize().unwrap_or_else(|_| Path::new(".").to_owned())
}
