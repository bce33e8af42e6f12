//! How a run fails.

use rlpipe_core::kind::StageError;
use rlpipe_core::services::ServiceError;

use crate::run::RunError;

/// Why a run ended before its end. Each says what, where and the way out.
#[derive(Debug, thiserror::Error)]
pub enum RunFailure {
    /// A node could not go on.
    #[error("`{node}` failed at step {step}: {error}")]
    Stage {
        /// Its name.
        node: String,
        /// The train step.
        step: u64,
        /// What happened.
        error: StageError,
    },
    /// A worker or another service could not do what was asked.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The run folder could not be read or written.
    #[error(transparent)]
    Folder(#[from] RunError),
    /// A filter kept back too much, or too much failed.
    #[error("step {step} is {missing} groups short after {rounds} rounds of asking again ({reasons}); {}", way_out(*.filtered))]
    Exhausted {
        /// The train step.
        step: u64,
        /// Groups that are missing.
        missing: usize,
        /// Rounds that were asked.
        rounds: u32,
        /// Why groups were dropped, with counts.
        reasons: String,
        /// Whether a filter kept some of them back; otherwise all failed.
        filtered: bool,
    },
    /// A second Ctrl-C.
    #[error("stopped at once, without a checkpoint of this step")]
    Killed,
}

fn way_out(filtered: bool) -> &'static str {
    if filtered {
        "raise `max_refill`, set `when_exhausted: fill`, or change the data: it is too easy or too hard for this model"
    } else {
        "mend what the reasons name, or have the judger leave such responses out: `on_error: abstain`"
    }
}
