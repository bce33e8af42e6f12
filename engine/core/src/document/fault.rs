//! What can be wrong with one value of a document, and the serde error that carries it out of a `Deserialize`.

use std::fmt;

use serde::de::{Error, Expected, Unexpected};

use super::source::Range;
use super::tree::{Segment, path_text};

/// What is wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A key that is not known here.
    UnknownKey {
        /// The key.
        key: String,
        /// The keys that are.
        expected: Vec<String>,
    },
    /// A choice that is not known here.
    UnknownVariant {
        /// The choice.
        found: String,
        /// The choices that are.
        expected: Vec<String>,
    },
    /// A key that must be there and is not.
    Missing {
        /// The key.
        key: String,
    },
    /// A value of the wrong type, or a number that does not fit.
    WrongType {
        /// The value, in words: "text `fast`".
        found: String,
        /// What is wanted, in words: "a number".
        expected: String,
    },
    /// Anything else, in one phrase.
    Invalid(String),
}

/// One fault of one value.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// The value from the decoded tree; for an unknown key or variant it ends with that key.
    pub path: Vec<Segment>,
    /// The key of the value, if it has one.
    pub key_range: Option<Range>,
    /// Where to point.
    pub range: Range,
    /// What is wrong.
    pub what: What,
}

impl Fault {
    /// The fault in one phrase: "`lr`: expected a number, found text `fast`".
    pub fn message(&self) -> String {
        match (&self.what, path_text(&self.path)) {
            (What::UnknownKey { .. }, _) => self.what.to_string(),
            (_, path) if path.is_empty() => self.what.to_string(),
            (What::UnknownVariant { found, .. }, path) if path.ends_with(&format!(".{found}")) => {
                let parent = &path[..path.len() - found.len() - 1];
                format!("`{parent}`: {}", self.what)
            }
            (_, path) => format!("`{path}`: {}", self.what),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::UnknownKey { key, .. } => write!(formatter, "unknown key `{key}`"),
            What::UnknownVariant { found, expected } => {
                write!(formatter, "`{found}` is not one of {}", listed(expected))
            }
            What::Missing { key } => write!(formatter, "the key `{key}` is missing"),
            What::WrongType { found, expected } => write!(formatter, "expected {expected}, found {found}"),
            What::Invalid(message) => formatter.write_str(message),
        }
    }
}

fn listed(words: &[String]) -> String {
    words
        .iter()
        .map(|word| format!("`{word}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A fault on its way out: the path grows from the inside.
#[derive(Debug)]
pub(super) struct DecodeError {
    pub what: What,
    pub reversed_path: Vec<Segment>,
}

impl DecodeError {
    pub fn new(what: What) -> DecodeError {
        DecodeError {
            what,
            reversed_path: Vec::new(),
        }
    }

    pub fn within(mut self, segment: Segment) -> DecodeError {
        self.reversed_path.push(segment);
        self
    }

    pub fn into_parts(mut self) -> (Vec<Segment>, What) {
        self.reversed_path.reverse();
        (self.reversed_path, self.what)
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(formatter)
    }
}

impl std::error::Error for DecodeError {}

impl Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> DecodeError {
        DecodeError::new(What::Invalid(message.to_string()))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> DecodeError {
        DecodeError::new(What::WrongType {
            found: found_words(found),
            expected: expected_words(expected),
        })
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> DecodeError {
        DecodeError::invalid_type(found, expected)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> DecodeError {
        DecodeError::new(What::Invalid(format!("expected {expected}, found {length}")))
    }

    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> DecodeError {
        DecodeError::new(What::UnknownVariant {
            found: found.to_owned(),
            expected: owned(expected),
        })
    }

    fn unknown_field(key: &str, expected: &'static [&'static str]) -> DecodeError {
        DecodeError::new(What::UnknownKey {
            key: key.to_owned(),
            expected: owned(expected),
        })
    }

    fn missing_field(key: &'static str) -> DecodeError {
        DecodeError::new(What::Missing { key: key.to_owned() })
    }

    fn duplicate_field(key: &'static str) -> DecodeError {
        DecodeError::new(What::Invalid(format!(
            "the key `{key}` is given twice, under two of its names"
        )))
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn found_words(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => format!("`{value}`"),
        Unexpected::Unsigned(value) => format!("the number `{value}`"),
        Unexpected::Signed(value) => format!("the number `{value}`"),
        Unexpected::Float(value) => format!("the number `{value}`"),
        Unexpected::Char(value) => format!("text `{value}`"),
        Unexpected::Str(value) => text_words(value),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a mapping".to_owned(),
        other => other.to_string(),
    }
}

/// A text in words, cut where it is long.
pub(super) fn text_words(text: &str) -> String {
    if text.is_empty() {
        return "an empty text".to_owned();
    }
    let short: String = text.chars().take(40).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!(
        "text `{}{more}`",
        short
            .escape_debug()
            .to_string()
            .replace("\\\"", "\"")
            .replace("\\'", "'")
    )
}

/// serde's words for a type in ours. Rust's names of structs and enums say nothing to the people who read this.
fn expected_words(expected: &dyn Expected) -> String {
    let words = expected.to_string();
    match words.as_str() {
        "a boolean" => "`true` or `false`".to_owned(),
        "a string" | "a borrowed string" | "a character" => "text".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a mapping".to_owned(),
        "unit" => "nothing".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "enum" => "a choice by name, or with its settings".to_owned(),
        _ if words.starts_with("a nonzero u") => "a whole number from 1".to_owned(),
        _ if words.starts_with("struct ") => "a mapping".to_owned(),
        _ if words.starts_with("enum ") => "a choice".to_owned(),
        _ => words,
    }
}
