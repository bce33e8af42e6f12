//! `rlpipe plan`.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use rlpipe_runtime::compile::shown_path;
use rlpipe_runtime::plan::{Edge, Plan};

use crate::arguments::{Format, PlanArguments};
use crate::programs::planned;
use crate::validate::{compiled, show};
use crate::{FAULTY, output};

/// Shows what a run would do; starts nothing.
pub fn plan(arguments: &PlanArguments) -> Result<ExitCode> {
    let outcome = compiled(&arguments.pipeline)?;
    show(&outcome, Format::Full)?;
    let plan = outcome
        .pipeline
        .as_ref()
        .filter(|_| !outcome.diagnostics.has_errors())
        .and_then(Plan::of);
    let Some(plan) = plan else {
        return Ok(ExitCode::from(FAULTY));
    };
    if arguments.json {
        output::print(&format!("{}\n", serde_json::to_string_pretty(&plan)?))?;
    } else {
        output::print(&text(&plan)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The plan for people.
pub fn text(plan: &Plan) -> Result<String> {
    let mut out = String::new();
    let steps = match (plan.total_steps, plan.run.total_epochs) {
        (Some(steps), _) => format!("{steps} train steps"),
        (None, Some(epochs)) => format!("{epochs} epochs (train steps follow from the data)"),
        (None, None) => "no end".to_owned(),
    };
    let _ = writeln!(
        out,
        "{}: {steps}, in {}",
        plan.name,
        shown_path(plan.run.work_dir.as_path()).display()
    );
    let _ = writeln!(out, "\nnodes, in the order in which things flow");
    let name_width = plan.nodes.iter().map(|node| node.name.len()).max().unwrap_or(0);
    let kind_width = plan.nodes.iter().map(|node| node.kind.len()).max().unwrap_or(0);
    for node in &plan.nodes {
        let inputs: Vec<String> = node
            .inputs
            .iter()
            .map(|(port, edges)| format!("{port} <- {}", edges.iter().map(edge).collect::<Vec<_>>().join(", ")))
            .collect();
        let _ = writeln!(
            out,
            "  {:name_width$}  {:kind_width$}  {}",
            node.name,
            node.kind,
            inputs.join("; ")
        );
    }
    let _ = writeln!(out, "\nclocks");
    let clock_width = plan.clocks.iter().map(|clock| clock.name.len()).max().unwrap_or(0);
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
        let _ = writeln!(out, "  {:clock_width$}  {}", clock.name, when.join(", "));
    }
    if let Some(batch) = &plan.batch {
        let _ = writeln!(out, "\na train step");
        let _ = writeln!(
            out,
            "  {} prompts x {} samples = {} rollouts",
            batch.prompts_per_step, batch.samples_per_prompt, batch.rollouts_per_step
        );
        let _ = writeln!(
            out,
            "  {} optimizer {} of {} prompts, packs of at most {} tokens{}",
            batch.optimizer_steps,
            if batch.optimizer_steps == 1 { "step" } else { "steps" },
            batch.prompts_per_optimizer_step,
            batch.max_tokens_per_pack,
            batch
                .most_packs_per_optimizer_step
                .map(|packs| format!(", at most {packs} each"))
                .unwrap_or_default()
        );
        let prompt = batch
            .max_prompt_tokens
            .map_or("unbounded".to_owned(), |tokens| tokens.to_string());
        let _ = writeln!(
            out,
            "  prompt tokens at most {prompt}, response tokens at most {}",
            batch.max_new_tokens
        );
    }
    out.push_str(&crate::liveness::section(plan));
    let _ = writeln!(out, "\nprocesses");
    for worker in &plan.workers {
        let models: Vec<String> = worker
            .models
            .iter()
            .map(|model| {
                let mut does = Vec::new();
                if model.engine.is_some() {
                    does.push("generates");
                }
                if model.trainable {
                    does.push("trains");
                }
                format!("`{}` {}", model.model, does.join(" and "))
            })
            .collect();
        let _ = writeln!(
            out,
            "  rlpipe-worker {} in pool `{}`: {}",
            worker.rank,
            worker.pool,
            models.join("; ")
        );
    }
    for program in planned(plan)? {
        let times = if program.processes == 1 {
            String::new()
        } else {
            format!(", {} times", program.processes)
        };
        let _ = writeln!(
            out,
            "  {} judges for `{}`{times}",
            program.command.run.join(" "),
            program.node
        );
    }
    Ok(out)
}

fn edge(edge: &Edge) -> String {
    format!("{}.{}", edge.node, edge.port)
}
