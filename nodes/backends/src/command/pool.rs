//! Processes that judge side by side, and what a failure of one means.
//!
//! Groups wait in one queue; a process that is free takes as many whole groups as a message may have samples. What was in
//! a message that failed is asked again, each sample alone in a fresh process: only a sample that fails there is to
//! blame, and its failure is not counted as one of the process. So what a sample is given does not depend on its company,
//! except where a program gives too few or too many scores: then no sample of the message is judged, and a run with such a
//! program does not repeat.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rlpipe_core::data::Score;
use rlpipe_core::plugin::{PROTOCOL, Sample, Start};
use rlpipe_core::services::{CommandJudge, JudgeCommand, ServiceError};
use rlpipe_process::Spawner;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use super::answer::counted;
use super::log::Log;
use super::program::{Failure, Fault, Program};

/// A process that is asked to end has this long.
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(5);
/// Failures of processes that are shown one by one.
const SHOWN_FAILURES: usize = 20;

/// What a pool is told beside the command.
pub struct PoolSettings {
    /// The node that it judges for.
    pub node: String,
    /// How many processes.
    pub processes: u32,
    /// The run's seed.
    pub seed: u64,
    /// The folder of their logs.
    pub logs: PathBuf,
    /// Is told what a person should see.
    pub notice: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Processes of one command. They are killed when this is dropped.
pub struct CommandPool {
    queue: Arc<Queue>,
    slots: Mutex<Vec<JoinHandle<()>>>,
    /// How many groups it was given.
    groups: AtomicU64,
}

impl CommandPool {
    /// Starts the processes, and does not wait for them: a model may take as long to load.
    pub fn start(command: &JudgeCommand, settings: &PoolSettings) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let spawner = Spawner::guarded()?;
        let failures = Arc::new(Mutex::new(0));
        let mut slots = Vec::new();
        for number in 0..settings.processes {
            let log = settings.logs.join(log_name(&settings.node, &command.keys, number));
            let slot = Slot {
                command: command.clone(),
                start: start_message(command, &settings.node, settings.seed),
                spawner: spawner.clone(),
                log: Arc::new(Mutex::new(Log::open(&log)?)),
                log_path: log,
                queue: queue.clone(),
                notice: settings.notice.clone(),
                failures: failures.clone(),
                in_a_row: 0,
                blamed: None,
            };
            slots.push(tokio::spawn(slot.run()));
        }
        Ok(Self {
            queue,
            slots: Mutex::new(slots),
            groups: AtomicU64::new(0),
        })
    }

    /// Lets the processes end, and waits for it, but not for long.
    pub async fn shutdown(&self) {
        self.queue.close("it was shut down");
        let slots = std::mem::take(&mut *self.slots.lock().unwrap_or_else(PoisonError::into_inner));
        for mut slot in slots {
            if tokio::time::timeout(SHUTDOWN_WITHIN, &mut slot).await.is_err() {
                // It starts a process, or waits for an answer that nobody wants any more; with its task goes the process.
                slot.abort();
            }
        }
    }
}

impl Drop for CommandPool {
    fn drop(&mut self) {
        for slot in self.slots.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            slot.abort();
        }
    }
}

#[async_trait]
impl CommandJudge for CommandPool {
    async fn score(&self, samples: Vec<Sample>) -> Result<Vec<Result<Score, String>>, ServiceError> {
        let group = self.groups.fetch_add(1, Ordering::Relaxed);
        let (jobs, answers): (Vec<Job>, Vec<_>) = samples
            .into_iter()
            .map(|sample| {
                let (reply, answer) = oneshot::channel();
                (Job { sample, group, reply }, answer)
            })
            .unzip();
        self.queue.put(jobs)?;
        let mut scores = Vec::new();
        for answer in answers {
            scores.push(answer.await.map_err(|_| self.queue.reason())?);
        }
        Ok(scores)
    }
}

/// The first line to each process.
pub fn start_message(command: &JudgeCommand, node: &str, seed: u64) -> Start {
    Start {
        protocol: PROTOCOL,
        node: node.to_owned(),
        config: command.config.clone(),
        seed,
    }
}

