//! What is measured here, whether or not anything is wrong.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rlpipe_backends::Hub;
use rlpipe_core::kind::{Role, Target};
use rlpipe_runtime::cluster::worker_program;
use rlpipe_runtime::compile::{
    Accelerator, Pipeline, disk_needs, existing_folder, is_secret, shown_bytes, shown_path, stored, worker_memory,
};
use rlpipe_runtime::plan::Plan;
use rlpipe_runtime::run::standing;

use super::{Finding, Looked, State, Topic, card};
use crate::data::tally_line;

/// A worker that only opens its libraries has this long.
const PROBE_WITHIN: Duration = Duration::from_secs(60);

/// A line for each thing that was measured. Of a topic with faults the line that it is well is left out.
pub fn measured(looked: &Looked<'_>, found: &[Finding]) -> Vec<Finding> {
    let mut all = Vec::new();
    let is_faulty = |topic: Topic| {
        found
            .iter()
            .any(|finding| finding.topic == topic && finding.state == State::Fault)
    };
    let Some(pipeline) = looked.pipeline else {
        return vec![Finding::new(
            Topic::File,
            State::Fault,
            "nothing more can be looked at before the file can be read",
        )];
    };
    let mut ok = |topic: Topic, text: String| {
        if !is_faulty(topic) {
            all.push(Finding::new(topic, State::Ok, text));
        }
    };
    let live = pipeline.nodes.iter().filter(|node| node.live).count();
    let tests = match pipeline.tests.len() {
        0 => String::new(),
        count => format!(", {count} in `tests` (`rlpipe test` runs them)"),
    };
    ok(Topic::File, format!("{live} nodes{tests}"));
    ok(Topic::Variables, variables(looked));
    for tally in &looked.data.tallies {
        ok(Topic::Data, tally_line(tally).trim_end().to_owned());
    }
    for model in stored(pipeline, &looked.machine) {
        let millions = model.parameters as f64 / 1e6;
        let trained = if model.trained { ", trained" } else { "" };
        ok(
            Topic::Models,
            format!("`{}`: {millions:.1} M parameters{trained}", model.model),
        );
    }
    if let Some(plan) = Plan::of(pipeline) {
        ok(Topic::Steps, steps(&plan));
    }
    for text in memory(looked, pipeline) {
        ok(Topic::Memory, text);
    }
    for (name, pool) in &pipeline.pools {
        let Some(config) = pool.config.as_ref().filter(|_| pipeline.uses(Target::Pool, name)) else {
            continue;
        };
        let workers = config.workers();
        let what = match config.accelerator {
            Accelerator::None => "processes of each program".to_owned(),
            other => format!(
                "worker on `{}` with {} of {} cores",
                other.name(),
                config.cpus_per_worker,
                looked.machine.cores
            ),
        };
        ok(Topic::Resources, format!("`{name}`: {workers} {what}"));
    }
    all.extend(disk(looked));
    all.extend(output(looked));
    all.extend(programs(looked, is_faulty(Topic::Programs)));
    all.extend(hub(looked));
    all.extend(worker(is_faulty(Topic::Worker)));
    all.extend(card::findings(looked));
    all
}

fn variables(looked: &Looked<'_>) -> String {
    let by_name = looked.pipeline.map(|pipeline| &pipeline.variables.by_name);
    let values: Vec<String> = by_name
        .into_iter()
        .flatten()
        .filter_map(|(name, variable)| {
            let from = if variable.is_set { "" } else { " (its default)" };
            let value = variable.value.as_deref()?;
            let shown = if is_secret(name) { "(not shown)" } else { value };
            Some(format!("{name}={shown}{from}"))
        })
        .collect();
    if values.is_empty() {
        "none are needed".to_owned()
    } else {
        values.join(", ")
    }
}

/// When what happens.
fn steps(plan: &Plan) -> String {
    let mut parts = vec![match (plan.total_steps, plan.run.total_epochs) {
        (Some(steps), _) => format!("{steps} train steps"),
        (None, Some(epochs)) => format!("{epochs} epochs"),
        (None, None) => "no end".to_owned(),
    }];
    if let Some(batch) = &plan.batch {
        parts.push(format!(
            "{} prompts of {} samples in each",
            batch.prompts_per_step, batch.samples_per_prompt
        ));
    }
    let every = plan
        .clocks
        .iter()
        .filter_map(|clock| Some(format!("`{}` every {}", clock.name, clock.every_steps?)));
    parts.extend(every);
    parts.join(", ")
}

