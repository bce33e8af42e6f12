//! Programs that judge: those of a run, and the dry call before it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use rlpipe_backends::{CommandPool, PoolSettings, try_command};
use rlpipe_core::kind::{Role, Target};
use rlpipe_core::plugin::{Sample, Tried};
use rlpipe_core::services::{JudgeCommand, ServiceError};
use rlpipe_runtime::plan::Plan;
use rlpipe_runtime::run::RunFolder;
use rlpipe_stages::KINDS;

use crate::progress::Progress;

/// A program that a plan starts.
pub struct PlannedProgram {
    /// The node that it judges for.
    pub node: String,
    /// The program.
    pub command: JudgeCommand,
    /// As many as the node's pool has workers; without a pool, one.
    pub processes: u32,
}

/// The programs that a plan starts.
pub fn planned(plan: &Plan) -> Result<Vec<PlannedProgram>> {
    let mut programs = Vec::new();
    for node in &plan.nodes {
        let contract = node.load(KINDS)?.contract();
        let pool = contract.used(Target::Pool).and_then(|name| plan.pools.get(name));
        let processes = pool.map_or(1, |pool| u32::try_from(pool.workers()).unwrap_or(u32::MAX));
        let Role::Judger { commands, .. } = contract.role else {
            continue;
        };
        programs.extend(commands.into_iter().map(|command| PlannedProgram {
            node: node.name.clone(),
            command,
            processes,
        }));
    }
    Ok(programs)
}

/// The programs of a run.
pub struct Programs {
    seed: u64,
    logs: PathBuf,
    notice: Arc<dyn Fn(&str) + Send + Sync>,
    /// Processes of each program of a node.
    processes: BTreeMap<String, u32>,
    running: Mutex<Vec<Arc<CommandPool>>>,
}

impl Programs {
    /// None yet; nodes start them when they are built.
    pub fn new(plan: &Plan, folder: &RunFolder, progress: &Arc<Progress>) -> Result<Self> {
        let planned = planned(plan)?.into_iter();
        let progress = progress.clone();
        Ok(Self {
            processes: planned.map(|program| (program.node, program.processes)).collect(),
            ..Self::single(plan.run.seed, folder.logs(), Arc::new(move |text| progress.line(text)))
        })
    }

    /// The same, with one process of each program, whatever pool it is in.
    pub fn single(seed: u64, logs: PathBuf, notice: Arc<dyn Fn(&str) + Send + Sync>) -> Self {
        Self {
            seed,
            logs,
            notice,
            processes: BTreeMap::new(),
            running: Mutex::default(),
        }
    }

    /// Starts the processes of a program.
    pub fn start(&self, node: &str, command: &JudgeCommand) -> Result<Arc<CommandPool>, ServiceError> {
        let settings = PoolSettings {
            node: node.to_owned(),
            processes: self.processes.get(node).copied().unwrap_or(1),
            seed: self.seed,
            logs: self.logs.clone(),
            notice: self.notice.clone(),
        };
        let pool = CommandPool::start(command, &settings).map_err(|error| {
            let run = command.run.join(" ");
            ServiceError(format!(
                "`{node}`: the processes of `{run}` cannot be looked after: {error}"
            ))
        })?;
        let pool = Arc::new(pool);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.push(pool.clone());
        Ok(pool)
    }

    /// Lets them end, and waits for it, but not for long.
    pub async fn shutdown(&self) {
        let running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        for pool in running {
            pool.shutdown().await;
        }
    }
}

/// Makes dry calls of programs.
pub fn dry_caller(seed: u64) -> Result<impl Fn(&str, &JudgeCommand, Option<Sample>) -> Tried> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a program")?;
    Ok(move |node: &str, command: &JudgeCommand, sample: Option<Sample>| {
        runtime.block_on(try_command(command, node, seed, sample))
    })
}
