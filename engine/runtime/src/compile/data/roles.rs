//! Which roles a chat template shows: some pass over messages of roles that they do not know.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use rlpipe_core::data::Message;
use rlpipe_text::{Chat, Tokenizer};
use serde_json::{Value, json};

/// What no conversation has in it.
const MARK: &str = "rlpipe7mark7of7a7message";
/// More roles than these are no roles: they are looked at each time.
const KNOWN: usize = 64;

/// Roles that were seen in the text that the template makes.
#[derive(Default)]
pub struct Roles(Mutex<BTreeSet<String>>);

impl Roles {
    /// The role of a message whose text does not come out of the template.
    pub fn left_out<'a>(&self, tokenizer: &Tokenizer, chat: &Chat<'a>) -> Option<&'a str> {
        for (index, message) in chat.messages.iter().enumerate() {
            if message.text().is_empty() || self.known().contains(message.role()) {
                continue;
            }
            let Some(marked) = marked(message) else { continue };
            let mut messages = chat.messages.to_vec();
            messages[index] = marked;
            let chat = Chat {
                messages: &messages,
                ..*chat
            };
            // A template that fails on the mark says nothing of the role.
            let shown = tokenizer.render(&chat).map_or(true, |text| text.contains(MARK));
            if !shown {
                return Some(message.role());
            }
            let mut known = self.known();
            if known.len() < KNOWN {
                known.insert(message.role().to_owned());
            }
        }
        None
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The message with another text, in the same form.
fn marked(message: &Message) -> Option<Message> {
    let mut entries = message.entries().clone();
    let content = match entries.get("content") {
        Some(Value::Array(_)) => json!([{ "type": "text", "text": MARK }]),
        _ => MARK.into(),
    };
    entries.insert("content".to_owned(), content);
    Message::try_from(entries).ok()
}
