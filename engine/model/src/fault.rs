//! What keeps a model folder from being used, one at a time.

use std::path::Path;

/// What a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `config.json`: it cannot be read, contradicts itself, or asks for what this version does not compute.
    Config,
    /// The weights: a file is missing or damaged, or does not hold what the configuration asks for.
    Weights,
    /// The tokenizer does not fit the model.
    Tokenizer,
    /// A token that is to end responses is none of the model's.
    Stop,
}

/// One fault, for the user: what, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// What it is about.
    pub part: Part,
    /// Its text.
    pub message: String,
}

impl Fault {
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self {
            part: Part::Config,
            message: message.into(),
        }
    }

    pub(crate) fn weights(message: impl Into<String>) -> Self {
        Self {
            part: Part::Weights,
            message: message.into(),
        }
    }

    pub(crate) fn at(self, path: &Path) -> Self {
        Self {
            message: format!("`{}`: {}", path.display(), self.message),
            ..self
        }
    }
}

/// Several faults as one text.
pub fn joined(faults: &[Fault]) -> String {
    faults
        .iter()
        .map(|fault| fault.message.as_str())
        .collect::<Vec<_>>()
        .join("; ")
}

/// A few of many names, in backticks.
pub(crate) fn some_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let mut text = names
        .iter()
        .take(5)
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > 5 {
        text.push_str(&format!(" and {} more", names.len() - 5));
    }
    text
}
