//! JSON text as Python's `json.dumps` writes it, for the `tojson` filter of chat templates.

use serde_json::{Number, Value};

/// The arguments of `json.dumps` that transformers' `tojson` passes on.
pub(crate) struct Layout {
    pub ensure_ascii: bool,
    /// One level of indentation; `None` writes everything on one line.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

/// A number as Python writes it: the shortest digits that read back, with an exponent of two digits or more where it is
/// below -4 or above 15.
fn number(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    let shortest = format!("{float:e}");
    match shortest
        .split_once('e')
        .map(|(digits, exponent)| (digits, exponent.parse::<i32>()))
    {
        Some((digits, Ok(exponent))) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => format!("{float:?}"),
    }
}

impl Layout {
    pub fn write(&self, value: &Value) -> String {
        let mut out = String::new();
        self.write_value(&mut out, value, 0);
        out
    }

    fn write_value(&self, out: &mut String, value: &Value, depth: usize) {
        match value {
            Value::String(text) => self.write_text(out, text),
            Value::Array(items) => {
                self.write_block(out, depth, ('[', ']'), items, |out, item| {
                    self.write_value(out, item, depth + 1)
                });
            }
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                if self.sort_keys {
                    entries.sort_by_key(|(key, _)| key.as_str());
                }
                self.write_block(out, depth, ('{', '}'), &entries, |out, (key, value)| {
                    self.write_text(out, key);
                    out.push_str(&self.key_separator);
                    self.write_value(out, value, depth + 1);
                });
            }
            Value::Number(value) => out.push_str(&number(value)),
            scalar => out.push_str(&scalar.to_string()),
        }
    }

    fn write_block<T>(
        &self,
        out: &mut String,
        depth: usize,
        (open, close): (char, char),
        items: &[T],
        mut write_item: impl FnMut(&mut String, &T),
    ) {
        out.push(open);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                out.push_str(&self.item_separator);
            }
            self.break_line(out, depth + 1);
            write_item(out, item);
        }
        if !items.is_empty() {
            self.break_line(out, depth);
        }
        out.push(close);
    }

    fn break_line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    }

    fn write_text(&self, out: &mut String, text: &str) {
        let quoted = Value::from(text).to_string();
        for character in quoted.chars() {
            if self.ensure_ascii && !character.is_ascii() {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            } else {
                out.push(character);
            }
        }
    }
}
