//! What a checkpoint holds of the driver, and what it asks of workers.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use async_trait::async_trait;
use rlpipe_core::services::{MemoryPeak, SavedFile, ServiceError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Everything the driver needs to go on after a train step.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The train step.
    pub step: u64,
    /// Rows drawn from each sampler.
    pub positions: BTreeMap<String, u64>,
    /// Groups held by the buffer.
    pub buffer: Value,
    /// The trainer's counters.
    pub trainer: Value,
}

/// Saves and restores what workers hold.
#[async_trait]
pub trait WorkerState: Send + Sync {
    /// Writes everything into an existing folder, synced.
    async fn save(&self, folder: &Path) -> Result<Vec<SavedFile>, ServiceError>;
    /// Takes it back.
    async fn restore(&self, folder: &Path) -> Result<(), ServiceError>;
    /// What each worker has taken of memory at most, by its number.
    async fn memory_peaks(&self) -> Result<BTreeMap<u32, MemoryPeak>, ServiceError>;
    /// When each worker had something to answer since this was asked last, by its number.
    fn take_busy(&self) -> BTreeMap<u32, Vec<BusyTime>>;
}

/// A time in which a worker had commands of one name to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusyTime {
    /// Their name, such as `generate`.
    pub name: &'static str,
    /// From the first that was sent to the last that was answered.
    pub time: Range<Instant>,
    /// When it was at each of them; empty where it does them side by side.
    pub worked: Vec<Range<Instant>>,
}
