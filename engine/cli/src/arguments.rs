//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::bench::arguments::BenchArguments;

/// Declarative reinforcement-learning post-training for language models.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Check a pipeline, then run it.
    Run(RunArguments),
    /// Check a pipeline without running anything.
    Validate(ValidateArguments),
    /// Show what running a pipeline would do.
    Plan(PlanArguments),
    /// Run the tests that a pipeline brings along: without a model, and without a worker.
    Test(TestArguments),
    /// Look for all that would keep a pipeline from running here, and say how to mend it.
    Doctor(DoctorArguments),
    /// Measure how fast this machine generates, trains and checks.
    Bench(BenchArguments),
    /// Draw the graph of a pipeline.
    Graph(GraphArguments),
    /// Write a new pipeline.
    Init(InitArguments),
    /// Fetch the models of a hub that a pipeline names, into the Hugging Face cache.
    Download(DownloadArguments),
    /// Print the JSON Schema of pipeline files, of rows of data sets or of messages of plugins.
    Schema(SchemaArguments),
    /// List the kinds of node, or describe one.
    Kinds {
        /// The kind to describe.
        name: Option<String>,
    },
    /// Serve an editor over standard input and output: faults, completion and more, as one types.
    Lsp,
    /// Explain a diagnostic's code, such as RL0401.
    Explain {
        /// The code.
        code: String,
    },
    /// Print a script that completes commands in a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual.
    Man(ManArguments),
}

/// What makes up a pipeline.
#[derive(Debug, Clone, Args)]
pub struct PipelineArguments {
    /// The pipeline file (YAML or TOML), then overlays: maps merge, lists and scalars are replaced, `null` takes a
    /// key out, such as a node.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Sets one value, such as nodes.trainer.max_grad_norm=0.5; may be given often. The value is YAML.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub overrides: Vec<String>,
    /// Short for --set run.work_dir=FOLDER.
    #[arg(long, value_name = "FOLDER")]
    pub work_dir: Option<String>,
    /// Short for --set pools.NAME.workers_per_node=N, where one pool computes.
    #[arg(long, value_name = "N")]
    pub num_workers: Option<u32>,
    /// Short for --set nodes.NAME.backend=BACKEND, where there is one engine.
    #[arg(long, value_name = "BACKEND")]
    pub backend: Option<String>,
}

/// Arguments of `validate`.
#[derive(Debug, Args)]
pub struct ValidateArguments {
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    /// Check the data too: rows, prompts, ground truths (RL10).
    #[arg(long)]
    pub data: bool,
    /// Check the world outside too: paths, model folders, devices (RL11).
    #[arg(long)]
    pub environment: bool,
    /// How faults are shown.
    #[arg(long, value_enum, default_value_t = Format::Full)]
    pub format: Format,
    /// Apply the fixes that faults come with, in the files.
    #[arg(long)]
    pub fix: bool,
    /// Print the resolved pipeline: every default, absolute paths, no variables, each value with where it comes from.
    #[arg(long)]
    pub print: bool,
    /// Check each FILE as a pipeline of its own instead of as overlays of the first.
    #[arg(long, conflicts_with_all = ["print", "watch"])]
    pub each: bool,
    /// Check again whenever a file changes, until Ctrl-C; with `--data`, the data sets too.
    #[arg(long, conflicts_with_all = ["print", "fix"])]
    pub watch: bool,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArguments {
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    /// How the plan is shown.
    #[arg(long, value_enum, default_value_t = PlanFormat::Text)]
    pub format: PlanFormat,
}

/// How a plan is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// For people.
    Text,
    /// For programs: the plan, references to state, processes, and the origin of each value.
    Json,
}

/// Arguments of `graph`.
#[derive(Debug, Args)]
pub struct GraphArguments {
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    /// How the graph is drawn.
    #[arg(long, value_enum, default_value_t = GraphFormat::Text)]
    pub format: GraphFormat,
}

/// How a graph is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    /// In the terminal; as a list where it is too wide for that.
    Text,
    /// As Mermaid, which GitHub and many editors draw.
    Mermaid,
    /// As DOT, for Graphviz.
    Dot,
}

/// Arguments of `init`.
#[derive(Debug, Args)]
pub struct InitArguments {
    /// What the pipeline begins as; `--list` says what there is.
    #[arg(default_value = "quickstart")]
    pub template: String,
    /// The file to write, YAML or TOML by its name. Left out, the template's name with `.yaml`.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// List the templates.
    #[arg(long)]
    pub list: bool,
}

/// Arguments of `schema`.
#[derive(Debug, Args)]
pub struct SchemaArguments {
    /// That of a row of a data set.
    #[arg(long, conflicts_with = "plugin")]
    pub row: bool,
    /// That of messages between rlpipe and programs that judge.
    #[arg(long)]
    pub plugin: bool,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub struct ManArguments {
    /// Write a page for each verb into this folder, such as ~/.local/share/man/man1, instead of printing the first.
    #[arg(long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// Print the whole manual as Markdown.
    #[arg(long, conflicts_with = "output")]
    pub markdown: bool,
}

/// Arguments of `test`.
#[derive(Debug, Args)]
pub struct TestArguments {
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    /// Only these tests.
    #[arg(last = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// How what came of them is shown.
    #[arg(long, value_enum, default_value_t = TestFormat::Full)]
    pub format: TestFormat,
}

/// How what came of tests is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TestFormat {
    /// A line for each, and what was expected and came where they differ.
    Full,
    /// A JSON object.
    Json,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArguments {
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    /// How what was found is shown.
    #[arg(long, value_enum, default_value_t = DoctorFormat::Text)]
    pub format: DoctorFormat,
}

/// How what a doctor found is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DoctorFormat {
    /// A line a finding.
    Text,
    /// A JSON object.
    Json,
}

/// Arguments of `download`.
#[derive(Debug, Args)]
pub struct DownloadArguments {
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    /// Ask the hub even where a model is here: a branch may have moved.
    #[arg(long)]
    pub update: bool,
}

/// How faults are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// With the lines of the file.
    Full,
    /// A line each.
    Concise,
    /// A JSON array.
    Json,
    /// Annotations of GitHub Actions.
    Github,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    /// Go on with the newest attempt from its newest checkpoint; starts where there is none.
    #[arg(long)]
    pub resume: bool,
    /// The attempt to go on with, such as 0002, instead of the newest.
    #[arg(long, value_name = "ATTEMPT", requires = "resume")]
    pub attempt: Option<String>,
    /// Stop after so many train steps, with a checkpoint and an export; the schedule stays that of the whole run.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Check everything and print the plan, but start nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// How faults are shown.
    #[arg(long, value_enum, default_value_t = Format::Full)]
    pub format: Format,
    /// How the run is shown.
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    pub progress: ProgressMode,
}

/// How a run is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// Bars on a terminal, lines elsewhere.
    Auto,
    /// Bars.
    Bars,
    /// A line a step.
    Lines,
    /// A line a step and a line a phase of it.
    Phases,
    /// Nothing but the summary.
    None,
}
