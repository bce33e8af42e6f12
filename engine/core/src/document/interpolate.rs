//! `${NAME}` and `${NAME:-default}` in text leaves.
//!
//! A leaf that is one whole reference becomes loose: it takes the type that is wanted there. `$${` stands for `${`
//! itself; any other `$` is only a `$`. Keys are never touched, and what a variable brings is not read again.

use super::source::{Range, Sources};
use super::tree::{Origin, Segment, Tree, Value};
use crate::diagnostic::{Diagnostic, Diagnostics, codes};

/// One `${NAME}` in a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// The variable.
    pub name: String,
    /// What follows `:-`.
    pub default: Option<String>,
    /// The bytes of the reference; of the whole leaf where it is written with escapes.
    pub range: Range,
    /// The leaf that holds it, from the tree given to [`interpolate`].
    pub path: Vec<Segment>,
}

/// What stands for a reference.
#[derive(Debug, Clone, PartialEq)]
pub struct Substitute {
    /// The text.
    pub text: String,
    /// What a relative path in it is relative to: [`Sources::working`] for a variable's own value.
    pub origin: Origin,
}

/// Fills in every reference of the tree's text leaves.
///
/// `resolve` is called for each reference in order. None takes the reference's default; without one the leaf becomes
/// [`Value::Unresolved`], and it is for the caller to say why. Malformed references are reported here.
pub fn interpolate(
    tree: &mut Tree,
    sources: &Sources,
    diagnostics: &mut Diagnostics,
    resolve: &mut dyn FnMut(&Reference) -> Option<Substitute>,
) {
    let mut walk = Walk {
        sources,
        diagnostics,
        resolve,
        path: Vec::new(),
    };
    walk.tree(tree);
}

struct Walk<'a> {
    sources: &'a Sources,
    diagnostics: &'a mut Diagnostics,
    resolve: &'a mut dyn FnMut(&Reference) -> Option<Substitute>,
    path: Vec<Segment>,
}

impl Walk<'_> {
    fn tree(&mut self, tree: &mut Tree) {
        match &mut tree.value {
            Value::Text(text) if text.contains("${") => {
                let text = std::mem::take(text);
                self.leaf(tree, &text);
            }
            Value::List(elements) => {
                for (index, element) in elements.iter_mut().enumerate() {
                    self.path.push(Segment::Index(index));
                    self.tree(element);
                    self.path.pop();
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    self.path.push(Segment::Key(entry.key.clone()));
                    self.tree(&mut entry.value);
                    self.path.pop();
                }
            }
            _ => {}
        }
    }

    fn leaf(&mut self, tree: &mut Tree, text: &str) {
        let pieces = scan(text);
        let written = self.sources.text(tree.range);
        let mut place = Places {
            written,
            at: 0,
            range: tree.range,
        };
        let whole = matches!(pieces.as_slice(), [Piece::Reference { .. }]);
        let mut filled = String::new();
        let mut origin = None;
        let mut unresolved = false;
        for piece in pieces {
            match piece {
                Piece::Literal(literal) => {
                    filled.push_str(&literal);
                    origin.get_or_insert_with(|| tree.origin.clone());
                }
                Piece::Reference { text, name, default } => {
                    let reference = Reference {
                        name: name.to_owned(),
                        default: default.map(str::to_owned),
                        range: place.of(text),
                        path: self.path.clone(),
                    };
                    let substitute = (self.resolve)(&reference).or_else(|| {
                        reference.default.map(|text| Substitute {
                            text,
                            origin: tree.origin.clone(),
                        })
                    });
                    match substitute {
                        Some(substitute) => {
                            filled.push_str(&substitute.text);
                            origin.get_or_insert(substitute.origin);
                        }
                        None => unresolved = true,
                    }
                }
                Piece::Malformed { text, why } => {
                    let range = place.of(text);
                    self.diagnostics.push(
                        Diagnostic::error(&codes::RL0105, range, format!("`{text}` is not a reference"))
                            .label_text(why)
                            .note("write `${NAME}` or `${NAME:-default}`; `$${` stands for `${` itself"),
                    );
                    unresolved = true;
                }
            }
        }
        if let Some(origin) = origin {
            tree.origin = origin;
        }
        tree.loose = whole;
        tree.value = if unresolved {
            Value::Unresolved
        } else {
            Value::Text(filled)
        };
    }
}

/// Finds references, one after the other, in the leaf as it is written.
struct Places<'a> {
    written: &'a str,
    at: usize,
    range: Range,
}

impl Places<'_> {
    fn of(&mut self, reference: &str) -> Range {
        let mut from = self.at;
        while let Some(offset) = self.written[from..].find(reference) {
            let start = from + offset;
            let end = start + reference.len();
            from = start + 1;
            // `$${A}` is no reference, though it holds the bytes of one.
            if self.written[..start].ends_with('$') && reference.starts_with("${") {
                continue;
            }
            self.at = end;
            let start = self.range.start + u32::try_from(start).unwrap_or(0);
            return Range::new(
                self.range.source,
                start,
                start + u32::try_from(reference.len()).unwrap_or(0),
            );
        }
        self.range
    }
}

#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Literal(String),
    Reference {
        text: &'a str,
        name: &'a str,
        default: Option<&'a str>,
    },
    Malformed {
        text: &'a str,
        why: &'static str,
    },
}

fn scan(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        literal.push_str(&rest[..dollar]);
        rest = &rest[dollar..];
        if let Some(after) = rest.strip_prefix("$${") {
            literal.push_str("${");
            rest = after;
        } else if rest.starts_with("${") {
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            let (piece, length) = reference(rest);
            pieces.push(piece);
            rest = &rest[length..];
        } else {
            literal.push('$');
            rest = &rest[1..];
        }
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    pieces
}

/// The reference that `rest` begins with, and its length in bytes.
fn reference(rest: &str) -> (Piece<'_>, usize) {
    let malformed = |length: usize, why| {
        (
            Piece::Malformed {
                text: &rest[..length],
                why,
            },
            length,
        )
    };
    let Some(close) = rest.find('}') else {
        return malformed(rest.len(), "the closing `}` is missing");
    };
    let (text, inside) = (&rest[..=close], &rest[2..close]);
    let name_length = inside
        .find(|character: char| !character.is_ascii_alphanumeric() && character != '_')
        .unwrap_or(inside.len());
    let (name, tail) = inside.split_at(name_length);
    if name.is_empty() || name.starts_with(|character: char| character.is_ascii_digit()) {
        return malformed(close + 1, "a name has letters, digits and `_`, and no digit first");
    }
    let default = match tail.strip_prefix(":-") {
        Some(default) if default.contains("${") => return malformed(close + 1, "a default cannot hold a reference"),
        Some(default) => Some(default),
        None if tail.is_empty() => None,
        None => return malformed(close + 1, "only `}` or `:-` can follow the name"),
    };
    (Piece::Reference { text, name, default }, close + 1)
}
