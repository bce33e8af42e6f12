//! The run itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rlpipe_core::data::{ExportDtype, Group, Metrics, Seed};
use rlpipe_core::kind::Kind;
use rlpipe_core::services::{Context, Services};

use super::error::RunFailure;
use super::event::{Event, Phase, Reporter};
use super::graph::{Graph, Lessons, build};
use super::path::Surroundings;
use super::pools::{Mode, Pools};
use super::produce::{Produced, evaluate, prepare, prepare_evaluation, produce};
use super::report;
use super::rollouts::Rollouts;
use super::state::{BusyTime, State, WorkerState};
use super::stop::Stop;
use super::times::Times;
use super::waits::Waits;
use crate::plan::Plan;
use crate::run::{Checkpoint, EventFile, Identity, MetricsFile, Purpose, RunFolder, TraceFile, copy_texts, name_dtype};

/// Rewards of more data sources are not shown one by one.
const MOST_SOURCES: usize = 64;

/// What a run is made of.
pub struct Setup {
    /// What to do.
    pub plan: Plan,
    /// All kinds.
    pub kinds: &'static [Kind],
    /// Engines, learners, rows, tokenizers.
    pub services: Arc<dyn Services>,
    /// Saves and restores what workers hold.
    pub workers: Arc<dyn WorkerState>,
    /// Where everything is written.
    pub folder: RunFolder,
    /// Who is told.
    pub reporter: Arc<dyn Reporter>,
    /// Asks it to stop.
    pub stop: Stop,
    /// What a resumed run must have in common with this one.
    pub identity: Identity,
    /// Stops after so many train steps of this process.
    pub steps: Option<u64>,
    /// The folder of the model that is trained: exports take config, tokenizer and template from there.
    pub model_folder: PathBuf,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All steps are done.
    Finished,
    /// It was asked to stop, or `steps` are done; there is a checkpoint.
    Stopped {
        /// The last train step.
        step: u64,
    },
}

/// A run, under way.
pub struct Run {
    setup: Setup,
    total: u64,
    graph: Graph,
    pools: Pools,
    surroundings: Surroundings,
    metrics: MetricsFile,
    events: EventFile,
    positions: BTreeMap<String, u64>,
    /// When the step's phases were, by the metric of what of them is the driver's.
    phases: BTreeMap<&'static str, Range<Instant>>,
    /// Whether rewards are shown by `data_source`.
    by_source: bool,
    rollouts: Rollouts,
}

impl Run {
    /// Builds the nodes and opens the files. `checkpoint`: go on from there.
    pub async fn prepare(setup: Setup, checkpoint: Option<Checkpoint<State>>) -> Result<(Self, u64), RunFailure> {
        let total = setup.plan.total_steps.unwrap_or(0);
        let mut graph = build(&setup.plan, setup.kinds, setup.services.as_ref())?;
        let (mut positions, mut step) = (BTreeMap::new(), 0);
        let resumed_at = checkpoint.as_ref().map(|checkpoint| checkpoint.state.step);
        let surroundings = Surroundings {
            context: Context {
                node: Arc::from(""),
                step: 0,
                total_steps: total,
                seed: Seed::run(setup.plan.run.seed),
                observer: setup.reporter.clone(),
            },
            waits: Waits::default(),
            times: Times::default(),
            reporter: setup.reporter.clone(),
            report_after: Duration::from_secs(setup.plan.run.report_waits_after_seconds.get().into()),
        };
        if let Some(Checkpoint { folder, state, .. }) = checkpoint {
            setup.workers.restore(&folder).await?;
            let failed = |node: &str, error| surroundings.failed(node, error);
            graph
                .trainer
                .stage
                .restore(state.trainer)
                .map_err(|error| failed(&graph.trainer.name, error))?;
            graph
                .buffer
                .restore(state.buffer)
                .map_err(|error| failed("replay buffer", error))?;
            (positions, step) = (state.positions, state.step);
        }
        // Not before all of it could be taken back: until then, what lies after the checkpoint is the better record.
        setup.folder.cut_back(resumed_at)?;
        let data_sources: BTreeSet<&String> = graph.paths.iter().flat_map(|path| path.source.data_sources()).collect();
        let by_source = (2..=MOST_SOURCES).contains(&data_sources.len());
        if data_sources.len() > MOST_SOURCES {
            let text = format!(
                "the data has {} or more values of `data_source`, and rewards are shown by source for at most {MOST_SOURCES}",
                data_sources.len()
            );
            setup.reporter.notice(&graph.paths[0].sampler, &text);
        }
        let pools = Pools::new(setup.plan.pools.keys(), TraceFile::open(&setup.folder.trace())?);
        let metrics = MetricsFile::open(&setup.folder.metrics())?;
        let events = EventFile::create(&setup.folder.tensorboard(), wall_time_s())?;
        Ok((
            Self {
                setup,
                total,
                graph,
                pools,
                surroundings,
                metrics,
                events,
                positions,
                phases: BTreeMap::new(),
                by_source,
                rollouts: Rollouts::default(),
            },
            step,
        ))
    }

