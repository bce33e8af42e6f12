//! The way of one group: drawn, answered, judged, filtered.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rlpipe_core::data::{DropReason, Group, Row, Status, Verdict};
use rlpipe_core::kind::{AgentLoop, GroupStage, GroupTask, Source, StageError};
use rlpipe_core::services::Context;
use tokio::task::{JoinHandle, spawn_blocking};

use super::error::RunFailure;
use super::event::Reporter;
use super::times::Times;
use super::waits::{Waiting, Waits};

/// A sampler, an agent loop, and the stages after it.
pub struct Path {
    /// The sampler's name.
    pub sampler: Arc<str>,
    /// The sampler.
    pub source: Arc<dyn Source>,
    /// The agent loop's name.
    pub loop_name: Arc<str>,
    /// The agent loop.
    pub agent_loop: Arc<dyn AgentLoop>,
    /// Judgers and filters, in order.
    pub stages: Vec<(Arc<str>, Arc<dyn GroupStage>)>,
    /// The pool that its engine is in.
    pub pool: Option<String>,
    /// Rounds of asking again in one step.
    pub max_refill: u32,
    /// Whether groups that were kept back complete a step when those are used up.
    pub fill: bool,
    /// Rows that are made before they are drawn.
    pub ahead: Ahead,
}

/// Rows by position, being made on another thread.
#[derive(Default)]
pub struct Ahead(Mutex<Option<JoinHandle<Rows>>>);

/// Rows by position.
pub type Rows = BTreeMap<u64, Result<Arc<Row>, StageError>>;

/// What became of a group, and how long judges took over it.
pub struct Traveled {
    /// What the last stage said.
    pub verdict: Verdict,
    /// Seconds in judges.
    pub judge_s: f64,
}

/// What a path needs to know of the run.
#[derive(Clone)]
pub struct Surroundings {
    /// The context; its node is replaced by each stage's.
    pub context: Context,
    /// Who waits for whom.
    pub waits: Waits,
    /// Who did something when.
    pub times: Times,
    /// Who is told.
    pub reporter: Arc<dyn Reporter>,
    /// When a wait is overdue.
    pub report_after: Duration,
}

impl Surroundings {
    /// The context of a node.
    pub fn at(&self, node: &Arc<str>) -> Context {
        Context {
            node: node.clone(),
            ..self.context.clone()
        }
    }

    /// `node` waits for `what` until this is dropped.
    pub fn wait(&self, node: &str, what: impl Into<String>) -> Waiting {
        self.waits.begin(node, what.into(), self.report_after)
    }

    /// A stage's failure, as the run's.
    pub fn failed(&self, node: &str, error: StageError) -> RunFailure {
        RunFailure::Stage {
            node: node.to_owned(),
            step: self.context.step,
            error,
        }
    }
}

impl Path {
    /// Begins to make the rows at these positions, which are drawn next: reading and tokenizing them then takes no time, and
    /// the engine gets all prompts at once.
    pub fn prepare(&self, positions: Range<u64>) {
        let source = self.source.clone();
        let rows = move || positions.map(|position| (position, source.row(position))).collect();
        *self.ahead.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(spawn_blocking(rows));
    }

    /// What was prepared last, once.
    pub async fn prepared(&self) -> Rows {
        let task = self.ahead.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match task {
            // A row that could not be made ahead is made, and fails, where it is drawn.
            Some(task) => task.await.unwrap_or_default(),
            None => Rows::new(),
        }
    }

    /// Takes the row at `position`, which may have been made ahead, all the way.
    pub async fn travel(
        &self,
        position: u64,
        row: Option<Result<Arc<Row>, StageError>>,
        surroundings: &Surroundings,
    ) -> Result<Traveled, RunFailure> {
        let row = row.unwrap_or_else(|| self.source.row(position));
        let task = GroupTask {
            id: position,
            sampler: self.sampler.clone(),
            row: row.map_err(|error| surroundings.failed(&self.sampler, error))?,
            samples: self.source.samples_per_prompt(),
        };
        let what = format!("group {position}");
        let waiting = surroundings.wait(&self.loop_name, what.clone());
        let started = Instant::now();
        let group = self.agent_loop.run(task, &surroundings.at(&self.loop_name)).await;
        surroundings.times.add(&self.loop_name, started);
        drop(waiting);
        let mut verdict = Verdict::Keep(group.map_err(|error| surroundings.failed(&self.loop_name, error))?);
        let mut judge_s = 0.0;
        for (name, stage) in &self.stages {
            let Verdict::Keep(group) = verdict else { break };
            let _waiting = surroundings.wait(name, what.clone());
            let started = Instant::now();
            verdict = stage
                .process(group, &surroundings.at(name))
                .await
                .map_err(|error| surroundings.failed(name, error))?;
            surroundings.times.add(name, started);
            if stage.judges() {
                judge_s += started.elapsed().as_secs_f64();
            }
        }
        if let Verdict::Drop(group, reason) = &mut verdict {
            mark(group, reason);
        }
        Ok(Traveled { verdict, judge_s })
    }
}

/// A dropped group's rollouts say why they are not trained.
pub fn mark(group: &mut Group, reason: &DropReason) {
    let status = match reason {
        DropReason::Failed(_) => Status::Failed,
        DropReason::Filtered(_) => Status::Filtered,
    };
    for rollout in &mut group.rollouts {
        rollout.status = status;
    }
}
