//! YAML in block style, by indentation.

use rlpipe_core::document::{Entry, Segment, Tree, Value};

use super::{Place, Scanner, text_range};

/// A line with something in it, or the empty line that the cursor is in.
#[derive(Debug, Clone, Copy)]
struct Line {
    indent: usize,
    /// Its first character that is no blank.
    start: usize,
    /// Its end, without the line break.
    end: usize,
    /// Whether it is there for the cursor alone.
    is_empty: bool,
}

struct Blocks<'a, 'b> {
    scanner: &'b mut Scanner<'a>,
    lines: Vec<Line>,
    next: usize,
}

/// Reads a document.
pub fn document(scanner: &mut Scanner<'_>) -> Tree {
    let lines = lines(scanner);
    let whole = 0..scanner.text.len();
    let mut blocks = Blocks {
        scanner,
        lines,
        next: 0,
    };
    let mut tree = blocks.scanner.tree(whole.clone(), Value::Map(Vec::new()));
    while let Some(indent) = blocks.real_indent() {
        let before = blocks.next;
        let found = blocks.block(indent, None);
        if let (Value::Map(entries), Value::Map(more)) = (&mut tree.value, found.value) {
            entries.extend(more);
        }
        // What stands further to the left than the first line begins anew.
        blocks.next = blocks.next.max(before + 1);
    }
    blocks.rest();
    tree
}

fn lines(scanner: &Scanner<'_>) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut at = 0;
    loop {
        let end = scanner.line_end(at);
        let line = &scanner.text[at..end];
        let start = scanner.blanks(at).min(end);
        let holds_cursor = scanner.cursor.is_some_and(|cursor| at <= cursor && cursor <= end);
        let indent = start - at;
        let is_marker = line.starts_with("---") || line.starts_with("...") || line.starts_with('%');
        let is_comment = line[indent..].starts_with('#');
        if start == end || is_comment {
            // Before a comment, the line is as good as empty.
            if let Some(cursor) = scanner.cursor.filter(|cursor| holds_cursor && *cursor <= start) {
                lines.push(Line {
                    indent: cursor - at,
                    start: cursor,
                    end: cursor,
                    is_empty: true,
                });
            }
        } else if !is_marker {
            lines.push(Line {
                indent,
                start,
                end,
                is_empty: false,
            });
        }
        at = match &scanner.text.as_bytes()[end..] {
            [] => return lines,
            [b'\r', b'\n', ..] => end + 2,
            _ => end + 1,
        };
    }
}

impl Blocks<'_, '_> {
    fn line(&self) -> Option<Line> {
        self.lines.get(self.next).copied()
    }

    /// The indentation of the next line that has something in it.
    fn real_indent(&self) -> Option<usize> {
        self.lines[self.next.min(self.lines.len())..]
            .iter()
            .find(|line| !line.is_empty)
            .map(|line| line.indent)
    }

    /// The cursor behind everything, or in an empty text.
    fn rest(&mut self) {
        while let Some(line) = self.line() {
            self.next += 1;
            if line.is_empty {
                self.scanner.see_nothing(Place::Key, line.start..line.end, false);
            }
        }
    }

    /// A mapping or a list whose lines have this indentation, below a key with that of `parent`.
    fn block(&mut self, indent: usize, parent: Option<usize>) -> Tree {
        let first = self.lines[self.next..].iter().find(|line| !line.is_empty).copied();
        let text = self.scanner.text;
        match first.map(|line| (line, &text[line.start..line.end])) {
            Some((line, "-")) => self.list(line.indent, parent),
            Some((line, content)) if content.starts_with("- ") => self.list(line.indent, parent),
            Some((line, content)) if content.starts_with(['{', '[']) => {
                let (tree, end) = self.scanner.value(line.start, text.len(), true);
                self.go_past(end.max(line.start + 1));
                tree
            }
            _ => self.mapping(indent, parent),
        }
    }

