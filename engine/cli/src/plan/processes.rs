//! Every process that a run would start: the whole command, and what its environment is. Values that nobody else should
//! see are left out. This version starts no servers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use rlpipe_backends::{TOKEN_VARIABLE, endpoint_below, log_name, passed_on, sign};
use rlpipe_process::GUARD_COMMAND;
use rlpipe_runtime::cluster::{WORKER_NAME, worker_environment, worker_log, worker_program};
use rlpipe_runtime::compile::{Variables, is_secret};
use rlpipe_runtime::plan::Plan;
use serde::Serialize;

use crate::output::shell_word;
use crate::programs::planned;

/// One process.
#[derive(Debug, Serialize)]
pub struct Process {
    /// What it is for.
    pub what: String,
    /// The program.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables that it is given; a secret one has no value here.
    pub environment: BTreeMap<String, Option<String>>,
    /// Variables of the driver's environment that it is given too, where they are set; none: all of them.
    pub passed_on: Option<Vec<String>>,
    /// Where its output goes, in the run's folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// All processes, in the order in which they start. Values of `variables` that are secret by their name are left out of
/// arguments.
pub fn processes(plan: &Plan, variables: &Variables) -> Result<Vec<Process>> {
    let mut secrets: Vec<&str> = Vec::new();
    for (name, variable) in &variables.by_name {
        secrets.extend(
            variable
                .value
                .as_deref()
                .filter(|value| is_secret(name) && !value.is_empty()),
        );
    }
    let hidden = |word: &String| {
        secrets
            .iter()
            .fold(word.clone(), |word, secret| word.replace(secret, "(secret)"))
    };
    let mut processes = Vec::new();
    let program = worker_program().map_or(WORKER_NAME.to_owned(), |program| program.display().to_string());
    for worker in &plan.workers {
        let Some(pool) = plan.pools.get(&worker.pool) else {
            continue;
        };
        let given = worker_environment(worker.rank, pool.accelerator, pool.cpus_per_worker.get());
        let given = given.into_iter().map(|(name, value)| (name.to_owned(), Some(value)));
        processes.push(Process {
            what: format!("worker {} of pool `{}`", worker.rank, worker.pool),
            program: program.clone(),
            arguments: vec![endpoint_below(&std::env::temp_dir(), "XXXXXX")],
            environment: given.chain([(TOKEN_VARIABLE.to_owned(), None)]).collect(),
            passed_on: None,
            log: Some(format!("logs/{}", worker_log(worker.rank))),
        });
    }
    for planned in planned(plan)? {
        let (program, arguments) = planned
            .command
            .run
            .split_first()
            .map_or((String::new(), Vec::new()), |(program, arguments)| {
                (program.clone(), arguments.iter().map(hidden).collect())
            });
        let (guard, script) = GUARD_COMMAND;
        processes.push(Process {
            what: format!(
                "guard of the programs of `{}`: kills what they leave when the driver is gone",
                planned.node
            ),
            program: guard.to_owned(),
            arguments: script.iter().map(|word| (*word).to_owned()).collect(),
            environment: BTreeMap::new(),
            passed_on: None,
            log: None,
        });
        let (name, value) = sign();
        for number in 0..planned.processes {
            let log = log_name(&planned.node, &planned.command.keys, number);
            processes.push(Process {
                what: format!("program {number} that judges for `{}`", planned.node),
                program: program.clone(),
                arguments: arguments.clone(),
                environment: BTreeMap::from([(name.to_owned(), Some(value.clone()))]),
                passed_on: Some(passed_on(&planned.command).map(str::to_owned).collect()),
                log: Some(format!("logs/{log}")),
            });
        }
    }
    Ok(processes)
}

/// The same for people.
pub fn section(plan: &Plan, variables: &Variables) -> Result<String> {
    let mut out = String::from("\nprocesses beside the driver\n");
    for process in processes(plan, variables)? {
        let _ = writeln!(out, "  {}", process.what);
        let words = std::iter::once(&process.program).chain(&process.arguments);
        let command: Vec<String> = words.map(|word| quoted(word)).collect();
        let given = process.environment.iter().map(|(name, value)| match value {
            Some(value) => format!("{name}={}", quoted(value)),
            None => format!("{name}=(secret)"),
        });
        let given: Vec<String> = given.collect();
        let _ = writeln!(out, "    {}", [given, command].concat().join(" "));
        if let Some(names) = &process.passed_on {
            let _ = writeln!(out, "    with nothing else of the environment but {}", names.join(", "));
        }
        if let Some(log) = &process.log {
            let _ = writeln!(out, "    output to {log}");
        }
    }
    Ok(out)
}

/// A word as a shell reads it; one over several lines is cut.
fn quoted(word: &str) -> String {
    let mut lines = word.trim().lines();
    match (lines.next(), lines.next()) {
        (Some(line), Some(_)) => format!("'{line} ...'"),
        _ => shell_word(word),
    }
}
