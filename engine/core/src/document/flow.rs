//! Finds `${NAME}` that stands unquoted inside `{ }` or `[ ]` of a YAML text.
//!
//! YAML ends a plain value at a bracket there, so such a text does not parse, and this rough reading of it is used
//! only to say so well. It knows quotes, comments, block scalars and brackets.

type Bytes = std::ops::Range<usize>;

/// A `}` further on does not belong to a reference.
const MAXIMUM_REFERENCE_BYTES: usize = 1000;

/// The plain values inside brackets that hold a reference, in order.
pub(super) fn unquoted_references(text: &str) -> Vec<Bytes> {
    let mut scanner = Scanner {
        text,
        bytes: text.as_bytes(),
        at: 0,
        depth: 0,
        found: Vec::new(),
    };
    while scanner.at < text.len() {
        scanner.token();
    }
    scanner.found
}

/// The value in quotes that keep it as it is.
pub(super) fn quoted(value: &str) -> String {
    if value.contains(['"', '\\']) {
        format!("'{}'", value.replace('\'', "''"))
    } else {
        format!("\"{value}\"")
    }
}

/// The text with the given values quoted, and the offsets of the bytes that were put in.
pub(super) fn quote_all(text: &str, values: &[Bytes]) -> (String, Vec<usize>) {
    let mut repaired = String::with_capacity(text.len() + 2 * values.len());
    let mut inserted = Vec::new();
    let mut copied = 0;
    for value in values {
        repaired.push_str(&text[copied..value.start]);
        let original = &text[value.clone()];
        let quote = if quoted(original).starts_with('"') { '"' } else { '\'' };
        inserted.push(repaired.len());
        repaired.push(quote);
        for character in original.chars() {
            if character == quote {
                inserted.push(repaired.len());
                repaired.push(quote);
            }
            repaired.push(character);
        }
        inserted.push(repaired.len());
        repaired.push(quote);
        copied = value.end;
    }
    repaired.push_str(&text[copied..]);
    (repaired, inserted)
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    found: Vec<Bytes>,
}

impl Scanner<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(b'\n')
    }

    fn token(&mut self) {
        match self.peek(0) {
            b'"' => self.skip_quoted(b'"'),
            b'\'' => self.skip_quoted(b'\''),
            b'#' if self.at == 0 || self.bytes[self.at - 1].is_ascii_whitespace() => self.skip_line(),
            b'{' | b'[' => {
                self.depth += 1;
                self.at += 1;
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.at += 1;
            }
            b'|' | b'>' if self.depth == 0 => self.block_scalar(),
            b'&' | b'*' | b'!' => {
                while !(self.peek(0).is_ascii_whitespace() || self.depth > 0 && is_flow_indicator(self.peek(0))) {
                    self.at += 1;
                }
            }
            b',' | b':' => self.at += 1,
            b'-' | b'?' if self.peek(1).is_ascii_whitespace() => self.at += 1,
            byte if byte.is_ascii_whitespace() => self.at += 1,
            _ => self.plain(),
        }
    }

    fn skip_quoted(&mut self, quote: u8) {
        self.at += 1;
        while self.at < self.bytes.len() {
            let byte = self.bytes[self.at];
            self.at += 1;
            if byte == b'\\' && quote == b'"' {
                self.at += 1;
            } else if byte == quote {
                if quote == b'\'' && self.peek(0) == b'\'' {
                    self.at += 1;
                } else {
                    break;
                }
            }
        }
        self.at = self.at.min(self.bytes.len());
    }

    fn skip_line(&mut self) {
        self.at = self.bytes[self.at..]
            .iter()
            .position(|&byte| byte == b'\n')
            .map_or(self.bytes.len(), |offset| self.at + offset);
    }

    /// Skips the header and every line that is blank or deeper than the key it belongs to.
    fn block_scalar(&mut self) {
        let line_start = self.bytes[..self.at]
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |newline| newline + 1);
        let mut parent = line_start;
        let mut dash = line_start;
        while parent < self.at && matches!(self.bytes[parent], b' ' | b'-') {
            if self.bytes[parent] == b'-' {
                dash = parent;
            }
            parent += 1;
        }
        let parent_indent = if parent == self.at {
            dash - line_start
        } else {
            parent - line_start
        };
        self.skip_line();
        while self.at < self.bytes.len() {
            let line = self.text[self.at + 1..].split('\n').next().unwrap_or_default();
            let indent = line.len() - line.trim_start_matches(' ').len();
            if !line.trim().is_empty() && indent <= parent_indent {
                break;
            }
            self.at = (self.at + 1 + line.len()).min(self.bytes.len());
        }
    }

    fn plain(&mut self) {
        let start = self.at;
        let mut reference = false;
        while self.at < self.bytes.len() {
            let byte = self.peek(0);
            let ends = byte == b'\n'
                || (byte == b'#' && self.bytes[self.at - 1].is_ascii_whitespace())
                || (byte == b':'
                    && (self.peek(1).is_ascii_whitespace() || self.depth > 0 && is_flow_indicator(self.peek(1))))
                || (self.depth > 0 && is_flow_indicator(byte));
            if ends && self.at > start {
                break;
            }
            if self.depth > 0 && byte == b'$' && self.peek(1) == b'{' {
                let ahead = &self.bytes[self.at..(self.at + MAXIMUM_REFERENCE_BYTES).min(self.bytes.len())];
                let stop = ahead.iter().position(|&byte| byte == b'}' || byte == b'\n');
                if let Some(length) = stop.filter(|&length| ahead[length] == b'}') {
                    reference = true;
                    self.at += length + 1;
                    continue;
                }
            }
            self.at += 1;
        }
        if reference {
            let length = self.text[start..self.at].trim_end().len();
            self.found.push(start..start + length);
        }
    }
}

fn is_flow_indicator(byte: u8) -> bool {
    matches!(byte, b',' | b'[' | b']' | b'{' | b'}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&str> {
        unquoted_references(text)
            .into_iter()
            .map(|range| &text[range])
            .collect()
    }

    #[test]
    fn finds_only_unquoted_references_inside_brackets() {
        assert_eq!(
            found("a: {b: ${X}, c: [${Y:-1, 2}, \"${Z}\", '${Q}']}\n"),
            ["${X}", "${Y:-1, 2}"]
        );
        assert_eq!(found("a: ${X}\nb: x {c} ${Y}\n# {d: ${Z}}\n"), [] as [&str; 0]);
        assert_eq!(found("- a: |\n    {b: ${X}}\n  c: {d: p/${Y}/é q }\n"), ["p/${Y}/é q"]);
        assert_eq!(found("- |\n  {b: ${X}}\n- {c: &x ${Y}}\n"), ["${Y}"]);
        assert_eq!(found("a: {b: it's ${X}, c: ${\n"), ["it's ${X}"]);
    }

    #[test]
    fn quoting_keeps_the_value() {
        let text = "{a: x\"${Y}'z, b: ${Z}}";
        let (repaired, inserted) = quote_all(text, &unquoted_references(text));
        assert_eq!(repaired, "{a: 'x\"${Y}''z', b: \"${Z}\"}");
        let kept: String = repaired
            .char_indices()
            .filter(|(offset, _)| !inserted.contains(offset))
            .map(|(_, character)| character)
            .collect();
        assert_eq!(kept, text);
    }
}