    fn mapping(&mut self, indent: usize, parent: Option<usize>) -> Tree {
        let mut entries = Vec::new();
        let start = self.line().map_or(0, |line| line.start);
        let mut end = start;
        while let Some(line) = self.line() {
            if line.is_empty {
                if !self.empty_line(line, indent, parent, &entries) {
                    break;
                }
                self.next += 1;
                continue;
            }
            if line.indent < indent {
                break;
            }
            end = line.end;
            let is_item = self.scanner.text[line.start..line.end].starts_with("- ");
            if line.indent > indent || is_item && !entries.is_empty() {
                // A slip, or a text over several lines.
                self.next += 1;
                continue;
            }
            let (key_end, colon) = self.key(line);
            self.scanner.see(Place::Key, line.start..key_end, false);
            let Some(colon) = colon else {
                self.next += 1;
                continue;
            };
            let (word, _) = super::unquoted(self.scanner.text, line.start..key_end);
            let key = self.scanner.text[word].to_owned();
            self.scanner.path.push(Segment::Key(key.clone()));
            let value = self.below(line, colon + 1, indent);
            self.scanner.path.pop();
            end = end.max(value.range.end as usize);
            // A key that is there twice is the compiler's business.
            let key_range = text_range(line.start..key_end);
            entries.push(Entry { key, key_range, value });
        }
        self.scanner.tree(start..end, Value::Map(entries))
    }

    /// The empty line of the cursor within a mapping; false where it is not in it.
    fn empty_line(&mut self, line: Line, indent: usize, parent: Option<usize>, entries: &[Entry]) -> bool {
        let goes_on = self.real_indent().is_some_and(|next| next >= indent);
        let is_inside = line.indent >= indent && parent.is_none_or(|parent| line.indent > parent);
        if !goes_on && !is_inside {
            return false;
        }
        let last = entries.last().filter(|_| line.indent > indent);
        if let Some(last) = last {
            // Deeper than its neighbours: below the last key, if that has no value in its line.
            if matches!(last.value.value, Value::Null | Value::Map(_)) {
                self.scanner.path.push(Segment::Key(last.key.clone()));
                self.scanner.see_nothing(Place::Key, line.start..line.end, false);
                self.scanner.path.pop();
            }
            return true;
        }
        self.scanner.see_nothing(Place::Key, line.start..line.end, false);
        if let Some(spot) = self
            .scanner
            .spot
            .as_mut()
            .filter(|spot| spot.word == (line.start..line.end))
        {
            spot.lacking_indent = indent.saturating_sub(line.indent);
        }
        true
    }

    fn list(&mut self, indent: usize, parent: Option<usize>) -> Tree {
        let mut elements: Vec<Tree> = Vec::new();
        let start = self.line().map_or(0, |line| line.start);
        let mut end = start;
        while let Some(line) = self.line() {
            let content = &self.scanner.text[line.start..line.end];
            let is_item = content == "-" || content.starts_with("- ");
            if line.is_empty {
                if self.real_indent().is_none_or(|next| next < indent)
                    && parent.is_some_and(|parent| line.indent <= parent)
                {
                    break;
                }
                self.next += 1;
                continue;
            }
            if line.indent < indent || line.indent == indent && !is_item {
                break;
            }
            end = line.end;
            if line.indent > indent {
                self.next += 1;
                continue;
            }
            let inner = self.scanner.blanks(line.start + 1).min(line.end);
            self.scanner.path.push(Segment::Index(elements.len()));
            let as_line = Line {
                indent: line.indent + inner - line.start,
                start: inner,
                ..line
            };
            let element = if inner < line.end && !self.scanner.is_deep() && self.key(as_line).1.is_some() {
                self.lines[self.next] = as_line;
                self.mapping(as_line.indent, Some(indent))
            } else {
                self.below(line, line.start + 1, indent)
            };
            self.scanner.path.pop();
            end = end.max(element.range.end as usize);
            elements.push(element);
        }
        self.scanner.tree(start..end, Value::List(elements))
    }

