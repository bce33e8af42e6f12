//! Rollouts on their way to the disk.

use std::path::PathBuf;
use std::time::Instant;

use rlpipe_core::data::Group;
use tokio::task::{JoinHandle, spawn_blocking};

use super::error::RunFailure;
use super::pools::Turn;
use crate::run::{RunError, write_rollouts};

/// At most one file is being written, so that no step gets far ahead of the disk.
#[derive(Default)]
pub struct Rollouts(Option<JoinHandle<Result<(), RunError>>>);

impl Rollouts {
    /// Begins to write a file into `folder`, once the one before is written: the next phase does not wait for the disk.
    /// `span` lasts as long as that takes. Returns the seconds that the one before took still.
    pub async fn begin(
        &mut self,
        folder: PathBuf,
        step: u64,
        node: Option<String>,
        groups: Vec<Group>,
        span: Turn,
    ) -> Result<f64, RunFailure> {
        let started = Instant::now();
        self.finish().await?;
        self.0 = Some(spawn_blocking(move || {
            let _span = span;
            write_rollouts(&folder, step, node.as_deref(), &groups)
        }));
        Ok(started.elapsed().as_secs_f64())
    }

    /// Waits until all are on the disk.
    pub async fn finish(&mut self) -> Result<(), RunFailure> {
        let Some(writing) = self.0.take() else {
            return Ok(());
        };
        match writing.await {
            Ok(written) => Ok(written?),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The process ends.
                Err(_) => Err(RunFailure::Killed),
            },
        }
    }
}
