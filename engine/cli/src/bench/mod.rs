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

use std::future::Future;
use std::process::ExitCode;

use anyhow::{Context, Result};

use arguments::{Bench, BenchArguments};
use report::Report;

use crate::INTERRUPTED;
use crate::run::Interrupts;

/// Measures, and shows what came of it.
pub fn bench(arguments: &BenchArguments) -> Result<ExitCode> {
    let shown = match &arguments.what {
        Bench::Generate(arguments) => &arguments.shown,
        Bench::Train(arguments) => &arguments.shown,
        Bench::Step(arguments) => &arguments.shown,
        Bench::Validate(arguments) => &arguments.shown,
    };
    shown.ensure_writable()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let result = runtime.block_on(measured(&arguments.what));
    runtime.shutdown_background();
    let Some(report) = result? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    report.show(shown)?;
    Ok(ExitCode::SUCCESS)
}

/// None where it was interrupted: then nothing that it started is left, and no folder.
async fn measured(what: &Bench) -> Result<Option<Report>> {
    let mut interrupts = Interrupts::listen()?;
    match what {
        Bench::Generate(arguments) => unless_interrupted(&mut interrupts, generate::generate(arguments)).await,
        Bench::Train(arguments) => unless_interrupted(&mut interrupts, train::train(arguments)).await,
        Bench::Step(arguments) => step::step(arguments, &mut interrupts).await,
        Bench::Validate(arguments) => validate::validate(arguments, &mut interrupts).await,
    }
}

async fn unless_interrupted(
    interrupts: &mut Interrupts,
    measured: impl Future<Output = Result<Report>>,
) -> Result<Option<Report>> {
    tokio::select! {
        report = measured => report.map(Some),
        () = interrupts.next() => Ok(None),
    }
}
