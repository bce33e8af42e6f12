//! What may be written at the cursor.

use std::ops::Range;

use gen_lsp_types as lsp;
use rlpipe_core::document::{Format, Segment, Tree};
use rlpipe_runtime::compile::Setting;

use crate::candidates::{candidates, variables_of};
use crate::document::Document;
use crate::scan::{Place, Spot, scan};
use crate::shapes::{Shapes, key_of};
use crate::snippet::Snippet;

/// What a client wants and can.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// Whether it understands `$1`.
    pub snippets: bool,
    /// Whether it asks because a blank was typed: then only values are offered, or each indentation would open a list.
    pub after_blank: bool,
}

/// Everything that fits at a byte of a document.
pub fn complete(document: &Document, shapes: &Shapes, offset: usize, wish: Wish) -> Vec<lsp::CompletionItem> {
    let text = document.text.as_str();
    let found = scan(text, document.format, Some(offset));
    let Some(spot) = found.spot else { return Vec::new() };
    let mut list = List {
        document,
        shapes,
        tree: &found.tree,
        spot: &spot,
        wish,
        items: Vec::new(),
    };
    let before = &text[spot.word.start.min(offset)..offset];
    let open = before.rfind("${").filter(|at| !before[*at..].contains('}'));
    match (spot.place, open) {
        (Place::Value, Some(at)) => list.variables(spot.word.start + at + 2, offset),
        (Place::Value, None) => list.values(),
        (Place::Key | Place::Header, _) if wish.after_blank && !spot.in_flow => {}
        (Place::Key | Place::Header, _) => list.keys(&spot.path),
    }
    list.items
}

struct List<'a> {
    document: &'a Document,
    shapes: &'a Shapes,
    tree: &'a Tree,
    spot: &'a Spot,
    wish: Wish,
    items: Vec<lsp::CompletionItem>,
}

