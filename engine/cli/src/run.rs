//! `rlpipe run`: validate, then execute.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use rlpipe_core::document::to_yaml;
use rlpipe_runtime::compile::{
    Data, HubCache, Machine, Outcome, absent_models, check_world, load_data, steps_of_epochs, try_programs,
    worker_memory,
};
use rlpipe_runtime::plan::{Plan, resolved};
use rlpipe_runtime::run::{Checkpoint, Identity, RunError, RunFolder, compatible, differences, write_atomic};
use rlpipe_runtime::schedule::{Ended, Event, Phase, Reporter, Run, RunFailure, Setup, State, Stop};
use rlpipe_stages::KINDS;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::arguments::RunArguments;
use crate::data::{ReadingProgress, tally_line};
use crate::fleet::Fleet;
use crate::programs::dry_caller;
use crate::progress::Progress;
use crate::summary::{newest, summary};
use crate::validate::{compiled, show};
use crate::{FAULTY, INTERRUPTED, output};

/// More settings that differ than these are only counted.
const SHOWN_DIFFERENCES: usize = 10;

/// The passes that look outside: the world, then the data, then, where both are looked at, programs with a row of the
/// data. Returns what the data sets hold.
pub fn outside(outcome: &mut Outcome, data: bool, world: bool) -> Result<Data> {
    let Some(pipeline) = &outcome.pipeline else {
        return Ok(Data::default());
    };
    if world {
        check_world(pipeline, &mut outcome.diagnostics);
    }
    if !data {
        return Ok(Data::default());
    }
    if !world {
        absent_models(pipeline, &mut outcome.diagnostics);
    }
    let reading = ReadingProgress::default();
    let mut data = load_data(
        pipeline,
        &mut outcome.sources,
        &mut outcome.diagnostics,
        &|dataset, done, total| reading.show(dataset, done, total),
    );
    if world {
        let seed = pipeline.run.as_ref().map_or(0, |run| run.seed);
        let call = dry_caller(seed)?;
        data.programs = try_programs(pipeline, &data, &call, &mut outcome.diagnostics);
    }
    Ok(data)
}

