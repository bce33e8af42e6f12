//! What workers hold in memory, for people.

use std::fmt::Write as _;

use rlpipe_runtime::compile::{ChosenActivations, MemoryDevice, MemoryPhase, WorkerMemory};

/// The section `memory`: the peak of each worker, and a row a part.
pub fn section(workers: &[WorkerMemory]) -> String {
    let mut out = String::new();
    for worker in workers {
        let _ = writeln!(
            out,
            "\nmemory of worker {} in pool `{}`: {}",
            worker.rank,
            worker.pool,
            headline(worker)
        );
        for why in &worker.not_checked {
            let _ = writeln!(out, "  not checked: {why}");
        }
        if let Some(small) = &worker.small_cache {
            let (may_take, needs) = (gib(small.may_take), gib(small.needs));
            let _ = writeln!(
                out,
                "  the cache of `{}` may take {may_take}, and needs {needs} at least",
                small.model
            );
        }
        for chosen in &worker.activations {
            let _ = writeln!(out, "  {}", activations(chosen));
        }
        if worker.peak().is_none() {
            continue;
        }
        let name = |model: &Option<String>, part: &str| match model {
            Some(model) => format!("`{model}`: {part}"),
            None => part.to_owned(),
        };
        let names: Vec<String> = worker.parts.iter().map(|part| name(&part.model, &part.name)).collect();
        let width = names.iter().map(String::len).max().unwrap_or(0);
        for (part, name) in worker.parts.iter().zip(&names) {
            let at_most = if part.at_most { "at most" } else { "" };
            let _ = writeln!(
                out,
                "  {name:width$}  {at_most:>7} {:>9}  {}",
                gib(part.bytes),
                when(&part.phases)
            );
        }
        let phases = MemoryPhase::ALL.map(|phase| format!("{} {}", phase.name(), gib(worker.bytes_in(phase))));
        let _ = writeln!(out, "  by phase: {}", phases.join(", "));
    }
    out
}

/// What of a node's packs is kept, and why not more.
pub fn activations(chosen: &ChosenActivations) -> String {
    let too_large = chosen.too_large.iter();
    let too_large: Vec<String> = too_large
        .map(|(level, bytes)| format!("`{}` would take {}", level.name(), gib(*bytes)))
        .collect();
    let why = match too_large.is_empty() {
        true => String::new(),
        false => format!(", because {}", too_large.join(" and ")),
    };
    format!("activations of `{}`: {}{why}", chosen.node, chosen.level.name())
}

/// The peak in a few words.
pub fn headline(worker: &WorkerMemory) -> String {
    let place = match worker.device {
        MemoryDevice::Host => "the machine's memory",
        MemoryDevice::Accelerator => "the card",
    };
    match (worker.peak(), worker.available_bytes) {
        (None, _) => "not known".to_owned(),
        (Some((phase, bytes)), None) => format!("{} of {place}, in `{}`", gib(bytes), phase.name()),
        (Some((phase, bytes)), Some(there)) => {
            format!("{} of {} of {place}, in `{}`", gib(bytes), gib(there), phase.name())
        }
    }
}

fn when(phases: &[MemoryPhase]) -> String {
    if phases == MemoryPhase::ALL {
        return "always".to_owned();
    }
    if phases == MemoryPhase::AFTER_LOAD {
        return "once training has begun".to_owned();
    }
    phases.iter().map(|phase| phase.name()).collect::<Vec<_>>().join(", ")
}

/// A size in GiB.
pub fn gib(bytes: u64) -> String {
    format!("{:.3} GiB", bytes as f64 / f64::from(1 << 30))
}
