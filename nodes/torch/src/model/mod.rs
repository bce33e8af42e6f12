//! The network: where its parameters lie, and one forward pass that training, prefill and decode share.

mod layout;
mod network;
mod packed;

pub use layout::{Block, Layout, Linear, Piece};
pub use network::{Network, Turns, attend_causal};
pub use packed::Packed;