/// What workers hold, as the data has it; whether there is room for it the passes say (RL0705, RL1133).
fn memory(looked: &Looked<'_>, pipeline: &Pipeline) -> Vec<String> {
    let mut workers = worker_memory(pipeline, Some(&looked.machine), &looked.data.tallies);
    // All workers of a pool hold the same.
    workers.dedup_by(|worker, before| worker.pool == before.pool);
    let of_worker = |worker: &rlpipe_runtime::compile::WorkerMemory| {
        let (phase, bytes) = worker.peak()?;
        let of = match worker.available_bytes {
            Some(bytes) => format!(", and may have {}", shown_bytes(bytes)),
            None => ", on its accelerator".to_owned(),
        };
        Some(format!(
            "`{}`: a worker holds {} at {}{of}",
            worker.pool,
            shown_bytes(bytes),
            phase.name()
        ))
    };
    workers.iter().filter_map(of_worker).collect()
}

fn disk(looked: &Looked<'_>) -> Option<Finding> {
    let pipeline = looked.pipeline?;
    let work_dir = pipeline.run.as_ref()?.work_dir.as_path();
    let folder = existing_folder(work_dir).ok()?;
    let free = (looked.machine.free_disk)(folder)?;
    let mut parts = vec![format!(
        "`{}`: {} free",
        shown_path(folder).display(),
        shown_bytes(free)
    )];
    let needs = disk_needs(pipeline, &looked.machine).unwrap_or_default();
    if needs.checkpoints > 0 {
        let most = needs.checkpoints;
        parts.push(format!(
            "a checkpoint takes {}, {most} at once",
            shown_bytes(needs.checkpoint)
        ));
    }
    if needs.exports > 0 {
        parts.push(format!(
            "an export takes {}, {} in all",
            shown_bytes(needs.export),
            needs.exports
        ));
    }
    Some(Finding::new(Topic::Disk, State::Ok, parts.join("; "))).filter(|_| free >= needs.whole())
}

/// The run's folder: a new attempt can always be made, but one that is held cannot be resumed.
fn output(looked: &Looked<'_>) -> Option<Finding> {
    let pipeline = looked.pipeline?;
    let work_dir = pipeline.run.as_ref()?.work_dir.as_path();
    existing_folder(work_dir).ok()?;
    let name = pipeline.name.as_ref()?;
    let folder = shown_path(&work_dir.join(name)).display().to_string();
    let found = match standing(work_dir, name) {
        Ok(found) => found,
        Err(error) => return Some(Finding::new(Topic::Output, State::Fault, error.to_string())),
    };
    let Some(newest) = &found.newest else {
        return Some(Finding::new(
            Topic::Output,
            State::Ok,
            format!("`{folder}`: no attempt yet; a run makes 0001"),
        ));
    };
    let checkpoint = match found.checkpoint {
        Some(step) => format!("its last checkpoint is of step {step}"),
        None => "it has no checkpoint".to_owned(),
    };
    let Some(holder) = &found.holder else {
        let text = format!("`{folder}`: the newest attempt is {newest}, {checkpoint}; nobody holds it");
        return Some(Finding::new(Topic::Output, State::Ok, text));
    };
    let text =
        format!("`{folder}/{newest}` is held by {holder}: `--resume` would be refused; a run makes a new attempt");
    let id = holder
        .split_whitespace()
        .find(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
    let finding = Finding::new(Topic::Output, State::Warning, text);
    Some(match id {
        Some(id) => finding
            .mend(format!("ps -o pid,etime,args -p {id}"))
            .mend(format!("kill {id}")),
        None => finding,
    })
}

/// Programs that judge: those that were called once, and answered.
fn programs(looked: &Looked<'_>, faulty: bool) -> Option<Finding> {
    let pipeline = looked.pipeline?;
    let commands = pipeline.live().map(|(_, _, contract)| match &contract.role {
        Role::Judger { commands, .. } => commands.len(),
        _ => 0,
    });
    let answers: Vec<String> = looked
        .data
        .programs
        .iter()
        .map(|(of, version)| format!("{of}: {version}"))
        .collect();
    let text = match (commands.sum::<usize>(), answers.is_empty()) {
        (0, _) => "none judges".to_owned(),
        (_, true) => return None,
        (_, false) => format!("called once, and answered: {}", answers.join(", ")),
    };
    Some(Finding::new(Topic::Programs, State::Ok, text)).filter(|_| !faulty)
}

/// The hub, where a model must still be fetched from it.
#[cfg(feature = "download")]
fn hub(looked: &Looked<'_>) -> Vec<Finding> {
    use rlpipe_backends::huggingface::{Download, ask};
    let Some(pipeline) = looked.pipeline else {
        return Vec::new();
    };
    let absent = pipeline
        .hub_models()
        .filter(|(_, model)| pipeline.hub.find(model).is_none());
    let ask_for = |(name, model): (&str, &rlpipe_runtime::compile::HubConfig)| {
        let request = crate::download::request(model, &pipeline.hub);
        let answer = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                let answer = runtime
                    .block_on(ask(&request as &Download))
                    .map_err(|error| error.to_string());
                runtime.shutdown_background();
                answer
            }
            Err(error) => Err(error.to_string()),
        };
        match answer {
            Ok(commit) => {
                let text = format!(
                    "`{name}`: `{}` answers, and has `{model}` at commit {commit}",
                    request.endpoint
                );
                Finding::new(Topic::Models, State::Ok, text)
            }
            Err(error) => Finding::new(Topic::Models, State::Fault, format!("`{name}`: {error}"))
                .mend(format!("curl -sSI {}", request.endpoint)),
        }
    };
    absent.map(ask_for).collect()
}

