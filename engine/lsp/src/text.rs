//! Offsets in a text, and positions as editors count them.

use gen_lsp_types::{Position, Range};

/// What a column counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Bytes.
    Utf8,
    /// UTF-16 code units, as every editor understands.
    Utf16,
}

/// A text with its lines. Lines end with `\n`, `\r\n` or `\r`.
#[derive(Debug)]
pub struct Text {
    text: String,
    /// The first byte of each line.
    starts: Vec<usize>,
    encoding: Encoding,
}

impl Text {
    /// Finds the lines.
    pub fn new(text: String, encoding: Encoding) -> Text {
        let bytes = text.as_bytes();
        let ends = (0..bytes.len()).filter(|&at| {
            bytes[at] == b'\n' || bytes[at] == b'\r' && bytes.get(at + 1).is_none_or(|next| *next != b'\n')
        });
        let starts = std::iter::once(0).chain(ends.map(|at| at + 1)).collect();
        Text { text, starts, encoding }
    }

    /// What its columns count.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The byte of a position; one beyond the end of its line or of the text is at that end.
    pub fn offset(&self, position: Position) -> usize {
        let line = position.line as usize;
        let Some(&start) = self.starts.get(line) else {
            return self.text.len();
        };
        let end = self.starts.get(line + 1).copied().unwrap_or(self.text.len());
        let content = self.text[start..end].trim_end_matches(['\n', '\r']);
        let wanted = position.character as usize;
        match self.encoding {
            Encoding::Utf8 => start + content.floor_char_boundary(wanted),
            Encoding::Utf16 => {
                let mut units = 0;
                for (at, character) in content.char_indices() {
                    if units + character.len_utf16() > wanted {
                        return start + at;
                    }
                    units += character.len_utf16();
                }
                start + content.len()
            }
        }
    }

    /// The position of a byte.
    pub fn position(&self, offset: usize) -> Position {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.starts.partition_point(|start| *start <= offset).saturating_sub(1);
        let before = &self.text[self.starts[line]..offset];
        let character = match self.encoding {
            Encoding::Utf8 => before.len(),
            Encoding::Utf16 => before.encode_utf16().count(),
        };
        Position::new(small(line), small(character))
    }

    /// The range of some bytes.
    pub fn range(&self, bytes: std::ops::Range<usize>) -> Range {
        Range::new(self.position(bytes.start), self.position(bytes.end))
    }

    /// Puts a text in place of a range.
    pub fn replace(&mut self, range: Range, with: &str) {
        let (start, end) = (self.offset(range.start), self.offset(range.end));
        let mut text = std::mem::take(&mut self.text);
        text.replace_range(start..end.max(start), with);
        *self = Text::new(text, self.encoding);
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn columns_count_what_was_agreed() {
        // Three lines: CRLF, a lone CR, and one without an end. `ß` is 2 bytes, 1 unit; `😀` is 4 bytes, 2 units.
        let text = "aß😀b\r\nx\r😀y";
        for (encoding, line, column, offset) in [
            (Encoding::Utf8, 0, 7, 7),
            (Encoding::Utf16, 0, 4, 7),
            (Encoding::Utf16, 0, 3, 3),
            (Encoding::Utf16, 0, 99, 8),
            (Encoding::Utf8, 0, 99, 8),
            (Encoding::Utf16, 1, 0, 10),
            (Encoding::Utf16, 2, 2, 16),
            (Encoding::Utf16, 9, 0, 17),
        ] {
            let text = Text::new(text.to_owned(), encoding);
            assert_eq!(
                text.offset(Position::new(line, column)),
                offset,
                "{encoding:?} {line}:{column}"
            );
        }
        let utf16 = Text::new(text.to_owned(), Encoding::Utf16);
        assert_eq!(utf16.position(7), Position::new(0, 4));
        assert_eq!(utf16.position(16), Position::new(2, 2));
    }

    proptest! {
        #[test]
        fn offsets_survive_the_way_there_and_back(text in "[a\u{df}\u{1f600}\r\n]{0,20}", utf8: bool, at in 0usize..40) {
            let encoding = if utf8 { Encoding::Utf8 } else { Encoding::Utf16 };
            let text = Text::new(text, encoding);
            let offset = text.as_str().floor_char_boundary(at.min(text.as_str().len()));
            // The byte between `\r` and `\n` is no place of its own.
            let within = text.as_str()[..offset].ends_with('\r') && text.as_str()[offset..].starts_with('\n');
            let wanted = if within { offset - 1 } else { offset };
            prop_assert_eq!(text.offset(text.position(offset)), wanted);
        }
    }
}
