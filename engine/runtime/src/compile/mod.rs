//! From files to a checked pipeline: `read -> resolve -> check`.
//!
//! Each pass is a file. All of them add to one list of diagnostics and none stops at the first fault; what a fault makes
//! unknowable is left out of later passes instead of being reported again.

mod batch;
mod config;
mod configs;
mod data;
mod datasets;
mod environment;
mod faults;
mod graph;
mod hub;
mod intervals;
mod lints;
mod liveness;
mod memory;
mod overlays;
mod pipeline;
mod programs;
mod read;
mod renamed;
mod resources;
mod schema;
mod short_forms;
mod shown;
mod trials;
mod world;

use std::io;
use std::path::{Path, PathBuf};

use rlpipe_core::diagnostic::Diagnostics;
use rlpipe_core::document::{Sources, Tree};
use rlpipe_core::kind::Kind;

pub use config::{
    Accelerator, Architecture, ChatTemplateConfig, CheckpointConfig, Cluster, Dtype, EnvConfig, ExportConfig,
    InitConfig, InitTokenizer, LocalCluster, ModelConfig, PoolConfig, Rule, RunConfig, Scalar, VarConfig, VarKind,
};
pub use data::{
    Data, Longest, Tally, init_model, load as load_data, missing_files, model_folder, row_schema, steps_of_epochs,
};
pub use environment::{Variables, is_secret};
pub use hub::{HubCache, HubConfig, Repository, Revision, Snapshot};
pub use liveness::{BufferProof, InputProof, REFILL_WITHOUT_FILTER, WhenUsedUp, proof};
pub use memory::{
    ChosenActivations, MemoryDevice, MemoryPart, MemoryPhase, SmallCache, Stored, WorkerMemory, stored, synced_every,
    worker_memory,
};
pub use pipeline::{Endpoint, Node, Pipeline, Section};
pub use programs::check_calls as try_programs;
pub use renamed::{RENAMED, Renamed, old_names};
pub use schema::{
    Setting, contract_of_example, describe_kind, describe_ports, example as kind_example, flow as flow_text,
    is_choice as is_choice_schema, kind_settings, pipeline_schema, section_settings, setting as setting_of_schema,
};
pub use short_forms::short_forms;
pub use shown::shown_path;
pub use trials::{
    Expectation, ExpectedGroup, FedGroup, Feed, Feeds, Maybe, Route, Test, TestConfig, carried, load_feeds,
};
pub use world::{
    DiskNeeds, Machine, absent_models, check as check_world, check_on as check_world_on, disk_needs, driver_version,
    existing_folder, free_disk, shown_bytes,
};

/// What is compiled.
pub struct Request<'a> {
    /// The pipeline file, then overlays.
    pub files: Vec<PathBuf>,
    /// `--set` arguments, laid over the files in order.
    pub overrides: Vec<String>,
    /// The process environment.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// What relative paths from variables and arguments start at.
    pub working_folder: PathBuf,
    /// The text of a file: [`read_file`], or what an editor holds that is not saved yet.
    pub read: &'a dyn Fn(&Path) -> io::Result<String>,
    /// All node kinds.
    pub kinds: &'static [Kind],
}

/// The text of a file on the disk.
pub fn read_file(path: &Path) -> io::Result<String> {
    std::fs::read_to_string(path)
}

/// What came of it.
pub struct Outcome {
    /// The texts that diagnostics point into.
    pub sources: Sources,
    /// Everything found, in no particular order.
    pub diagnostics: Diagnostics,
    /// The pipeline as far as it could be understood; whole if there are no errors.
    pub pipeline: Option<Pipeline>,
}

/// Reads and checks a pipeline without looking at the world outside: RL01 to RL09.
pub fn compile(request: &Request<'_>) -> Outcome {
    let mut sources = Sources::new(&request.working_folder);
    let mut diagnostics = Diagnostics::default();
    let pipeline = read::read(request, &mut sources, &mut diagnostics)
        .map(|tree| check(tree, request, &sources, &mut diagnostics));
    let diagnostics = keep_quotes(diagnostics, &sources);
    Outcome {
        sources,
        diagnostics,
        pipeline,
    }
}

/// What a fix puts in place of a quoted text is quoted too: passes do not know how a value is written.
fn keep_quotes(diagnostics: Diagnostics, sources: &Sources) -> Diagnostics {
    let mut kept = Diagnostics::default();
    for mut diagnostic in diagnostics {
        if let Some(fix) = &mut diagnostic.fix {
            let quote = sources
                .text(fix.range)
                .chars()
                .next()
                .filter(|first| matches!(first, '"' | '\''));
            let is_text = !fix.replacement.starts_with(['"', '\'']) && fix.replacement.parse::<f64>().is_err();
            if let Some(quote) = quote.filter(|_| is_text) {
                fix.replacement = format!("{quote}{}{quote}", fix.replacement);
            }
        }
        kept.push(diagnostic);
    }
    kept
}

fn check(mut tree: Tree, request: &Request<'_>, sources: &Sources, diagnostics: &mut Diagnostics) -> Pipeline {
    let variables = environment::fill_in(&mut tree, request, sources, diagnostics);
    let mut pipeline = configs::decode_all(tree, variables, request.kinds, diagnostics);
    pipeline.hub = HubCache::of(request.environment, &request.working_folder);
    datasets::check(&pipeline, diagnostics);
    graph::check(&mut pipeline, diagnostics);
    environment::check(&pipeline, sources, diagnostics);
    intervals::check(&pipeline, diagnostics);
    batch::check(&pipeline, diagnostics);
    resources::check(&pipeline, diagnostics);
    liveness::check(&pipeline, diagnostics);
    memory::check(&pipeline, diagnostics);
    lints::check(&pipeline, diagnostics);
    trials::check(&pipeline, diagnostics);
    pipeline
}
