//! RL11: whether the world outside is as the pipeline needs it.

use std::path::Path;

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::kind::{Role, Target};

use super::config::{Accelerator, Dtype, VarKind};
use super::pipeline::Pipeline;

/// Looks at paths, devices and the worker program.
pub fn check(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    pools(pipeline, diagnostics);
    variables(pipeline, diagnostics);
    data_sets(pipeline, diagnostics);
    models(pipeline, diagnostics);
    if let Err(error) = crate::cluster::worker_program()
        && let Some(range) = pipeline.range_of(&["pools"])
    {
        diagnostics.push(Diagnostic::error(&codes::RL1105, range, error.to_string()));
    }
}

/// Whether a live node uses a pool or a model.
fn is_used(pipeline: &Pipeline, target: Target, name: &str) -> bool {
    pipeline.live().any(|(_, _, contract)| contract.uses.iter().any(|used| used.target == target && used.name == name))
}

fn pools(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    let computing: Vec<_> = pipeline
        .pools
        .iter()
        .filter(|(name, _)| is_used(pipeline, Target::Pool, name))
        .filter_map(|(name, pool)| Some((name, pool, pool.config.as_ref()?)))
        .filter(|(_, _, config)| config.accelerator != Accelerator::None)
        .collect();
    for (name, pool, config) in &computing {
        let at = |key: &str| pipeline.range_of(&["pools", name, key]).unwrap_or(pool.key_range);
        if config.workers() > 1 {
            let key = if config.workers_per_node.get() > 1 { "workers_per_node" } else { "nodes" };
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL1101,
                    at(key),
                    format!("the pool `{name}` has {} workers, and this version runs one", config.workers()),
                )
                .note(format!("run it with `--set pools.{name}.nodes=1 --set pools.{name}.workers_per_node=1`")),
            );
        }
        if config.accelerator == Accelerator::Cuda && !Path::new("/dev/nvidiactl").exists() {
            diagnostics.push(
                Diagnostic::error(&codes::RL1104, at("accelerator"), format!("the pool `{name}` wants CUDA, and this machine has no NVIDIA card"))
                    .note("`accelerator: auto` takes the processor where there is no card"),
            );
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if config.cpus_per_worker.get() as usize > cores {
            diagnostics.push(
                Diagnostic::warning(
                    &codes::RL1104,
                    at("cpus_per_worker"),
                    format!("a worker of `{name}` wants {} processor cores, and this machine has {cores}", config.cpus_per_worker),
                )
                .note("its threads will wait for each other"),
            );
        }
        bfloat16(pipeline, name, config.accelerator, diagnostics);
    }
    if let [(first, _, _), (second, pool, _), ..] = computing.as_slice() {
        diagnostics.push(Diagnostic::error(
            &codes::RL1101,
            pool.key_range,
            format!("`{first}` and `{second}` both compute, and this version runs one worker"),
        ));
    }
}

/// A processor without instructions for it is very slow in bfloat16.
fn bfloat16(pipeline: &Pipeline, pool: &str, accelerator: Accelerator, diagnostics: &mut Diagnostics) {
    if accelerator != Accelerator::Cpu || has_bfloat16() {
        return;
    }
    for (_, node, contract) in pipeline.live() {
        let used = |target: Target| contract.uses.iter().find(|used| used.target == target).map(|used| &used.name);
        let (Some(in_pool), Some(model)) = (used(Target::Pool), used(Target::Model)) else { continue };
        let dtype = pipeline.models.get(model).and_then(|model| model.config.as_ref()).map(|config| config.dtype);
        if in_pool == pool && dtype == Some(Dtype::Bfloat16) {
            diagnostics.push(
                Diagnostic::warning(
                    &codes::RL0907,
                    pipeline.range_of(&["models", model, "dtype"]).unwrap_or(node.key_range),
                    "this processor has no instructions for bfloat16: float32 is faster",
                )
                .note("`dtype: auto` chooses"),
            );
            return;
        }
    }
}

fn has_bfloat16() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

fn variables(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    for (name, config) in &pipeline.env.vars {
        let Some(variable) = pipeline.variables.by_name.get(name) else { continue };
        let Some(reference) = pipeline.variables.references.iter().find(|reference| reference.name == *name) else {
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
                Diagnostic::error(&codes::RL1102, reference.range, format!("`{name}`: there is no {what} `{}`", path.display()))
                    .label(variable.key_range, "declared here"),
            );
        }
    }
}

fn data_sets(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    for (_, node, contract) in pipeline.live() {
        let Role::Sampler { dataset, .. } = &contract.role else { continue };
        if !dataset.path.is_file() {
            let range = node.range_of(&["dataset", "path"]);
            let told = pipeline.variables.references.iter().any(|reference| {
                let kind = pipeline.env.vars.get(&reference.name).map(|config| config.kind);
                kind == Some(VarKind::File) && reference.range == range
            });
            if !told {
                diagnostics.push(Diagnostic::error(
                    &codes::RL1102,
                    range,
                    format!("there is no file `{}`", dataset.path.display()),
                ));
            }
        }
    }
}

fn models(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    for (name, model) in &pipeline.models {
        let Some(path) = model.config.as_ref().and_then(|config| config.path.as_ref()) else { continue };
        if !is_used(pipeline, Target::Model, name) {
            continue;
        }
        let range = pipeline.range_of(&["models", name, "path"]).unwrap_or(model.key_range);
        let folder = path.as_path();
        if !folder.is_dir() {
            let told = pipeline.variables.references.iter().any(|reference| {
                let kind = pipeline.env.vars.get(&reference.name).map(|config| config.kind);
                kind == Some(VarKind::Dir) && reference.range == range
            });
            if !told {
                diagnostics.push(Diagnostic::error(
                    &codes::RL1102,
                    range,
                    format!("the model `{name}`: there is no folder `{}`", folder.display()),
                ));
            }
            continue;
        }
        let has = |file: &str| folder.join(file).is_file();
        for (there, what) in [
            (has("config.json"), "config.json"),
            (has("tokenizer.json"), "tokenizer.json"),
            (has("model.safetensors") || has("model.safetensors.index.json"), "model.safetensors"),
        ] {
            if !there {
                diagnostics.push(
                    Diagnostic::error(&codes::RL1103, range, format!("the model `{name}`: `{}` has no `{what}`", folder.display()))
                        .note("a Hugging Face model folder has `config.json`, `tokenizer.json` and weights as safetensors"),
                );
            }
        }
    }
}
