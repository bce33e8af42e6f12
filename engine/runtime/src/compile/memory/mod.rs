//! RL07: what workers hold in memory, part by part. docs/memory.md has the formulas.

mod needs;
mod table;

use rlpipe_model::{ModelConfig as Network, parameters};

use super::config::{Accelerator, Dtype, PoolConfig};
use super::pipeline::Pipeline;
use needs::Held;
pub use needs::synced_every;
pub use table::{MemoryDevice, MemoryPart, MemoryPhase, WorkerMemory};

/// What the worker of each pool holds. `outside`: the machine that is looked at; without one only the text is known.
pub fn worker_memory(pipeline: &Pipeline, outside: Option<&super::Machine>) -> Vec<WorkerMemory> {
    let mut workers = Vec::new();
    for (name, models) in needs::of_pools(pipeline, outside.is_some()) {
        let Some(pool) = pipeline.pools.get(name).and_then(|pool| pool.config.as_ref()) else {
            continue;
        };
        let mut not_checked = Vec::new();
        let device = device(pool, outside);
        if device.is_none() {
            not_checked.push(format!(
                "`accelerator: {}`: depends on the machine",
                pool.accelerator.name()
            ));
        }
        let mut parts = Vec::new();
        for held in &models {
            match (&held.network, device) {
                (Ok(network), Some(device)) => parts.extend(lasting(pipeline, held, network, device)),
                (Err(why), _) => not_checked.push(format!("`{}`: {why}", held.model)),
                (Ok(_), None) => {}
            }
        }
        let one = WorkerMemory {
            pool: name.to_owned(),
            rank: 0,
            device: device.unwrap_or(MemoryDevice::Host),
            available_bytes: match device {
                Some(MemoryDevice::Accelerator) => pool.memory_per_accelerator,
                _ => pool.host_memory_per_worker,
            }
            .map(|size| size.0),
            parts,
            not_checked,
        };
        for _ in 0..pool.workers() {
            workers.push(WorkerMemory {
                rank: workers.len() as u32,
                ..one.clone()
            });
        }
    }
    workers
}

/// What of a model is written to disk.
pub struct Stored<'a> {
    /// Its name.
    pub model: &'a str,
    /// Its parameters.
    pub parameters: u64,
    /// Its part of a checkpoint.
    pub checkpoint_bytes: u64,
    /// Whether it is trained, and so exported.
    pub trained: bool,
}

/// Models whose networks are known, with what of each a checkpoint has: fp32 weights and moments of what is trained, and
/// the copies of its own that a worker keeps.
pub fn stored<'a>(pipeline: &'a Pipeline, machine: &super::Machine) -> Vec<Stored<'a>> {
    let mut all = Vec::new();
    for (name, models) in needs::of_pools(pipeline, true) {
        let Some(pool) = pipeline.pools.get(name).and_then(|pool| pool.config.as_ref()) else {
            continue;
        };
        let on_card = device(pool, Some(machine)) == Some(MemoryDevice::Accelerator);
        for held in models {
            let Ok(network) = &held.network else { continue };
            let shapes = parameters(network).into_iter();
            let count: u64 = shapes
                .map(|parameter| parameter.shape.iter().product::<i64>() as u64)
                .sum();
            let config = pipeline.models.get(held.model).and_then(|model| model.config.as_ref());
            let width = match config.map(|config| config.dtype) {
                Some(Dtype::Bfloat16) => 2,
                Some(Dtype::Auto) if on_card => 2,
                _ => 4,
            };
            let weights = if held.trained { 4 + 8 } else { width };
            let own = held.engine.as_ref().is_some_and(|engine| engine.own_weights);
            let copies = u64::from(held.frozen) + u64::from(own);
            all.push(Stored {
                model: held.model,
                parameters: count,
                checkpoint_bytes: count * (weights + copies * width),
                trained: held.trained,
            });
        }
    }
    all
}

/// Where a pool computes; none where that depends on a machine that was not looked at.
fn device(pool: &PoolConfig, outside: Option<&super::Machine>) -> Option<MemoryDevice> {
    match (pool.accelerator, outside) {
        (Accelerator::Cuda, _) => Some(MemoryDevice::Accelerator),
        (Accelerator::Cpu | Accelerator::None, _) => Some(MemoryDevice::Host),
        (Accelerator::Auto, Some(machine)) if machine.nvidia_card => Some(MemoryDevice::Accelerator),
        (Accelerator::Auto, Some(_)) => Some(MemoryDevice::Host),
        (Accelerator::Auto, None) => pool.memory_per_accelerator.map(|_| MemoryDevice::Accelerator),
    }
}

/// What stays for the whole run once it is there.
fn lasting(pipeline: &Pipeline, held: &Held<'_>, network: &Network, device: MemoryDevice) -> Vec<MemoryPart> {
    let shapes = parameters(network).into_iter();
    let count: u64 = shapes
        .map(|parameter| parameter.shape.iter().product::<i64>() as u64)
        .sum();
    let config = pipeline.models.get(held.model).and_then(|model| model.config.as_ref());
    let width: u64 = match config.map(|config| config.dtype) {
        Some(Dtype::Bfloat16) => 2,
        Some(Dtype::Auto) if device == MemoryDevice::Accelerator => 2,
        _ => 4,
    };
    let mut parts = Vec::new();
    let mut add = |name: &str, bytes: u64, is_there: bool, phases: &[MemoryPhase]| {
        if is_there {
            parts.push(MemoryPart {
                name: name.to_owned(),
                model: Some(held.model.to_owned()),
                bytes,
                phases: phases.to_vec(),
            });
        }
    };
    let all = &MemoryPhase::ALL;
    add("weights", count * width, true, all);
    add("fp32 master weights", count * 4, held.trained && width < 4, all);
    add("gradients", count * 4, held.trained, &all[1..]);
    add("optimizer moments", count * 8, held.trained, &all[1..]);
    add("frozen copy", count * width, held.frozen, &all[1..]);
    let own = held.engine.as_ref().is_some_and(|engine| engine.own_weights);
    add("engine's own weights", count * width, own, all);
    parts
}
