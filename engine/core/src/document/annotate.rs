//! JSON as YAML, a value a line, with a comment beside each.

use serde_json::{Map, Value};

use super::tree::Segment;
use super::yaml::to_yaml;

/// Comments of lines shorter than this begin in one column.
const COMMENT_COLUMN: usize = 48;

/// `value` as [`to_yaml`] writes it, in block style throughout; `note` says what stands beside a value that has no values
/// below it, if anything. It reads back identically: comments are all that is added.
pub fn to_annotated_yaml(value: &Value, note: &dyn Fn(&[Segment]) -> Option<String>) -> String {
    let mut writer = Writer {
        note,
        path: Vec::new(),
        text: String::new(),
    };
    match value {
        Value::Object(entries) if !entries.is_empty() => writer.map(entries, 0, ""),
        Value::Array(elements) if !elements.is_empty() => writer.list(elements, 0),
        leaf => writer.leaf(&to_yaml(leaf), 0, ""),
    }
    writer.text
}

struct Writer<'a> {
    note: &'a dyn Fn(&[Segment]) -> Option<String>,
    path: Vec<Segment>,
    text: String,
}

impl Writer<'_> {
    /// `lead` stands before the first key: the `- ` of a list's element.
    fn map(&mut self, entries: &Map<String, Value>, depth: usize, lead: &str) {
        for (index, (key, value)) in entries.iter().enumerate() {
            let lead = if index == 0 { lead } else { "" };
            let (indent, lead) = (depth - lead.len() / 2, lead);
            self.path.push(Segment::Key(key.clone()));
            match value {
                Value::Object(below) if !below.is_empty() => {
                    self.line(&format!("{lead}{}", head(key)), indent);
                    self.map(below, depth + 1, "");
                }
                Value::Array(below) if !below.is_empty() => {
                    self.line(&format!("{lead}{}", head(key)), indent);
                    self.list(below, depth + 1);
                }
                leaf => self.leaf(&to_yaml(&one(key, leaf)), indent, lead),
            }
            self.path.pop();
        }
    }

    fn list(&mut self, elements: &[Value], depth: usize) {
        for (index, value) in elements.iter().enumerate() {
            self.path.push(Segment::Index(index));
            match value {
                Value::Object(below) if !below.is_empty() => self.map(below, depth + 1, "- "),
                Value::Array(below) if !below.is_empty() => {
                    self.line("-", depth);
                    self.list(below, depth + 1);
                }
                leaf => self.leaf(&to_yaml(leaf), depth, "- "),
            }
            self.path.pop();
        }
    }

    fn leaf(&mut self, yaml: &str, depth: usize, lead: &str) {
        let yaml = yaml.trim_end();
        let note = (self.note)(&self.path).map(|note| note.replace(|character: char| character.is_control(), " "));
        let line = format!("{}{lead}{yaml}", "  ".repeat(depth));
        match note {
            // A text over several lines has no room for a comment beside it.
            Some(note) if yaml.contains('\n') => {
                self.line(&format!("# {note}"), depth);
                let deeper = format!("\n{}", "  ".repeat(depth + lead.len() / 2));
                self.line(&format!("{lead}{}", yaml.replace('\n', &deeper)), depth);
            }
            Some(note) => {
                let width = line.chars().count();
                let gap = " ".repeat(COMMENT_COLUMN.saturating_sub(width).max(2));
                self.text.push_str(&format!("{line}{gap}# {note}\n"));
            }
            None => self.text.push_str(&format!("{line}\n")),
        }
    }

    fn line(&mut self, text: &str, depth: usize) {
        self.text.push_str(&"  ".repeat(depth));
        self.text.push_str(text);
        self.text.push('\n');
    }
}

/// A mapping of one entry.
fn one(key: &str, value: &Value) -> Value {
    Value::Object(Map::from_iter([(key.to_owned(), value.clone())]))
}

/// A key with its colon, quoted where it has to be.
fn head(key: &str) -> String {
    let line = to_yaml(&one(key, &Value::Bool(true)));
    line.trim_end().trim_end_matches("true").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::document::{Format, Source, Sources, parse};

    fn read(text: &str) -> Value {
        let mut sources = Sources::default();
        let id = sources.add(Source {
            name: "text".to_owned(),
            text: text.into(),
            format: Format::Yaml,
            folder: None,
        });
        let mut diagnostics = crate::diagnostic::Diagnostics::default();
        let tree = parse(&sources, id, &mut diagnostics);
        assert!(diagnostics.is_empty(), "{text}\n{diagnostics:?}");
        // `$${` stands for `${`, which is filled in later.
        let mut tree = tree.unwrap();
        crate::document::interpolate(&mut tree, &sources, &mut diagnostics, &mut |_| None);
        tree.to_json()
    }

    #[test]
    fn each_value_has_its_comment() {
        let value = json!({ "a": 1, "b": { "c": [0.5, { "d": true, "e": [] }], "f": {} }, "g": "x # y" });
        let text = to_annotated_yaml(&value, &|path| Some(super::super::path_text(path)));
        let gap = |text: &str| format!("{text}{}", " ".repeat(COMMENT_COLUMN - text.len()));
        let expected = [
            gap("a: 1") + "# a",
            "b:".to_owned(),
            "  c:".to_owned(),
            gap("    - 0.5") + "# b.c[0]",
            gap("    - d: true") + "# b.c[1].d",
            gap("      e: []") + "# b.c[1].e",
            gap("  f: {}") + "# b.f",
        ];
        assert!(text.starts_with(&(expected.join("\n") + "\n")), "{text}");
        assert_eq!(read(&text), value, "{text}");
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            (-1e9..1e9).prop_map(Value::from),
            "[ -~]{0,12}".prop_map(Value::from),
            "[a-z:#'\"\\n$\\{\\} -]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z][a-z0-9_ :#-]{0,6}", inner, 0..4)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn comments_change_nothing(value in values(), note in "[ -~\\n]{0,12}") {
            let value = json!({ "value": value });
            let text = to_annotated_yaml(&value, &|path| (path.len() % 3 != 0).then(|| note.clone()));
            prop_assert_eq!(read(&text), value, "{}", text);
        }
    }
}
