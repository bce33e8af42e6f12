//! The contract that everything in rlpipe shares: the pipeline text as a tree with ranges, diagnostics, what a node
//! kind is, the data that crosses edges, and the services that nodes are given.
//!
//! Nothing here links libtorch, opens a file or a socket, or reads a clock.

pub mod data;
pub mod diagnostic;
pub mod document;
pub mod kind;
pub mod plugin;
pub mod services;