impl List<'_> {
    fn is_toml(&self) -> bool {
        self.document.format == Format::Toml
    }

    fn snippet(&self) -> Snippet<'_> {
        Snippet::new(self.shapes, self.tree, self.document.format)
    }

    fn after(&self, at: usize) -> &str {
        &self.document.text.as_str()[at..]
    }

    /// Adds an item that puts a text in place of some bytes; what comes first is shown first.
    fn add(&mut self, label: &str, kind: lsp::CompletionItemKind, place: Range<usize>, text: Inserted, words: Words) {
        let (new_text, format) = match text {
            Inserted::Plain(text) => (text, lsp::InsertTextFormat::PlainText),
            Inserted::Snippet(text) => (text, lsp::InsertTextFormat::Snippet),
        };
        let range = self.document.text.range(place);
        let documentation = lsp::MarkupContent {
            kind: lsp::MarkupKind::Markdown,
            value: words.documentation,
        };
        let order = self.items.len();
        self.items.push(lsp::CompletionItem {
            label: label.to_owned(),
            kind: Some(kind),
            detail: Some(words.detail).filter(|detail| !detail.is_empty()),
            documentation: Some(documentation)
                .filter(|text| !text.value.is_empty())
                .map(lsp::Documentation::MarkupContent),
            sort_text: Some(format!("{order:04}")),
            filter_text: Some(label.to_owned()),
            insert_text_format: Some(format),
            text_edit: Some(lsp::CompletionItemTextEdit::TextEdit(lsp::TextEdit { range, new_text })),
            ..lsp::CompletionItem::default()
        });
    }

    fn variables(&mut self, start: usize, offset: usize) {
        let rest = self.after(offset);
        let name = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let end = offset + name;
        let close = if rest[name..].starts_with(['}', ':']) { "" } else { "}" };
        for variable in variables_of(self.tree) {
            let text = Inserted::Plain(format!("{}{close}", variable.name));
            let words = Words {
                detail: variable.detail,
                documentation: String::new(),
            };
            self.add(
                &variable.name,
                lsp::CompletionItemKind::Variable,
                start..end,
                text,
                words,
            );
        }
    }

    fn keys(&mut self, path: &[Segment]) {
        if matches!(path, [Segment::Key(nodes)] if nodes == "nodes") {
            self.nodes();
        }
        let mapping = self.tree.at(path);
        // A table may have several headers, for what is below it.
        let is_here = mapping.depth == path.len() && self.spot.place != Place::Header;
        let word = self.spot.word.clone();
        let others: Vec<&str> = mapping
            .tree
            .entries()
            .iter()
            .filter(|entry| is_here && !(crate::names::bytes(entry.key_range).contains(&word.start)))
            .map(|entry| entry.key.as_str())
            .collect();
        if self.shapes.is_choice(path, self.tree) && !others.is_empty() {
            return;
        }
        let node = path.get(1).and_then(key_of).unwrap_or_default();
        let names = Shapes::names_as_keys(path);
        let known = names
            .map(|names| candidates(self.shapes, self.tree, names, node))
            .unwrap_or_default();
        for candidate in known.iter().filter(|known| !others.contains(&known.name.as_str())) {
            let text = Inserted::Plain(self.key_lead(&candidate.name).unwrap_or_else(|bare| bare));
            let words = Words {
                detail: candidate.detail.clone(),
                documentation: String::new(),
            };
            self.add(
                &candidate.name,
                lsp::CompletionItemKind::Reference,
                word.clone(),
                text,
                words,
            );
        }
        let mut settings = self.shapes.settings(path, self.tree);
        settings.retain(|setting| !others.contains(&setting.key.as_str()));
        // What must be given comes first.
        settings.sort_by_key(|setting| !setting.required);
        for setting in settings {
            let text = self.key_text(&setting);
            self.add(
                &setting.key,
                lsp::CompletionItemKind::Property,
                word.clone(),
                text,
                described(&setting),
            );
        }
    }

    /// A key with its separator; alone, as an error, where the separator is there or has no place.
    fn key_lead(&self, key: &str) -> Result<String, String> {
        let indent = " ".repeat(self.spot.lacking_indent);
        let separator = if self.is_toml() { "=" } else { ":" };
        let rest = self.after(self.spot.word.end).trim_start_matches(['"', '\'']);
        let has_value = rest.trim_start_matches([' ', '\t']).starts_with(separator);
        if has_value || self.spot.quote.is_some() || self.spot.place == Place::Header {
            return Err(format!("{indent}{key}"));
        }
        let lead = if self.is_toml() { " = " } else { ": " };
        Ok(format!("{indent}{key}{lead}"))
    }

    /// A key with the beginning of its value, as far as it is not there.
    fn key_text(&self, setting: &Setting) -> Inserted {
        let lead = match self.key_lead(&setting.key) {
            Ok(lead) => lead,
            Err(bare) => return Inserted::Plain(bare),
        };
        if !self.wish.snippets {
            return Inserted::Plain(lead);
        }
        let mut snippet = self.snippet();
        snippet.plain(&lead);
        let is_list = setting.type_text.starts_with("list");
        let is_map = setting.type_text.starts_with("mapping") || !setting.settings.is_empty();
        if is_list {
            snippet.plain("[");
            snippet.stop("");
            snippet.plain("]");
        } else if is_map {
            self.mapping_of(&mut snippet, &setting.settings);
        } else if self.is_toml() && (setting.type_text.starts_with("text") || !setting.choices.is_empty()) {
            snippet.plain("\"");
            snippet.stop("");
            snippet.plain("\"");
        } else {
            return Inserted::Plain(lead);
        }
        Inserted::Snippet(snippet.text)
    }

    /// `{ key: , other: }` with all keys that must be given.
    fn mapping_of(&self, snippet: &mut Snippet<'_>, settings: &[Setting]) {
        let separator = if self.is_toml() { " = " } else { ": " };
        snippet.text.push_str("{ ");
        let mut required = settings.iter().filter(|setting| setting.required).peekable();
        if required.peek().is_none() {
            snippet.stop("");
        }
        while let Some(setting) = required.next() {
            snippet.plain(&format!("{}{separator}", setting.key));
            snippet.stop("");
            snippet.plain(if required.peek().is_some() { ", " } else { "" });
        }
        snippet.plain(" }");
    }

    /// A whole node of each kind, where nodes stand below each other.
    fn nodes(&mut self) {
        if self.spot.in_flow || self.is_toml() || !self.wish.snippets {
            return;
        }
        let word = self.spot.word.clone();
        if self.after(word.end).trim_start_matches([' ', '\t']).starts_with(':') {
            return;
        }
        for kind in self.shapes.kinds {
            let mut snippet = self.snippet();
            snippet.plain(&" ".repeat(self.spot.lacking_indent));
            snippet.stop(kind.name);
            snippet.plain(&format!(":\n  type: {}", kind.name));
            snippet.kind_settings(kind, "", "  ");
            let text = Inserted::Snippet(snippet.text);
            let words = Words {
                detail: "a node of this kind".to_owned(),
                documentation: kind.summary.to_owned(),
            };
            self.add(kind.name, lsp::CompletionItemKind::Snippet, word.clone(), text, words);
        }
    }

    fn values(&mut self) {
        let path = &self.spot.path;
        let node = path.get(1).and_then(key_of).unwrap_or_default();
        let names = self.shapes.names(path, self.tree);
        for candidate in names
            .map(|names| candidates(self.shapes, self.tree, names, node))
            .unwrap_or_default()
        {
            let text = Inserted::Plain(self.written(&candidate.name, true));
            let words = Words {
                detail: candidate.detail,
                documentation: String::new(),
            };
            let place = self.spot.word.clone();
            self.add(&candidate.name, lsp::CompletionItemKind::Reference, place, text, words);
        }
        let keys: Vec<Option<&str>> = path.iter().map(key_of).collect();
        if let [Some("nodes"), Some(_), Some("type")] = keys.as_slice() {
            return self.types(node);
        }
        if let [Some("env"), Some("vars"), Some(_), Some("default")] = keys.as_slice() {
            let of = self
                .tree
                .at(&path[..3])
                .tree
                .get("of")
                .map(Tree::elements)
                .unwrap_or_default();
            for value in of.iter().filter_map(Tree::as_text) {
                let text = Inserted::Plain(self.written(value, true));
                let place = self.spot.word.clone();
                self.add(
                    value,
                    lsp::CompletionItemKind::EnumMember,
                    place,
                    text,
                    Words::default(),
                );
            }
        }
        let setting = self.shapes.setting(path, self.tree);
        let default = setting.and_then(|setting| setting.default).unwrap_or_default();
        for alternative in self.shapes.alternatives(path, self.tree) {
            let text = match (alternative.needs_settings, self.spot.quote) {
                (true, Some(_)) => continue,
                (true, None) => self.with_settings(&alternative.name),
                (false, _) => Inserted::Plain(self.written(&alternative.name, alternative.is_text)),
            };
            let detail = if alternative.name == default { "default" } else { "" };
            let words = Words {
                detail: detail.to_owned(),
                documentation: alternative.description,
            };
            let place = self.spot.word.clone();
            self.add(
                &alternative.name,
                lsp::CompletionItemKind::EnumMember,
                place,
                text,
                words,
            );
        }
        // An element of a list in block style may become a mapping.
        if matches!(path.last(), Some(Segment::Index(_))) && !self.spot.in_flow {
            self.keys(path);
        }
    }

    /// `{ name: { settings that must be given } }`.
    fn with_settings(&self, name: &str) -> Inserted {
        let separator = if self.is_toml() { " = " } else { ": " };
        if !self.wish.snippets {
            return Inserted::Plain(format!("{{ {name}{separator}{{}} }}"));
        }
        let mut path = self.spot.path.clone();
        let setting = {
            path.push(name.into());
            self.shapes.setting(&path, self.tree)
        };
        let mut snippet = self.snippet();
        snippet.text.push_str(&format!("{{ {name}{separator}"));
        match setting.filter(|setting| setting.type_text == "text") {
            Some(_) => {
                snippet.plain("\"");
                snippet.stop("");
                snippet.plain("\"");
            }
            None => {
                let settings = self.shapes.settings(&path, self.tree);
                self.mapping_of(&mut snippet, &settings);
            }
        }
        snippet.plain(" }");
        Inserted::Snippet(snippet.text)
    }

    /// Kinds: with the settings that the node lacks, where they can stand below.
    fn types(&mut self, node: &str) {
        let rest = self.after(self.spot.word.end);
        let line = rest.lines().next().unwrap_or_default().trim_matches(['"', '\'']).trim();
        let can_grow = self.wish.snippets && !self.spot.in_flow && line.is_empty();
        // A quote that is closed stands behind the word: what follows would be in it.
        let is_open = self.spot.quote.is_none_or(|(_, closed)| !closed);
        for kind in self.shapes.kinds {
            let written = self.written(kind.name, true);
            let text = if can_grow && is_open {
                let mut snippet = self.snippet();
                snippet.plain(&written);
                snippet.kind_settings(kind, node, "");
                Inserted::Snippet(snippet.text)
            } else {
                Inserted::Plain(written)
            };
            let words = Words {
                detail: String::new(),
                documentation: kind.summary.to_owned(),
            };
            let place = self.spot.word.clone();
            self.add(kind.name, lsp::CompletionItemKind::Class, place, text, words);
        }
    }

    /// A value as it stands in the text.
    fn written(&self, value: &str, is_text: bool) -> String {
        match self.spot.quote {
            Some((_, true)) => value.to_owned(),
            Some((quote, false)) => format!("{value}{quote}"),
            None if is_text && (self.is_toml() || !is_plain(value)) => format!("\"{value}\""),
            None => value.to_owned(),
        }
    }
}

/// Whether a word is text in YAML without quotes.
fn is_plain(word: &str) -> bool {
    let other = ["true", "false", "null", "yes", "no", "on", "off"];
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
        && !other.contains(&word.to_ascii_lowercase().as_str())
}

/// What is put into the text.
enum Inserted {
    Plain(String),
    Snippet(String),
}

/// What is said of an item.
#[derive(Default)]
struct Words {
    detail: String,
    documentation: String,
}

fn described(setting: &Setting) -> Words {
    Words {
        detail: type_and_default(setting),
        documentation: setting.description.clone(),
    }
}

/// "whole number of at least 1, default 1".
pub fn type_and_default(setting: &Setting) -> String {
    let names: Vec<&str> = setting.choices.iter().map(|(name, _, _)| name.as_str()).collect();
    let kind = if names.is_empty() {
        setting.type_text.clone()
    } else {
        format!("{} {}", setting.type_text, names.join(", "))
    };
    match (&setting.default, setting.required) {
        (Some(default), _) => format!("{kind}; default `{default}`"),
        (None, true) => format!("{kind}; required"),
        (None, false) => kind,
    }
}
