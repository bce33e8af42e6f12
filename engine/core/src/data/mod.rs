//! What crosses the edges of a pipeline: plain vectors, never tensors.

mod export;
mod message;
mod metrics;
mod pack;
mod permutation;
mod rollout;
mod seed;
mod shares;

pub use export::ExportDtype;
pub use message::Message;
pub use metrics::{Metrics, mean, repeats, standard_deviation};
pub use pack::{Activations, AdamW, KlEstimator, Loss, PackMemory, PolicyLoss, Sequence, SequenceSums};
pub use permutation::Permutation;
pub use rollout::{Batch, DropReason, FinishReason, Group, Rollout, Row, Sampling, Score, Status, Verdict, VersionRun};
pub use seed::Seed;
pub use shares::largest_remainder;
