//! From rows to what is trained: real templates, tokenizers, agent loops and trainers; only the torch side is played.
#![allow(clippy::unwrap_used)]

mod masks;
mod world;
