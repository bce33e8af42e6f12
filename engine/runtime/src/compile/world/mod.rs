//! RL11: whether the world outside is as the pipeline needs it.

mod card;
mod disk;
mod models;

use std::path::Path;

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::document::Segment;
use rlpipe_core::kind::{ByteSize, Role, Target};

pub use card::driver_version;
pub use disk::{DiskNeeds, existing_folder, free_disk, needs as disk_needs, shown_bytes};
pub use models::absent as absent_models;

use super::config::{Accelerator, Dtype, VarKind};
use super::pipeline::Pipeline;
use super::shown::shown_path;

/// What a machine has, as far as pipelines ask for it.
#[derive(Debug, Clone)]
pub struct Machine {
    /// An NVIDIA card.
    pub nvidia_card: bool,
    /// Memory of that card; none where it cannot be found out.
    pub card_memory: Option<ByteSize>,
    /// Processor cores.
    pub cores: usize,
    /// Memory; none where it cannot be found out.
    pub memory: Option<ByteSize>,
    /// Whether its processor has instructions for bfloat16.
    pub bfloat16: bool,
    /// Whether it has those for float16.
    pub float16: bool,
    /// Bytes that this user may still write on the file system of a folder; none where that cannot be found out.
    pub free_disk: fn(&Path) -> Option<u64>,
    /// Whether the worker program is there; if not, the error says so.
    pub worker: Result<(), String>,
}

impl Machine {
    /// The one that this program runs on.
    pub fn this() -> Self {
        let nvidia_card = Path::new("/dev/nvidiactl").exists();
        Self {
            nvidia_card,
            card_memory: nvidia_card.then(card::memory).flatten(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory(),
            bfloat16: has_instructions("avx512_bf16"),
            float16: has_instructions("avx512_fp16"),
            free_disk,
            worker: crate::cluster::worker_program()
                .map(drop)
                .map_err(|error| error.to_string()),
        }
    }
}

/// `MemTotal` of `/proc/meminfo`, or what the control group leaves of it.
fn memory() -> Option<ByteSize> {
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = group.and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX);
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?
        .trim()
        .strip_suffix("kB")?;
    Some(ByteSize((kibibytes.trim().parse::<u64>().ok()? << 10).min(limit)))
}

/// Looks at paths, and at what this machine has.
pub fn check(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    check_on(pipeline, &Machine::this(), diagnostics);
}

/// Looks at paths, and at what a machine has.
pub fn check_on(pipeline: &Pipeline, machine: &Machine, diagnostics: &mut Diagnostics) {
    pools(pipeline, machine, diagnostics);
    variables(pipeline, diagnostics);
    data_sets(pipeline, diagnostics);
    models::check(pipeline, diagnostics);
    disk::check(pipeline, machine, diagnostics);
    super::memory::check_on(pipeline, machine, diagnostics);
    super::programs::find(pipeline, diagnostics);
    if let Err(error) = &machine.worker
        && let Some(range) = pipeline.range_of(&["pools"])
    {
        diagnostics
            .push(Diagnostic::error(&codes::RL1105, range, error.clone()).label_text("its workers cannot start"));
    }
}

/// Whether a live node uses a pool or a model.
fn pools(pipeline: &Pipeline, machine: &Machine, diagnostics: &mut Diagnostics) {
    let computing: Vec<_> = pipeline
        .pools
        .iter()
        .filter(|(name, _)| pipeline.uses(Target::Pool, name))
        .filter_map(|(name, pool)| Some((name, pool, pool.config.as_ref()?)))
        .filter(|(_, _, config)| config.accelerator != Accelerator::None)
        .collect();
    for (name, pool, config) in &computing {
        let at = |key: &str| pipeline.range_of(&["pools", name, key]).unwrap_or(pool.key_range);
        if config.workers() > 1 {
            let key = if config.workers_per_node.get() > 1 {
                "workers_per_node"
            } else {
                "nodes"
            };
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL1101,
                    at(key),
                    format!(
                        "the pool `{name}` has {} workers, and this version runs one",
                        config.workers()
                    ),
                )
                .label_text("more than one worker")
                .note(format!(
                    "run it with `--set pools.{name}.nodes=1 --set pools.{name}.workers_per_node=1`"
                )),
            );
        }
        if config.accelerator == Accelerator::Cuda && !machine.nvidia_card {
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL1104,
                    at("accelerator"),
                    format!("the pool `{name}` wants CUDA, and this machine has no NVIDIA card"),
                )
                .label_text("no card")
                .note("`accelerator: auto` takes the processor where there is no card"),
            );
        }
        let cores = machine.cores;
        if config.cpus_per_worker.get() as usize > cores {
            diagnostics.push(
                Diagnostic::warning(
                    &codes::RL1104,
                    at("cpus_per_worker"),
                    format!(
                        "a worker of `{name}` wants {} processor cores, and this machine has {cores}",
                        config.cpus_per_worker
                    ),
                )
                .label_text("more than there are")
                .note("its threads will wait for each other"),
            );
        }
        if let (Some(wanted), Some(there)) = (config.host_memory_per_worker, machine.memory) {
            let workers = u64::from(config.workers_per_node.get());
            let all = ByteSize(wanted.0.saturating_mul(workers));
            if all > there {
                let each = if workers > 1 {
                    format!(" ({workers} workers of {wanted})")
                } else {
                    String::new()
                };
                diagnostics.push(
                    Diagnostic::error(
                        &codes::RL1106,
                        at("host_memory_per_worker"),
                        format!(
                            "the pool `{name}` wants {all} of memory{each}, and this machine has {}",
                            in_gib(there)
                        ),
                    )
                    .label_text("more than there is"),
                );
            }
        }
        let on_processor = match config.accelerator {
            Accelerator::Cpu => true,
            Accelerator::Auto => !machine.nvidia_card,
            Accelerator::None | Accelerator::Cuda => false,
        };
        if on_processor {
            emulated(pipeline, name, machine, diagnostics);
        }
    }
    if let [(first, other, _), (second, pool, _), ..] = computing.as_slice() {
        diagnostics.push(
            Diagnostic::error(
                &codes::RL1101,
                pool.key_range,
                format!("the pools `{first}` and `{second}` both compute, and this version runs one worker"),
            )
            .label_text("the second pool that computes")
            .label(other.key_range, "the first one")
            .note("put what needs an accelerator into one pool"),
        );
    }
}

