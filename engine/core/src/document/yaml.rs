//! YAML through serde-saphyr, which is named in this file alone.
//!
//! Settings: booleans are `true` and `false` only; numbers with leading zeros or underscores are text (a leading zero
//! is then reported); duplicate keys are reported here, with both places; merge keys and anchors work, and what they
//! bring points at where it was written; unknown tags, several documents, and documents that unfold to too much are
//! errors. serde-saphyr gives block collections an empty range and flow collections only their opening bracket, so
//! both are extended here.

use std::fmt;

use serde::Deserialize;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use super::flow;
use super::parse::{MAXIMUM_DEPTH, duplicate_key, number_out_of_range, too_deep};
use super::source::{Range, SourceId};
use super::tree::{Entry, Origin, Tree, Value};
use crate::diagnostic::{Diagnostic, Diagnostics, codes};

/// Documents with more values, keys included, are refused. A pipeline of ten thousand nodes has some two hundred thousand.
const MAXIMUM_VALUES: usize = 1_000_000;

type Bytes = std::ops::Range<usize>;

/// Where the parsed text lies in the source: it begins at `base`, and may hold bytes that the source lacks.
pub(super) struct Placement {
    pub source: SourceId,
    pub base: usize,
    /// Offsets, in the parsed text and in order, of the bytes that were put in.
    pub inserted: Vec<usize>,
}

impl Placement {
    fn offset(&self, parsed: usize) -> u32 {
        let inserted = self.inserted.partition_point(|&position| position < parsed);
        u32::try_from(self.base + parsed - inserted).unwrap_or(u32::MAX)
    }

    fn range(&self, parsed: Bytes) -> Range {
        Range::new(self.source, self.offset(parsed.start), self.offset(parsed.end))
    }
}

/// Parses `text`, which lies at byte `base` of `source`.
pub(super) fn parse(
    text: &str,
    source: SourceId,
    base: usize,
    origin: &Origin,
    diagnostics: &mut Diagnostics,
) -> Option<Tree> {
    let plain = Placement {
        source,
        base,
        inserted: Vec::new(),
    };
    let error = match load(text) {
        Ok(node) => {
            return Some(
                Build {
                    text,
                    placement: &plain,
                    origin,
                    diagnostics,
                }
                .tree(node),
            );
        }
        Err(error) => error,
    };
    let references = flow::unquoted_references(text);
    let position = error_bytes(text, &error).start;
    if !references
        .iter()
        .any(|reference| (reference.start..=reference.end).contains(&position))
    {
        diagnostics.push(syntax_error(text, &plain, &error));
        return None;
    }
    // The error is an unquoted reference's: report them all, and go on as if they were quoted.
    for reference in &references {
        let (range, found) = (plain.range(reference.clone()), &text[reference.clone()]);
        diagnostics.push(
            Diagnostic::error(
                &codes::RL0103,
                range,
                format!("`{found}` inside brackets is not quoted"),
            )
            .label_text("YAML ends this value at the first `}`")
            .note("inside `{ }` and `[ ]`, put quotes around a value that holds a `${NAME}`")
            .fix("quote it", range, flow::quoted(found)),
        );
    }
    let (repaired, inserted) = flow::quote_all(text, &references);
    let placement = Placement { inserted, ..plain };
    match load(&repaired) {
        Ok(node) => Some(
            Build {
                text: &repaired,
                placement: &placement,
                origin,
                diagnostics,
            }
            .tree(node),
        ),
        Err(error) => {
            diagnostics.push(syntax_error(&repaired, &placement, &error));
            None
        }
    }
}

fn load(text: &str) -> Result<Node, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        reject_unsupported_tags: true,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::PassThrough,
        budget: serde_saphyr::budget! { max_depth: MAXIMUM_DEPTH, max_nodes: MAXIMUM_VALUES, max_events: 4 * MAXIMUM_VALUES },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
    };
    serde_saphyr::from_str_with_options::<Spanned<Raw>>(text, options).map(|spanned| node(text, spanned))
}

/// A node with where it is used and where it is written; the two differ for what an alias or merge key brings.
struct Node {
    used: Bytes,
    written: Bytes,
    raw: Raw,
}