/// Such as `judge-scored-0.log`; of a judge within another, with its name in it.
pub fn log_name(node: &str, keys: &[String], number: u32) -> String {
    let inner = keys.iter().filter(|key| !matches!(key.as_str(), "judge" | "command"));
    let names: Vec<&str> = std::iter::once(node).chain(inner.map(String::as_str)).collect();
    let plain = |character: char| match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' => character,
        _ => '_',
    };
    format!(
        "judge-{}-{number}.log",
        names.join(".").chars().map(plain).collect::<String>()
    )
}

/// A sample, and who waits for its score.
struct Job {
    sample: Sample,
    /// Which group it is of.
    group: u64,
    reply: oneshot::Sender<Result<Score, String>>,
}

/// Groups that wait for a process.
#[derive(Default)]
struct Queue {
    state: Mutex<Waiting>,
    more: Notify,
}

#[derive(Default)]
struct Waiting {
    groups: VecDeque<Vec<Job>>,
    closed: Option<String>,
}

impl Queue {
    fn put(&self, group: Vec<Job>) -> Result<(), ServiceError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = &state.closed {
            return Err(ServiceError(reason.clone()));
        }
        state.groups.push_back(group);
        drop(state);
        self.more.notify_one();
        Ok(())
    }

    /// Whole groups, as many as make at most `limit` samples; a group that is larger comes in pieces. None once closed.
    async fn take(&self, limit: usize) -> Option<Vec<Job>> {
        loop {
            let notified = self.more.notified();
            {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                if state.closed.is_some() {
                    return None;
                }
                let jobs = state.pop(limit);
                let is_more = !state.groups.is_empty();
                drop(state);
                if is_more {
                    self.more.notify_one();
                }
                if !jobs.is_empty() {
                    return Some(jobs);
                }
            }
            notified.await;
        }
    }

    /// From now on nothing is judged; the first reason stays.
    fn close(&self, reason: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.closed.get_or_insert_with(|| reason.to_owned());
        state.groups.clear();
        drop(state);
        self.more.notify_waiters();
    }

    fn reason(&self) -> ServiceError {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        ServiceError(
            state
                .closed
                .clone()
                .unwrap_or_else(|| "its processes are gone".to_owned()),
        )
    }
}

impl Waiting {
    fn pop(&mut self, limit: usize) -> Vec<Job> {
        let mut jobs: Vec<Job> = Vec::new();
        while let Some(mut group) = self.groups.pop_front() {
            // A group that was called off has nobody waiting.
            group.retain(|job| !job.reply.is_closed());
            if jobs.is_empty() && group.len() > limit {
                let rest = group.split_off(limit);
                self.groups.push_front(rest);
                return group;
            }
            if jobs.len() + group.len() > limit {
                self.groups.push_front(group);
                return jobs;
            }
            jobs.extend(group);
        }
        jobs
    }
}

/// A place in the pool: one process at a time.
struct Slot {
    command: JudgeCommand,
    start: Start,
    spawner: Spawner,
    log: Arc<Mutex<Log>>,
    log_path: PathBuf,
    queue: Arc<Queue>,
    notice: Arc<dyn Fn(&str) + Send + Sync>,
    /// Failures of all places together.
    failures: Arc<Mutex<usize>>,
    /// Failures of this place since its last answer.
    in_a_row: u32,
    /// The group whose message failed last, if it was alone in it: its other pieces do not count again.
    blamed: Option<u64>,
}

impl Slot {
    async fn run(mut self) {
        let limit = self.command.samples_per_message as usize;
        let mut program = None;
        loop {
            let Some(running) = self.running(&mut program).await else {
                return;
            };
            let jobs = tokio::select! {
                jobs = self.queue.take(limit) => jobs,
                fault = running.idle() => {
                    if self.failed(program.take(), fault, "").await.is_none() {
                        return;
                    }
                    continue;
                }
            };
            let Some(jobs) = jobs else { break };
            if self.judge(jobs, &mut program).await.is_none() {
                return;
            }
        }
        if let Some(program) = program {
            program.end().await;
        }
    }