/// A processor without instructions for it is very slow in a half type.
fn emulated(pipeline: &Pipeline, pool: &str, machine: &Machine, diagnostics: &mut Diagnostics) {
    for (_, node, contract) in pipeline.live() {
        let (Some(in_pool), Some(model)) = (contract.used(Target::Pool), contract.used(Target::Model)) else {
            continue;
        };
        let config = pipeline.models.get(model).and_then(|model| model.config.as_ref());
        let dtype = config.map_or(Dtype::Auto, |config| config.dtype).on(false);
        let is_emulated = match dtype {
            Dtype::Bfloat16 => !machine.bfloat16,
            Dtype::Float16 => !machine.float16,
            Dtype::Auto | Dtype::Float32 => false,
        };
        if in_pool == pool && is_emulated {
            diagnostics.push(
                Diagnostic::warning(
                    &codes::RL0907,
                    pipeline.range_of(&["models", model, "dtype"]).unwrap_or(node.key_range),
                    format!(
                        "this processor has no instructions for {}: float32 is faster",
                        dtype.name()
                    ),
                )
                .label_text("slow here")
                .note("`dtype: auto` chooses what the device does well"),
            );
            return;
        }
    }
}

fn in_gib(size: ByteSize) -> String {
    format!("{:.1}GiB", size.0 as f64 / f64::from(1 << 30))
}

/// Whether the kernel lists this flag of the processor.
fn has_instructions(flag: &str) -> bool {
    let listed = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    listed
        .lines()
        .filter(|line| line.starts_with("flags"))
        .any(|line| line.split_whitespace().any(|word| word == flag))
}

fn variables(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    for (name, config) in &pipeline.env.vars {
        let Some(variable) = pipeline.variables.by_name.get(name) else {
            continue;
        };
        let Some(reference) = pipeline
            .variables
            .references
            .iter()
            .find(|reference| reference.name == *name)
        else {
            continue;
        };
        let value = pipeline.tree.at(&reference.path).tree.as_text().unwrap_or_default();
        let Some(given) = &variable.value else { continue };
        // A reference within a longer text is not the path itself.
        if value != given {
            continue;
        }
        let path = pipeline.tree.at(&reference.path).tree.origin.resolve(value);
        let (missing, what) = match config.kind {
            VarKind::Dir => (!path.is_dir(), "folder"),
            VarKind::File => (!path.is_file(), "file"),
            _ => continue,
        };
        if missing {
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL1102,
                    reference.range,
                    format!("`{name}`: there is no {what} `{}`", shown_path(&path).display()),
                )
                .label_text(format!("no such {what}"))
                .label(variable.key_range, "declared here")
                .note("a relative path in a variable starts at the folder that rlpipe was started in"),
            );
        }
    }
}

/// Whether the variable at a place was itself checked to name something that exists.
fn was_told(pipeline: &Pipeline, path: &[&str], kind: VarKind) -> bool {
    let path: Vec<Segment> = path.iter().map(|key| Segment::from(*key)).collect();
    pipeline.variables.references.iter().any(|reference| {
        let declared = pipeline.env.vars.get(&reference.name).map(|config| config.kind);
        declared == Some(kind) && reference.path == path
    })
}

fn data_sets(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    for (_, node, contract) in pipeline.live() {
        let Role::Sampler { datasets, .. } = &contract.role else {
            continue;
        };
        for dataset in datasets {
            let keys = dataset.keys();
            let variable = [&["nodes", &node.name], &keys[..], &["path"]].concat();
            let told = |kind| was_told(pipeline, &variable, kind);
            if dataset.path.exists() || told(VarKind::File) || told(VarKind::Dir) {
                continue;
            }
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL1102,
                    node.range_of(&[&keys[..], &["path"]].concat()),
                    format!("there is no file `{}`", shown_path(&dataset.path).display()),
                )
                .label_text("no such file")
                .note("a relative path in a file starts at the folder of that file"),
            );
        }
    }
}
