//! TOML: headers, and keys with their values.

use std::ops::Range;

use rlpipe_core::document::{Entry, Segment, Tree, Value};

use super::{Place, Scanner, put, text_range};

/// A key where it stands.
type Key = (String, Range<usize>);

/// Reads a document.
pub fn document(scanner: &mut Scanner<'_>) -> Tree {
    let mut root = scanner.tree(0..scanner.text.len(), Value::Map(Vec::new()));
    let mut table: Vec<Key> = Vec::new();
    let mut at = 0;
    while at < scanner.text.len() || at == 0 {
        let end = scanner.line_end(at);
        let start = scanner.blanks(at);
        scanner.path = path_of(&root, &table);
        at = match scanner.byte(start).filter(|_| start < end) {
            None => {
                scanner.see_nothing(Place::Key, at..end, false);
                end
            }
            Some(b'#') => {
                scanner.see_nothing(Place::Key, at..start, false);
                end
            }
            Some(b'[') => {
                table = header(scanner, start, end, &mut root);
                end
            }
            Some(_) => pair(scanner, start, &table, &mut root),
        };
        let broken = &scanner.text[at..];
        at += match broken.as_bytes() {
            [b'\r', b'\n', ..] => 2,
            [b'\n' | b'\r', ..] => 1,
            [] => {
                // The text ends with a line break: the cursor may stand behind it.
                break;
            }
            _ => scanner.line_end(at) - at,
        };
        if at == scanner.text.len() {
            scanner.path = path_of(&root, &table);
            scanner.see_nothing(Place::Key, at..at, false);
            break;
        }
    }
    root
}

/// `[a.b]` or `[[a.b]]`.
fn header(scanner: &mut Scanner<'_>, start: usize, end: usize, root: &mut Tree) -> Vec<Key> {
    let is_list = scanner.byte(start + 1) == Some(b'[');
    scanner.path.clear();
    let (keys, _) = keys(scanner, start + 1 + usize::from(is_list), end, Place::Header);
    if let Some(place) = table_at(root, &keys, &mut scanner.again) {
        if is_list {
            let empty = Tree::new(place.range, Value::Map(Vec::new()), place.origin.clone());
            match &mut place.value {
                Value::List(elements) => elements.push(empty),
                value => *value = Value::List(vec![empty]),
            }
        } else if place.value == Value::Null {
            place.value = Value::Map(Vec::new());
        }
    }
    keys
}

/// `a.b = value`; the end of what was read.
fn pair(scanner: &mut Scanner<'_>, start: usize, table: &[Key], root: &mut Tree) -> usize {
    let line_end = scanner.line_end(start);
    let depth = scanner.path.len();
    let (keys, after) = keys(scanner, start, line_end, Place::Key);
    if keys.is_empty() || scanner.byte(after) != Some(b'=') || after >= line_end {
        return line_end;
    }
    scanner.path.truncate(depth);
    scanner
        .path
        .extend(keys.iter().map(|(key, _)| Segment::Key(key.clone())));
    let limit = match scanner.byte(scanner.blanks(after + 1)) {
        Some(b'{' | b'[' | b'"' | b'\'') => limit(scanner, line_end),
        _ => line_end,
    };
    let (value, end) = scanner.value(after + 1, limit, false);
    let (last, parents) = match keys.split_last() {
        Some(split) => split,
        None => return line_end,
    };
    let whole: Vec<Key> = table.iter().chain(parents).cloned().collect();
    if let Some(mut place) = table_at(root, &whole, &mut scanner.again) {
        if matches!(place.value, Value::List(_)) {
            // The last of a list of tables.
            let Value::List(elements) = &mut place.value else {
                return line_end;
            };
            let Some(last) = elements.last_mut() else {
                return line_end;
            };
            place = last;
        }
        if place.value == Value::Null {
            place.value = Value::Map(Vec::new());
        }
        if let Value::Map(entries) = &mut place.value {
            put(entries, last.0.clone(), text_range(last.1.clone()), value);
        }
    }
    // A value that was cut short ends before the line that cut it.
    scanner.line_end(scanner.text[..end].trim_end().len().max(after))
}

