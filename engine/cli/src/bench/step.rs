//! `rlpipe bench step`: a run of a few steps in a folder of its own, and what its metrics say of time.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rlpipe_runtime::plan::Plan;
use rlpipe_runtime::run::{MetricsFile, MetricsRow, held_by};
use serde_json::{Value, json};

use super::arguments::StepArguments;
use super::child;
use super::report::{Done, Measured, Program, Report};
use super::statistics::Spread;
use crate::arguments::PipelineArguments;
use crate::run::Interrupts;
use crate::validate::compiled;

/// The whole of a step: the others are shares of it.
const WHOLE: &str = "time/step_s";
/// What is counted while something is timed: that metric, its unit, and the metric that it is divided by.
const RATES: [(&str, &str, &str); 2] = [
    ("throughput/rollout_tok_s", "tokens", "time/rollout_s"),
    ("throughput/train_tok_s", "tokens", "time/train_s"),
];

/// Measures; none where it is interrupted.
pub async fn step(arguments: &StepArguments, interrupts: &mut Interrupts) -> Result<Option<Report>> {
    let scratch = tempfile::Builder::new()
        .prefix("rlpipe-bench-")
        .tempdir()
        .context("cannot make a folder for the run; set TMPDIR to a folder that can be written")?;
    let pipeline = match &arguments.pipeline.work_dir {
        Some(_) => arguments.pipeline.clone(),
        None => PipelineArguments {
            work_dir: Some(scratch.path().to_string_lossy().into_owned()),
            ..arguments.pipeline.clone()
        },
    };
    let steps = arguments.steps.to_string();
    let mut command = child::command("run", &["--progress", "lines", "--steps", &steps], &pipeline)?;
    command.stdout(Stdio::null());
    let Some(ended) = child::ended(command, interrupts).await? else {
        return Ok(None);
    };
    ended.ensure_well("the run failed")?;
    let folder = run_folder(&pipeline, ended.process)?;
    let rows = MetricsFile::read(&folder.join("metrics.jsonl"))?;
    let mut report = of_rows(&rows, arguments)?;
    let identity = identity(&folder);
    report.device = identity.0;
    report.versions = identity.1;
    report.notes.push(match &arguments.pipeline.work_dir {
        Some(_) => format!(
            "`{}` shows when what ran; open it at https://ui.perfetto.dev",
            folder.join("trace.json").display()
        ),
        None => "`--work-dir FOLDER` keeps the run, with `trace.json`, which shows when what ran".to_owned(),
    });
    Ok(Some(report))
}

/// The folder of a run that a process has done.
fn run_folder(pipeline: &PipelineArguments, process: u32) -> Result<PathBuf> {
    let plan = compiled(pipeline)?.pipeline.as_ref().and_then(Plan::of);
    let plan = plan.context("the pipeline has faults now that it had not when the run began; measure again")?;
    let work_dir = plan.run.work_dir.as_path();
    held_by(work_dir, &plan.name, process)?.with_context(|| {
        let place = work_dir.join(&plan.name);
        format!(
            "the run has left `{}` since it ended, or its files have changed; measure again",
            place.display()
        )
    })
}

/// Device and torch, from the manifest of the checkpoint that a run writes when it stops.
fn identity(folder: &Path) -> (String, std::collections::BTreeMap<&'static str, String>) {
    let newest = crate::summary::newest(&folder.join("checkpoints"));
    let manifest = newest
        .and_then(|(_, checkpoint)| std::fs::read(checkpoint.join("manifest.json")).ok())
        .and_then(|text| serde_json::from_slice::<Value>(&text).ok())
        .unwrap_or_default();
    let versions = &manifest["manifest"]["identity"]["versions"];
    let text = |name: &str| versions[name].as_str().map(str::to_owned);
    let device = text("device of worker 0").unwrap_or_else(|| "unknown".to_owned());
    let driver = if device == "cpu" {
        None
    } else {
        rlpipe_runtime::compile::driver_version()
    };
    let known = [("torch", text("torch")), ("driver", driver)];
    let known = known.into_iter().filter_map(|(name, version)| Some((name, version?)));
    (device, known.collect())
}

fn of_rows(rows: &[MetricsRow], arguments: &StepArguments) -> Result<Report> {
    let mut rows: Vec<&MetricsRow> = rows.iter().filter(|row| row.step > 0).collect();
    ensure!(!rows.is_empty(), "the run has done no step");
    let mut report = Report::of_driver("step", Program::this(), arguments.shown.date.as_ref());
    let warm_up = if rows.len() > 1 {
        Some(rows.remove(0))
    } else {
        report
            .notes
            .push("the only step is measured, and it is the first one, which is slower".to_owned());
        None
    };
    let of = |name: &str| {
        rows.iter()
            .filter_map(|row| row.metrics.get(name))
            .collect::<Vec<f64>>()
    };
    let whole = Spread::of(&of(WHOLE)).map_or(f64::NAN, |whole| whole.median);
    let mut names: Vec<&String> = rows.iter().flat_map(|row| row.metrics.0.keys()).collect();
    names.retain(|name| name.starts_with("time/"));
    names.sort_by_key(|name| (*name != WHOLE, *name));
    names.dedup();
    for name in names {
        let Some(measured) = Measured::time(shown(name), &of(name)) else {
            continue;
        };
        let rate = RATES.iter().find(|(_, _, time)| time == name);
        report.measured.push(Measured {
            warm_up_s: warm_up.and_then(|row| row.metrics.get(name)),
            done: rate.and_then(|(rate, unit, time)| done(unit, &of(rate), &of(time))),
            share: (name != WHOLE).then_some(measured.seconds.median / whole),
            ..measured
        });
    }
    report.settings = [
        ("pipeline".to_owned(), json!(child::shown(&arguments.pipeline))),
        ("steps".to_owned(), json!(rows.len() + usize::from(warm_up.is_some()))),
    ]
    .into_iter()
    .collect();
    Ok(report)
}

/// `time/rollout_s` as `rollout`.
fn shown(metric: &str) -> &str {
    let name = metric.strip_prefix("time/").unwrap_or(metric);
    name.strip_suffix("_s").unwrap_or(name)
}

fn done(unit: &'static str, rates: &[f64], times: &[f64]) -> Option<Done> {
    let amounts: Vec<f64> = rates.iter().zip(times).map(|(rate, seconds)| rate * seconds).collect();
    Some(Done {
        unit,
        amount: Spread::of(&amounts)?.median.round(),
        per_second: Spread::of(rates)?,
    })
}
