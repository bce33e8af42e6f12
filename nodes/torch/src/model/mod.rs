//! The Llama network: where its parameters lie, and one forward pass that training, prefill and decode share.

mod layout;
mod network;
mod packed;

pub use layout::{Layout, Piece};
pub use network::{Network, attend_causal};
pub use packed::Packed;