    /// Goes on after `step`. `fresh`: nothing was done yet, not even what comes before the first step.
    pub async fn go(mut self, mut step: u64, fresh: bool) -> Result<Ended, RunFailure> {
        let watchdog = tokio::spawn(self.surroundings.waits.clone().watch(self.setup.reporter.clone()));
        let result: Result<Ended, RunFailure> = async {
            if fresh {
                if self.setup.stop.is_asked() {
                    return Ok(Ended::Stopped { step });
                }
                self.start().await?;
            }
            let last = self
                .setup
                .steps
                .map_or(self.total, |steps| (step + steps).min(self.total));
            while step < last && !self.setup.stop.is_asked() {
                step += 1;
                self.step(step).await?;
            }
            if step == self.total {
                return Ok(Ended::Finished);
            }
            self.checkpoint(step).await?;
            if self.setup.steps.is_some() && !self.setup.stop.is_asked() {
                self.export(step).await?;
            }
            Ok(Ended::Stopped { step })
        }
        .await;
        watchdog.abort();
        // What the last checkpoint took, or what was at work when something failed.
        self.trace_times(step);
        let written = self.rollouts.finish().await;
        let ended = result?;
        written?;
        Ok(ended)
    }

    /// What comes before the first train step: warm-up, a fresh optimizer, the first sync, evaluations at the start.
    async fn start(&mut self) -> Result<(), RunFailure> {
        self.surroundings.context.step = 0;
        let mut metrics = Metrics::default();
        if let Some(Lessons { warm_up, examples }) = &mut self.graph.warm_up {
            self.setup.reporter.event(&Event::Phase {
                step: 0,
                phase: Phase::WarmUp,
            });
            let turn = self
                .pools
                .turn(warm_up.pool.as_deref(), Mode::Train, &warm_up.name, "warm-up", 0)
                .await;
            let context = self.surroundings.at(&warm_up.name);
            let _waiting = self.surroundings.wait(&warm_up.name, "the warm-up");
            let report = warm_up.stage.run(examples.as_ref(), &context).await;
            metrics.extend(report.map_err(|error| self.surroundings.failed(&warm_up.name, error))?);
            metrics.set("time/warm_up_s", turn.seconds());
        }
        for node in &self.graph.batch_stages {
            node.stage
                .begin()
                .await
                .map_err(|error| self.surroundings.failed(&node.name, error))?;
        }
        let trainer = &mut self.graph.trainer;
        trainer
            .stage
            .begin()
            .await
            .map_err(|error| self.surroundings.failed(&trainer.name, error))?;
        self.sync(0, &mut metrics).await?;
        self.evaluate(0, &mut metrics).await?;
        if !metrics.0.is_empty() {
            metrics.extend(report::of_memory(&self.setup.workers.memory_peaks().await?));
            self.write_row(0, &metrics)?;
        }
        Ok(())
    }

    async fn step(&mut self, step: u64) -> Result<(), RunFailure> {
        // What came between the steps is in the trace, and in no step.
        self.trace_times(step.saturating_sub(1));
        let started = Instant::now();
        self.surroundings.context.step = step;
        let mut metrics = Metrics::default();
        let produced = self.produce(step, &mut metrics).await?;
        if step < self.total {
            prepare(&self.graph, &self.positions);
        }
        let due = self
            .graph
            .evaluations
            .iter()
            .filter(|one| self.is_due(&one.evaluator.name, step));
        due.for_each(prepare_evaluation);
        self.train(step, produced, &mut metrics).await?;
        if self.is_due("run.hf_export", step) {
            self.export(step).await?;
        }
        self.sync(step, &mut metrics).await?;
        self.evaluate(step, &mut metrics).await?;
        let time = started..Instant::now();
        metrics.set("time/step_s", (time.end - time.start).as_secs_f64());
        self.phases.insert("time/driver_s", time);
        let busy = self.trace_times(step);
        for (name, time) in std::mem::take(&mut self.phases) {
            metrics.extend(report::of_driver(name, &busy, &time));
        }
        metrics.extend(report::of_memory(&self.setup.workers.memory_peaks().await?));
        self.write_row(step, &metrics)?;
        if self.is_due("run.checkpoint", step) {
            self.checkpoint(step).await?;
        }
        Ok(())
    }