#[cfg(not(feature = "download"))]
fn hub(_: &Looked<'_>) -> Vec<Finding> {
    Vec::new()
}

/// Whether the worker opens its libraries, and whether the driver can listen for it.
fn worker(faulty: bool) -> Vec<Finding> {
    let mut all = Vec::new();
    if let Ok(program) = worker_program()
        && !faulty
    {
        all.push(probe(&program));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let listening = match runtime {
        Ok(runtime) => runtime
            .block_on(Hub::listen())
            .map(drop)
            .map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let folder = std::env::temp_dir();
    all.push(match listening {
        Ok(()) => Finding::new(
            Topic::Worker,
            State::Ok,
            format!("the driver can listen for it, in `{}`", folder.display()),
        ),
        Err(error) => Finding::new(Topic::Worker, State::Fault, error).mend("export TMPDIR=/tmp"),
    });
    all
}

/// Starts the worker without saying where the driver is: it opens its libraries, and ends.
fn probe(program: &Path) -> Finding {
    let shown = shown_path(program).display().to_string();
    let fault = |text: String| Finding::new(Topic::Worker, State::Fault, text);
    let mut command = Command::new(program);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return fault(format!("`{shown}` cannot be started: {error}")).mend(format!("ls -l {shown}")),
    };
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if started.elapsed() < PROBE_WITHIN => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return fault(format!("`{shown}` did not end within {} s", PROBE_WITHIN.as_secs()));
            }
        }
    }
    let said = child
        .wait_with_output()
        .map(|output| (output.status, String::from_utf8_lossy(&output.stderr).into_owned()));
    match said {
        Ok((_, said)) if said.contains("error while loading shared libraries") => {
            let line = said.lines().last().unwrap_or_default().trim().to_owned();
            fault(format!("`{shown}`: {line}"))
                .mend(format!("ldd {shown} | grep 'not found'"))
                .mend("make build   # puts libtorch in place")
        }
        Ok((_, said)) if said.contains("endpoint") => {
            Finding::new(Topic::Worker, State::Ok, format!("`{shown}` opens its libraries"))
        }
        Ok((status, said)) => fault(format!(
            "`{shown}` is no worker of rlpipe: it ended with {status}\n{}",
            said.trim()
        )),
        Err(error) => fault(format!("`{shown}` cannot be waited for: {error}")),
    }
}
