//! Pools as exclusive resources: what runs in one takes turns, in one of two modes. Each turn is a span of the trace.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use tokio::sync::OwnedMutexGuard;

use crate::run::{Span, TraceFile};

/// What is in no pool.
const DRIVER: &str = "driver";

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
        Turn {
            _guard: guard,
            trace: self.trace.clone(),
            pool: pool.unwrap_or(DRIVER).to_owned(),
            node: node.to_owned(),
            name: match mode {
                Mode::Rollout => format!("{name} (rollout)"),
                Mode::Train => format!("{name} (train)"),
            },
            step,
            started: Instant::now(),
        }
    }

    /// Something that the driver does itself, until the turn is dropped.
    pub fn span(&self, node: &str, name: &str, step: u64) -> Turn {
        Turn {
            _guard: None,
            trace: self.trace.clone(),
            pool: DRIVER.to_owned(),
            node: node.to_owned(),
            name: name.to_owned(),
            step,
            started: Instant::now(),
        }
    }

    /// Something that was done, in a lane of a pool or, without one, of the driver.
    pub fn record(&self, pool: Option<&str>, lane: &str, name: &str, step: u64, time: &Range<Instant>) {
        write(&self.trace, pool.unwrap_or(DRIVER), lane, name, step, time);
    }
}

impl Turn {
    /// Seconds since it began.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Since it began.
    pub fn time(&self) -> Range<Instant> {
        self.started..Instant::now()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        write(&self.trace, &self.pool, &self.node, &self.name, self.step, &self.time());
    }
}

fn write(trace: &Mutex<TraceFile>, pool: &str, lane: &str, name: &str, step: u64, time: &Range<Instant>) {
    let now_us = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_micros() as u64;
    let mut details = serde_json::Map::new();
    details.insert("step".to_owned(), json!(step));
    let span = Span {
        pool,
        worker: lane,
        name,
        start_us: now_us.saturating_sub(time.start.elapsed().as_micros() as u64),
        duration_us: time.end.duration_since(time.start).as_micros() as u64,
        details,
    };
    // The trace is for looking at: a disk that is full shows itself where it matters.
    if let Err(error) = trace.lock().unwrap_or_else(PoisonError::into_inner).append(&span) {
        tracing::warn!(%error, "the trace is incomplete");
    }
}
