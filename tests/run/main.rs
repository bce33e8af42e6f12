//! Whole runs of the release binaries on a small pipeline: the same numbers however a run is broken off and resumed, and
//! every end with its exit code and its reason.
#![allow(clippy::unwrap_used)]

mod bench;
mod breaks;
mod command_line;
mod determinism;
mod harness;
mod hub;
mod judges;
mod memory;
mod refusals;
