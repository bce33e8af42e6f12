//! The generation engine: continuous batching over slots of a key-value cache, sampled on the device.

mod cache;
mod decoder;
mod engine;
mod graphs;
mod kernels;
mod pages;
mod plain;
mod request;
mod sampling;
mod slots;
mod stop;

pub use cache::{Cache, Prefilled};
pub use engine::{Engine, Finished};
pub use request::Request;
pub use sampling::{SlotSampling, SlotSettings};
pub use stop::StopStrings;
