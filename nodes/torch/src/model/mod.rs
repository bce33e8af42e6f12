//! The network: where its parameters lie, and one forward pass that training, prefill and decode share.

mod layer;
mod layout;
mod network;
mod packed;

pub use layer::{Activations, Attention, Pass, linear};
pub use layout::{Block, Layout, Linear, Piece};
pub use network::Network;
pub use packed::Packed;