enum Raw {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// A whole number beyond 64 bits.
    Large,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Bytes, String, Node)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(i64::try_from(value).map_or(Raw::Large, Raw::Int))
    }

    fn visit_i128<E>(self, _: i128) -> Result<Raw, E> {
        Ok(Raw::Large)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Raw, E> {
        Ok(Raw::Large)
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Float(value))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = access.next_element::<Spanned<Raw>>()? {
            elements.push(bare(element));
        }
        Ok(Raw::List(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key::<Spanned<String>>()? {
            let value = access.next_value::<Spanned<Raw>>()?;
            let Some(key_bytes) = bytes(&key.defined) else {
                return Err(A::Error::custom("a key without a position"));
            };
            entries.push((key_bytes, key.value, bare(value)));
        }
        Ok(Raw::Map(entries))
    }
}

fn bytes(location: &Location) -> Option<Bytes> {
    let start = usize::try_from(location.span().byte_offset()?).ok()?;
    let length = usize::try_from(location.span().byte_len()?).ok()?;
    Some(start..start + length)
}

fn bare(spanned: Spanned<Raw>) -> Node {
    let written = bytes(&spanned.defined).unwrap_or(0..0);
    let used = bytes(&spanned.referenced).unwrap_or_else(|| written.clone());
    Node {
        used,
        written,
        raw: spanned.value,
    }
}

/// The root with every range extended to the whole collection.
fn node(text: &str, spanned: Spanned<Raw>) -> Node {
    let mut root = bare(spanned);
    extend(text, &mut root);
    root
}

fn extend(text: &str, node: &mut Node) {
    let aliased = node.used != node.written;
    let ends_at = |child: &Node| if aliased { child.written.end } else { child.used.end };
    let mut end = node.written.end;
    match &mut node.raw {
        Raw::List(elements) => {
            for element in elements {
                extend(text, element);
                end = end.max(ends_at(element));
            }
        }
        Raw::Map(entries) => {
            for (key, _, value) in entries {
                if value.written.is_empty() && matches!(value.raw, Raw::Null) {
                    // Nothing was written: it stands just behind its key.
                    value.written = key.end..key.end;
                    value.used = value.written.clone();
                }
                extend(text, value);
                end = end.max(ends_at(value));
            }
        }
        // A block scalar takes in the line ends behind it.
        _ => {
            let written = text.get(node.written.clone()).unwrap_or_default();
            end = node.written.start + written.trim_end().len();
        }
    }
    let closer = match text.get(node.written.clone()) {
        Some("{") if matches!(node.raw, Raw::Map(_)) => Some('}'),
        Some("[") if matches!(node.raw, Raw::List(_)) => Some(']'),
        _ => None,
    };
    if let Some(closer) = closer {
        end = closing_bracket(text, end, closer).unwrap_or(end);
    }
    if closer.is_none() && matches!(node.raw, Raw::List(_)) {
        // A block list is said to start behind its first dash.
        let before = text.get(..node.written.start).unwrap_or_default().trim_end_matches(' ');
        if before.ends_with('-') {
            node.written.start = before.len() - 1;
        }
    }
    node.written.end = end.max(node.written.start);
    if !aliased {
        node.used = node.written.clone();
    }
}

/// Behind the `closer` that follows byte `from` with only space, commas and comments between.
fn closing_bracket(text: &str, from: usize, closer: char) -> Option<usize> {
    let mut comment = false;
    for (offset, character) in text.get(from..)?.char_indices() {
        match character {
            '\n' => comment = false,
            _ if comment => {}
            '#' => comment = true,
            _ if character == closer => return Some(from + offset + 1),
            ',' | ':' | '?' => {}
            _ if character.is_whitespace() => {}
            _ => return None,
        }
    }
    None
}

struct Build<'a> {
    text: &'a str,
    placement: &'a Placement,
    origin: &'a Origin,
    diagnostics: &'a mut Diagnostics,
}

impl Build<'_> {
    fn tree(&mut self, node: Node) -> Tree {
        let range = self.placement.range(node.written.clone());
        let written = self.text.get(node.written).unwrap_or_default();
        let value = match node.raw {
            Raw::Null => Value::Null,
            // `True` and `FALSE` are what other languages write, not YAML that people expect here.
            Raw::Bool(_) if !matches!(written, "true" | "false") => Value::Text(written.to_owned()),
            Raw::Bool(value) => Value::Bool(value),
            Raw::Int(value) => Value::Int(value),
            Raw::Float(value) if value.is_finite() && !is_whole_number(written) => Value::Float(value),
            Raw::Float(_) | Raw::Large => {
                self.diagnostics.push(number_out_of_range(range, written));
                Value::Unresolved
            }
            Raw::Text(value) if value == written && has_leading_zero(written) => {
                self.diagnostics.push(
                    Diagnostic::error(&codes::RL0104, range, format!("`{written}` begins with a zero"))
                        .label_text("a number or text?")
                        .note(format!("quote it if it is text: `\"{written}\"`"))
                        .fix("write the number without it", range, without_leading_zeros(written)),
                );
                Value::Unresolved
            }
            Raw::Text(value) => Value::Text(value),
            Raw::List(elements) => Value::List(elements.into_iter().map(|element| self.tree(element)).collect()),
            Raw::Map(entries) => self.map(entries),
        };
        Tree::new(range, value, self.origin.clone())
    }

    fn map(&mut self, raw: Vec<(Bytes, String, Node)>) -> Value {
        let mut entries: Vec<Entry> = Vec::with_capacity(raw.len());
        let mut seen = std::collections::HashMap::<String, Range>::with_capacity(raw.len());
        for (key_bytes, key, value) in raw {
            let key_range = self.placement.range(key_bytes);
            match seen.get(&key) {
                Some(&first) => self.diagnostics.push(duplicate_key(&key, key_range, Some(first))),
                None => {
                    seen.insert(key.clone(), key_range);
                    entries.push(Entry {
                        key,
                        key_range,
                        value: self.tree(value),
                    });
                }
            }
        }
        Value::Map(entries)
    }
}

