//! TOML, with the ranges that the `toml` crate keeps.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::parse::{MAXIMUM_DEPTH, duplicate_key, number_out_of_range, too_deep};
use super::source::{Range, SourceId};
use super::tree::{Entry, Origin, Tree, Value};
use super::yaml;
use crate::diagnostic::{Diagnostic, Diagnostics, codes};

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
        diagnostics.push(duplicate_key(key, range(bytes), None));
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
    Diagnostic::error(&codes::RL0101, range, format!("this is not valid TOML: {message}")).label_text(label)
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
