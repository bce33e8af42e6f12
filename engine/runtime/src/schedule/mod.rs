//! Runs plans.
//!
//! One step: produce, train, export, sync, evaluate, write the metrics row, checkpoint. Demand decides what fires: the
//! buffer asks for groups, and each is drawn, answered, judged and filtered as one asynchronous task among many.

mod error;
mod event;
mod graph;
mod path;
mod pools;
mod produce;
mod report;
mod rollouts;
mod run;
mod state;
mod stop;
#[cfg(test)]
mod tests;
mod times;
mod waits;

pub use error::RunFailure;
pub use event::{Event, Phase, Reporter};
pub(crate) use path::mark as mark_dropped;
pub(crate) use report::metrics_of;
pub use run::{Ended, Run, Setup};
pub use state::{BusyTime, State, WorkerState};
pub use stop::Stop;