    /// The process, started where there is none; none where that is of no use any more.
    async fn running<'a>(&mut self, program: &'a mut Option<Program>) -> Option<&'a mut Program> {
        while program.is_none() {
            match Program::start(&self.command, &self.start, &self.spawner, &self.log).await {
                Ok((started, _)) => *program = Some(started),
                Err(failure) => self.count(&failure, "")?,
            }
        }
        program.as_mut()
    }

    /// Answers jobs; none where the process is of no use any more, and the queue is closed.
    async fn judge(&mut self, jobs: Vec<Job>, program: &mut Option<Program>) -> Option<()> {
        let samples = jobs.iter().map(|job| job.sample.clone()).collect();
        let fault = match self.running(program).await?.score(samples).await {
            Ok(scores) => {
                self.in_a_row = 0;
                for (job, score) in jobs.into_iter().zip(scores) {
                    // Whoever asked may have stopped waiting.
                    let _ = job.reply.send(score);
                }
                return Some(());
            }
            Err(fault) => fault,
        };
        let group = only_group(&jobs);
        let is_blamed = group.is_some() && group == self.blamed;
        self.blamed = group;
        let again = format!("; {} judged again, one by one", counted(jobs.len(), "sample"));
        if is_blamed {
            self.excused(program.take(), fault, &again).await;
        } else {
            self.failed(program.take(), fault, &again).await?;
        }
        for job in jobs {
            let fault = match self.running(program).await?.score(vec![job.sample.clone()]).await {
                Ok(mut scores) => {
                    self.in_a_row = 0;
                    let score = scores.pop().unwrap_or_else(|| Err("it gave no score".to_owned()));
                    let _ = job.reply.send(score);
                    continue;
                }
                Err(fault) => fault,
            };
            // The sample's fault, not the process's: a row that no judge can bear must not end the run by itself.
            let error = self.excused(program.take(), fault, "").await;
            let _ = job.reply.send(Err(error));
        }
        Some(())
    }

    /// Ends a process, and says why in words; none where that was once too often.
    async fn failed(&mut self, program: Option<Program>, fault: Fault, then: &str) -> Option<String> {
        let failure = match program {
            Some(program) => program.fail(fault).await,
            None => return Some(fault.to_string()),
        };
        self.count(&failure, then)?;
        Some(failure.to_string())
    }

    /// The same for what its samples are to blame for: it is shown, and not counted.
    async fn excused(&self, program: Option<Program>, fault: Fault, then: &str) -> String {
        match program {
            Some(program) => {
                let failure = program.fail(fault).await;
                self.show(&failure, then);
                failure.to_string()
            }
            None => fault.to_string(),
        }
    }

    /// Counts a failure; none where it was once too often.
    fn count(&mut self, failure: &Failure, then: &str) -> Option<()> {
        self.in_a_row += 1;
        let node = &self.start.node;
        let run = self.command.run.join(" ");
        let allowed = self.command.max_restarts;
        let is_final = matches!(failure.fault, Fault::Start(_)) || self.in_a_row > allowed;
        if is_final {
            let often = match self.in_a_row {
                1 => String::new(),
                times => format!(" after {times} failures in a row without an answer (`max_restarts: {allowed}`)"),
            };
            self.queue
                .close(&format!("`{node}`: the program `{run}` is of no use{often}: {failure}"));
            return None;
        }
        self.show(failure, then);
        Some(())
    }

    /// Says that the process is started again.
    fn show(&self, failure: &Failure, then: &str) {
        let node = &self.start.node;
        let run = self.command.run.join(" ");
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        *failures += 1;
        let shown = *failures;
        drop(failures);
        if shown <= SHOWN_FAILURES {
            (self.notice)(&format!(
                "`{node}`: the program `{run}` is started again{then}: {failure}"
            ));
        }
        if shown == SHOWN_FAILURES {
            let log = self.log_path.display();
            (self.notice)(&format!(
                "`{node}`: further failures of its programs are not shown; see `{log}`"
            ));
        }
    }
}

/// The group that all of these are of, if there is one.
fn only_group(jobs: &[Job]) -> Option<u64> {
    let first = jobs.first()?.group;
    jobs.iter().all(|job| job.group == first).then_some(first)
}