    fn is_due(&self, clock: &str, step: u64) -> bool {
        self.setup
            .plan
            .clock(clock)
            .is_some_and(|clock| clock.is_due(step, self.total))
    }

    fn phase(&self, step: u64, phase: Phase) {
        self.setup.reporter.event(&Event::Phase { step, phase });
    }

    async fn produce(&mut self, step: u64, metrics: &mut Metrics) -> Result<Produced, RunFailure> {
        self.phase(step, Phase::Generate);
        let pool = self.graph.paths.first().and_then(|path| path.pool.clone());
        let turn = self
            .pools
            .turn(pool.as_deref(), Mode::Rollout, "rollouts", "produce", step)
            .await;
        let produced = produce(&mut self.graph, &mut self.positions, &self.surroundings).await?;
        let seconds = turn.seconds();
        self.phases.insert("time/rollout_driver_s", turn.time());
        metrics.set("time/rollout_s", seconds);
        metrics.set("time/judge_s", produced.judge_s);
        metrics.set("throughput/rollout_tok_s", produced.tokens as f64 / seconds.max(1e-9));
        metrics.extend(report::of_dropped(&produced));
        Ok(produced)
    }

    async fn train(&mut self, step: u64, produced: Produced, metrics: &mut Metrics) -> Result<(), RunFailure> {
        self.phase(step, Phase::Train);
        let Produced { mut batch, dropped, .. } = produced;
        let pool = self.graph.trainer.pool.clone();
        let turn = self
            .pools
            .turn(pool.as_deref(), Mode::Train, &self.graph.trainer.name, "train", step)
            .await;
        for node in &self.graph.batch_stages {
            let context = self.surroundings.at(&node.name);
            let _span = self.pools.span(&node.name, "process", step);
            let (next, report) = node
                .stage
                .process(batch, &context)
                .await
                .map_err(|error| self.surroundings.failed(&node.name, error))?;
            batch = next;
            metrics.extend(report);
        }
        let context = self.surroundings.at(&self.graph.trainer.name);
        let waiting = self.surroundings.wait(&self.graph.trainer.name, "the learner");
        let report = self.graph.trainer.stage.train(&batch, &context).await;
        drop(waiting);
        metrics.extend(report.map_err(|error| self.surroundings.failed(&self.graph.trainer.name, error))?);
        let seconds = turn.seconds();
        self.phases.insert("time/train_driver_s", turn.time());
        metrics.set("time/train_s", seconds);
        metrics.set(
            "throughput/train_tok_s",
            metrics.get("train/tokens").unwrap_or(0.0) / seconds.max(1e-9),
        );
        drop(turn);
        let span = self.pools.span("metrics", "reckon", step);
        metrics.extend(report::of_batch(&batch, step));
        if self.by_source {
            metrics.extend(report::by_source(&batch));
        }
        drop(span);
        let mut groups: Vec<Group> = batch.groups;
        groups.extend(dropped.into_iter().map(|(group, _)| group));
        let span = self.pools.span("rollouts", "write", step);
        let folder = self.setup.folder.rollouts(Purpose::Train);
        metrics.set(
            "time/write_s",
            self.rollouts.begin(folder, step, None, groups, span).await?,
        );
        Ok(())
    }

    /// Writes to the trace what nodes and workers did since it was written last. Returns the workers' part.
    fn trace_times(&self, step: u64) -> BTreeMap<u32, Vec<BusyTime>> {
        for (node, times) in self.surroundings.times.take() {
            for time in &times {
                self.pools.record(None, &node, "at work", step, time);
            }
        }
        let busy = self.setup.workers.take_busy();
        for worker in &self.setup.plan.workers {
            let lane = format!("worker {}", worker.rank);
            for command in busy.get(&worker.rank).into_iter().flatten() {
                let times = match command.worked.as_slice() {
                    [] => std::slice::from_ref(&command.time),
                    worked => worked,
                };
                for time in times {
                    self.pools.record(Some(&worker.pool), &lane, command.name, step, time);
                }
            }
        }
        busy
    }

