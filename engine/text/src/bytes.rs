//! The bytes that each token stands for, read from the tokenizer's decoder: what a text is made of before it is text.

use serde_json::Value;

use crate::init::byte_character;

/// The bytes of all tokens, one after the other.
#[derive(Debug)]
pub(crate) struct Spelt {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Spelt {
    /// Of the tokens 0 to `count - 1`.
    pub fn new(count: usize, of: impl Fn(u32) -> Vec<u8>) -> Spelt {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(count));
        for id in 0..count {
            bytes.extend(of(id as u32));
            ends.push(bytes.len());
        }
        Spelt { bytes, ends }
    }

    /// Those of one; nothing of an id that there is none of.
    pub fn of(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let start = id
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .copied()
            .unwrap_or(0);
        self.ends.get(id).map_or(&[], |&end| &self.bytes[start..end])
    }
}

/// What a decoder does to the text of a token, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenBytes(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// Each character is a byte of GPT-2's table; a token with any other character stands for itself.
    ByteLevel,
    /// `<0xE2>` is that byte.
    ByteFallback,
    /// One text for another: `▁` is a space.
    Replace(String, String),
}

impl TokenBytes {
    /// Reads a decoder of `tokenizer.json`; none where it joins tokens in ways that depend on their neighbours.
    pub fn read(decoder: &Value) -> Option<TokenBytes> {
        let mut steps = Vec::new();
        read_steps(decoder, &mut steps)?;
        Some(TokenBytes(steps))
    }

    /// Whether a text is the bytes of its tokens, one after the other, and nothing is done to it as a whole.
    pub fn are_all(&self) -> bool {
        self.0 == [Step::ByteLevel]
    }

    /// The bytes of a token with this text.
    pub fn of(&self, token: &str) -> Vec<u8> {
        let mut token = token.to_owned();
        for step in &self.0 {
            match step {
                Step::ByteLevel => {
                    return token
                        .chars()
                        .map(byte_of)
                        .collect::<Option<_>>()
                        .unwrap_or(token.into_bytes());
                }
                Step::ByteFallback => {
                    let digits = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
                    let byte = digits.filter(|digits| digits.len() == 2);
                    if let Some(byte) = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                        return vec![byte];
                    }
                }
                Step::Replace(from, to) => token = token.replace(from, to),
            }
        }
        token.into_bytes()
    }
}

fn read_steps(decoder: &Value, steps: &mut Vec<Step>) -> Option<()> {
    match decoder["type"].as_str()? {
        "Sequence" => decoder["decoders"]
            .as_array()?
            .iter()
            .try_for_each(|one| read_steps(one, steps))?,
        "ByteLevel" => steps.push(Step::ByteLevel),
        "ByteFallback" => steps.push(Step::ByteFallback),
        "Metaspace" => steps.push(Step::Replace(
            decoder["replacement"].as_str()?.to_owned(),
            " ".to_owned(),
        )),
        "Replace" => steps.push(Step::Replace(
            decoder["pattern"]["String"].as_str()?.to_owned(),
            decoder["content"].as_str()?.to_owned(),
        )),
        // These act on the ends of the whole text.
        "Fuse" | "Strip" => {}
        _ => return None,
    }
    Some(())
}

fn byte_of(character: char) -> Option<u8> {
    // GPT-2's table ends at U+0143.
    static TABLE: std::sync::LazyLock<Vec<(char, u8)>> = std::sync::LazyLock::new(|| {
        let mut table: Vec<_> = (0..=u8::MAX).map(|byte| (byte_character(byte), byte)).collect();
        table.sort_unstable();
        table
    });
    let at = TABLE
        .binary_search_by_key(&character, |(character, _)| *character)
        .ok()?;
    Some(TABLE[at].1)
}