/// Checks everything, then runs.
pub fn run(arguments: &RunArguments) -> Result<ExitCode> {
    let mut outcome = compiled(&arguments.pipeline)?;
    let data = outside(&mut outcome, true, true)?;
    show(&outcome, arguments.format)?;
    if outcome.diagnostics.has_errors() {
        return Ok(ExitCode::from(FAULTY));
    }
    let Some(pipeline) = &mut outcome.pipeline else {
        return Ok(ExitCode::from(FAULTY));
    };
    pipeline.pin_revisions();
    let cache = pipeline.hub.clone();
    let (Some(mut plan), Some(resolved)) = (Plan::of(pipeline), resolved(pipeline)) else {
        return Ok(ExitCode::from(FAULTY));
    };
    plan.memory = worker_memory(pipeline, Some(&Machine::this()), &data.tallies);
    if let Some(epochs) = plan.run.total_epochs {
        let steps = steps_of_epochs(pipeline, &data, epochs.get().into());
        plan.total_steps =
            Some(steps.context("`total_epochs` needs exactly one training sampler; give `total_steps`")?);
    }
    for tally in data.tallies.iter().filter(|tally| tally.used != tally.read) {
        output::error(&tally_line(tally));
    }
    if arguments.dry_run {
        output::print(&crate::plan::text(&plan, pipeline, &outcome.sources)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let result = runtime.block_on(execute(arguments, plan, &resolved, data, cache));
    // A blocked thread must not keep a run from ending.
    runtime.shutdown_background();
    result
}

/// Where a run takes up.
struct Start {
    folder: RunFolder,
    /// Whether the folder is that of an attempt that was there.
    reopened: bool,
    checkpoint: Option<Checkpoint<State>>,
}

async fn execute(
    arguments: &RunArguments,
    plan: Plan,
    resolved: &Value,
    data: Data,
    cache: HubCache,
) -> Result<ExitCode> {
    let mut interrupts = Interrupts::listen()?;
    let total = plan.total_steps.unwrap_or(0);
    let start = start(arguments, &plan)?;
    if let Some(done) = finished(start.folder.path()).filter(|done| *done >= total) {
        output::error(&format!(
            "nothing to do: {} has finished, at step {done}\n",
            start.folder.path().display()
        ));
        return Ok(ExitCode::SUCCESS);
    }
    refuse_impossible(&start, total)?;
    let tokenizers = data
        .tokenizers
        .iter()
        .map(|(model, tokenizer)| (model, tokenizer.fingerprint()));
    let rows = data
        .fingerprints
        .iter()
        .map(|(name, hash)| (format!("data of `{name}`"), hash.clone()));
    let fingerprints: BTreeMap<String, String> = rows
        .chain(tokenizers.map(|(model, hash)| (format!("tokenizer of `{model}`"), hash)))
        .chain(
            data.configurations
                .iter()
                .map(|(model, hash)| (format!("configuration of `{model}`"), hash.clone())),
        )
        .collect();
    let programs = data.programs.clone();
    let identity = |versions: BTreeMap<String, String>| Identity {
        plan_hash: plan.hash(),
        fingerprints: fingerprints.clone(),
        threads: threads(&plan),
        versions: versions.into_iter().chain(programs.clone()).collect(),
    };
    if let Some(checkpoint) = &start.checkpoint {
        // What is refused is refused before anything is started; versions are known only then.
        let identity = identity(checkpoint.manifest.identity.versions.clone());
        check_identity(checkpoint, &identity, start.folder.path(), &plan)?;
    }
    let progress = Arc::new(Progress::new(arguments.progress, total));
    let reporter: Arc<dyn Reporter> = progress.clone();
    // Without `..`, to be read; the folder is there, so this does not fail.
    let place = start
        .folder
        .path()
        .canonicalize()
        .unwrap_or_else(|_| start.folder.path().to_owned());
    let from = match &start.checkpoint {
        Some(checkpoint) => format!(", going on after step {}", checkpoint.state.step),
        None if start.reopened => ", from the beginning: there is no checkpoint to go on from".to_owned(),
        None if arguments.resume => ", a new attempt: there is none to resume".to_owned(),
        None => String::new(),
    };
    progress.line(&format!("{}{from}, in {}", plan.name, place.display()));
    let activations = plan.memory.iter().flat_map(|worker| &worker.activations);
    for less in activations.filter(|chosen| !chosen.too_large.is_empty()) {
        progress.line(&crate::plan::memory::activations(less));
    }

    let stop = Stop::default();
    let fleet = tokio::select! {
        fleet = Fleet::start(&plan, data, cache, &start.folder, &progress) => Arc::new(fleet?),
        () = interrupts.second(&stop, &progress) => return interrupted(&place),
    };
    let identity = identity(fleet.versions());
    if let Some(checkpoint) = &start.checkpoint {
        for notice in check_identity(checkpoint, &identity, &place, &plan)? {
            progress.line(&notice);
        }
    }
    write_atomic(&place.join("resolved.yaml"), to_yaml(resolved).as_bytes())?;
    write_atomic(&place.join("plan.json"), &serde_json::to_vec_pretty(&plan)?)?;

    let memory = plan.memory.clone();
    let fresh = start.checkpoint.is_none();
    let model_folder = fleet.trained_folder(&plan)?;
    let setup = Setup {
        kinds: KINDS,
        services: fleet.clone(),
        workers: fleet.clone(),
        folder: start.folder,
        reporter,
        stop: stop.clone(),
        identity,
        steps: arguments.steps,
        model_folder,
        plan,
    };
    let running = async {
        let (run, step) = Run::prepare(setup, start.checkpoint).await?;
        run.go(step, fresh).await
    };
    let ended = tokio::select! {
        ended = running => ended,
        () = interrupts.second(&stop, &progress) => Err(RunFailure::Killed),
    };
    progress.clear();
    match ended {
        Ok(Ended::Finished) => {
            write_atomic(
                &place.join("finished.json"),
                format!("{{\"step\": {total}}}\n").as_bytes(),
            )?;
            fleet.shutdown().await;
            output::error(&summary(&place, total, &memory)?);
            Ok(ExitCode::SUCCESS)
        }
        Ok(Ended::Stopped { step }) => {
            fleet.shutdown().await;
            output::error(&summary(&place, total, &memory)?);
            output::error(&format!(
                "stopped after step {step} of {total}; `--resume` goes on from here\n"
            ));
            Ok(if stop.is_asked() {
                ExitCode::from(INTERRUPTED)
            } else {
                ExitCode::SUCCESS
            })
        }
        Err(RunFailure::Killed) => interrupted(&place),
        Err(failure) => {
            // What a full disk or a dead worker leaves behind is in the folder; say where that is.
            let way_out = way_out(&place);
            anyhow::bail!("the run in {} ended early: {failure}\n{way_out}", place.display())
        }
    }
}

/// What `--resume` would do now.
fn way_out(place: &Path) -> String {
    match newest(&place.join("checkpoints")) {
        Some((step, _)) => format!("`--resume` goes on after step {step}, where its last checkpoint is"),
        None => "`--resume` starts it again: it has no checkpoint yet".to_owned(),
    }
}

fn interrupted(place: &Path) -> Result<ExitCode> {
    output::error(&format!("{}; {}\n", RunFailure::Killed, way_out(place)));
    Ok(ExitCode::from(INTERRUPTED))
}

/// Opens or makes the attempt's folder, and finds where it stands.
fn start(arguments: &RunArguments, plan: &Plan) -> Result<Start> {
    let work_dir = plan.run.work_dir.as_path();
    if arguments.resume
        && let Some(folder) = RunFolder::open(work_dir, &plan.name, arguments.attempt.as_deref())?
    {
        let checkpoint = folder.checkpoints().newest::<State>()?;
        return Ok(Start {
            folder,
            reopened: true,
            checkpoint,
        });
    }
    Ok(Start {
        folder: RunFolder::create(work_dir, &plan.name)?,
        reopened: false,
        checkpoint: None,
    })
}

/// Refuses to go on where steps would be lost without a word.
fn refuse_impossible(start: &Start, total: u64) -> Result<()> {
    let place = start.folder.path().display();
    match (&start.checkpoint, finished(start.folder.path())) {
        (Some(checkpoint), _) if checkpoint.state.step > total => anyhow::bail!(
            "cannot resume {place}: its last checkpoint is after step {}, and `run.total_steps` is {total} now; make it at \
             least {}, or start a new attempt without `--resume`",
            checkpoint.state.step,
            checkpoint.state.step
        ),
        (None, Some(done)) => anyhow::bail!(
            "cannot resume {place}: it has finished, at step {done}, and has no checkpoint to go on from to step {total}; \
             start a new attempt without `--resume`"
        ),
        _ => Ok(()),
    }
}

/// The last step of a run that finished.
fn finished(folder: &Path) -> Option<u64> {
    let text = std::fs::read(folder.join("finished.json")).ok()?;
    serde_json::from_slice::<Value>(&text).ok()?["step"].as_u64()
}

/// Settings of threads, by pool: results depend on them.
fn threads(plan: &Plan) -> BTreeMap<String, String> {
    let pools = plan
        .workers
        .iter()
        .filter_map(|worker| Some((&worker.pool, plan.pools.get(&worker.pool)?)));
    pools
        .map(|(name, pool)| (format!("{name}.cpus_per_worker"), pool.cpus_per_worker.to_string()))
        .collect()
}

/// Refuses to go on as another run, and says which settings differ.
fn check_identity(
    checkpoint: &Checkpoint<State>,
    identity: &Identity,
    folder: &Path,
    plan: &Plan,
) -> Result<Vec<String>> {
    let refused = match compatible(&checkpoint.manifest, identity) {
        Ok(notices) => return Ok(notices),
        Err(error) => error,
    };
    let before = std::fs::read(folder.join("plan.json"))
        .ok()
        .and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    let now = serde_json::to_value(plan).unwrap_or(Value::Null);
    let changed = before
        .map(|before| differences(&settings(&before), &settings(&now)))
        .unwrap_or_default();
    if changed.is_empty() || !matches!(refused, RunError::Changed { .. }) {
        return Err(refused.into());
    }
    let more = changed.len().saturating_sub(SHOWN_DIFFERENCES);
    let more = if more > 0 {
        format!("\n  and {more} more")
    } else {
        String::new()
    };
    let listed: String = changed
        .iter()
        .take(SHOWN_DIFFERENCES)
        .map(|line| format!("\n  {line}"))
        .collect();
    anyhow::bail!(
        "cannot resume: the pipeline is not that of the checkpoint{listed}{more}\n\
         put it back, or start a new attempt without `--resume` (what may change: `run.work_dir`, `run.checkpoint`, \
         `run.hf_export` and `run.total_steps`)"
    )
}

/// What a plan has from the file and a resumed run may not change; clocks, batch table and workers follow from it.
fn settings(plan: &Value) -> Value {
    let nodes = plan["nodes"].as_array().into_iter().flatten().map(|node| {
        let mut settings = node["config"].clone();
        settings["type"] = node["kind"].clone();
        settings["inputs"] = node["inputs"].clone();
        (node["name"].as_str().unwrap_or_default().to_owned(), settings)
    });
    json!({
        "name": plan["name"],
        "run": { "seed": plan["run"]["seed"], "cluster": plan["run"]["cluster"] },
        "pools": plan["pools"],
        "models": plan["models"],
        "nodes": nodes.collect::<serde_json::Map<_, _>>(),
    })
}

/// Ctrl-C and termination.
pub struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// From now on neither ends this process by itself.
    pub fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for Ctrl-C");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for the next of either.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Passes the first on as a wish to stop, and returns at the second.
    async fn second(&mut self, stop: &Stop, progress: &Progress) {
        if !stop.is_asked() {
            self.next().await;
            stop.ask();
            progress.line("stopping after this step, with a checkpoint; Ctrl-C again stops at once");
        }
        self.next().await;
    }
}

/// How a phase is called on the way, for `--progress phases`.
pub fn phase_line(event: &Event<'_>) -> Option<String> {
    match event {
        Event::Phase {
            step,
            phase: Phase::WarmUp,
        } => Some(format!("step {step}: warm-up")),
        Event::Phase { step, phase } => Some(format!("step {step}: {}", phase.name())),
        Event::Step { .. } => None,
    }
}
