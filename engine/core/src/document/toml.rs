//! TOML, with the ranges that the `toml` crate keeps.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::parse::{MAXIMUM_DEPTH, duplicate_key, number_out_of_range, too_deep};
use super::source::{Range, SourceId};
use super::tree::{Entry, Origin, Tree, Value};
use super::yaml;
use crate::diagnostic::{Diagnostic, Diagnostics, codes};

/// JSON as TOML: tables with their settings, deeper ones as tables of their own. TOML has no null: such entries of mappings are
/// left out. None for what is no mapping, or has a list with a null in it.
pub fn to_toml(value: &serde_json::Value) -> Option<String> {
    toml::to_string_pretty(&without_null(value)).ok()
}

fn without_null(value: &serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Array(elements) => elements.iter().map(without_null).collect(),
        serde_json::Value::Object(entries) => entries
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.clone(), without_null(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

pub(super) fn parse(text: &str, source: SourceId, origin: &Origin, diagnostics: &mut Diagnostics) -> Option<Tree> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let (duplicates, other): (Vec<_>, Vec<_>) = errors.iter().partition(|error| error.message() == "duplicate key");
    let range = |bytes: std::ops::Range<usize>| {
        Range::new(
            source,
            u32::try_from(bytes.start).unwrap_or(u32::MAX),
            u32::try_from(bytes.end).unwrap_or(u32::MAX),
        )
    };
    for error in duplicates {
        let bytes = error.span().unwrap_or(0..0);
        let key = text.get(bytes.clone()).unwrap_or_default().trim_matches(['"', '\'']);
        let first = first_of(text, bytes.clone()).map(&range);
        diagnostics.push(duplicate_key(key, range(bytes), first));
    }
    let mut leading_zero = false;
    for error in &other {
        let bytes = error.span().unwrap_or(0..0);
        if error.message().contains("leading zero") {
            leading_zero = true;
            let end = text[bytes.start..]
                .find([' ', '\n', '\r', ',', ']', '}', '#'])
                .map_or(text.len(), |length| bytes.start + length);
            let (place, written) = (range(bytes.start..end), &text[bytes.start..end]);
            diagnostics.push(
                Diagnostic::error(&codes::RL0104, place, format!("`{written}` begins with a zero"))
                    .label_text("a number or text?")
                    .note(format!("quote it if it is text: `\"{written}\"`"))
                    .fix(
                        "write the number without it",
                        place,
                        yaml::without_leading_zeros(written),
                    ),
            );
        }
    }
    // What follows a first error of syntax may only follow from it.
    if let Some(error) = other.iter().find(|error| !error.message().contains("leading zero")) {
        diagnostics.push(syntax_error(text, range(error.span().unwrap_or(0..0)), error.message()));
        return None;
    }
    if leading_zero {
        return None;
    }
    let span = table.span();
    let mut build = Build {
        text,
        range: &range,
        origin,
        diagnostics,
    };
    build.tree(&Spanned::new(span, DeValue::Table(table.into_inner())), 0)
}

/// Where the key at `again` was given first: in a line above it of the same table, or in the same header. None where
/// it is written in some other way.
fn first_of(text: &str, again: std::ops::Range<usize>) -> Option<std::ops::Range<usize>> {
    let line_start = |at: usize| text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let start = line_start(again.start);
    let before = &text[start..again.start];
    let is_header = before.trim_start().starts_with('[');
    if !is_header && !before.trim().is_empty() {
        return None;
    }
    let written = text.get(again)?;
    let header = text[start..].lines().next().unwrap_or_default().trim_end();
    let mut end = start;
    while end > 0 {
        let above = line_start(end - 1);
        let line = text[above..end].trim_end();
        let indent = line.len() - line.trim_start().len();
        let is_same = match is_header {
            true => line == header,
            false => line
                .trim_start()
                .strip_prefix(written)
                .is_some_and(|rest| rest.trim_start().starts_with('=')),
        };
        if is_same {
            let key = above + if is_header { before.len() } else { indent };
            return Some(key..key + written.len());
        }
        if !is_header && line.trim_start().starts_with('[') {
            return None;
        }
        end = above;
    }
    None
}

fn syntax_error(text: &str, range: Range, message: &str) -> Diagnostic {
    if message.contains("recursion") || message.contains("recurse") {
        return too_deep(range);
    }
    let label = if text
        .get(range.start as usize..)
        .is_some_and(|rest| rest.starts_with("${"))
    {
        "a reference needs quotes in TOML: `\"${NAME}\"`"
    } else {
        "reading stops here"
    };
    let diagnostic = Diagnostic::error(&codes::RL0101, range, format!("this is not valid TOML: {message}"));
    let written = text.get(range.start as usize..range.end as usize).unwrap_or_default();
    let is_word = !written.is_empty() && written.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    if message.contains("must be quoted") && is_word {
        return diagnostic
            .label_text("text needs quotes in TOML")
            .fix("quote it", range, format!("\"{written}\""));
    }
    diagnostic.label_text(label)
}

struct Build<'a, F> {
    text: &'a str,
    range: &'a F,
    origin: &'a Origin,
    diagnostics: &'a mut Diagnostics,
}

impl<F: Fn(std::ops::Range<usize>) -> Range> Build<'_, F> {
    /// None when it nests too deep.
    fn tree(&mut self, spanned: &Spanned<DeValue<'_>>, depth: usize) -> Option<Tree> {
        let range = (self.range)(spanned.span());
        if depth > MAXIMUM_DEPTH {
            self.diagnostics.push(too_deep(range));
            return None;
        }
        let value = match spanned.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(value) => Value::Int(value),
                Err(_) => self.out_of_range(spanned.span()),
            },
            DeValue::Float(float) => match float.as_str().parse::<f64>() {
                Ok(value) if value.is_finite() => Value::Float(value),
                _ => self.out_of_range(spanned.span()),
            },
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Datetime(datetime) => Value::Text(datetime.to_string()),
            DeValue::Array(elements) => Value::List(
                elements
                    .iter()
                    .map(|element| self.tree(element, depth + 1))
                    .collect::<Option<_>>()?,
            ),
            DeValue::Table(table) => {
                let mut entries = Vec::with_capacity(table.len());
                for (key, value) in table {
                    let value = self.tree(value, depth + 1)?;
                    entries.push(Entry {
                        key: key.get_ref().to_string(),
                        key_range: (self.range)(key.span()),
                        value,
                    });
                }
                Value::Map(entries)
            }
        };
        Some(Tree::new(range, value, self.origin.clone()))
    }

    fn out_of_range(&mut self, bytes: std::ops::Range<usize>) -> Value {
        let written = self.text.get(bytes.clone()).unwrap_or_default();
        self.diagnostics.push(number_out_of_range((self.range)(bytes), written));
        Value::Unresolved
    }
}
