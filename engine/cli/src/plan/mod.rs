//! `rlpipe plan`: what a run would do. Each section is a file.

mod liveness;
pub mod memory;
mod origins;
mod placement;
mod processes;
mod step;

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use rlpipe_core::document::Sources;
use rlpipe_runtime::compile::{Machine, Pipeline, shown_path, worker_memory};
use rlpipe_runtime::plan::{Edge, Origin, Plan, origins, resolved};
use serde::Serialize;

use crate::arguments::{Format, PlanArguments, PlanFormat};
use crate::graph::{Graph, State};
use crate::validate::{compiled, show};
use crate::{FAULTY, output};

use processes::Process;

/// All of it, for other programs.
#[derive(Serialize)]
struct Whole<'a> {
    plan: &'a Plan,
    states: Vec<State>,
    processes: Vec<Process>,
    origins: std::collections::BTreeMap<String, Origin>,
}

/// Shows what a run would do; starts nothing.
pub fn plan(arguments: &PlanArguments) -> Result<ExitCode> {
    let outcome = compiled(&arguments.pipeline)?;
    show(&outcome, Format::Full)?;
    let pipeline = outcome.pipeline.as_ref();
    let pipeline = pipeline.filter(|_| !outcome.diagnostics.has_errors());
    let Some((pipeline, mut plan)) = pipeline.and_then(|pipeline| Some((pipeline, Plan::of(pipeline)?))) else {
        return Ok(ExitCode::from(FAULTY));
    };
    plan.memory = worker_memory(pipeline, Some(&Machine::this()), &[]);
    match arguments.format {
        PlanFormat::Text => output::print(&text(&plan, pipeline, &outcome.sources)?)?,
        PlanFormat::Json => {
            let whole = Whole {
                plan: &plan,
                states: Graph::of(&plan)?.states,
                processes: processes::processes(&plan, &pipeline.variables)?,
                origins: resolved(pipeline)
                    .map(|resolved| origins(pipeline, &outcome.sources, &resolved))
                    .unwrap_or_default(),
            };
            output::print(&format!("{}\n", serde_json::to_string_pretty(&whole)?))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The plan for people.
pub fn text(plan: &Plan, pipeline: &Pipeline, sources: &Sources) -> Result<String> {
    let mut out = head(plan);
    out.push_str(&nodes(plan)?);
    out.push_str(&clocks(plan));
    out.push_str(&step::section(plan));
    out.push_str(&liveness::section(plan));
    out.push_str(&placement::section(plan)?);
    out.push_str(&memory::section(&plan.memory));
    out.push_str(&processes::section(plan, &pipeline.variables)?);
    out.push_str(&origins::section(pipeline, sources));
    Ok(out)
}

fn head(plan: &Plan) -> String {
    let steps = match (plan.total_steps, plan.run.total_epochs) {
        (Some(1), _) => "1 train step".to_owned(),
        (Some(steps), _) => format!("{steps} train steps"),
        (None, Some(epochs)) => format!("{epochs} epochs (train steps follow from the data)"),
        (None, None) => "no end".to_owned(),
    };
    let folder = shown_path(plan.run.work_dir.as_path()).join(&plan.name);
    format!("{}: {steps}, in a new folder of {}\n", plan.name, folder.display())
}

fn nodes(plan: &Plan) -> Result<String> {
    let mut out = String::from("\nnodes, in the order in which things flow\n");
    let name_width = plan.nodes.iter().map(|node| node.name.len()).max().unwrap_or(0);
    let kind_width = plan.nodes.iter().map(|node| node.kind.len()).max().unwrap_or(0);
    let states = Graph::of(plan)?.states;
    for node in &plan.nodes {
        let inputs = node
            .inputs
            .iter()
            .map(|(port, edges)| format!("{port} <- {}", edges.iter().map(edge).collect::<Vec<_>>().join(", ")));
        let states = states.iter().filter(|state| state.node == node.name);
        let states = states.map(|state| format!("{} -> {} (its state, no edge)", state.key, state.of));
        let _ = writeln!(
            out,
            "{}",
            format!(
                "  {:name_width$}  {:kind_width$}  {}",
                node.name,
                node.kind,
                inputs.chain(states).collect::<Vec<_>>().join("; ")
            )
            .trim_end()
        );
    }
    Ok(out)
}

fn edge(edge: &Edge) -> String {
    format!("{}.{}", edge.node, edge.port)
}

fn clocks(plan: &Plan) -> String {
    let mut out = String::from("\nclocks, in train steps\n");
    let width = plan.clocks.iter().map(|clock| clock.name.len()).max().unwrap_or(0);
    for clock in &plan.clocks {
        let mut when = Vec::new();
        if clock.at_start {
            when.push("at the start".to_owned());
        }
        if let Some(every) = clock.every_steps {
            when.push(if every == 1 {
                "every step".to_owned()
            } else {
                format!("every {every} steps")
            });
        }
        if clock.at_end {
            when.push("at the end".to_owned());
        }
        let times = plan.total_steps.map(|total| {
            let times = (0..=total).filter(|step| clock.is_due(*step, total)).count();
            format!(": {}", output::counted(times as u64, "time"))
        });
        let _ = writeln!(
            out,
            "  {:width$}  {}{}",
            clock.name,
            when.join(", "),
            times.unwrap_or_default()
        );
    }
    out
}

/// A number as people read it: `1,536`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_in_threes() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
