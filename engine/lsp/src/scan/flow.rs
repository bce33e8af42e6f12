//! Values in a line: scalars, `{ }` and `[ ]`, in YAML and TOML alike.

use std::ops::Range;

use rlpipe_core::document::{Segment, Tree, Value};

use super::{Place, Scanner, put, text_range};

impl Scanner<'_> {
    /// Reads the value that begins at `at`, at latest up to `limit`; and where it ends. At `limit`, whatever is open is
    /// closed.
    pub(super) fn value(&mut self, at: usize, limit: usize, in_flow: bool) -> (Tree, usize) {
        let start = if in_flow { self.gap(at, limit) } else { self.blanks(at) };
        match self.byte(start).filter(|_| start < limit) {
            Some(b'{') if !self.is_deep() => self.flow_map(start, limit),
            Some(b'[') if !self.is_deep() => self.flow_list(start, limit),
            Some(b'{' | b'[') => (self.tree(start..start, Value::Null), start),
            first => {
                // Right behind the separator is no place for a value yet.
                let gap = if at == start { start..start } else { at + 1..start };
                let end = match first {
                    Some(quote @ (b'"' | b'\'')) => self.quoted(start, limit, quote),
                    Some(_) => self.plain(start, limit, in_flow),
                    None => start,
                };
                if end == start {
                    let is_separated = in_flow || self.is_toml() || start > at;
                    if is_separated {
                        self.see_nothing(Place::Value, gap, in_flow);
                    }
                    return (self.tree(start..start, Value::Null), start);
                }
                self.see(Place::Value, start..end, in_flow);
                let (word, _) = super::unquoted(self.text, start..end);
                (self.tree(start..end, Value::Text(self.text[word].to_owned())), end)
            }
        }
    }

    /// Skips blanks, line breaks and comments.
    fn gap(&self, mut at: usize, limit: usize) -> usize {
        while at < limit {
            match self.byte(at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => at += 1,
                Some(b'#') => at = self.line_end(at).min(limit),
                _ => break,
            }
        }
        at.min(limit)
    }

    /// Whether the cursor is in a comment of these bytes.
    fn in_comment(&self, range: Range<usize>) -> bool {
        let Some(cursor) = self.cursor.filter(|_| self.is_at(&range)) else {
            return false;
        };
        let line_start = self.text[range.start..cursor]
            .rfind(['\n', '\r'])
            .map_or(range.start, |at| range.start + at);
        self.text[line_start..cursor].contains('#')
    }

    fn flow_map(&mut self, start: usize, limit: usize) -> (Tree, usize) {
        let mut entries = Vec::new();
        let mut at = start + 1;
        // Behind a value, a comma must come first.
        let mut is_free = true;
        loop {
            let key_start = self.gap(at, limit);
            let first = self.byte(key_start).filter(|_| key_start < limit);
            // A place for a key, unless the cursor is at one already.
            let free_end = match first {
                Some(b'}' | b',') | None => key_start,
                _ => key_start.saturating_sub(1),
            };
            if is_free && free_end >= at && !self.in_comment(at..free_end) {
                self.see_nothing(Place::Key, at..free_end, true);
            }
            is_free = first == Some(b',');
            at = match first {
                None => return (self.tree(start..key_start, Value::Map(entries)), key_start),
                Some(b'}') => return (self.tree(start..key_start + 1, Value::Map(entries)), key_start + 1),
                Some(b',') => key_start + 1,
                // A bracket too many.
                Some(b']' | b'{' | b'[') => key_start + 1,
                Some(_) => {
                    let (key_end, separator) = self.flow_key(key_start, limit);
                    self.see(Place::Key, key_start..key_end, true);
                    match separator {
                        None => key_end.max(key_start + 1),
                        Some(separator) => {
                            let (word, _) = super::unquoted(self.text, key_start..key_end);
                            let key = self.text[word].to_owned();
                            self.path.push(Segment::Key(key.clone()));
                            let (value, end) = self.value(separator + 1, limit, true);
                            self.path.pop();
                            put(&mut entries, key, text_range(key_start..key_end), value);
                            end.max(separator + 1)
                        }
                    }
                }
            };
        }
    }

    /// The end of a key in `{ }`, and its separator if there is one.
    fn flow_key(&self, start: usize, limit: usize) -> (usize, Option<usize>) {
        let end = match self.byte(start) {
            Some(quote @ (b'"' | b'\'')) => self.quoted(start, limit, quote),
            _ => {
                let stops: &[char] = if self.is_toml() {
                    &['=', ',', '{', '}', '[', ']', '\n', '\r', '#']
                } else {
                    &[':', ',', '{', '}', '[', ']', '\n', '\r', '#']
                };
                let text = &self.text[start..limit];
                start + text[..text.find(stops).unwrap_or(text.len())].trim_end().len()
            }
        };
        let separator = self.blanks(end);
        let is_separator = separator < limit && self.byte(separator) == Some(self.separator);
        (end, is_separator.then_some(separator))
    }

    fn flow_list(&mut self, start: usize, limit: usize) -> (Tree, usize) {
        let mut elements = Vec::new();
        let mut at = start + 1;
        loop {
            let next = self.gap(at, limit);
            let first = self.byte(next).filter(|_| next < limit);
            self.path.push(Segment::Index(elements.len()));
            if matches!(first, None | Some(b']' | b',')) && !self.in_comment(at..next) {
                self.see_nothing(Place::Value, at..next, true);
            }
            let (value, end) = match first {
                None | Some(b']' | b',' | b'}') => (None, next),
                Some(_) => {
                    let (value, end) = self.value(next, limit, true);
                    (Some(value), end)
                }
            };
            self.path.pop();
            elements.extend(value.filter(|value| value.value != Value::Null));
            let end = self.gap(end, limit);
            at = match self.byte(end).filter(|_| end < limit) {
                None => return (self.tree(start..end, Value::List(elements)), end),
                Some(b']') => return (self.tree(start..end + 1, Value::List(elements)), end + 1),
                // A brace closes the mapping around: the bracket is missing.
                Some(b'}') => return (self.tree(start..end, Value::List(elements)), end),
                Some(b',') => end + 1,
                Some(_) if end > next => end,
                // Nothing was taken: whatever it is, go past it.
                Some(_) => self.text.ceil_char_boundary(end + 1),
            };
        }
    }

    /// The end of a scalar in quotes; one that is never closed ends with its line.
    pub(super) fn quoted(&self, start: usize, limit: usize, quote: u8) -> usize {
        let triple = [quote; 3];
        if self.is_toml() && self.text.as_bytes()[start..limit].starts_with(&triple) {
            let inside = &self.text[start + 3..limit];
            let close = inside.as_bytes().windows(3).position(|window| window == triple);
            return close.map_or(limit, |length| start + 3 + length + 3);
        }
        let bytes = self.text.as_bytes();
        let end = if self.is_toml() {
            self.line_end(start).min(limit)
        } else {
            limit
        };
        let mut at = start + 1;
        while at < end {
            match bytes[at] {
                b'\\' if quote == b'"' => at += 1,
                byte if byte == quote => return at + 1,
                _ => {}
            }
            at += 1;
        }
        self.line_end(start).min(limit)
    }

    /// The end of a scalar without quotes. A `${NAME}` in it is a part of it, braces and all.
    fn plain(&self, start: usize, limit: usize, in_flow: bool) -> usize {
        let bytes = self.text.as_bytes();
        let in_brackets = in_flow || self.is_toml();
        let mut at = start;
        while at < limit {
            match bytes[at] {
                b'$' if at + 1 < limit && bytes[at + 1] == b'{' => {
                    let rest = self.text[at + 2..limit].lines().next().unwrap_or_default();
                    let name = rest
                        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                        .unwrap_or(rest.len());
                    let closed = rest.find('}').filter(|close| {
                        // What is open takes no brace that belongs to the mapping around.
                        *close == name || rest[name..].starts_with(":-")
                    });
                    at += 2 + closed.map_or(name, |close| close + 1);
                    continue;
                }
                b',' | b'{' | b'}' | b'[' | b']' if in_brackets => break,
                b'#' if at == start || self.is_toml() || matches!(bytes[at - 1], b' ' | b'\t') => break,
                b'\n' | b'\r' => break,
                _ => {}
            }
            at += 1;
        }
        start + self.text[start..at.min(limit)].trim_end().len()
    }
}