fn is_whole_number(written: &str) -> bool {
    let digits = written.strip_prefix(['-', '+']).unwrap_or(written);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn has_leading_zero(written: &str) -> bool {
    let digits = written.strip_prefix(['-', '+']).unwrap_or(written);
    digits.len() > 1 && digits.starts_with('0') && is_whole_number(written)
}

pub(super) fn without_leading_zeros(written: &str) -> String {
    let sign = if written.starts_with('-') { "-" } else { "" };
    let digits = written.trim_start_matches(['-', '+']).trim_start_matches('0');
    format!("{sign}{}", if digits.is_empty() { "0" } else { digits })
}

/// The bytes an error lies at. Errors of the scanner carry no byte offset, only characters from the start.
fn error_bytes(text: &str, error: &serde_saphyr::Error) -> Bytes {
    let Some(location) = error.location() else { return 0..0 };
    if let Some(found) = bytes(&location).filter(|found| text.get(found.clone()).is_some()) {
        return found;
    }
    let line = usize::try_from(location.line()).unwrap_or(1).max(1);
    let column = usize::try_from(location.column()).unwrap_or(1).max(1);
    let line_start = text.split_inclusive('\n').take(line - 1).map(str::len).sum::<usize>();
    let rest = text[line_start..]
        .strip_prefix('\u{feff}')
        .unwrap_or(&text[line_start..]);
    let rest = rest.split('\n').next().unwrap_or_default().trim_end_matches('\r');
    let bom = if text[line_start..].starts_with('\u{feff}') {
        '\u{feff}'.len_utf8()
    } else {
        0
    };
    let within = rest.char_indices().nth(column - 1);
    let start = line_start + bom + within.map_or(rest.len(), |(offset, _)| offset);
    start..start + within.map_or(0, |(_, character)| character.len_utf8())
}

fn syntax_error(text: &str, placement: &Placement, error: &serde_saphyr::Error) -> Diagnostic {
    let range = placement.range(error_bytes(text, error));
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    if message.contains("Depth") || message.contains("recursion limit") {
        return too_deep(range);
    }
    if message.starts_with("budget breached") || message.contains("limit exceeded") {
        return Diagnostic::error(&codes::RL0112, range, "the document has or unfolds to too many values")
            .label_text("reading stops here");
    }
    let diagnostic = Diagnostic::error(&codes::RL0101, range, format!("this is not valid YAML: {message}"));
    match message {
        _ if message.starts_with("tabs disallowed") => diagnostic.label_text("a tab; indent with spaces"),
        _ if message.starts_with("mapping values are not allowed") => diagnostic
            .label_text("a `:` that cannot stand here")
            .note("a value that holds `: ` needs quotes; keys of one mapping need the same indentation"),
        _ if message.contains("simple key expected") => diagnostic.label_text("a key without a `:`"),
        _ => diagnostic.label_text("reading stops here"),
    }
}

/// JSON as YAML that reads back identically: texts that would read as something else are quoted, and `${` is escaped.
pub fn to_yaml(value: &serde_json::Value) -> String {
    let options = serde_saphyr::ser_options! { compact_list_indent: false, prefer_block_scalars: false };
    // Only a key that is no scalar or a bad option can fail, and neither exists here.
    serde_saphyr::to_string_with_options(&escaped(value), options).unwrap_or_default()
}

fn escaped(value: &serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::String(text) => text.replace("${", "$${").into(),
        serde_json::Value::Array(elements) => elements.iter().map(escaped).collect(),
        serde_json::Value::Object(entries) => entries
            .iter()
            .map(|(key, value)| (key.clone(), escaped(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}
