//! The process that holds a model on one device: it generates and trains, told by the driver over `rlpipe-wire`.
//!
//! `weights` reads a Hugging Face folder, which `rlpipe-model` has checked; `model` is the network, `ops` the operations
//! that it is made of; `generate` is the engine, `train` the trainer; `policy` is one loaded model with both; `store` saves
//! and restores; `worker` runs commands and `serve` speaks to the driver. `native` is what tch lacks, in C++ of our own.
//! Torch's own functions panic on error: `worker` catches that around every command.

mod ceilings;
pub mod device;
pub mod error;
pub mod generate;
pub mod kernels;
mod memory;
pub mod model;
pub mod native;
pub mod ops;
pub mod policy;
pub mod rng;
pub mod serve;
pub mod store;
pub mod train;
pub mod weights;
pub mod worker;

pub use error::{Error, Result};
