//! `rlpipe validate`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use rlpipe_core::diagnostic::{render_concise, render_full, render_github, render_json};
use rlpipe_runtime::compile::{Outcome, Request, compile, read_file, short_forms};
use rlpipe_runtime::plan::{annotated, resolved};
use rlpipe_stages::KINDS;
use serde_json::Value;

use crate::arguments::{Format, PipelineArguments, ValidateArguments};
use crate::data::tally_line;
use crate::fix::fix;
use crate::watch::watch;
use crate::{FAULTY, output};

/// Compiles what the arguments name.
pub fn compiled(arguments: &PipelineArguments) -> Result<Outcome> {
    let working_folder = std::env::current_dir().context("the working folder cannot be found out")?;
    let environment = |name: &str| std::env::var(name).ok();
    let mut request = Request {
        files: arguments.files.clone(),
        overrides: Vec::new(),
        environment: &environment,
        working_folder,
        read: &read_file,
        kinds: KINDS,
    };
    let short = short_forms(
        &request,
        arguments.work_dir.as_deref(),
        arguments.num_workers,
        arguments.backend.as_deref(),
    )
    .map_err(|error| anyhow::anyhow!(error))?;
    request.overrides = arguments.overrides.iter().cloned().chain(short).collect();
    Ok(compile(&request))
}

/// Shows what was found, in one of the formats.
pub fn show(outcome: &Outcome, format: Format) -> Result<()> {
    let (diagnostics, sources) = (&outcome.diagnostics, &outcome.sources);
    match format {
        Format::Full if diagnostics.is_empty() => {}
        Format::Concise if diagnostics.is_empty() => {}
        Format::Full => output::error(&render_full(diagnostics, sources, output::color())),
        Format::Concise => output::error(&render_concise(diagnostics, sources)),
        Format::Json => output::print(&format!("{}\n", render_json(diagnostics, sources)))?,
        Format::Github => output::print(&render_github(diagnostics, sources))?,
    }
    Ok(())
}

/// Checks, shows, and says whether all is well.
pub fn validate(arguments: &ValidateArguments) -> Result<ExitCode> {
    if arguments.watch {
        return watch(arguments);
    }
    if arguments.each {
        return each(arguments);
    }
    let mut outcome = compiled_or_fixed(arguments, &arguments.pipeline)?;
    let is_valid = outside_and_show(&mut outcome, arguments)?;
    if let (true, true, Some(pipeline)) = (is_valid, arguments.print, &outcome.pipeline)
        && let Some(resolved) = resolved(pipeline)
    {
        output::print(&annotated(pipeline, &outcome.sources, &resolved))?;
    }
    Ok(exit_code(is_valid))
}

/// Each file as a pipeline of its own.
fn each(arguments: &ValidateArguments) -> Result<ExitCode> {
    let (mut faulty, mut all) = (0, Vec::new());
    for file in &arguments.pipeline.files {
        let alone = PipelineArguments {
            files: vec![file.clone()],
            ..arguments.pipeline.clone()
        };
        let mut outcome = compiled_or_fixed(arguments, &alone)?;
        let is_valid = if arguments.format == Format::Json {
            // One array for all of them.
            crate::run::outside(&mut outcome, arguments.data, arguments.environment)?;
            let shown: Vec<Value> = serde_json::from_str(&render_json(&outcome.diagnostics, &outcome.sources))?;
            all.extend(shown);
            !outcome.diagnostics.has_errors()
        } else {
            outside_and_show(&mut outcome, arguments)?
        };
        faulty += usize::from(!is_valid);
    }
    if arguments.format == Format::Json {
        output::print(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
    } else {
        let valid = arguments.pipeline.files.len() - faulty;
        output::error(&format!("{valid} valid, {faulty} with faults\n"));
    }
    Ok(exit_code(faulty == 0))
}

fn compiled_or_fixed(arguments: &ValidateArguments, pipeline: &PipelineArguments) -> Result<Outcome> {
    if arguments.fix {
        fix(&|| compiled(pipeline))
    } else {
        compiled(pipeline)
    }
}

fn exit_code(is_valid: bool) -> ExitCode {
    if is_valid {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAULTY)
    }
}

/// The passes that were asked for besides, then all that was found; whether the pipeline is valid.
pub fn outside_and_show(outcome: &mut Outcome, arguments: &ValidateArguments) -> Result<bool> {
    let data = crate::run::outside(outcome, arguments.data, arguments.environment)?;
    show(outcome, arguments.format)?;
    let for_people = arguments.format == Format::Full && !arguments.print;
    if for_people {
        for tally in &data.tallies {
            output::error(&tally_line(tally));
        }
    }
    let pipeline = outcome.pipeline.as_ref();
    let Some(pipeline) = pipeline.filter(|_| !outcome.diagnostics.has_errors()) else {
        return Ok(false);
    };
    if for_people {
        let live = pipeline.nodes.iter().filter(|node| node.live).count();
        let name = pipeline.name.as_deref().unwrap_or_default();
        let more = match (arguments.data, arguments.environment) {
            (true, true) => "",
            (true, false) => "; `--environment` checks more",
            (false, true) => "; `--data` checks more",
            (false, false) => "; `--data` and `--environment` check more",
        };
        output::error(&format!("`{name}` is valid: {live} nodes checked{more}\n"));
    }
    Ok(true)
}
