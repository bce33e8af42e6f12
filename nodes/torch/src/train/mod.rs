//! The trainer: gradients of packs, accumulated in fp32, and AdamW steps.

mod adamw;
mod head;
mod loss;
mod pack;
mod trainer;

pub use adamw::AdamW;
pub use loss::{PolicyTerms, policy_terms};
pub use pack::{Selected, check};
pub use trainer::{Trainer, logprobs};
