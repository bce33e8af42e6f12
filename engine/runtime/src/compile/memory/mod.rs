//! RL07: what workers hold in memory, part by part, against what there is. docs/memory.md has the formulas.

mod check;
mod levels;
mod needs;
mod parts;
mod stored;
mod table;

use super::Machine;
use super::config::{Accelerator, PoolConfig};
use super::data::Tally;
use super::pipeline::Pipeline;
pub use check::{check, check_on};
use needs::Held;
pub use needs::synced_every;
use parts::Sizes;
pub use stored::{Stored, stored};
pub use table::{ChosenActivations, MemoryDevice, MemoryPart, MemoryPhase, SmallCache, WorkerMemory};

/// What each worker holds. `outside`: the machine that is looked at, and models' folders with it; without one only what
/// the text says is known. `tallies`: of the data that was read, which says how long prompts and examples are.
pub fn worker_memory(pipeline: &Pipeline, outside: Option<&Machine>, tallies: &[Tally]) -> Vec<WorkerMemory> {
    let mut workers = Vec::new();
    for (name, models) in needs::of_pools(pipeline, outside.is_some(), tallies) {
        let Some(pool) = pipeline.pools.get(name).and_then(|pool| pool.config.as_ref()) else {
            continue;
        };
        let one = of_pool(pipeline, name, pool, &models, outside);
        for _ in 0..pool.workers() {
            workers.push(WorkerMemory {
                rank: workers.len() as u32,
                ..one.clone()
            });
        }
    }
    workers
}

/// What a worker of one pool holds, with `activations: auto` as there is room.
fn of_pool(
    pipeline: &Pipeline,
    name: &str,
    pool: &PoolConfig,
    models: &[Held<'_>],
    outside: Option<&Machine>,
) -> WorkerMemory {
    let mut models = models.to_vec();
    let activations = levels::choose(pipeline, &mut models, |models| held_in(name, pool, models, outside));
    WorkerMemory {
        activations,
        ..held_in(name, pool, &models, outside)
    }
}

/// What a worker of one pool holds.
fn held_in(name: &str, pool: &PoolConfig, models: &[Held<'_>], outside: Option<&Machine>) -> WorkerMemory {
    let mut not_checked = Vec::new();
    let device = device(pool, outside);
    if device.is_none() {
        not_checked.push(format!(
            "`accelerator: {}` depends on the machine; `memory_per_accelerator` says that it is to run on a card",
            pool.accelerator.name()
        ));
    }
    let in_doubt = device.is_none();
    let device = device.unwrap_or(MemoryDevice::Host);
    let available = available(pool, device, outside);
    let (mut parts, mut small_cache) = (vec![parts::of_process(device)], None);
    for held in models {
        match &held.network {
            Ok(network) if !in_doubt => {
                let sizes = Sizes::of(network, held.dtype, device);
                if sizes.has_unknown_attention() {
                    not_checked.push(format!(
                        "the model `{}`: what attention takes in float32 on a card with fewer key heads than query heads",
                        held.model
                    ));
                }
                let there = parts.iter().filter(|part| part.phases.contains(&MemoryPhase::Load));
                let taken = there.map(|part| part.bytes).sum();
                let (of_model, small) = parts::of_model(held, &sizes, taken, available);
                parts.extend(of_model);
                small_cache = small_cache.or(small);
            }
            Ok(_) => {}
            Err(why) => not_checked.push(format!("the model `{}`: {why}", held.model)),
        }
    }
    WorkerMemory {
        pool: name.to_owned(),
        rank: 0,
        device,
        available_bytes: available,
        parts,
        activations: Vec::new(),
        small_cache,
        not_checked,
    }
}

/// What a worker of a pool may take: as the pool says, or what the machine has for each.
fn available(pool: &PoolConfig, device: MemoryDevice, outside: Option<&Machine>) -> Option<u64> {
    let workers = u64::from(pool.workers_per_node.get());
    let (set, there) = match device {
        MemoryDevice::Accelerator => (
            pool.memory_per_accelerator,
            outside.and_then(|machine| machine.card_memory),
        ),
        MemoryDevice::Host => (
            pool.host_memory_per_worker,
            outside
                .and_then(|machine| machine.memory)
                .map(|all| rlpipe_core::kind::ByteSize(all.0 / workers)),
        ),
    };
    set.or(there).map(|size| size.0)
}

/// Where a pool computes; none where that depends on a machine that was not looked at.
fn device(pool: &PoolConfig, outside: Option<&Machine>) -> Option<MemoryDevice> {
    match (pool.accelerator, outside) {
        (Accelerator::Cuda, _) => Some(MemoryDevice::Accelerator),
        (Accelerator::Cpu | Accelerator::None, _) => Some(MemoryDevice::Host),
        (Accelerator::Auto, Some(machine)) if machine.nvidia_card => Some(MemoryDevice::Accelerator),
        (Accelerator::Auto, Some(_)) => Some(MemoryDevice::Host),
        (Accelerator::Auto, None) => pool.memory_per_accelerator.map(|_| MemoryDevice::Accelerator),
    }
}
