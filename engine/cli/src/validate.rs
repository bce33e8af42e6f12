//! `rlpipe validate`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use rlpipe_core::diagnostic::{Fix, apply_fixes, render_concise, render_full, render_github, render_json};
use rlpipe_core::document::{Format as SourceFormat, to_yaml};
use rlpipe_runtime::compile::{Outcome, Request, compile, read_file, short_forms};
use rlpipe_runtime::plan::resolved;
use rlpipe_stages::KINDS;

use crate::arguments::{Format, PipelineArguments, ValidateArguments};
use crate::data::tally_line;
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
    let mut outcome = compiled(&arguments.pipeline)?;
    if arguments.fix {
        let applied = fix(&outcome)?;
        if applied > 0 {
            let fixes = if applied == 1 { "fix" } else { "fixes" };
            output::error(&format!("applied {applied} {fixes}\n"));
            outcome = compiled(&arguments.pipeline)?;
        }
    }
    let data = crate::run::outside(&mut outcome, arguments.data, arguments.environment)?;
    show(&outcome, arguments.format)?;
    if arguments.format == Format::Full && !arguments.print {
        for tally in &data.tallies {
            output::error(&tally_line(tally));
        }
    }
    if outcome.diagnostics.has_errors() {
        return Ok(ExitCode::from(FAULTY));
    }
    let Some(pipeline) = &outcome.pipeline else {
        return Ok(ExitCode::from(FAULTY));
    };
    if arguments.print {
        if let Some(resolved) = resolved(pipeline) {
            output::print(&to_yaml(&resolved))?;
        }
    } else if arguments.format == Format::Full {
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
    Ok(ExitCode::SUCCESS)
}

/// Writes the fixes into the files; how many.
fn fix(outcome: &Outcome) -> Result<usize> {
    let mut applied = 0;
    for (id, source) in outcome.sources.iter() {
        if !matches!(source.format, SourceFormat::Yaml | SourceFormat::Toml) {
            continue;
        }
        let fixes: Vec<&Fix> = outcome
            .diagnostics
            .iter()
            .filter_map(|diagnostic| diagnostic.fix.as_ref())
            .filter(|fix| fix.range.source == id)
            .collect();
        if fixes.is_empty() {
            continue;
        }
        let text = apply_fixes(&source.text, &fixes);
        std::fs::write(&source.name, text).with_context(|| format!("cannot write `{}`", source.name))?;
        applied += fixes.len();
    }
    Ok(applied)
}
