//! The protocol between driver and workers: what `proto/worker.proto` says, as Rust types, client and server.

/// The largest message that either side accepts, in bytes: one pack or one group.
pub const MESSAGE_LIMIT_BYTES: usize = 64 << 20;
/// Metadata key of the run's token.
pub const TOKEN_KEY: &str = "rlpipe-token";
/// Environment variable with the run's token, for the worker.
pub const TOKEN_VARIABLE: &str = "RLPIPE_TOKEN";

/// Messages, client and server of `rlpipe.worker.v1`.
#[allow(
    missing_docs,
    clippy::all,
    unused_qualifications,
    reason = "generated; the .proto is the documentation"
)]
pub mod v1 {
    tonic::include_proto!("rlpipe.worker.v1");
}
