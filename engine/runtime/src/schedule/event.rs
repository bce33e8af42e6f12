//! What a run tells whoever is watching.

use rlpipe_core::data::Metrics;
use rlpipe_core::services::Observer;

/// What a run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Learning from examples before the first step.
    WarmUp,
    /// Generating and judging.
    Generate,
    /// Learning.
    Train,
    /// Writing the model as a Hugging Face folder.
    Export,
    /// Bringing weights to engines.
    Sync,
    /// Measuring on held-out prompts.
    Evaluate,
    /// Saving what `--resume` needs.
    Checkpoint,
}

impl Phase {
    /// As in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Self::WarmUp => "warm-up",
            Self::Generate => "generation",
            Self::Train => "training",
            Self::Export => "export",
            Self::Sync => "weight sync",
            Self::Evaluate => "evaluation",
            Self::Checkpoint => "checkpoint",
        }
    }
}

/// Something that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A phase of a step begins.
    Phase {
        /// The train step.
        step: u64,
        /// The phase.
        phase: Phase,
    },
    /// A step is over; step 0 is what came before the first.
    Step {
        /// The train step.
        step: u64,
        /// Train steps in the whole run.
        total: u64,
        /// Its row.
        metrics: &'a Metrics,
    },
}

/// Who is told.
pub trait Reporter: Observer {
    /// Something happened.
    fn event(&self, event: &Event<'_>);
}
