//! The run folder on disk: `work_dir/NAME/ATTEMPT/`, what is in it, and how it is brought back to a checkpoint.
//!
//! Whatever moment the process dies at, what is left is whole: files are written beside and renamed, lines and records
//! that were torn are dropped at the next start, and a checkpoint counts only once its folder has its final name.

mod checkpoint;
mod differences;
mod disk;
mod errors;
mod folder;
mod metrics;
mod rollouts;
mod tensorboard;
mod trace;

pub use checkpoint::{Checkpoint, Checkpoints, Identity, Manifest, Partial, compatible};
pub use differences::differences;
pub use disk::{copy_texts, fresh_folder, name_dtype, publish_folder, write_atomic, write_to};
pub use errors::RunError;
pub use folder::{Purpose, RunFolder, Standing, held_by, standing};
pub use metrics::{MetricsFile, MetricsRow};
pub use rollouts::{UnreadRollouts, read_rollouts, write_rollouts};
pub use tensorboard::EventFile;
pub use trace::{Span, TraceFile};