    /// What stands behind a separator, in its line or below it.
    fn below(&mut self, line: Line, after: usize, indent: usize) -> Tree {
        let text = self.scanner.text;
        let start = self.scanner.blanks(after).min(line.end);
        let rest = &text[start..line.end];
        if rest.starts_with(['|', '>']) {
            self.next += 1;
            let mut end = line.end;
            while let Some(inside) = self.line().filter(|inside| inside.is_empty || inside.indent > indent) {
                end = inside.end;
                self.next += 1;
            }
            return self.scanner.tree(start..end, Value::Text(text[start..end].to_owned()));
        }
        if !rest.is_empty() && !rest.starts_with('#') {
            let limit = match rest.as_bytes()[0] {
                b'{' | b'[' | b'"' | b'\'' => self.limit(indent),
                _ => line.end,
            };
            let (tree, end) = self.scanner.value(after, limit, false);
            self.go_past(end.max(line.start + 1));
            return tree;
        }
        // Right behind the separator is no place for a value yet.
        if start > after {
            self.scanner.see_nothing(Place::Value, after + 1..start, false);
        }
        self.next += 1;
        let next = self.lines[self.next.min(self.lines.len())..]
            .iter()
            .find(|next| !next.is_empty)
            .copied();
        let is_deeper = next.is_some_and(|next| next.indent > indent);
        let is_list = next.is_some_and(|next| {
            let content = &text[next.start..next.end];
            next.indent == indent && (content == "-" || content.starts_with("- "))
        });
        let of_list = text[line.start..].starts_with("- ") || text[line.start..].starts_with("-\n");
        if let Some(next) = next.filter(|_| (is_deeper || is_list && !of_list) && !self.scanner.is_deep()) {
            return self.block(next.indent, Some(indent));
        }
        // Nothing but, perhaps, the cursor.
        if let Some(empty) = self.line().filter(|empty| empty.is_empty && empty.indent > indent) {
            self.next += 1;
            self.scanner.see_nothing(Place::Key, empty.start..empty.end, false);
        }
        self.scanner.tree(start..start, Value::Null)
    }

    /// Where a value that goes over several lines ends at latest: before the next line that is not further in.
    fn limit(&self, indent: usize) -> usize {
        let text = self.scanner.text;
        let later = self.lines[self.next + 1..].iter().filter(|line| !line.is_empty);
        let mut outside = later.filter(|line| line.indent <= indent && !text[line.start..].starts_with(['}', ']']));
        outside.next().map_or(text.len(), |line| line.start - line.indent)
    }

    /// Goes to the first line that begins behind a byte.
    fn go_past(&mut self, at: usize) {
        while self.line().is_some_and(|line| line.start < at) {
            self.next += 1;
        }
    }

    /// The end of a line's key, and its colon if it has one.
    fn key(&self, line: Line) -> (usize, Option<usize>) {
        let text = self.scanner.text;
        let is_colon = |at: usize| {
            text.as_bytes()[at] == b':' && (at + 1 >= line.end || matches!(text.as_bytes()[at + 1], b' ' | b'\t'))
        };
        if let Some(quote @ (b'"' | b'\'')) = self.scanner.byte(line.start) {
            let end = self.scanner.quoted(line.start, line.end, quote);
            let colon = self.scanner.blanks(end);
            return (end, (colon < line.end && is_colon(colon)).then_some(colon));
        }
        let content = &text[line.start..line.end];
        if content.starts_with(['{', '[']) {
            return (line.start, None);
        }
        let comment = content.find(" #").map_or(line.end, |at| line.start + at);
        let colon = (line.start..comment).find(|at| is_colon(*at));
        let end = line.start + text[line.start..colon.unwrap_or(comment)].trim_end().len();
        (end, colon)
    }
}
