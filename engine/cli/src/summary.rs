//! What a run came to, from its own metrics.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use rlpipe_runtime::compile::{MemoryDevice, WorkerMemory};
use rlpipe_runtime::run::{MetricsFile, MetricsRow};

use crate::plan::memory::gib;

/// Accuracy before and after, time, and where things are.
pub fn summary(folder: &Path, total: u64, memory: &[WorkerMemory]) -> Result<String> {
    let rows = MetricsFile::read(&folder.join("metrics.jsonl"))?;
    let mut out = String::new();
    let last = rows.last().map_or(0, |row| row.step);
    let _ = writeln!(out, "\n{last} of {total} train steps in {}", duration(&rows));
    for name in evaluated(&rows) {
        let measured: Vec<(u64, f64)> = rows
            .iter()
            .filter_map(|row| Some((row.step, row.metrics.get(&name)?)))
            .collect();
        if let [(first_step, first), .., (last_step, last)] = measured.as_slice() {
            let _ = writeln!(
                out,
                "  {name}  {first:.3} at step {first_step}, {last:.3} at step {last_step}"
            );
        } else if let [(step, value)] = measured.as_slice() {
            let _ = writeln!(out, "  {name}  {value:.3} at step {step}");
        }
    }
    let rewards: Vec<(u64, f64)> = rows
        .iter()
        .filter_map(|row| Some((row.step, row.metrics.get("reward/mean")?)))
        .collect();
    match rewards.as_slice() {
        [(first_step, first), .., (last_step, last)] => {
            let _ = writeln!(
                out,
                "  reward/mean  {first:.3} at step {first_step}, {last:.3} at step {last_step}"
            );
        }
        [(step, value)] => {
            let _ = writeln!(out, "  reward/mean  {value:.3} at step {step}");
        }
        [] => {}
    }
    out.extend(memory.iter().filter_map(|worker| measured(worker, &rows)));
    let _ = writeln!(out, "  metrics      {}", folder.join("metrics.jsonl").display());
    let _ = writeln!(out, "  rollouts     {}", folder.join("rollouts").display());
    if let Some((_, export)) = newest(&folder.join("hf")) {
        let _ = writeln!(out, "  model        {}", export.display());
    }
    if let Some((_, checkpoint)) = newest(&folder.join("checkpoints")) {
        let _ = writeln!(out, "  checkpoint   {}", checkpoint.display());
    }
    Ok(out)
}

/// What a worker took of memory, beside what the plan says.
fn measured(worker: &WorkerMemory, rows: &[MetricsRow]) -> Option<String> {
    let place = match worker.device {
        MemoryDevice::Host => "host",
        MemoryDevice::Accelerator => "accelerator",
    };
    let name = format!("memory/worker-{}/{place}_peak_gib", worker.rank);
    let most = rows.iter().filter_map(|row| row.metrics.get(&name)).reduce(f64::max)?;
    let planned = worker.peak().map_or_else(
        || "not known before".to_owned(),
        |(phase, bytes)| format!("planned for {} in `{}`", gib(bytes), phase.name()),
    );
    Some(format!("  {name}  {most:.3} GiB, {planned}\n"))
}

fn evaluated(rows: &[MetricsRow]) -> Vec<String> {
    let mut names: Vec<String> = rows
        .iter()
        .flat_map(|row| row.metrics.0.keys())
        .filter(|name| name.starts_with("eval/") && name.ends_with("accuracy"))
        .cloned()
        .collect();
    names.sort();
    names.dedup();
    names
}

fn duration(rows: &[MetricsRow]) -> String {
    let timed = ["time/step_s", "time/warm_up_s"];
    let seconds: f64 = rows
        .iter()
        .flat_map(|row| timed.iter().filter_map(|name| row.metrics.get(name)))
        .sum();
    let seconds = seconds.round() as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// The folder `step-N` with the greatest N, and N.
pub fn newest(folder: &Path) -> Option<(u64, std::path::PathBuf)> {
    let entries = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let step = |path: &Path| path.file_name()?.to_str()?.strip_prefix("step-")?.parse::<u64>().ok();
    entries
        .filter_map(|path| Some((step(&path)?, path)))
        .max_by_key(|(step, _)| *step)
}
