//! Which node runs where.

use std::fmt::Write as _;

use anyhow::Result;
use rlpipe_core::kind::Target;
use rlpipe_runtime::compile::{Accelerator, PoolConfig};
use rlpipe_runtime::plan::{Plan, PlannedModel};
use rlpipe_stages::KINDS;

use crate::output::counted;

/// Nodes on pools, pools on workers, workers on devices; what names no pool runs in the driver.
pub fn section(plan: &Plan) -> Result<String> {
    let mut placed: Vec<(&str, Option<String>)> = Vec::new();
    for node in &plan.nodes {
        let pool = node.load(KINDS)?.contract().used(Target::Pool).map(str::to_owned);
        placed.push((&node.name, pool));
    }
    let named = |pool: Option<&str>| {
        let here = placed.iter().filter(|(_, used)| used.as_deref() == pool);
        here.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    };
    let mut out = String::from("\nplacement\n");
    for (name, pool) in &plan.pools {
        let nodes = named(Some(name));
        let nodes = if nodes.is_empty() { "no node".to_owned() } else { nodes };
        let _ = writeln!(out, "  pool `{name}`, {}: {nodes}", equipment(pool));
        for worker in plan.workers.iter().filter(|worker| worker.pool == *name) {
            let models: Vec<String> = worker.models.iter().map(model).collect();
            let _ = writeln!(
                out,
                "    worker {}, {}, {}: {}",
                worker.rank,
                device(pool.accelerator),
                counted(pool.cpus_per_worker.get().into(), "thread"),
                models.join("; ")
            );
        }
    }
    let driver = named(None);
    if !driver.is_empty() {
        let _ = writeln!(out, "  driver: {driver}");
    }
    Ok(out)
}

fn equipment(pool: &PoolConfig) -> String {
    let workers = counted(pool.workers(), "worker");
    let machines = match pool.nodes.get() {
        1 => String::new(),
        machines => format!(" on {machines} machines"),
    };
    format!("{workers}{machines}, accelerator `{}`", pool.accelerator.name())
}

fn device(accelerator: Accelerator) -> &'static str {
    match accelerator {
        Accelerator::None => "on nothing",
        Accelerator::Cpu => "on the processor",
        Accelerator::Cuda => "on the first card that it sees",
        Accelerator::Auto => "on the first card that it sees, without one on the processor",
    }
}

fn model(model: &PlannedModel) -> String {
    let mut does = Vec::new();
    if model.engine.is_some() {
        does.push("generates");
    }
    if model.trainable {
        does.push("trains");
    }
    format!("`{}` {}", model.model, does.join(" and "))
        .trim_end()
        .to_owned()
}