    async fn export(&mut self, step: u64) -> Result<(), RunFailure> {
        let target = self.setup.folder.export(step);
        if target.exists() {
            return Ok(());
        }
        self.phase(step, Phase::Export);
        let dtype = self
            .setup
            .plan
            .run
            .hf_export
            .as_ref()
            .map_or(ExportDtype::Source, |export| export.dtype);
        let trainer = &self.graph.trainer;
        let _turn = self
            .pools
            .turn(trainer.pool.as_deref(), Mode::Train, &trainer.name, "export", step)
            .await;
        let _waiting = self.surroundings.wait(&trainer.name, "the export");
        let partial = target.with_file_name(format!(".step-{step}.partial"));
        crate::run::fresh_folder(&partial)?;
        trainer
            .stage
            .export(&partial, dtype)
            .await
            .map_err(|error| self.surroundings.failed(&trainer.name, error))?;
        copy_texts(&self.setup.model_folder, trained_template(&self.setup.plan), &partial)?;
        name_dtype(&partial.join("config.json"), dtype)?;
        crate::run::publish_folder(&partial, &target)?;
        Ok(())
    }

    async fn sync(&mut self, step: u64, metrics: &mut Metrics) -> Result<(), RunFailure> {
        let started = Instant::now();
        for node in &self.graph.syncs {
            // The last step always syncs; a sync that is not due leaves the engine as it is.
            if self.is_due(&node.name, step) {
                self.phase(step, Phase::Sync);
                let _span = self.pools.span(&node.name, "sync", step);
                node.stage
                    .sync(step)
                    .await
                    .map_err(|error| self.surroundings.failed(&node.name, error))?;
            }
        }
        metrics.set("time/sync_s", started.elapsed().as_secs_f64());
        Ok(())
    }

    async fn evaluate(&mut self, step: u64, metrics: &mut Metrics) -> Result<(), RunFailure> {
        let several = self.graph.evaluations.len() > 1;
        for index in 0..self.graph.evaluations.len() {
            let evaluation = &self.graph.evaluations[index];
            let name = &evaluation.evaluator.name;
            if !self.is_due(name, step) {
                continue;
            }
            self.phase(step, Phase::Evaluate);
            let turn = self
                .pools
                .turn(evaluation.path.pool.as_deref(), Mode::Rollout, name, "evaluate", step)
                .await;
            let (groups, failed) = evaluate(evaluation, &self.surroundings).await?;
            let prefix = if several {
                format!("eval/{name}")
            } else {
                "eval".to_owned()
            };
            for (metric, value) in evaluation.evaluator.stage.evaluate(&groups, failed).0 {
                metrics.set(format!("{prefix}/{metric}"), value);
            }
            metrics.add("time/eval_s", turn.seconds());
            drop(turn);
            let node = several.then(|| name.to_string());
            let span = self.pools.span("rollouts", "write", step);
            let folder = self.setup.folder.rollouts(Purpose::Eval);
            self.rollouts.begin(folder, step, node, groups, span).await?;
        }
        Ok(())
    }

    fn write_row(&mut self, step: u64, metrics: &Metrics) -> Result<(), RunFailure> {
        self.metrics.append(step, metrics)?;
        self.events.append(step, wall_time_s(), metrics)?;
        self.setup.reporter.event(&Event::Step {
            step,
            total: self.total,
            metrics,
        });
        Ok(())
    }

    async fn checkpoint(&mut self, step: u64) -> Result<(), RunFailure> {
        let checkpoints = self.setup.folder.checkpoints();
        if checkpoints.steps()?.contains(&step) {
            return Ok(());
        }
        self.phase(step, Phase::Checkpoint);
        self.rollouts.finish().await?;
        self.metrics.sync()?;
        self.events.sync()?;
        let trainer = &self.graph.trainer;
        let _turn = self
            .pools
            .turn(trainer.pool.as_deref(), Mode::Train, &trainer.name, "checkpoint", step)
            .await;
        let _waiting = self.surroundings.wait(&trainer.name, "the checkpoint");
        let partial = checkpoints.begin(step)?;
        let files = self.setup.workers.save(partial.path()).await?;
        let state = State {
            step,
            positions: self.positions.clone(),
            buffer: self.graph.buffer.snapshot(),
            trainer: trainer.stage.snapshot(),
        };
        let keep = self
            .setup
            .plan
            .run
            .checkpoint
            .as_ref()
            .map_or(2, |checkpoint| checkpoint.keep.get() as usize);
        partial.commit(&state, files, &self.setup.identity, keep)?;
        Ok(())
    }
}

fn wall_time_s() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

/// The file whose chat template the trained model is used with, where that is not its folder's.
fn trained_template(plan: &Plan) -> Option<&Path> {
    let mut models = plan.workers.iter().flat_map(|worker| &worker.models);
    let trained = models.find(|model| model.trainable)?;
    let template = plan.models.get(&trained.model)?.chat_template.as_ref()?;
    Some(template.file.as_ref()?.as_path())
}
