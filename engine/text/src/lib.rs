//! Tokenizer and chat template of a model folder, in the driver; workers see token ids only.
//!
//! [`Tokenizer::load`] reads a Hugging Face folder, [`init_folder`] writes one for a small model from nothing.
//! Left out: clean-up of spaces after decoding.

mod added;
mod bytes;
mod columns;
mod compared;
mod error;
mod folder;
mod init;
mod json;
mod template;
mod tokenizer;

pub use columns::{ColumnError, ColumnTemplate, Columns};
pub use error::TextError;
pub use init::{InitSpec, InitTokenizer, init_folder};
pub use template::{CHAT_NAMES, Chat, ChatTemplateChoice};
pub use tokenizer::Tokenizer;
