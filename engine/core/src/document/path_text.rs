//! A path in a config.

use std::fmt;
use std::path::Path;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};

/// The name by which the tree's deserializer knows that a path is wanted.
pub(super) const NEWTYPE_NAME: &str = "$rlpipe::path";

/// A path. Decoded from a document it is resolved against the folder of the file that it is written in, or against
/// the working folder when a variable or an argument gave it; decoded from JSON it is the text as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct PathText(String);

impl PathText {
    /// The path as it is given.
    pub fn new(path: impl Into<String>) -> PathText {
        PathText(path.into())
    }

    /// The path.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<Path> for PathText {
    fn as_ref(&self) -> &Path {
        self.as_path()
    }
}

impl fmt::Display for PathText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PathText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PathText, D::Error> {
        deserializer.deserialize_newtype_struct(NEWTYPE_NAME, PathVisitor)
    }
}

/// The name by which the tree's deserializer knows that a word of a command is wanted.
pub(super) const WORD_NAME: &str = "$rlpipe::word";

/// A word of a command: a program or one of its arguments. One that begins with `./` or `../` is a path, resolved as
/// [`PathText`] is; others stay as they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct CommandWord(String);

impl CommandWord {
    /// The word.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a word is a path to be resolved.
    pub(super) fn is_path(word: &str) -> bool {
        word.starts_with("./") || word.starts_with("../")
    }
}

impl<'de> Deserialize<'de> for CommandWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CommandWord, D::Error> {
        let path = deserializer.deserialize_newtype_struct(WORD_NAME, PathVisitor)?;
        Ok(CommandWord(path.0))
    }
}

impl JsonSchema for CommandWord {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CommandWord".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

struct PathVisitor;

impl<'de> Visitor<'de> for PathVisitor {
    type Value = PathText;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a path")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<PathText, D::Error> {
        deserializer.deserialize_str(self)
    }

    fn visit_str<E: Error>(self, path: &str) -> Result<PathText, E> {
        Ok(PathText(path.to_owned()))
    }
}

impl JsonSchema for PathText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Path".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}
