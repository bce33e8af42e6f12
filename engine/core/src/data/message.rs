//! A message of a chat, with whatever keys it has in the data.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One message of a chat: `role`, mostly `content`, and any further keys (`tool_calls`, `reasoning_content`, `name`, ...)
/// in the order of the data, as the model's chat template sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct Message(Map<String, Value>);

impl Message {
    /// A message that is a text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        let entries = [("role", role.into()), ("content", content.into())];
        Self(
            entries
                .map(|(key, text)| (key.to_owned(), Value::from(text)))
                .into_iter()
                .collect(),
        )
    }

    /// Who speaks: `system`, `user`, `assistant`, `tool`, or what else the model's template knows.
    pub fn role(&self) -> &str {
        self.0.get("role").and_then(Value::as_str).unwrap_or_default()
    }

    /// What is said: the content, or the `text` of each of its parts, one after the other; empty where there is none.
    pub fn text(&self) -> Cow<'_, str> {
        match self.0.get("content") {
            Some(Value::String(text)) => Cow::Borrowed(text),
            Some(Value::Array(parts)) => Cow::Owned(parts.iter().filter_map(|part| part["text"].as_str()).collect()),
            _ => Cow::Borrowed(""),
        }
    }

    /// Every key with its value.
    pub fn entries(&self) -> &Map<String, Value> {
        &self.0
    }
}

impl TryFrom<Map<String, Value>> for Message {
    type Error = String;

    /// `role` must be a text, and `content`, where it is there, a text, null or a list of objects.
    fn try_from(entries: Map<String, Value>) -> Result<Self, String> {
        match entries.get("role") {
            Some(Value::String(_)) => {}
            Some(_) => return Err("the `role` of a message must be a text".to_owned()),
            None => return Err("a message has no `role`".to_owned()),
        }
        match entries.get("content") {
            None if entries.len() == 1 => Err("a message has nothing but a `role`; give it `content`".to_owned()),
            Some(Value::Array(parts)) if parts.iter().any(|part| !part.is_object()) => {
                Err("a part of a message's `content` is not an object such as `{\"type\": \"text\", ...}`".to_owned())
            }
            None | Some(Value::Null | Value::String(_) | Value::Array(_)) => Ok(Self(entries)),
            Some(_) => Err("the `content` of a message must be a text or a list of parts".to_owned()),
        }
    }
}

impl JsonSchema for Message {
    fn schema_name() -> Cow<'static, str> {
        "Message".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "One message of a chat; further keys are those of the data.",
            "type": "object",
            "properties": {
                "role": { "description": "`system`, `user`, `assistant`, ...", "type": "string", "examples": ["user"] },
                "content": {
                    "examples": ["What is 2 + 2?"],
                    "description": "Its text, or a list of parts such as `{\"type\": \"text\", \"text\": ...}`.",
                    "type": ["string", "array", "null"],
                    "items": { "type": "object" },
                },
            },
            "required": ["role"],
            "minProperties": 2,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Result<Message, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn further_keys_stay_in_their_order() {
        let text = r#"{"tool_calls":[{"b":1,"a":2.50}],"role":"assistant","content":null,"reasoning_content":"so"}"#;
        let message = read(text).unwrap();
        assert_eq!(serde_json::to_string(&message).unwrap(), text.replace("2.50", "2.5"));
        assert_eq!((message.role(), &*message.text()), ("assistant", ""));
        let parts =
            r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}"#;
        assert_eq!(read(parts).unwrap().text(), "ab");
        assert_eq!(
            read(r#"{"role":"user","content":"a"}"#).unwrap(),
            Message::new("user", "a")
        );
    }

    #[test]
    fn what_is_no_message_is_named() {
        for (text, part) in [
            ("{}", "has no `role`"),
            (r#"{"role":1,"content":""}"#, "`role` of a message must be a text"),
            (r#"{"role":"user"}"#, "nothing but a `role`"),
            (r#"{"role":"user","content":1}"#, "must be a text or a list"),
            (r#"{"role":"user","content":["a"]}"#, "is not an object"),
            (r#""hello""#, "invalid type"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
