//! Conversations of an editor with the server, over a connection in memory. `engine/cli/tests` has one over stdio.
#![allow(clippy::unwrap_used)]

mod client;
mod completion;
mod fixture;
mod navigation;
mod protocol;
mod robustness;
