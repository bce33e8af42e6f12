//! Arguments of `rlpipe bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, value_parser};
use rlpipe_core::kind::{Fraction, NonNegative, OpenFraction};
use rlpipe_runtime::compile::Dtype;

use crate::ExitError;
use crate::arguments::PipelineArguments;

use super::model::Shape;

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    pub what: Bench,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Measure how fast a worker generates from random prompts.
    Generate(GenerateArguments),
    /// Measure how fast a worker trains on random sequences: packs forward and backward, then the optimizer step.
    Train(TrainArguments),
    /// Measure where the time of a pipeline's train steps goes.
    Step(StepArguments),
    /// Measure how long `rlpipe validate` takes, the whole process.
    Validate(ValidateArguments),
}

/// How results are shown.
#[derive(Debug, Clone, Args)]
pub struct ShownArguments {
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = BenchFormat::Text)]
    pub format: BenchFormat,
    /// Write the results into this file too, as JSON.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Written into the JSON as `date`; without it there is none.
    #[arg(long, value_name = "DATE")]
    pub date: Option<String>,
}

impl ShownArguments {
    /// Before anything is measured: whether there is a place for the results.
    pub fn ensure_writable(&self) -> anyhow::Result<()> {
        let Some(path) = &self.output else { return Ok(()) };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let wrong = match folder {
            _ if path.is_dir() => "is a folder",
            Some(folder) if !folder.is_dir() => "is in a folder that is not there",
            _ => return Ok(()),
        };
        Err(ExitError::misused(format!(
            "`--output {}` {wrong}; name a file in a folder that is there",
            path.display()
        )))
    }
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchFormat {
    /// A table.
    Text,
    /// A JSON object.
    Json,
}

/// What is measured on.
#[derive(Debug, Clone, Args)]
pub struct WorkerArguments {
    /// A model folder as Hugging Face has them. Left out, weights are drawn at random for `--shape`.
    #[arg(long, value_name = "FOLDER", conflicts_with = "shape")]
    pub model: Option<PathBuf>,
    /// The sizes of a model without weights.
    #[arg(long, value_enum, default_value_t = Shape::Smollm2135m)]
    pub shape: Shape,
    /// The type that it computes in.
    #[arg(long, value_enum, default_value_t = BenchDtype::Auto)]
    pub dtype: BenchDtype,
    /// What it computes on.
    #[arg(long, value_enum, default_value_t = BenchDevice::Auto)]
    pub accelerator: BenchDevice,
    /// Threads of the worker; left out, as many as there are cores.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Runs that are measured, after one that is not.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..))]
    pub runs: u32,
}

/// The type that a model computes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchDtype {
    /// bfloat16 on a card, float32 on a processor.
    Auto,
    /// 16 bits, the upper half of float32; where it is trained, with float32 master weights.
    Bfloat16,
    /// 16 bits, of finer steps and less range; trained like bfloat16, with a scaled loss.
    Float16,
    /// 32 bits.
    Float32,
}

impl From<BenchDtype> for Dtype {
    fn from(dtype: BenchDtype) -> Self {
        match dtype {
            BenchDtype::Auto => Self::Auto,
            BenchDtype::Bfloat16 => Self::Bfloat16,
            BenchDtype::Float16 => Self::Float16,
            BenchDtype::Float32 => Self::Float32,
        }
    }
}

/// What a worker computes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchDevice {
    /// A card if there is one, else the processor.
    Auto,
    /// The processor.
    Cpu,
    /// An NVIDIA card.
    Cuda,
}

/// A number that a pipeline would take, too.
fn number<T>(text: &str, within: fn(f64) -> Option<T>, expected: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| within(*value).is_some());
    value.ok_or_else(|| format!("{expected} is needed"))
}

fn temperature(text: &str) -> Result<f64, String> {
    number(text, NonNegative::new, NonNegative::EXPECTED)
}

fn share(text: &str) -> Result<f64, String> {
    number(text, Fraction::new, Fraction::EXPECTED)
}

