//! Reading a text that is being written: nothing in it is refused, and the place of the cursor is found on the way.
//!
//! The compiler's parser says what is wrong with a text; this one says what a text seems to be. What cannot be
//! understood is passed over. Scalars are texts, with the range of what is written, quotes included.

mod flow;
#[cfg(test)]
mod tests;
mod toml;
mod yaml;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rlpipe_core::document::Range as TextRange;
use rlpipe_core::document::{Entry, Format, MAXIMUM_DEPTH, MAXIMUM_TEXT_BYTES, Origin, Segment, SourceId, Tree, Value};

/// What the cursor is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A key of the mapping at the path.
    Key,
    /// A key in the header of a TOML table, below the path.
    Header,
    /// The value at the path.
    Value,
}

/// Where the cursor stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Spot {
    /// The mapping of a key, or the value itself.
    pub path: Vec<Segment>,
    /// What is written there.
    pub place: Place,
    /// The bytes of the word under the cursor, without quotes; empty where there is none.
    pub word: Range<usize>,
    /// The quote that the word stands in, and whether it is closed.
    pub quote: Option<(char, bool)>,
    /// Whether it is within `{ }` or `[ ]`.
    pub in_flow: bool,
    /// Blanks that a key on an empty line lacks, to stand below its neighbours.
    pub lacking_indent: usize,
}

/// A text as far as it can be understood.
pub struct Scan {
    /// The whole.
    pub tree: Tree,
    /// Keys of TOML that stand in further headers, by their path: in the tree each has one place.
    pub again: Vec<(Vec<Segment>, Range<usize>)>,
    /// Where the cursor stands; none in comments and where nothing can be said.
    pub spot: Option<Spot>,
}

/// Reads a text. The cursor is a byte of it.
pub fn scan(text: &str, format: Format, cursor: Option<usize>) -> Scan {
    let mut scanner = Scanner {
        // Longer texts are refused by the compiler, which says so.
        text: if text.len() > MAXIMUM_TEXT_BYTES { "" } else { text },
        separator: if format == Format::Toml { b'=' } else { b':' },
        cursor,
        spot: None,
        path: Vec::new(),
        again: Vec::new(),
        origin: Origin::Working(Arc::from(Path::new(""))),
    };
    let tree = match format {
        Format::Toml => toml::document(&mut scanner),
        _ => yaml::document(&mut scanner),
    };
    Scan {
        tree,
        again: scanner.again,
        spot: scanner.spot,
    }
}

struct Scanner<'a> {
    text: &'a str,
    /// Between key and value.
    separator: u8,
    cursor: Option<usize>,
    spot: Option<Spot>,
    path: Vec<Segment>,
    again: Vec<(Vec<Segment>, Range<usize>)>,
    origin: Origin,
}

impl<'a> Scanner<'a> {
    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    fn is_toml(&self) -> bool {
        self.separator == b'='
    }

    /// The end of the line that a byte is in, without its line break.
    fn line_end(&self, at: usize) -> usize {
        self.text[at..]
            .find(['\n', '\r'])
            .map_or(self.text.len(), |length| at + length)
    }

    /// Skips blanks, but no line breaks.
    fn blanks(&self, mut at: usize) -> usize {
        while matches!(self.byte(at), Some(b' ' | b'\t')) {
            at += 1;
        }
        at
    }

    fn tree(&self, range: Range<usize>, value: Value) -> Tree {
        Tree::new(text_range(range), value, self.origin.clone())
    }

    /// Whether the cursor is in these bytes or right behind them.
    fn is_at(&self, range: &Range<usize>) -> bool {
        self.cursor
            .is_some_and(|cursor| range.start <= cursor && cursor <= range.end)
    }

    /// Notes the place of the cursor, if it is in these bytes; a word in quotes is what is between them.
    fn see(&mut self, place: Place, written: Range<usize>, in_flow: bool) {
        if !self.is_at(&written) || self.spot.is_some() {
            return;
        }
        let (word, quote) = unquoted(self.text, written.clone());
        let word = if self.is_at(&word) { word } else { return };
        self.spot = Some(Spot {
            path: self.path.clone(),
            place,
            word,
            quote,
            in_flow,
            lacking_indent: 0,
        });
    }

    /// Notes that the cursor is in these bytes, where nothing is written yet.
    fn see_nothing(&mut self, place: Place, gap: Range<usize>, in_flow: bool) {
        if let Some(cursor) = self.cursor.filter(|_| self.is_at(&gap)) {
            self.see(place, cursor..cursor, in_flow);
        }
    }

    /// Whether reading must go no deeper.
    fn is_deep(&self) -> bool {
        self.path.len() > 2 * MAXIMUM_DEPTH
    }
}

/// Bytes as a range of the only text there is.
fn text_range(range: Range<usize>) -> TextRange {
    let small = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    TextRange::new(SourceId(0), small(range.start), small(range.end))
}

/// What is within the quotes of a scalar, with the quote and whether it is closed.
pub fn unquoted(text: &str, written: Range<usize>) -> (Range<usize>, Option<(char, bool)>) {
    let inside = &text[written.clone()];
    let Some(quote) = inside.chars().next().filter(|first| matches!(first, '"' | '\'')) else {
        return (written, None);
    };
    let closed = inside.len() > 1 && inside.ends_with(quote);
    let end = if closed { written.end - 1 } else { written.end };
    (written.start + 1..end, Some((quote, closed)))
}

/// Puts a key into a mapping; one that is there already takes the new value if that is not nothing.
fn put(entries: &mut Vec<Entry>, key: String, key_range: TextRange, value: Tree) {
    match entries.iter_mut().find(|entry| entry.key == key) {
        Some(entry) if value.value != Value::Null => entry.value = value,
        Some(_) => {}
        None => entries.push(Entry { key, key_range, value }),
    }
}
