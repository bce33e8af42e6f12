//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

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
    /// Check a pipeline without running anything.
    Validate(ValidateArguments),
    /// Show what running a pipeline would do.
    Plan(PlanArguments),
    /// Print the JSON Schema of pipeline files.
    Schema,
    /// List the kinds of node, or describe one.
    Kinds {
        /// The kind to describe.
        name: Option<String>,
    },
    /// Explain a diagnostic's code, such as RL0401.
    Explain {
        /// The code.
        code: String,
    },
}

/// What makes up a pipeline.
#[derive(Debug, Clone, Args)]
pub struct PipelineArguments {
    /// The pipeline file (YAML or TOML), then overlays: maps merge, lists and scalars are replaced.
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
    /// Print the resolved pipeline: every default, absolute paths, no variables.
    #[arg(long)]
    pub print: bool,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArguments {
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    /// Print the plan as JSON.
    #[arg(long)]
    pub json: bool,
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
