//! Pools as exclusive resources: what runs in one takes turns, in one of two modes. Each turn is a span of the trace.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use tokio::sync::OwnedMutexGuard;

use crate::run::{Span, TraceFile};

/// What a pool is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Generating.
    Rollout,
    /// Learning, or computing log-probs.
    Train,
}

/// All pools of a run.
#[derive(Clone)]
pub struct Pools {
    turns: Arc<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    trace: Arc<Mutex<TraceFile>>,
}

/// A turn in a pool. Ends, and is written to the trace, when dropped.
pub struct Turn {
    _guard: Option<OwnedMutexGuard<()>>,
    trace: Arc<Mutex<TraceFile>>,
    pool: String,
    node: String,
    name: String,
    step: u64,
    started: Instant,
    started_us: u64,
}

impl Pools {
    /// The pools of these names.
    pub fn new<'a>(names: impl Iterator<Item = &'a String>, trace: TraceFile) -> Self {
        let turns = names.map(|name| (name.clone(), Arc::default())).collect();
        Self {
            turns: Arc::new(turns),
            trace: Arc::new(Mutex::new(trace)),
        }
    }

    /// Waits for the pool, and has it until the turn is dropped. No pool: only the trace is kept.
    pub async fn turn(&self, pool: Option<&str>, mode: Mode, node: &str, name: &str, step: u64) -> Turn {
        let turns = pool.and_then(|pool| self.turns.get(pool)).cloned();
        let guard = match turns {
            Some(turns) => Some(turns.lock_owned().await),
            None => None,
        };
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Turn {
            _guard: guard,
            trace: self.trace.clone(),
            pool: pool.unwrap_or("driver").to_owned(),
            node: node.to_owned(),
            name: match mode {
                Mode::Rollout => format!("{name} (rollout)"),
                Mode::Train => format!("{name} (train)"),
            },
            step,
            started: Instant::now(),
            started_us: since_epoch.as_micros() as u64,
        }
    }
}

impl Turn {
    /// Seconds since it began.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut details = serde_json::Map::new();
        details.insert("step".to_owned(), json!(self.step));
        let span = Span {
            pool: &self.pool,
            worker: &self.node,
            name: &self.name,
            start_us: self.started_us,
            duration_us: self.started.elapsed().as_micros() as u64,
            details,
        };
        // The trace is for looking at: a disk that is full shows itself where it matters.
        if let Err(error) = self.trace.lock().unwrap_or_else(PoisonError::into_inner).append(&span) {
            tracing::warn!(%error, "the trace is incomplete");
        }
    }
}