/// Where a value ends at latest: at the next line that looks like a header or a key at the margin.
fn limit(scanner: &Scanner<'_>, from: usize) -> usize {
    let mut at = from;
    while at < scanner.text.len() {
        at += if scanner.text[at..].starts_with("\r\n") { 2 } else { 1 };
        let end = scanner.line_end(at.min(scanner.text.len()));
        let line = &scanner.text[at.min(end)..end];
        let bare = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let is_header = line
            .strip_prefix('[')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()) && rest.contains(']'));
        let is_key = line.starts_with(|c: char| c.is_ascii_alphabetic())
            && line.trim_start_matches(bare).trim_start().starts_with('=');
        if is_header || is_key {
            return at;
        }
        at = end;
    }
    scanner.text.len()
}

/// Keys between dots, and where they end. The path of the cursor begins with what it is.
fn keys(scanner: &mut Scanner<'_>, start: usize, end: usize, place: Place) -> (Vec<Key>, usize) {
    let mut keys: Vec<Key> = Vec::new();
    let mut at = start;
    loop {
        let from = scanner.blanks(at).min(end);
        let to = match scanner.byte(from).filter(|_| from < end) {
            Some(quote @ (b'"' | b'\'')) => scanner.quoted(from, end, quote),
            _ => {
                let rest = &scanner.text[from..end];
                let stop = rest.find(['.', '=', ']', '[', '#', ' ', '\t', '{', '}', '"', ',']);
                from + stop.unwrap_or(rest.len())
            }
        };
        if keys.len() <= 2 * super::MAXIMUM_DEPTH {
            scanner.see(place, from..to, false);
            if to > from {
                let (word, _) = super::unquoted(scanner.text, from..to);
                let key = scanner.text[word].to_owned();
                scanner.path.push(Segment::Key(key.clone()));
                keys.push((key, from..to));
            }
        }
        let next = scanner.blanks(to).min(end);
        if scanner.byte(next) != Some(b'.') || next >= end {
            return (keys, next);
        }
        at = next + 1;
    }
}

/// The path of a table: of a list of tables, that of the last.
fn path_of(root: &Tree, table: &[Key]) -> Vec<Segment> {
    let mut path = Vec::new();
    let mut tree = Some(root);
    for (key, _) in table {
        path.push(Segment::Key(key.clone()));
        tree = tree.and_then(|tree| tree.get(key));
        if let Some(Value::List(elements)) = tree.map(|tree| &tree.value) {
            path.push(Segment::Index(elements.len().saturating_sub(1)));
            tree = elements.last();
        }
    }
    path
}

/// The value of a table, made where it is missing; none where something else is there.
///
/// A key that has another place in the tree is noted.
fn table_at<'a>(
    root: &'a mut Tree,
    keys: &[Key],
    again: &mut Vec<(Vec<Segment>, Range<usize>)>,
) -> Option<&'a mut Tree> {
    let mut tree = root;
    for (index, (key, range)) in keys.iter().enumerate() {
        let origin = tree.origin.clone();
        if tree.value == Value::Null {
            tree.value = Value::Map(Vec::new());
        }
        let Value::Map(entries) = &mut tree.value else {
            return None;
        };
        let found = entries.iter().position(|entry| entry.key == *key);
        let found = found.unwrap_or_else(|| {
            entries.push(Entry {
                key: key.clone(),
                key_range: text_range(range.clone()),
                value: Tree::new(text_range(range.clone()), Value::Null, origin),
            });
            entries.len() - 1
        });
        if entries[found].key_range != text_range(range.clone()) {
            let path = keys[..=index].iter().map(|(key, _)| Segment::Key(key.clone()));
            again.push((path.collect(), range.clone()));
        }
        tree = &mut entries[found].value;
        if index + 1 < keys.len() && matches!(tree.value, Value::List(_)) {
            let Value::List(elements) = &mut tree.value else {
                return None;
            };
            tree = elements.last_mut()?;
        }
    }
    Some(tree)
}
