//! `rlpipe bench`: how fast this machine does what a run does. Each subject is a file; `docs/performance.md` says how numbers
//! are taken.

pub mod arguments;
mod child;
mod generate;
mod model;
mod report;
mod roofline;
mod statistics;
mod step;
mod train;
mod validate;
mod worker;

use std::process::ExitCode;

use anyhow::{Context, Result};

use arguments::{Bench, BenchArguments};

use crate::INTERRUPTED;

/// Measures, and shows what came of it.
pub fn bench(arguments: &BenchArguments) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let result = runtime.block_on(async {
        tokio::select! {
            report = measured(&arguments.what) => report.map(Some),
            _ = tokio::signal::ctrl_c() => Ok(None),
        }
    });
    runtime.shutdown_background();
    let Some(report) = result? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let shown = match &arguments.what {
        Bench::Generate(arguments) => &arguments.shown,
        Bench::Train(arguments) => &arguments.shown,
        Bench::Step(arguments) => &arguments.shown,
        Bench::Validate(arguments) => &arguments.shown,
    };
    report.show(shown)?;
    Ok(ExitCode::SUCCESS)
}

async fn measured(what: &Bench) -> Result<report::Report> {
    match what {
        Bench::Generate(arguments) => generate::generate(arguments).await,
        Bench::Train(arguments) => train::train(arguments).await,
        Bench::Step(arguments) => step::step(arguments).await,
        Bench::Validate(arguments) => validate::validate(arguments).await,
    }
}
