//! `rlpipe`: declarative reinforcement-learning post-training for language models.

mod arguments;
mod bench;
mod data;
mod doctor;
#[cfg(feature = "download")]
mod download;
mod explain;
mod fix;
mod fleet;
mod graph;
mod init;
mod kinds;
mod lsp;
mod manual;
mod output;
mod plan;
mod programs;
mod progress;
mod run;
mod schema;
mod summary;
mod test;
mod validate;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Verb};

/// A run failed.
const FAILED: u8 = 1;
/// Ctrl-C ended it.
const INTERRUPTED: u8 = 130;
/// A name on the command line that there is not, as clap exits with.
const MISUSED: u8 = 2;
/// A pipeline has faults (`EX_CONFIG` of sysexits).
const FAULTY: u8 = 78;

/// An error that says how the process ends.
#[derive(Debug)]
struct ExitError {
    code: u8,
    text: String,
}

impl ExitError {
    /// Arguments that do not go together.
    fn misused(text: impl Into<String>) -> anyhow::Error {
        let (code, text) = (MISUSED, text.into());
        Self { code, text }.into()
    }
}

impl std::fmt::Display for ExitError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl std::error::Error for ExitError {}

fn main() -> ExitCode {
    // A full disk must be an error that is reported, not a signal that ends the process.
    // SAFETY: called before any other thread exists, with a valid signal and disposition.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let filter = tracing_subscriber::EnvFilter::try_from_env("RLPIPE_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output::color())
        .without_time()
        .log_internal_errors(false)
        .init();
    let result = match Arguments::parse().verb {
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Validate(arguments) => validate::validate(&arguments),
        Verb::Plan(arguments) => plan::plan(&arguments),
        Verb::Doctor(arguments) => doctor::doctor(&arguments),
        Verb::Test(arguments) => test::test(&arguments),
        Verb::Bench(arguments) => bench::bench(&arguments),
        Verb::Graph(arguments) => graph::graph(&arguments),
        Verb::Init(arguments) => init::init(&arguments),
        #[cfg(feature = "download")]
        Verb::Download(arguments) => download::download(&arguments),
        #[cfg(not(feature = "download"))]
        Verb::Download(_) => Err(anyhow::anyhow!(
            "this build cannot download: build it with the feature `download`, or copy the model's folder from the Hugging \
             Face cache of a machine that has it"
        )),
        Verb::Lsp => lsp::lsp(),
        Verb::Schema(arguments) => schema::schema(&arguments),
        Verb::Kinds { name } => kinds::kinds(name.as_deref()),
        Verb::Explain { code } => explain::explain(&code),
        Verb::Completions { shell } => manual::completions(shell),
        Verb::Man(arguments) => manual::manual(&arguments),
    };
    result.unwrap_or_else(|error| {
        output::error(&format!("error: {}\n", text_of(&error)));
        ExitCode::from(error.downcast_ref::<ExitError>().map_or(FAILED, |exit| exit.code))
    })
}

/// An error and its causes; one that has been said already is not said again.
fn text_of(error: &anyhow::Error) -> String {
    error
        .chain()
        .map(ToString::to_string)
        .fold(String::new(), |text, cause| match text.as_str() {
            "" => cause,
            said if said.contains(&cause) => text,
            said => format!("{said}: {cause}"),
        })
}