fn open_share(text: &str) -> Result<f64, String> {
    number(text, OpenFraction::new, OpenFraction::EXPECTED)
}

/// Arguments of `bench generate`.
#[derive(Debug, Args)]
pub struct GenerateArguments {
    #[command(flatten)]
    pub worker: WorkerArguments,
    /// Different prompts; left out, 512 on a card and 8 on a processor.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub prompts: Option<u32>,
    /// Tokens of each prompt.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = value_parser!(u32).range(1..))]
    pub prompt_tokens: u32,
    /// Tokens of each response, none of which ends it; left out, 256 on a card and 32 on a processor.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub new_tokens: Option<u32>,
    /// Responses to each prompt.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    pub samples: u32,
    /// Measure also the same number of responses to prompts of their own, in turn with those that share one, and show the
    /// ratio.
    #[arg(long)]
    pub shared: bool,
    /// Responses in flight; left out, the worker chooses as in a run.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub slots: Option<u32>,
    /// Of the card's memory, for everything that the worker holds.
    #[arg(long, value_name = "SHARE", default_value_t = 0.8, value_parser = share)]
    pub memory_fraction: f64,
    /// Sampling temperature; 0 takes the likeliest token.
    #[arg(long, value_name = "T", default_value_t = 1.0, value_parser = temperature)]
    pub temperature: f64,
    /// Draw from the likeliest tokens that have this probability together; 1 is all.
    #[arg(long, value_name = "P", default_value_t = 1.0, value_parser = share)]
    pub top_p: f64,
    /// Draw from so many likeliest tokens; 0 is all.
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub top_k: u32,
    /// Draw from tokens with at least this share of the likeliest one's probability; 0 is all.
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = open_share)]
    pub min_p: f64,
    #[command(flatten)]
    pub shown: ShownArguments,
}

/// Arguments of `bench train`.
#[derive(Debug, Args)]
pub struct TrainArguments {
    #[command(flatten)]
    pub worker: WorkerArguments,
    /// Sequences of a step; left out, 512 on a card and 8 on a processor.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub sequences: Option<u32>,
    /// Tokens of each sequence, prompt and response.
    #[arg(long, value_name = "N", default_value_t = 352, value_parser = value_parser!(u32).range(2..))]
    pub tokens: u32,
    /// Of these, tokens of the prompt, which are not trained.
    #[arg(long, value_name = "N", default_value_t = 96, value_parser = value_parser!(u32).range(1..))]
    pub prompt_tokens: u32,
    /// Tokens that go through the model together; as `max_tokens_per_pack` of a trainer.
    #[arg(long, value_name = "N", default_value_t = 32_768, value_parser = value_parser!(u32).range(1..))]
    pub pack_tokens: u32,
    /// Tokens whose logits exist at the same time; as `logprob_chunk_tokens` of a trainer.
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = value_parser!(u32).range(1..))]
    pub chunk_tokens: u32,
    /// What the forward pass keeps; as `activations` of a trainer.
    #[arg(long, value_enum, default_value_t = BenchActivations::Keep)]
    pub activations: BenchActivations,
    #[command(flatten)]
    pub shown: ShownArguments,
}

/// What the forward pass of a pack keeps for its backward pass; what is not kept is computed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum BenchActivations {
    /// All that is read again.
    Keep,
    /// All but the gated part of each layer.
    RecomputeGated,
    /// The input of each layer.
    RecomputeLayers,
}

/// Arguments of `bench step`.
#[derive(Debug, Args)]
pub struct StepArguments {
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    /// Train steps; where there are several, the first is not measured.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = value_parser!(u32).range(1..))]
    pub steps: u32,
    #[command(flatten)]
    pub shown: ShownArguments,
}

/// Arguments of `bench validate`.
#[derive(Debug, Args)]
pub struct ValidateArguments {
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    /// Runs that are measured, after one that is not.
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = value_parser!(u32).range(1..))]
    pub runs: u32,
    #[command(flatten)]
    pub shown: ShownArguments,
}
