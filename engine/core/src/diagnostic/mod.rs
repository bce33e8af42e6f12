//! What a check has to say: diagnostics as data, the codes they carry, and how they are shown.
//!
//! A pass pushes [`Diagnostic`]s into [`Diagnostics`] and goes on; nothing is rendered before the end.

pub mod codes;
mod fix;
mod nearest;
mod render;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

pub use codes::{CODES, Code, Explanation, code};
pub use fix::{Alternative, Fix, applicable, apply_fixes};
pub use nearest::nearest;
pub use render::{count_words, render_concise, render_full, render_github, render_json};

use crate::document::Range;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The pipeline cannot run.
    Error,
    /// Legal, but probably not what is meant.
    Warning,
}

impl Severity {
    /// `error` or `warning`.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// A place with what is to be said about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Label {
    /// The place.
    pub range: Range,
    /// A short phrase; may be empty.
    pub text: String,
}

/// One finding.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnostic {
    /// Its code.
    pub code: &'static Code,
    /// How bad it is.
    pub severity: Severity,
    /// The headline: one phrase, with both numbers in it when two disagree.
    pub message: String,
    /// What is wrong with this value.
    pub primary: Label,
    /// The other ends, each in its own file.
    pub labels: Vec<Label>,
    /// Further sentences: what to do about it.
    pub notes: Vec<String>,
    /// A change that removes the fault.
    pub fix: Option<Fix>,
    /// Other changes that remove it, each alone, the nearest first. The notes say the same in words.
    pub alternatives: Vec<Alternative>,
}

impl Diagnostic {
    /// An error at `range`.
    pub fn error(code: &'static Code, range: Range, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            severity: Severity::Error,
            message: message.into(),
            primary: Label {
                range,
                text: String::new(),
            },
            labels: Vec::new(),
            notes: Vec::new(),
            fix: None,
            alternatives: Vec::new(),
        }
    }

    /// A warning at `range`.
    pub fn warning(code: &'static Code, range: Range, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Warning,
            ..Diagnostic::error(code, range, message)
        }
    }

    /// Says what is wrong at the primary place.
    pub fn label_text(mut self, text: impl Into<String>) -> Diagnostic {
        self.primary.text = text.into();
        self
    }

    /// Adds another place.
    pub fn label(mut self, range: Range, text: impl Into<String>) -> Diagnostic {
        self.labels.push(Label {
            range,
            text: text.into(),
        });
        self
    }

    /// Adds a note.
    pub fn note(mut self, text: impl Into<String>) -> Diagnostic {
        self.notes.push(text.into());
        self
    }

    /// Sets the fix: `replacement` for `range`; an empty range inserts.
    pub fn fix(mut self, title: impl Into<String>, range: Range, replacement: impl Into<String>) -> Diagnostic {
        self.fix = Some(Fix {
            title: title.into(),
            range,
            replacement: replacement.into(),
        });
        self
    }
}

/// Everything that was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.list.push(diagnostic);
    }

    /// Adds many.
    pub fn extend(&mut self, diagnostics: impl IntoIterator<Item = Diagnostic>) {
        self.list.extend(diagnostics);
    }

    /// In the order they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether any is an error.
    pub fn has_errors(&self) -> bool {
        self.list
            .iter()
            .any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// Errors and warnings, each counted once as in [`Diagnostics::sorted`].
    pub fn counts(&self) -> (usize, usize) {
        let sorted = self.sorted();
        let errors = sorted
            .iter()
            .filter(|diagnostic| diagnostic.severity == Severity::Error)
            .count();
        (errors, sorted.len() - errors)
    }

    /// By source and position, what is said twice only once. Equal positions keep the order they were found in.
    pub fn sorted(&self) -> Vec<&Diagnostic> {
        let mut seen = HashSet::new();
        let mut sorted: Vec<&Diagnostic> = self
            .list
            .iter()
            .filter(|diagnostic| {
                seen.insert((
                    diagnostic.code.id,
                    diagnostic.primary.range,
                    diagnostic.message.as_str(),
                ))
            })
            .collect();
        sorted.sort_by_key(|diagnostic| (diagnostic.primary.range.source, diagnostic.primary.range.start));
        sorted
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}
