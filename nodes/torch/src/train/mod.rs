//! The trainer: gradients of packs, accumulated in fp32, and AdamW steps. No autograd but in the loss of a token.

mod adamw;
mod loss;
mod pack;
mod scale;
mod trainer;
mod trunk;

pub use adamw::AdamW;
pub use loss::{PolicyTerms, policy_terms};
pub use pack::{Selected, check};
pub use scale::LossScale;
pub use trainer::{Trainer, logprobs};
pub use trunk::Trunk;
