//! `trainer`: improves the policy, a train step at a time.
//!
//! A step's groups are split into equal shares, one an optimizer step, and only then packed. The token mean is over the
//! whole share, so that neither the packs nor the workers change the gradient.

mod config;
mod step;

pub use config::TrainerConfig;
pub use step::sequence;
